/* Bytes as a message between manager and workers: the envelope, and the payload
 * of every type.  What decodes must encode again. */
#include "fuzz.h"

#include "wire_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dyti_envelope e;

    (void)dyti_wire_envelope(data, size, &e);
    for (size_t i = 0; i < WIRE_CASE_COUNT; i++) {
        struct dyti_buffer again = {0};
        enum dyt_status st =
            wire_cases[i].again(&wire_envelope, data, size, &again);

        if (st != DYT_OK && st != DYT_ERR_FORMAT && st != DYT_ERR_NOMEM) {
            abort();
        }
        dyti_buffer_fini(&again);
    }
    return 0;
}
