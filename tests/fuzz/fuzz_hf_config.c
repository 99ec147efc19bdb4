/* Any bytes as config.json: refused, or sizes that a catalogue can be built of
 * (or refuses too). */
#include "fuzz.h"

#include "format/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dyti_arch arch;

    if (dyti_hf_config_parse("f", (const char *)data, size, &arch) != DYT_OK) {
        return 0;
    }
    if (arch.vocab < 1 || arch.hidden < 1 || arch.layers < 1 ||
        arch.kv_heads < 1 || arch.q_heads % arch.kv_heads != 0 ||
        arch.head_dim < 2 || arch.head_dim % 2 != 0 || arch.ffn < 1 ||
        arch.max_positions < 1 || !(arch.rope.theta > 0)) {
        abort();
    }
    return 0;
}
