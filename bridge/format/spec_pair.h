/* Two layouts of one model on one cluster, as people describe them: what a
 * price and a benchmark of switches begin with.
 * in: arch, two specs, a cluster's file   out: layouts for core/plan
 * Threads: any. */
#ifndef DYTI_FORMAT_SPEC_PAIR_H
#define DYTI_FORMAT_SPEC_PAIR_H

#include "format/cluster_file.h"
#include "format/layout_spec.h"
#include "vps/arch.h"

#define DYTI_SPEC_PAIR_RANKS 16384u /* every pair of them may have to talk */

struct dyti_spec_pair_params {
    const struct dyti_arch *arch;
    const char *from, *to;           /* what dyti_layout_spec_read() takes */
    const char *from_name, *to_name; /* for messages: "--from" */
    const char *cluster; /* file; NULL: hosts of 8, NVLink 200 GB/s, a NIC of 25
                            GB/s each way */
    bool as_large; /* as many hosts like the file's first as the world needs */
};

/* All of it is the pair's own. */
struct dyti_spec_pair {
    struct dyti_layout_spec from, to;
    struct dyti_model *model;
    struct dyti_layout *src, *dst; /* lazy, of one world: the larger */
    struct dyti_cluster cluster;   /* for that world */
    struct dyti_cluster_file file;
    uint32_t *host; /* of a cluster larger than its file */
};

/**
 * @return DYT_ERR_CONFIG  a spec says hosts, or needs more ranks than there are
 *         what reading specs and clusters, and building layouts, return
 */
enum dyt_status dyti_spec_pair_open(const struct dyti_spec_pair_params *params,
                                    struct dyti_spec_pair *out_pair);

/* Zeroed is fine, and what it leaves. */
void dyti_spec_pair_fini(struct dyti_spec_pair *pair);

#endif /* DYTI_FORMAT_SPEC_PAIR_H */
