/* Micro-batches: sequences packed one after another, without padding. */
#include "trainer/batch.h"

#include "base/array.h"
#include "trainer/pack.h"

#include <string.h>

/* Numbers, rows and micro-batch of the sequences of this rank: three slices of
 * set->list, [count] each. */
struct own {
    uint32_t *number, *rows, *micro;
    uint32_t count;
    uint64_t row_count, token_count;
};

static enum dyt_status find_own(struct dyti_micro_set *set,
                                const struct dyti_train_batch *tb,
                                uint32_t owner, uint32_t mini_lo,
                                uint32_t mini_hi, struct own *own)
{
    size_t lo = (size_t)mini_lo * tb->mini, hi = (size_t)mini_hi * tb->mini;
    enum dyt_status st;

    /* A fourth slice is for the sequence lists of the micro-batches. */
    st = DYTI_GROW(set->list, set->list_cap, 4 * (hi - lo));
    if (st != DYT_OK) {
        return st;
    }
    *own = (struct own){.number = set->list,
                        .rows = set->list + (hi - lo),
                        .micro = set->list + 2 * (hi - lo)};
    for (size_t i = lo; i < hi; i++) {
        const struct dyti_sequence *s = &tb->sequence[i];

        if (s->keep && s->owner == owner) {
            own->number[own->count] = (uint32_t)i;
            own->rows[own->count++] = s->rows;
            own->row_count += s->rows;
            own->token_count += s->sample->count;
        }
    }
    return DYT_OK;
}

/* Where the next arrays start. */
struct cursor {
    int32_t *ints;
    uint32_t *list;
};

static void add_sequence(struct dyti_micro *m, const struct dyti_sequence *s,
                         int32_t *ids, int32_t *position, int32_t *head_row,
                         int32_t *target)
{
    int64_t row = m->nn.packed.row_count;
    uint32_t p = s->prompt_count, n = s->sample->count;

    memcpy(ids + row, s->prompt, p * sizeof(*ids));
    memcpy(ids + row + p, s->sample->ids, (n - 1) * sizeof(*ids));
    for (uint32_t i = 0; i < s->rows; i++) {
        position[row + i] = (int32_t)i;
    }
    for (uint32_t t = 0; t < n; t++) {
        head_row[m->target_count + t] = (int32_t)(row + p - 1 + t);
        target[m->target_count + t] = s->sample->ids[t];
    }
    m->target_count += n;
    m->nn.packed.row_count += s->rows;
}

static void fill_micro(struct dyti_micro *m, const struct dyti_train_batch *tb,
                       const struct own *own, uint32_t number,
                       struct cursor *at)
{
    int64_t rows = 0, tokens = 0, count = 0;
    int32_t *ids, *position, *first, *head_row, *target;

    for (uint32_t i = 0; i < own->count; i++) {
        if (own->micro[i] == number) {
            at->list[count++] = own->number[i];
            rows += own->rows[i];
            tokens += tb->sequence[own->number[i]].sample->count;
        }
    }
    ids = at->ints;
    position = ids + rows;
    head_row = position + rows;
    target = head_row + tokens;
    first = target + tokens;
    at->ints = first + count + 1;

    memset(m, 0, sizeof(*m));
    m->sequence = at->list;
    m->head_row = head_row;
    m->target = target;
    m->nn.ids = ids;
    m->nn.position = position;
    m->nn.packed.first = first;
    m->nn.packed.sequence_count = count;
    for (int64_t i = 0; i < count; i++) {
        first[i] = (int32_t)m->nn.packed.row_count;
        add_sequence(m, &tb->sequence[m->sequence[i]], ids, position, head_row,
                     target);
    }
    first[count] = (int32_t)m->nn.packed.row_count;
    at->list += count;
}

enum dyt_status dyti_micro_set_build(struct dyti_micro_set *set,
                                     const struct dyti_train_batch *tb,
                                     uint32_t owner, uint32_t mini_lo,
                                     uint32_t mini_hi, uint64_t cap)
{
    struct own own;
    struct cursor at;
    uint32_t count = 0;
    enum dyt_status st;

    set->micro_count = 0;
    set->row_count = set->most_rows = 0;
    st = find_own(set, tb, owner, mini_lo, mini_hi, &own);
    if (st == DYT_OK) {
        st = dyti_pack_capped(own.rows, own.count, cap, own.micro, &count);
    }
    if (st == DYT_OK) {
        st = DYTI_GROW(set->micro, set->micro_cap, count);
    }
    if (st == DYT_OK) {
        st = DYTI_GROW(set->ints, set->int_cap,
                       2 * own.row_count + 2 * own.token_count + own.count +
                           count);
    }
    if (st != DYT_OK) {
        return st;
    }
    at.ints = set->ints;
    at.list = own.micro + (own.micro - own.rows);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t rows;

        fill_micro(&set->micro[i], tb, &own, i, &at);
        rows = (uint64_t)set->micro[i].nn.packed.row_count;
        set->row_count += rows;
        set->most_rows = rows > set->most_rows ? rows : set->most_rows;
    }
    set->micro_count = count;
    return DYT_OK;
}

void dyti_micro_set_fini(struct dyti_micro_set *set)
{
    free(set->micro);
    free(set->ints);
    free(set->list);
    memset(set, 0, sizeof(*set));
}
