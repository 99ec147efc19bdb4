/* Micro-batches: sequences packed one after another, without padding, and
 * without repeating a prompt that several samples have. */
#include "trainer/batch.h"

#include "base/array.h"
#include "trainer/pack.h"

#include <string.h>

/* The sequences of this rank, and the pieces they make: samples of one prompt
 * that go into one micro-batch.  All are slices of set->list. */
struct own {
    uint32_t *number;       /* [count], by sample */
    uint32_t *piece;        /* [piece_count + 1] first of each in `number` */
    uint32_t *rows, *micro; /* [piece_count] */
    uint32_t *list;         /* [count]: sequence lists of the micro-batches */
    uint32_t count, piece_count;
    uint64_t row_count, token_count;
};

/* Samples of one prompt stand side by side in a batch.  A piece ends with the
 * prompt, or where the next sample would be too much for a micro-batch. */
static void add_own(struct own *own, const struct dyti_train_batch *tb,
                    uint32_t number, uint64_t cap)
{
    const struct dyti_train_sequence *s = &tb->sequence[number];
    uint32_t last = own->piece_count - 1, more = s->sample->count - 1;

    if (own->count > 0 &&
        tb->sequence[own->number[own->count - 1]].prompt == s->prompt &&
        (uint64_t)own->rows[last] + more <= cap) {
        own->rows[last] += more;
        own->row_count += more;
    } else {
        own->piece[own->piece_count] = own->count;
        own->rows[own->piece_count++] = s->rows;
        own->row_count += s->rows;
    }
    own->number[own->count++] = number;
    own->token_count += s->sample->count;
}

static enum dyt_status find_own(struct dyti_micro_set *set,
                                const struct dyti_train_batch *tb,
                                uint32_t owner, uint32_t mini_lo,
                                uint32_t mini_hi, uint64_t cap, struct own *own)
{
    size_t lo = (size_t)mini_lo * tb->mini, hi = (size_t)mini_hi * tb->mini;
    size_t n = hi - lo;
    enum dyt_status st;

    st = DYTI_GROW(set->list, set->list_cap, 5 * n + 1);
    if (st != DYT_OK) {
        return st;
    }
    *own = (struct own){.number = set->list,
                        .rows = set->list + n,
                        .micro = set->list + 2 * n,
                        .list = set->list + 3 * n,
                        .piece = set->list + 4 * n};
    for (size_t i = lo; i < hi; i++) {
        if (tb->sequence[i].keep && tb->sequence[i].owner == owner) {
            add_own(own, tb, (uint32_t)i, cap);
        }
    }
    own->piece[own->piece_count] = own->count;
    return DYT_OK;
}

/* A micro-batch while it is filled. */
struct filling {
    struct dyti_micro *m;
    int32_t *ids, *position, *first, *prefix, *head_row, *target;
};

/* A packed sequence of `count` rows that follow `before` rows of `prefix` (-1:
 * of nothing).  Where its ids go. */
static int32_t *add_packed(struct filling *f, int32_t prefix, uint32_t before,
                           uint32_t count)
{
    struct dyti_packed *packed = &f->m->nn.packed;
    int64_t row = packed->row_count;

    f->first[packed->sequence_count] = (int32_t)row;
    f->prefix[packed->sequence_count++] = prefix;
    for (uint32_t i = 0; i < count; i++) {
        f->position[row + i] = (int32_t)(before + i);
    }
    packed->row_count += count;
    return f->ids + row;
}

/* The first token's row is the prompt's last one, the others' follow each other
 * from `row` on. */
static void add_targets(struct filling *f, const struct dyti_sample *sample,
                        int64_t prompt_row, int64_t row)
{
    struct dyti_micro *m = f->m;

    for (uint32_t t = 0; t < sample->count; t++) {
        f->head_row[m->target_count] =
            (int32_t)(t == 0 ? prompt_row : row + t - 1);
        f->target[m->target_count++] = sample->ids[t];
    }
}

