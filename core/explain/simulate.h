/* What a schedule would cost on a cluster: a discrete-event model of its
 * pieces, collectives and local copies.
 * in: pieces (sched/strategy.h), collectives (sched/promote.h), a cluster
 * out: seconds, what holds them up, a Gantt chart of links, memory over time
 *
 * The model: a message costs its sender message_s, then flows at its link's
 * speed (less where a host's NICs, the core or a half-duplex link are shared),
 * and is there latency_s after its last byte left.  A rank sends one message of
 * a link class at a time and receives one; host links, NICs and its own memory
 * work side by side.  Staging: a piece takes memory at its sender from when it
 * starts until it has left, and at its receiver until it has arrived; pieces
 * that pass through a rank stay there until they have left again.
 * A rank's memory is busy with what it keeps (copied), sends (read) and
 * receives (written), beside its links.  Where a host has cores
 * (cluster.host_cores) those do it, and what messages and boxes cost at both
 * ends: a rank is one thread, and all of a host together have no more than its
 * cores.  Meeting and agreeing (cluster.start_s) comes on top of all.
 * Collectives are pieces too: a
 * broadcast is a ring, in chunks, through the members ordered by host; an
 * all-gather is a ring; scatter and gather are messages of the root.
 *
 * Simulated figures and measured ones never share a column. */
#ifndef DYTI_EXPLAIN_SIMULATE_H
#define DYTI_EXPLAIN_SIMULATE_H

#include "sched/certificate.h"
#include "sched/promote.h"
#include "sched/strategy.h"

/* What cores do besides moving bytes, of one rank. */
struct dyti_rank_boxes {
    /* Runs of bytes that lie together at both ends. */
    uint64_t sent, received, kept;
    /* Bytes, in the destination's dtype, that change theirs here. */
    uint64_t converted_to_send, converted_received, converted_kept;
    uint64_t source_bytes; /* read here, each once */
};

/* Zeroed members: nothing of it.  Arrays are borrowed. */
struct dyti_simulate_inputs {
    const struct dyti_cluster *cluster;
    const struct dyti_pieces *pieces; /* NULL: none */
    /* Pieces from fence[k] on start after all before have arrived: waves of
     * staging memory.  Rising. */
    const size_t *fence;
    size_t fence_count;
    const struct dyti_promotion *promotion; /* its collectives, … */
    uint64_t collective_chunk_bytes; /* … cut so; 0: 1/16 of each part */
    const uint64_t *keep_bytes;      /* [rank_count] copied inside the rank */
    /* [rank_count] bytes that are read there over those that are written: of
     * what narrows on its way.  NULL: as many. */
    const int64_t *reads_more;
    const struct dyti_rank_boxes *boxes; /* [rank_count]; NULL: none */
    const uint64_t *resident_bytes; /* [rank_count] that are there all along */
    /* Buckets of the memory series of each rank; 0: none is kept. */
    uint32_t memory_buckets;
    bool gantt; /* keep the bars */
};

/* One message, or a run of them to the same peer without a pause. */
struct dyti_bar {
    uint32_t rank, peer;
    uint8_t link;   /* enum dyti_link_class */
    bool receiving; /* rank's receiving side */
    double start_s, end_s;
    uint64_t bytes;
};

/* What most of the time went to. */
enum dyti_bottleneck {
    DYTI_BOTTLENECK_NONE,     /* nothing moves */
    DYTI_BOTTLENECK_BYTES,    /* the busiest link's bytes: `busiest` */
    DYTI_BOTTLENECK_MESSAGES, /* posting of one rank's messages, latencies */
    DYTI_BOTTLENECK_WAITING,  /* ends that wait for each other */
    DYTI_BOTTLENECK_COPIES,   /* one rank's copies inside its memory */
    DYTI_BOTTLENECK_CORES     /* the work of one host's cores */
};

struct dyti_simulation {
    double seconds;
    enum dyti_bottleneck bottleneck;
    struct dyti_busiest busiest; /* of all that moves, detours included */
    uint32_t at;                 /* MESSAGES, WAITING, COPIES: the rank that is
                                    done last; CORES: the host */
    char text[352];   /* "NIC of rank 17, sending: 12.1 s of 12.4 s", … */
    double message_s; /* posting and latency of the busiest rank in all */
    uint64_t bytes[DYTI_LINK_CLASS_COUNT];    /* moved, detours included */
    uint64_t messages[DYTI_LINK_CLASS_COUNT]; /* pieces, rings' steps */
    uint64_t *peak_staging; /* [rank_count] bytes; owned, as all below */
    uint64_t staging_most;  /* the largest of them */
    double *done_s;         /* [rank_count] when the rank's last piece ends */
    struct dyti_bar *bar;   /* [bar_count], by rank, link, receiving, start */
    size_t bar_count;
    /* [rank_count][memory_buckets] most bytes (resident and staging) in each
     * equal part of the time. */
    uint64_t *memory;
    uint32_t rank_count, memory_buckets;
};

/**
 * Run the model.  Pure, O(n log n) in pieces where no link is shared.
 * @return DYT_ERR_INVALID  pieces that are none: sched/certificate.h says what
 *                          they must be; a link without a speed
 * @return DYT_ERR_OVERFLOW, DYT_ERR_NOMEM
 */
enum dyt_status dyti_simulate(const struct dyti_simulate_inputs *in,
                              struct dyti_simulation *out_simulation);
void dyti_simulation_fini(
    struct dyti_simulation *simulation); /* zeroed: fine */

#endif /* DYTI_EXPLAIN_SIMULATE_H */
