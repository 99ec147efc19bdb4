/* Costs of this machine from switches that were measured: the non-negative
 * costs whose sums come nearest (least squares of the relative errors). */
#ifndef DYT_BENCH_CALIBRATE_H
#define DYT_BENCH_CALIBRATE_H

#include "switches.h"

enum cost {
    COST_START,   /* s: of a switch */
    COST_SOURCE,  /* s: of a byte of the source, once */
    COST_BYTE,    /* s: of a byte packed, unpacked or copied */
    COST_BOX,     /* s: of a run of bytes */
    COST_MESSAGE, /* s: at one end */
    COST_CONVERT, /* s: of a converted byte, on top */
    COST_COUNT
};

/* Fills what `out_cluster` says of links, cores and start; the rest is as it
 * is.  host_cores is set already. */
void calibrate(const struct real_switch *s, uint32_t count,
               struct dyti_cluster *out_cluster);

#endif /* DYT_BENCH_CALIBRATE_H */
