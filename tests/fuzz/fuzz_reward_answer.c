/* Any bytes as a reward command's answer to three samples. */
#include "fuzz.h"

#include "reward/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dyti_reward_reply reply[3];

    if (dyti_reward_answer((const char *)data, size, 3, reply) == DYT_OK) {
        for (size_t i = 0; i < 3; i++) {
            dyti_reward_reply_fini(&reply[i]);
        }
    } else if (strchr(dyti_error_text(), '\n') != NULL) {
        abort();
    }
    return 0;
}
