/* The cuda device against its own memcpy, on one GPU: lists of boxes of many
 * shapes, and switches of four ranks.  Turns alternate; figures are medians.
 * GB/s: (bytes read + bytes written) / 2, for both sides alike. */
#include "gpu.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct bench bench;
    enum dyt_status st;

    if (!bench_open(&bench, "gpu", argc, argv)) {
        return bench.exit_code;
    }
    st = gpu_bench_switch(&bench);
    if (st == DYT_OK) {
        st = gpu_bench_pack(&bench);
    }
    if (st != DYT_OK) {
        (void)fprintf(stderr, "gpu: %s\n", dyti_error_text());
        (void)bench_close(&bench);
        return 1;
    }
    return bench_close(&bench);
}
