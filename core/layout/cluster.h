/* The machine that a layout lies on: hosts, and how fast bytes go between
 * ranks.
 * in: TOML files of configs/clusters (bridge/format), or one host by default
 * out: plan (which source is near), sched (which links may work together),
 *      explain (the simulator) */
#ifndef DYTI_LAYOUT_CLUSTER_H
#define DYTI_LAYOUT_CLUSTER_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* What the bytes between two ranks go through. */
enum dyti_link_class {
    DYTI_LINK_SELF, /* same rank: its own memory */
    DYTI_LINK_HOST, /* same host: NVLink, PCIe or shared memory */
    DYTI_LINK_NIC,  /* between hosts */
    DYTI_LINK_CLASS_COUNT
};

struct dyti_link_speed {
    double bytes_per_s; /* of one rank, each direction; SELF: of a copy */
    double latency_s;   /* of one message */
    double message_s;   /* what posting a message costs its sender */
    bool half_duplex;   /* both directions share bytes_per_s */
    double box_s; /* of a run of bytes that lie together at both ends; where
                     cores do the work, else nothing */
    double convert_bytes_per_s; /* likewise: of bytes that change their dtype,
                                   as bytes_per_s; 0: as fast as others */
};

/* Plain value; arrays are borrowed. */
struct dyti_cluster {
    const char *name;
    uint32_t rank_count, host_count;
    const uint32_t *host; /* [rank_count] */
    struct dyti_link_speed link[DYTI_LINK_CLASS_COUNT];
    double host_nic_bytes_per_s; /* all NICs of a host together, each direction;
                                    0 = ranks of the host * link[NIC] */
    double core_bytes_per_s;     /* cut through the middle of the fabric, each
                                    direction; 0 = not oversubscribed */
    uint64_t rank_memory_bytes;  /* of a rank's device; 0 = not stated */
    double host_bytes_per_s;     /* all HOST links of a host together (ranks
                                    that share cores and memory); 0 = each its
                                    own */
    /* Cores of a host that do the work of its ranks, each of which is a thread:
     * what is kept is copied at SELF's speed, what goes is packed and what
     * comes is unpacked at the speed of its link (message_s and box_s at both
     * ends).  0: nothing waits for a core. */
    uint32_t host_cores;
    double source_bytes_per_s; /* likewise: at which a core gets bytes of the
                                  source from memory, each once however often
                                  it goes somewhere; 0: nothing on top */
    double start_s; /* until all ranks have met, and agreed at the end */
};

static inline enum dyti_link_class dyti_cluster_link(
    const struct dyti_cluster *c, uint32_t a, uint32_t b)
{
    return a == b                     ? DYTI_LINK_SELF
           : c->host[a] == c->host[b] ? DYTI_LINK_HOST
                                      : DYTI_LINK_NIC;
}

#endif /* DYTI_LAYOUT_CLUSTER_H */
