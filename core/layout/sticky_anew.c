/* A ZeRO cut made anew: one range each, in the order that keeps the most. */
#include "base/array.h"
#include "layout/sticky_cutting.h"

#include <stdlib.h>
#include <string.h>

struct overlap {
    uint64_t size;
    uint32_t slot, owner;
};

static int by_size(const void *a, const void *b)
{
    const struct overlap *x = a, *y = b;

    if (x->size != y->size) {
        return x->size > y->size ? -1 : 1;
    }
    if (x->slot != y->slot) {
        return x->slot < y->slot ? -1 : 1;
    }
    return (x->owner > y->owner) - (x->owner < y->owner);
}

/* What each slot of an even cut shares with each span of the kept owners. */
static enum dyt_status list_overlaps(const struct dyti_zero_range *span,
                                     size_t count, uint32_t owners,
                                     struct overlap **out, size_t *out_count)
{
    size_t cap = 0, i = 0;
    uint32_t slot = 0;

    while (i < count && slot < owners) {
        uint64_t end = dyti_share_end(owners, slot);
        uint64_t begin = slot == 0 ? 0 : dyti_share_end(owners, slot - 1);
        uint64_t lo = span[i].lo > begin ? span[i].lo : begin;
        uint64_t hi = span[i].hi < end ? span[i].hi : end;

        if (lo < hi && span[i].owner != DYTI_FREE) {
            enum dyt_status st = DYTI_GROW(*out, cap, *out_count + 1);

            if (st != DYT_OK) {
                return st;
            }
            (*out)[(*out_count)++] =
                (struct overlap){hi - lo, slot, span[i].owner};
        }
        if (span[i].hi <= end) {
            i++;
        } else {
            slot++;
        }
    }
    if (*out_count > 1) {
        qsort(*out, *out_count, sizeof(**out), by_size);
    }
    return DYT_OK;
}

enum dyt_status dyti_cut_anew(struct dyti_cutting *c,
                              const struct dyti_zero_range *old,
                              size_t old_count)
{
    struct overlap *overlap = NULL;
    size_t count = 0;
    uint32_t *slot_of = malloc(c->owners * sizeof(*slot_of));
    uint32_t *owner_of = malloc(c->owners * sizeof(*owner_of));
    uint32_t next = 0;
    enum dyt_status st =
        slot_of != NULL && owner_of != NULL
            ? list_overlaps(old, old_count, c->owners, &overlap, &count)
            : DYTI_FAIL(DYT_ERR_NOMEM, "a cut between %u owners", c->owners);

    if (st == DYT_OK) {
        memset(slot_of, 0xff, c->owners * sizeof(*slot_of));
        memset(owner_of, 0xff, c->owners * sizeof(*owner_of));
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        if (slot_of[overlap[i].owner] == DYTI_FREE &&
            owner_of[overlap[i].slot] == DYTI_FREE) {
            slot_of[overlap[i].owner] = overlap[i].slot;
            owner_of[overlap[i].slot] = overlap[i].owner;
        }
    }
    c->next_count = 0;
    for (uint32_t slot = 0; slot < c->owners && st == DYT_OK; slot++) {
        while (owner_of[slot] == DYTI_FREE && slot_of[next] != DYTI_FREE) {
            next++;
        }
        if (owner_of[slot] == DYTI_FREE) {
            owner_of[slot] = next;
            slot_of[next] = slot;
        }
        st = dyti_cutting_put(
            c, slot == 0 ? 0 : dyti_share_end(c->owners, slot - 1),
            dyti_share_end(c->owners, slot), owner_of[slot]);
    }
    dyti_cutting_turn(c);
    free(overlap);
    free(slot_of);
    free(owner_of);
    return st;
}
