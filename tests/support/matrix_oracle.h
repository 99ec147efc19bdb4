/* What a switch should leave, the obvious way: every element of every kind has
 * an id, and the destination's element holds the bits made of it. */
#ifndef DYT_MATRIX_ORACLE_H
#define DYT_MATRIX_ORACLE_H

#include "dyt_ranks.h"
#include "matrix_case.h"

#include "base/num.h"
#include "edm/world.h"

/* Bits of an element as a dtype stores it.  Master and param are one value.  A
 * part of them are any bits at all: NaNs, subnormals, infinities. */
static inline uint64_t mx_bits(uint64_t version, uint32_t kind, uint32_t tensor,
                               uint64_t index, enum dyti_dtype dtype)
{
    uint32_t of = kind == DYTI_PARAM ? DYTI_MASTER : kind;
    uint64_t id = dyti_rng_u64(version, of, tensor, index);
    uint32_t bits = (uint32_t)(id >> 8);
    float x;

    if (dtype == DYTI_I64) {
        return id;
    }
    if (dtype == DYTI_I32) {
        return bits;
    }
    if (id % 4 != 0) {
        x = (float)(dyti_rng_unit(id) * 4.0 - 2.0);
        memcpy(&bits, &x, sizeof(bits));
    }
    memcpy(&x, &bits, sizeof(x));
    return dtype == DYTI_F32    ? bits
           : dtype == DYTI_BF16 ? dyti_f32_to_bf16(x)
                                : dyti_f32_to_f16(x);
}

/* ---- one region ------------------------------------------------------------
 */

struct mx_region {
    const struct mx_case *c;
    uint32_t rank;
    enum dyti_arena_slot slot;
    enum dyti_kind kind;
    unsigned char *at; /* NULL: there is none */
    uint64_t bytes;
};

static inline struct mx_region mx_region(const struct mx_case *c,
                                         const struct dyti_world *world,
                                         uint32_t rank,
                                         enum dyti_arena_slot slot, int kind)
{
    struct mx_region r = {
        c,
        rank,
        slot,
        (enum dyti_kind)kind,
        dyti_world_region(world, rank, slot, (enum dyti_kind)kind),
        c->map[rank].bytes[slot][kind]};

    return r;
}

static inline unsigned char mx_junk(uint64_t at)
{
    return (unsigned char)(0x5a ^ at * 7);
}

static inline void mx_fill_junk(unsigned char *at, uint64_t bytes)
{
    for (uint64_t i = 0; at != NULL && i < bytes; i++) {
        at[i] = mx_junk(i);
    }
}

/* Of a source whose master travels param is old: nobody may read it. */
static inline bool mx_is_stale(const struct mx_region *r, uint32_t tensor)
{
    return r->slot == r->c->from && r->kind == DYTI_PARAM &&
           dyti_layout_holds(r->c->layout[r->slot], DYTI_MASTER) &&
           (r->c->model->tensor[tensor].kinds >> DYTI_MASTER & 1u) != 0;
}

/* For each element of the region: write it (NULL me), or say what is wrong. */
static inline void mx_elements(const struct mx_region *r, uint64_t version,
                               struct dyt_rank *me)
{
    const struct dyti_layout *layout = r->c->layout[r->slot];
    const struct dyti_view *view = dyti_layout_view(layout, r->rank);

    for (uint32_t i = view->kind_first[r->kind];
         i < view->kind_first[r->kind + 1]; i++) {
        const struct dyti_shard *s = &view->shard[i];
        const struct dyti_tensor *t = &layout->model->tensor[s->tensor];
        size_t bytes = dyti_dtype_bytes((enum dyti_dtype)s->dtype);
        int64_t at[DYT_MAX_DIMS];

        memcpy(at, s->box.lo, sizeof(at));
        do {
            unsigned char *p = r->at + dyt_case_offset(s, at);
            uint64_t index = dyt_case_index(t, at), have = 0;
            uint64_t want =
                mx_bits(version + (mx_is_stale(r, s->tensor) ? 1000 : 0),
                        r->kind, s->tensor, index, (enum dyti_dtype)s->dtype);

            if (me == NULL) {
                memcpy(p, &want, bytes); /* little endian */
                continue;
            }
            memcpy(&have, p, bytes);
            if (have != want) {
                rank_wrong(me,
                           "%s of %s, element %" PRIu64 ": %" PRIx64
                           " instead of %" PRIx64,
                           dyti_kind_name(r->kind), t->name, index, have, want);
                return;
            }
        } while (dyt_case_next(&s->box, at));
    }
}

