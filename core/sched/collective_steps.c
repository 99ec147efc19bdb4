/* Steps of this rank's part in collectives: for each chunk what it sends is
 * packed, all its messages go and come at once, what has come is unpacked. */
#include "base/array.h"
#include "sched/messages.h"

#include <stdlib.h>
#include <string.h>

/* One chunk of one collective, as this rank builds it. */
struct chunk {
    struct dyti_message_order *order;
    struct dyti_sched_builder *b;
    const struct dyti_collective *c;
    const uint32_t *member;
    uint64_t lo, hi;
    uint32_t step;                   /* the COLLECTIVE, when it is there */
    uint32_t part_first;             /* its messages */
    uint32_t before[DYTI_SLOTS_MAX]; /* steps that it waits for */
    uint32_t slot[DYTI_SLOTS_MAX];   /* of each message */
    uint32_t before_count, part_count;
};

static enum dyt_status add_part(struct chunk *k, uint32_t peer, bool is_send,
                                uint32_t slot)
{
    struct dyti_schedule *s = k->b->schedule;
    enum dyt_status st = DYTI_GROW(s->part, k->b->part_cap, s->part_count + 1u);

    if (st == DYT_OK) {
        k->slot[k->part_count++] = slot;
        s->part[s->part_count++] = (struct dyti_fused_message){
            .peer = peer,
            .is_send = is_send,
            .staging_offset = dyti_message_slot_offset(k->order, s, slot),
            .link_next = DYTI_NO_STEP};
        s->message_count += is_send;
    }
    return st;
}

static struct dyti_step form_of(const struct chunk *k, enum dyti_step_kind kind,
                                uint32_t src, uint32_t dst, uint32_t slot)
{
    return (struct dyti_step){.kind = (uint8_t)kind,
                              .round = k->order->collective_number,
                              .src_rank = src,
                              .dst_rank = dst,
                              .staging_offset = dyti_message_slot_offset(
                                  k->order, k->b->schedule, slot),
                              .stream = DYTI_NO_STREAM,
                              .lo = k->lo,
                              .hi = k->hi,
                              .link_next = DYTI_NO_STEP};
}

/* What goes from this rank to `dst`, into a slot of its own. */
static enum dyt_status add_pack(struct chunk *k, uint32_t dst,
                                uint32_t *out_slot)
{
    uint32_t rank = k->b->schedule->rank, pack = 0;
    uint32_t slot = dyti_message_take_slot(k->order);
    struct dyti_step step = form_of(k, DYTI_STEP_PACK, rank, dst, slot);
    enum dyt_status st =
        dyti_message_stream(k->b, rank, dst, k->c->wave, &step.stream);

    if (st != DYT_OK) {
        return st;
    }
    step.side = DYTI_SIDE_PUSH;
    dyti_message_count_bytes(k->b, &step);
    st = dyti_sched_add_step(k->b, &step, &pack);
    st = st != DYT_OK
             ? st
             : dyti_sched_add_edge(k->b, k->order->slot[slot].last, pack);
    k->before[k->before_count++] = pack;
    *out_slot = slot;
    return st;
}

static enum dyt_status add_receive(struct chunk *k, uint32_t src)
{
    uint32_t slot = dyti_message_take_slot(k->order);

    if (k->order->slot[slot].last != DYTI_NO_STEP) {
        k->before[k->before_count++] = k->order->slot[slot].last;
    }
    return add_part(k, src, false, slot);
}

/* The same to all others. */
static enum dyt_status add_spread(struct chunk *k)
{
    uint32_t rank = k->b->schedule->rank, slot = 0;
    uint32_t first = k->member[0] == rank ? k->member[1] : k->member[0];
    enum dyt_status st = add_pack(k, first, &slot);

    for (uint32_t m = 0; m < k->c->member_count && st == DYT_OK; m++) {
        if (k->member[m] != rank) {
            st = add_part(k, k->member[m], true, slot);
        }
    }
    return st;
}

static enum dyt_status add_sends(struct chunk *k, uint32_t dst)
{
    uint32_t slot = 0;
    enum dyt_status st = add_pack(k, dst, &slot);

    return st != DYT_OK ? st : add_part(k, dst, true, slot);
}

/* What a member sends and receives. */
static enum dyt_status add_messages(struct chunk *k)
{
    uint32_t rank = k->b->schedule->rank;
    bool all = k->c->kind == DYTI_COLLECTIVE_ALL_GATHER;
    bool is_root = k->c->root == rank;
    enum dyt_status st = DYT_OK;

