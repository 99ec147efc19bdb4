/* What tests say to the simulated NCCL. */
#ifndef DYT_GPUSIM_NCCL_TEST_H
#define DYT_GPUSIM_NCCL_TEST_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What goes wrong; gpusim_reset() takes it all back. */
struct gpusim_nccl_faults {
    /* Who waits for a rank that has died or aborted gets an asynchronous error.
     * Off, as inside a host: nobody is told, and work waits for ever. */
    bool tells_deaths;
    uint32_t fail_launch; /* the how-manieth launch from now gets an internal
                             error; 0: none */
    bool fail_init;       /* communicators end with a system error */
    bool fail_id;         /* no unique id */
    bool fail_register;
};
void gpusim_nccl_set_faults(const struct gpusim_nccl_faults *faults);

/* Since the last reset, of this process. */
struct gpusim_nccl_counts {
    uint64_t inits, splits, launches, sends, broadcasts, all_gathers,
        all_reduces, reduce_scatters, reduces, registers;
    uint64_t registered; /* buffers now, of each communicator */
    uint64_t live;       /* communicators now */
};
void gpusim_nccl_get_counts(struct gpusim_nccl_counts *out_counts);

#ifdef __cplusplus
}
#endif

#endif /* DYT_GPUSIM_NCCL_TEST_H */