/* Prompt and answer in one. */
static void add_single(struct filling *f, const struct dyti_train_sequence *s)
{
    int64_t row = f->m->nn.packed.row_count;
    uint32_t p = s->prompt_count;
    int32_t *ids = add_packed(f, -1, 0, s->rows);

    memcpy(ids, s->prompt, p * sizeof(*ids));
    memcpy(ids + p, s->sample->ids, (s->sample->count - 1) * sizeof(*ids));
    add_targets(f, s->sample, row + p - 1, row + p);
}

/* The prompt, then the answers. */
static void add_group(struct filling *f, const struct dyti_train_batch *tb,
                      const uint32_t *number, uint32_t count)
{
    const struct dyti_train_sequence *head = &tb->sequence[number[0]];
    int32_t root = (int32_t)f->m->nn.packed.sequence_count;
    uint32_t p = head->prompt_count;
    int64_t prompt_row = f->m->nn.packed.row_count + p - 1;

    memcpy(add_packed(f, -1, 0, p), head->prompt, p * sizeof(*f->ids));
    for (uint32_t i = 0; i < count; i++) {
        const struct dyti_sample *sample = tb->sequence[number[i]].sample;
        int64_t row = f->m->nn.packed.row_count;

        memcpy(add_packed(f, root, p, sample->count - 1), sample->ids,
               (sample->count - 1) * sizeof(*f->ids));
        add_targets(f, sample, prompt_row, row);
    }
}

/* Where the next arrays start. */
struct cursor {
    int32_t *ints;
    uint32_t *list;
};

/* Arrays for what micro-batch `number` will hold. */
static struct filling begin_micro(struct dyti_micro *m,
                                  const struct dyti_train_batch *tb,
                                  const struct own *own, uint32_t number,
                                  struct cursor *at)
{
    struct filling f = {.m = m};
    uint64_t rows = 0, tokens = 0, packed = 0;

    memset(m, 0, sizeof(*m));
    m->sequence = at->list;
    for (uint32_t i = 0; i < own->piece_count; i++) {
        for (uint32_t k = own->piece[i];
             own->micro[i] == number && k < own->piece[i + 1]; k++) {
            at->list[m->sequence_count++] = own->number[k];
            tokens += tb->sequence[own->number[k]].sample->count;
            packed += k == own->piece[i] ? 2 : 1;
        }
        rows += own->micro[i] == number ? own->rows[i] : 0;
    }
    f.ids = at->ints;
    f.position = f.ids + rows;
    f.head_row = f.position + rows;
    f.target = f.head_row + tokens;
    f.prefix = f.target + tokens;
    f.first = f.prefix + packed;
    at->ints = f.first + packed + 1;
    at->list += m->sequence_count;
    return f;
}

static void fill_micro(struct dyti_micro *m, const struct dyti_train_batch *tb,
                       const struct own *own, uint32_t number,
                       struct cursor *at)
{
    struct filling f = begin_micro(m, tb, own, number, at);

    for (uint32_t i = 0; i < own->piece_count; i++) {
        const uint32_t *piece = own->number + own->piece[i];
        uint32_t count = own->piece[i + 1] - own->piece[i];

        if (own->micro[i] != number) {
            continue;
        }
        if (count == 1) {
            add_single(&f, &tb->sequence[piece[0]]);
        } else {
            add_group(&f, tb, piece, count);
        }
    }
    f.first[m->nn.packed.sequence_count] = (int32_t)m->nn.packed.row_count;
    m->head_row = f.head_row;
    m->target = f.target;
    m->nn.ids = f.ids;
    m->nn.position = f.position;
    m->nn.packed.first = f.first;
    m->nn.packed.prefix = f.prefix;
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
    st = find_own(set, tb, owner, mini_lo, mini_hi, cap, &own);
    if (st == DYT_OK) {
        st =
            dyti_pack_capped(own.rows, own.piece_count, cap, own.micro, &count);
    }
    if (st == DYT_OK) {
        st = DYTI_GROW(set->micro, set->micro_cap, count);
    }
    if (st == DYT_OK) {
        st = DYTI_GROW(set->ints, set->int_cap,
                       2 * own.row_count + 2 * own.token_count +
                           2 * ((uint64_t)own.count + own.piece_count) + count);
    }
    if (st != DYT_OK) {
        return st;
    }
    at.ints = set->ints;
    at.list = own.list;
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