    if (all || (is_root && k->c->kind == DYTI_COLLECTIVE_BROADCAST)) {
        st = add_spread(k);
    }
    for (uint32_t m = 0; m < k->c->member_count && st == DYT_OK; m++) {
        uint32_t peer = k->member[m];

        if (peer == rank || (!all && !is_root && peer != k->c->root)) {
            continue;
        }
        if (all || is_root == (k->c->kind == DYTI_COLLECTIVE_GATHER)) {
            st = add_receive(k, peer);
        } else if (k->c->kind != DYTI_COLLECTIVE_BROADCAST) {
            st = add_sends(k, peer);
        }
    }
    return st;
}

static enum dyt_status add_collective(struct chunk *k)
{
    struct dyti_schedule *s = k->b->schedule;
    struct dyti_step step =
        form_of(k, DYTI_STEP_COLLECTIVE, k->c->root, s->rank, k->slot[0]);
    enum dyt_status st;

    step.collective = k->c->kind;
    step.member_first = k->c->member_first;
    step.member_count = k->c->member_count;
    step.part_first = k->part_first;
    step.part_count = k->part_count;
    st = dyti_sched_add_step(k->b, &step, &k->step);
    for (uint32_t i = 0; i < k->before_count && st == DYT_OK; i++) {
        st = dyti_sched_add_edge(k->b, k->before[i], k->step);
    }
    for (uint32_t i = 0; i < k->part_count && st == DYT_OK; i++) {
        const struct dyti_fused_message *part = &s->part[k->part_first + i];

        dyti_message_link(
            k->order, s,
            part->is_send ? part->peer : s->world_size + part->peer, k->step);
        k->order->slot[k->slot[i]].last = k->step;
    }
    return st;
}

static enum dyt_status add_unpacks(struct chunk *k)
{
    struct dyti_schedule *s = k->b->schedule;
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < k->part_count && st == DYT_OK; i++) {
        const struct dyti_fused_message part = s->part[k->part_first + i];
        struct dyti_step step =
            form_of(k, DYTI_STEP_UNPACK, part.peer, s->rank, k->slot[i]);

        if (part.is_send) {
            continue;
        }
        step.side = DYTI_SIDE_PULL;
        st = dyti_message_stream(k->b, part.peer, s->rank, k->c->wave,
                                 &step.stream);
        if (st == DYT_OK) {
            dyti_message_count_bytes(k->b, &step);
            st = dyti_sched_add_step(k->b, &step,
                                     &k->order->slot[k->slot[i]].last);
        }
        st = st != DYT_OK ? st
                          : dyti_sched_add_edge(
                                k->b, k->step, k->order->slot[k->slot[i]].last);
    }
    return st;
}

static enum dyt_status add_chunk(struct chunk *k)
{
    uint32_t rank = k->b->schedule->rank;
    bool member = false;
    enum dyt_status st;

    for (uint32_t m = 0; m < k->c->member_count; m++) {
        member |= k->member[m] == rank;
    }
    if (!member) {
        return DYT_OK;
    }
    k->part_first = k->b->schedule->part_count;
    st = add_messages(k);
    st = st != DYT_OK ? st : add_collective(k);
    return st != DYT_OK ? st : add_unpacks(k);
}

/* Who takes part, of all of them: steps refer to it. */
static enum dyt_status keep_members(struct dyti_schedule *s,
                                    const struct dyti_promotion *found)
{
    if (s->member != NULL || found->member_total == 0) {
        return DYT_OK;
    }
    s->member = malloc(found->member_total * sizeof(*s->member));
    if (s->member == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u members of collectives",
                         found->member_total);
    }
    memcpy(s->member, found->member, found->member_total * sizeof(*s->member));
    s->member_total = found->member_total;
    return DYT_OK;
}

/* The first chunk of each, then the second, …: all ranks count the same. */
enum dyt_status dyti_message_collectives(struct dyti_message_order *order,
                                         struct dyti_sched_builder *b,
                                         uint32_t wave)
{
    const struct dyti_promotion *found =
        order->collectives == NULL ? NULL : &order->collectives->found;
    bool more = found != NULL;
    enum dyt_status st = more ? keep_members(b->schedule, found) : DYT_OK;

    for (uint64_t lo = 0; more && st == DYT_OK; lo += order->message_bytes) {
        more = false;
        for (size_t i = 0; i < found->count && st == DYT_OK; i++) {
            const struct dyti_collective *c = &found->collective[i];
            uint64_t left = c->bytes > lo ? c->bytes - lo : 0;
            struct chunk k = {.order = order,
                              .b = b,
                              .c = c,
                              .member = found->member + c->member_first,
                              .lo = lo};

            if (c->wave != wave || left == 0) {
                continue;
            }
            k.hi = lo +
                   (left < order->message_bytes ? left : order->message_bytes);
            more |= left > order->message_bytes;
            st = add_chunk(&k);
            order->collective_number++;
        }
    }
    return st;
}
