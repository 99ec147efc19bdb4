/* A broadcast is a ring in chunks, an all-gather a ring of everybody's part,
 * scatter and gather are messages of the root. */
#include "explain/rings.h"

#include "base/array.h"

#include <stdlib.h>

#define CHUNKS 16u

struct ring {
    const struct dyti_cluster *cluster;
    const struct dyti_collective *c;
    uint32_t *member; /* by host, then rank; BROADCAST: from the root on */
    uint32_t name;    /* of its streams: above all ranks */
    uint64_t chunk;
    struct dyti_piece **piece;
    size_t *count, *cap;
};

static enum dyt_status add(const struct ring *r, uint32_t part, uint32_t from,
                           uint32_t to, uint32_t hop, uint64_t lo, uint64_t hi)
{
    enum dyt_status st = DYTI_GROW(*r->piece, *r->cap, *r->count + 1);

    if (st == DYT_OK) {
        (*r->piece)[(*r->count)++] = (struct dyti_piece){.src = r->name,
                                                         .dst = part,
                                                         .wave = r->c->wave,
                                                         .from = from,
                                                         .to = to,
                                                         .hop = hop,
                                                         .lo = lo,
                                                         .hi = hi};
    }
    return st;
}

static enum dyt_status add_broadcast(const struct ring *r)
{
    enum dyt_status st = DYT_OK;

    for (uint64_t lo = 0; lo < r->c->bytes && st == DYT_OK; lo += r->chunk) {
        uint64_t hi = r->c->bytes - lo < r->chunk ? r->c->bytes : lo + r->chunk;

        for (uint32_t i = 0; i + 1 < r->c->member_count && st == DYT_OK; i++) {
            st = add(r, 0, r->member[i], r->member[i + 1], i, lo, hi);
        }
    }
    return st;
}

/* In step s everybody sends on the part that it got in step s - 1. */
static enum dyt_status add_all_gather(const struct ring *r)
{
    uint32_t n = r->c->member_count;
    enum dyt_status st = DYT_OK;

    for (uint32_t step = 0; step + 1 < n; step++) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t at = (i + step) % n;

            for (uint64_t lo = 0; lo < r->c->bytes && st == DYT_OK;
                 lo += r->chunk) {
                uint64_t hi =
                    r->c->bytes - lo < r->chunk ? r->c->bytes : lo + r->chunk;

                st = add(r, i, r->member[at], r->member[(at + 1) % n], step, lo,
                         hi);
            }
        }
    }
    return st;
}

static enum dyt_status add_star(const struct ring *r, bool scatter)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < r->c->member_count && st == DYT_OK; i++) {
        uint32_t other = r->member[i];

        if (other != r->c->root) {
            st = add(r, i, scatter ? r->c->root : other,
                     scatter ? other : r->c->root, 0, 0, r->c->bytes);
        }
    }
    return st;
}

/* Neighbours on one host stand beside each other; a broadcast's root first. */
static enum dyt_status sort_members(const struct dyti_promotion *p,
                                    struct ring *r)
{
    const uint32_t *member = p->member + r->c->member_first;
    const uint32_t *host = r->cluster->host;
    uint32_t n = r->c->member_count, root = 0, *turned;

    r->member = malloc(2 * ((size_t)n + 1) * sizeof(*r->member));
    if (r->member == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;

        if (member[i] >= r->cluster->rank_count) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "a collective of rank %u, there are %u", member[i],
                             r->cluster->rank_count);
        }
        for (; k > 0 && host[r->member[k - 1]] > host[member[i]]; k--) {
            r->member[k] = r->member[k - 1];
        }
        r->member[k] = member[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        root = r->member[i] == r->c->root ? i : root;
    }
    turned = r->member + n + 1;
    for (uint32_t i = 0; i < n; i++) {
        turned[i] = r->member[(root + i) % n];
    }
    for (uint32_t i = 0; i < n; i++) {
        r->member[i] = turned[i];
    }
    return DYT_OK;
}

enum dyt_status dyti_rings_add(const struct dyti_cluster *cluster,
                               const struct dyti_promotion *promotion,
                               bool later, uint64_t chunk_bytes,
                               struct dyti_piece **io_piece, size_t *io_count,
                               size_t *io_cap)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < promotion->count && st == DYT_OK; i++) {
        const struct dyti_collective *c = &promotion->collective[i];
        struct ring r = {.cluster = cluster,
                         .c = c,
                         .name = cluster->rank_count + (uint32_t)i,
                         .chunk = chunk_bytes != 0 ? chunk_bytes
                                                   : c->bytes / CHUNKS + 1,
                         .piece = io_piece,
                         .count = io_count,
                         .cap = io_cap};

        if ((c->wave > 0) != later) {
            continue;
        }
        st = sort_members(promotion, &r);
        if (st == DYT_OK) {
            st = c->kind == DYTI_COLLECTIVE_BROADCAST ? add_broadcast(&r)
                 : c->kind == DYTI_COLLECTIVE_ALL_GATHER
                     ? add_all_gather(&r)
                     : add_star(&r, c->kind == DYTI_COLLECTIVE_SCATTER);
        }
        free(r.member);
    }
    return st;
}
