/* Which transfers are one collective?
 * in: what goes from whom to whom, with a name for equal contents
 * out: collectives (a step kind of its own in exec/), and what is left for
 *      point-to-point pieces
 *
 *   broadcast   one rank sends the same to each of a set
 *   all-gather  each of a set sends its own part to all others of it
 *   scatter     one rank sends each of a set a part of its own, of equal size
 *   gather      the reverse
 *
 * The patterns are looked for in that order: all-gathers are made of
 * broadcasts whose members, root and all, are the same set.  Contents that go
 * the same way are one collective.  Pure; equal inputs, equal answer. */
#ifndef DYTI_SCHED_PROMOTE_H
#define DYTI_SCHED_PROMOTE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum dyti_collective_kind {
    DYTI_COLLECTIVE_BROADCAST,
    DYTI_COLLECTIVE_ALL_GATHER,
    DYTI_COLLECTIVE_SCATTER,
    DYTI_COLLECTIVE_GATHER,
    DYTI_COLLECTIVE_KIND_COUNT
};

/* One content on its way to one rank. */
struct dyti_promotable {
    uint32_t src, dst; /* different */
    uint64_t content; /* equal: the same bytes (tensor or pattern, kind, box) */
    uint64_t bytes;
    uint32_t wave;
};

struct dyti_promote_options {
    uint32_t kinds;     /* bits 1 << kind; 0: all */
    uint32_t least;     /* members, root included; 0: 3 */
    uint64_t min_bytes; /* of one member's part; smaller is left alone */
};

struct dyti_collective {
    uint8_t kind;                        /* enum dyti_collective_kind */
    uint32_t wave, root;                 /* ALL_GATHER: the lowest member */
    uint32_t member_first, member_count; /* in .member: rising, with the root */
    uint64_t bytes; /* BROADCAST: of the content; else: of one member's part */
    uint32_t item_first, item_count; /* in .item: which promotables it carries,
                                        by source, content, destination */
};

struct dyti_promotion {
    struct dyti_collective *collective; /* [count], by wave, kind, root,
                                           members; owned */
    size_t count;
    uint32_t *member; /* [member_total] ranks */
    uint32_t *item;   /* [item_total] indices into the input */
    uint32_t member_total, item_total;
    uint32_t *rest; /* [rest_count] indices into the input that are in none */
    uint32_t rest_count;
};

/* DYT_ERR_INVALID  a transfer to itself, or the same content twice to one rank
 *                  in one wave; DYT_ERR_OVERFLOW, DYT_ERR_NOMEM */
enum dyt_status dyti_promote(const struct dyti_promotable *item, size_t count,
                             const struct dyti_promote_options *options,
                             struct dyti_promotion *out_promotion);
void dyti_promotion_fini(struct dyti_promotion *promotion); /* zeroed: fine */

const char *dyti_collective_kind_name(enum dyti_collective_kind kind);

#endif /* DYTI_SCHED_PROMOTE_H */
