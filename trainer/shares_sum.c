/* The sums themselves: chunk by chunk, every holder sends its part to all the
 * others and adds up in member order. */
#include "trainer/shares.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK ((uint64_t)1 << 20) /* elements; the same on all ranks */

static uint64_t chunk_elements(const struct dyti_share_set *set)
{
    return set->elements < CHUNK ? set->elements : CHUNK;
}

uint64_t dyti_shares_bytes(const struct dyti_shares *shares)
{
    uint64_t most = 0;

    for (size_t i = 0; i < shares->set_count; i++) {
        const struct dyti_share_set *set = &shares->set[i];
        uint64_t parts = set->is_tp ? 1 : set->holder_count;
        uint64_t bytes = parts * chunk_elements(set) * sizeof(float);

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Copy elements [at, at + count) of the set between gradient and `flat`. */
static void copy_chunk(const struct dyti_share_set *set, float *grad,
                       uint64_t at, uint64_t count, float *flat, bool out)
{
    for (size_t i = 0; i < set->range_count && count > 0; i++) {
        uint64_t length = set->range[i].hi - set->range[i].lo, some;
        float *here = grad + set->range[i].lo + at;

        if (at >= length) {
            at -= length;
            continue;
        }
        some = length - at < count ? length - at : count;
        memcpy(out ? flat : here, out ? here : flat, some * sizeof(*flat));
        flat += some;
        count -= some;
        at = 0;
    }
}

/* part(i): where holder i's numbers lie in scratch. */
static float *part(const struct dyti_share_sum *s, uint64_t stride, uint32_t i)
{
    return s->scratch + stride * i;
}

static enum dyt_status exchange(const struct dyti_share_sum *s,
                                const struct dyti_share_set *set,
                                uint64_t count, struct dyti_p2p *message)
{
    size_t messages = 0;

    for (uint32_t i = 0; i < set->holder_count; i++) {
        for (int send = 0; send < 2 && i != set->own; send++) {
            message[messages++] =
                (struct dyti_p2p){.peer = set->holder[i],
                                  .is_send = send != 0,
                                  .buf = part(s, count, send ? set->own : i),
                                  .size_bytes = count * sizeof(float)};
        }
    }
    return s->all.ops->exchange(s->all.self, message, messages);
}

/* The sum of all parts ends in part 0. */
static enum dyt_status add_up(const struct dyti_share_sum *s,
                              const struct dyti_share_set *set, uint64_t count)
{
    const struct dyti_kernel_ops *ops = s->kernels.ops;
    enum dyt_status st = DYT_OK;

    if (s->double_first) {
        st = ops->scale(s->kernels.self, part(s, count, 0), (int64_t)count, 2);
    }
    for (uint32_t i = 1; i < set->holder_count && st == DYT_OK; i++) {
        st = ops->add(s->kernels.self, part(s, count, 0), part(s, count, i),
                      (int64_t)count);
    }
    return st;
}

static enum dyt_status sum_chunk(const struct dyti_share_sum *s,
                                 const struct dyti_share_set *set, uint64_t at,
                                 uint64_t count, struct dyti_p2p *message)
{
    float *own = part(s, count, set->is_tp ? 0 : set->own);
    enum dyt_status st = DYT_OK;

    copy_chunk(set, s->grad, at, count, own, true);
    if (!set->is_tp) {
        st = exchange(s, set, count, message);
        st = st != DYT_OK ? st : add_up(s, set, count);
    } else {
        if (s->double_first && set->own == 0) {
            st = s->kernels.ops->scale(s->kernels.self, own, (int64_t)count, 2);
        }
        if (st == DYT_OK) {
            st = s->tp.ops->all_reduce(s->tp.self, own, count, DYTI_SUM_F32);
        }
    }
    if (st == DYT_OK) {
        copy_chunk(set, s->grad, at, count, s->scratch, false);
    }
    return st;
}

enum dyt_status dyti_shares_sum(const struct dyti_share_sum *sum)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < sum->shares->set_count && st == DYT_OK; i++) {
        const struct dyti_share_set *set = &sum->shares->set[i];
        struct dyti_p2p *message =
            malloc(2 * set->holder_count * sizeof(*message));
        uint64_t step = chunk_elements(set), at;

        if (message == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%u messages", set->holder_count);
        }
        for (at = 0; at < set->elements && st == DYT_OK; at += step) {
            uint64_t left = set->elements - at;

            st = sum_chunk(sum, set, at, left < step ? left : step, message);
        }
        free(message);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("summing gradients that several ranks hold parts of");
    }
    return st;
}
