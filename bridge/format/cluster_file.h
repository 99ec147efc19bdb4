/* Machines as people describe them: configs/clusters/NAME.toml;
 * docs/clusters.md has all keys.
 *
 *   name = "DGX H100"
 *   hosts = 16               # or a list: ranks of each host
 *   ranks_per_host = 8       # not with a list
 *   memory = "80GiB"         # of a rank's device
 *   nic_gigabytes_per_s      # all NICs of a host
 *   core_gigabytes_per_s     # through the middle of the fabric
 *   host_gigabytes_per_s     # all links inside a host
 *   cores_per_host = 2       # that work for the ranks
 *   source_gigabytes_per_s   # a core gets the source
 *   start_us = 200           # meeting and agreeing
 *   [self] [host] [nic]      # links of one rank
 *   gigabytes_per_s = 50.0   # decimal: 1e9 bytes
 *   latency_us = 12.0        # of a message
 *   message_us = 8.0         # what posting one costs
 *   half_duplex = false      # both directions share it
 *   box_ns = 20              # of a run of bytes
 *   convert_gigabytes_per_s  # into another dtype
 *
 * Threads: any. */
#ifndef DYTI_FORMAT_CLUSTER_FILE_H
#define DYTI_FORMAT_CLUSTER_FILE_H

#include "layout/cluster.h"

#include <stddef.h>

/* A cluster with its arrays. */
struct dyti_cluster_file {
    struct dyti_cluster cluster;
    uint32_t *host; /* what cluster.host points to */
    char *name;
};

/**
 * @return DYT_ERR_IO      the file cannot be read
 * @return DYT_ERR_CONFIG  names file, line, column, key and the nearest key
 */
enum dyt_status dyti_cluster_file_load(const char *path,
                                       struct dyti_cluster_file *out_file);
/* The same from a text; `name` is shown in messages. */
enum dyt_status dyti_cluster_file_parse(const char *text, size_t text_bytes,
                                        const char *name,
                                        struct dyti_cluster_file *out_file);
/* What is assumed where nobody named a file: hosts of 8 for so many ranks,
 * NVLink 200 GB/s, a NIC of 25 GB/s each way. */
enum dyt_status dyti_cluster_file_assume(uint32_t ranks,
                                         struct dyti_cluster_file *out_file);
/* The file at `path`, or, where that is NULL, what is assumed. */
enum dyt_status dyti_cluster_file_open(const char *path, uint32_t ranks,
                                       struct dyti_cluster_file *out_file);
/* Zeroed is fine, and what it leaves. */
void dyti_cluster_file_fini(struct dyti_cluster_file *file);

/**
 * A cluster for a world of `ranks`: the first hosts of `file`, as they are, or
 * cut in the last one.  *out_cluster borrows from the file.
 * @return DYT_ERR_CONFIG  it has fewer ranks: the text has both numbers
 */
enum dyt_status dyti_cluster_file_take(const struct dyti_cluster_file *file,
                                       uint32_t ranks,
                                       struct dyti_cluster *out_cluster);

#endif /* DYTI_FORMAT_CLUSTER_FILE_H */
