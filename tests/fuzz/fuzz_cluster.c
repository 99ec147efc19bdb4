/* Any bytes as a cluster file: a cluster that holds together, or an error of
 * one line. */
#include "fuzz.h"

#include "format/cluster_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dyti_cluster_file f = {0};

    if (dyti_cluster_file_parse((const char *)data, size, "f", &f) == DYT_OK) {
        for (uint32_t r = 0; r < f.cluster.rank_count; r++) {
            if (f.cluster.host[r] >= f.cluster.host_count) {
                abort();
            }
        }
        dyti_cluster_file_fini(&f);
    } else if (strchr(dyti_error_text(), '\n') != NULL) {
        abort();
    }
    return 0;
}
