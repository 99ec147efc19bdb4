/* Any bytes as the manifest of a sharded directory: refused, or a world, kinds
 * and a spec that is a description (or refused too). */
#include "fuzz.h"

#include "format/shards.h"

static void read_spec(const char *text)
{
    struct dyti_layout_spec spec = {0};
    size_t length = strlen(text);
    char *line = NULL;

    if (length > 5 && strcmp(text + length - 5, ".toml") == 0) {
        return; /* a file: no line of a manifest is one */
    }
    if (dyti_layout_spec_read(text, &spec) != DYT_OK) {
        return;
    }
    if (spec.desc.world_size == 0 || spec.desc.tp == 0 || spec.desc.ep == 0 ||
        dyti_layout_spec_text(&spec.desc, &line) != DYT_OK) {
        abort();
    }
    free(line);
    dyti_layout_spec_fini(&spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dyti_shards_manifest m = {0};

    if (dyti_shards_manifest_parse("f", (const char *)data, size, &m) !=
        DYT_OK) {
        return 0;
    }
    if (m.world < 1 || m.kinds == 0 || m.spec == NULL ||
        (m.tensor_count > 0 && m.tensor[0].name == NULL)) {
        abort();
    }
    read_spec(m.spec);
    dyti_shards_manifest_fini(&m);
    return 0;
}
