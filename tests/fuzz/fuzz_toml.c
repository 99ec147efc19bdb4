/* Any bytes as TOML: a tree or an error of one line. */
#include "fuzz.h"

#include "format/toml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dyti_toml root = {0};

    if (dyti_toml_parse((const char *)data, size, "f", &root) == DYT_OK) {
        dyti_toml_fini(&root);
    } else if (strchr(dyti_error_text(), '\n') != NULL) {
        abort();
    }
    return 0;
}
