/* How long do all messages of a world take, with and without collectives?
 * Lays them out in the order in which they start, and has them played. */
#include "base/array.h"
#include "sched/messages.h"
#include "sched/replay.h"

#include <stdlib.h>

/* Messages of the world, in the order in which they start. */
struct line {
    struct dyti_piece *piece; /* [count], owned */
    size_t count, cap;
    size_t *fence; /* [fence_count] where a wave begins, owned */
    size_t fence_count, fence_cap;
};

static void line_fini(struct line *line)
{
    free(line->piece);
    free(line->fence);
}

static enum dyt_status add_message(struct line *line,
                                   const struct dyti_collective *c,
                                   uint32_t src, uint32_t dst, uint64_t lo,
                                   uint64_t hi)
{
    enum dyt_status st = DYTI_GROW(line->piece, line->cap, line->count + 1);

    if (st == DYT_OK) {
        line->piece[line->count++] = (struct dyti_piece){.src = src,
                                                         .dst = dst,
                                                         .from = src,
                                                         .to = dst,
                                                         .wave = c->wave,
                                                         .lo = lo,
                                                         .hi = hi};
    }
    return st;
}

/* A chunk: each in turn to its neighbour, then to the one after, …; so that an
 * all-gather is a matching in each step. */
static enum dyt_status add_chunk(struct line *line,
                                 const struct dyti_collective *c,
                                 const uint32_t *member, uint64_t lo,
                                 uint64_t hi)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t step = 1; step < c->member_count; step++) {
        for (uint32_t m = 0; m < c->member_count && st == DYT_OK; m++) {
            uint32_t src = member[m];
            uint32_t dst = member[(m + step) % c->member_count];
            bool sends =
                c->kind == DYTI_COLLECTIVE_ALL_GATHER ||
                (c->kind == DYTI_COLLECTIVE_GATHER ? dst : src) == c->root;

            st = sends ? add_message(line, c, src, dst, lo, hi) : st;
        }
    }
    return st;
}

/* In the order of collective_steps.c. */
static enum dyt_status add_collectives(struct line *line,
                                       const struct dyti_promotion *found,
                                       uint32_t wave, uint64_t message)
{
    bool more = true;
    enum dyt_status st = DYT_OK;

    for (uint64_t lo = 0; more && st == DYT_OK; lo += message) {
        more = false;
        for (size_t i = 0; i < found->count && st == DYT_OK; i++) {
            const struct dyti_collective *c = &found->collective[i];
            uint64_t left = c->bytes > lo ? c->bytes - lo : 0;

            if (c->wave == wave && left > 0) {
                st = add_chunk(line, c, found->member + c->member_first, lo,
                               lo + (left < message ? left : message));
                more |= left > message;
            }
        }
    }
    return st;
}

enum dyt_status dyti_collective_trial_seconds(
    const struct dyti_collective_trial *t, const struct dyti_collectives *all,
    double *out_s)
{
    struct dyti_message_order order = {.message_bytes = t->message_bytes,
                                       .slot_count = t->slot_count,
                                       .chains = t->chains,
                                       .collectives = all};
    struct dyti_replay_options options = {.costs = true};
    struct dyti_cluster cluster;
    struct line line = {0};
    size_t next = 0;
    enum dyt_status st =
        dyti_message_cluster(t->links, t->world_size, &cluster);

    st = st != DYT_OK
             ? st
             : dyti_message_order_pieces(&order, t->world_size, t->links,
                                         t->flow, NULL, t->flow_count);
    for (uint32_t w = 0; w < t->wave_count && st == DYT_OK; w++) {
        st = DYTI_GROW(line.fence, line.fence_cap, line.fence_count + 1);
        if (st == DYT_OK && w > 0) {
            line.fence[line.fence_count++] = line.count;
        }
        st = st != DYT_OK
                 ? st
                 : add_collectives(&line, &all->found, w, t->message_bytes);
        for (; st == DYT_OK && next < order.piece_count &&
               order.piece[next].wave == w;
             next++) {
            st = DYTI_GROW(line.piece, line.cap, line.count + 1);
            if (st == DYT_OK) {
                line.piece[line.count++] = order.piece[next];
            }
        }
    }
    options.fence = line.fence;
    options.fence_count = line.fence_count;
    *out_s = 0;
    if (st == DYT_OK && line.count > 0) {
        st = dyti_replay(&cluster, line.piece, line.count, &options, out_s);
    }
    free(order.piece);
    line_fini(&line);
    return st;
}

enum dyt_status dyti_collective_trial_init(
    struct dyti_collective_trial *t, uint32_t world_size,
    const struct dyti_schedule_links *links, const struct dyti_flow *flow,
    size_t flow_count, const struct dyti_chains *chains)
{
    *t = (struct dyti_collective_trial){.links = links,
                                        .flow = flow,
                                        .flow_count = flow_count,
                                        .chains = chains,
                                        .world_size = world_size,
                                        .wave_count = 1};
    for (size_t i = 0; i < flow_count; i++) {
        t->wave_count =
            flow[i].wave >= t->wave_count ? flow[i].wave + 1 : t->wave_count;
    }
    return dyti_message_slots(links, &t->message_bytes, &t->slot_count);
}

enum dyt_status dyti_collectives_seconds(
    const struct dyti_plan *plan, const struct dyti_schedule_links *links,
    const struct dyti_flow *flow, size_t flow_count,
    const struct dyti_chains *chains,
    const struct dyti_collectives *collectives, double *out_seconds)
{
    const struct dyti_collectives none = {0};
    struct dyti_collective_trial t;
    enum dyt_status st = dyti_collective_trial_init(&t, plan->world_size, links,
                                                    flow, flow_count, chains);

    return st != DYT_OK ? st
                        : dyti_collective_trial_seconds(
                              &t, collectives == NULL ? &none : collectives,
                              out_seconds);
}