/* What lies between the shards is as it was. */
static inline void mx_check_gaps(const struct mx_region *r, struct dyt_rank *me)
{
    const struct dyti_view *view =
        dyti_layout_view(r->c->layout[r->slot], r->rank);
    unsigned char *taken = calloc(r->bytes + 1, 1);

    for (uint32_t i = view->kind_first[r->kind];
         taken != NULL && i < view->kind_first[r->kind + 1]; i++) {
        const struct dyti_shard *s = &view->shard[i];
        int64_t at[DYT_MAX_DIMS];

        memcpy(at, s->box.lo, sizeof(at));
        do {
            memset(taken + dyt_case_offset(s, at), 1,
                   dyti_dtype_bytes((enum dyti_dtype)s->dtype));
        } while (dyt_case_next(&s->box, at));
    }
    for (uint64_t i = 0; taken != NULL && i < r->bytes; i++) {
        if (!taken[i] && r->at[i] != mx_junk(i)) {
            rank_wrong(me, "%s: byte %" PRIu64 " of no shard was written",
                       dyti_kind_name(r->kind), i);
            break;
        }
    }
    free(taken);
}

/* ---- a rank's memory --------------------------------------------------------
 */

static inline bool mx_parked(const struct mx_case *c, int kind)
{
    return c->layout[c->from]->desc.residency[kind] == DYTI_PARKED;
}

/* Does a kind of the destination arrive with this switch? */
static inline bool mx_arrives(const struct mx_case *c, int kind)
{
    return (c->kinds >> kind & 1u) != 0 &&
           dyti_layout_holds(c->layout[c->to], (enum dyti_kind)kind);
}

/* The destination is junk but for what is parked there; the source is of
 * version `version`. */
static inline void mx_fill(const struct mx_case *c,
                           const struct dyti_world *world, uint32_t rank,
                           uint64_t version)
{
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        struct mx_region to = mx_region(c, world, rank, c->to, k);

        for (uint32_t set = 0; set < DYTI_ARENA_SETS; set++) {
            mx_fill_junk(dyti_world_region_in(world, rank, c->to,
                                              (enum dyti_kind)k, set),
                         to.bytes);
        }
        if (to.at != NULL && mx_parked(c, k)) {
            mx_elements(&to, version, NULL);
        }
    }
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        struct mx_region from = mx_region(c, world, rank, c->from, k);

        mx_fill_junk(from.at, from.bytes);
    }
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        struct mx_region from = mx_region(c, world, rank, c->from, k);

        if (from.at != NULL) {
            mx_elements(&from, version, NULL);
        }
    }
}

/* After a commit. `kept`: a copy of each source region as it was, or NULL. */
static inline void mx_check(const struct mx_case *c,
                            const struct dyti_world *world, uint32_t rank,
                            uint64_t version, unsigned char *const *kept,
                            struct dyt_rank *me)
{
    enum dyti_switch_mode mode = c->options.mode;

    for (int k = 0; k < DYTI_KIND_COUNT && me->wrong[0] == '\0'; k++) {
        struct mx_region to = mx_region(c, world, rank, c->to, k);
        struct mx_region from = mx_region(c, world, rank, c->from, k);

        if (to.at != NULL && (mx_arrives(c, k) || mx_parked(c, k))) {
            mx_elements(&to, version, me);
            if (mode == DYTI_MODE_TRANSACTIONAL || mode == DYTI_MODE_DOUBLE) {
                mx_check_gaps(&to, me);
            }
        } else if (to.at != NULL && mode == DYTI_MODE_TRANSACTIONAL) {
            for (uint64_t i = 0; i < to.bytes; i++) {
                if (to.at[i] != mx_junk(i)) {
                    rank_wrong(me, "%s does not travel, and was written",
                               dyti_kind_name((enum dyti_kind)k));
                    break;
                }
            }
        }
        if (kept[k] != NULL && mode != DYTI_MODE_IN_PLACE &&
            memcmp(kept[k], from.at, from.bytes) != 0) {
            rank_wrong(me, "the source's %s was written",
                       dyti_kind_name((enum dyti_kind)k));
        }
    }
}

#endif /* DYT_MATRIX_ORACLE_H */
