/* What waits for what, among the pieces of all ranks. */
#include "sched/replay.h"

#include <stdlib.h>
#include <string.h>

#define NONE DYTI_REPLAY_NONE

/* For sorting: pieces of one stream range, hop after hop. */
struct by_stream {
    uint32_t src, dst, wave, hop;
    uint64_t lo;
    uint32_t piece;
};

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_stream(const void *a, const void *b)
{
    const struct by_stream *x = a, *y = b;
    int c = compare_u64((uint64_t)x->src << 32 | x->dst,
                        (uint64_t)y->src << 32 | y->dst);

    c = c != 0 ? c : compare_u64(x->wave, y->wave);
    c = c != 0 ? c : compare_u64(x->lo, y->lo);
    return c != 0 ? c : compare_u64(x->hop, y->hop);
}

/* Each hop waits for the hop before it, of the same bytes. */
static enum dyt_status link_hops(const struct dyti_piece *piece, size_t count,
                                 struct dyti_waits *w)
{
    struct by_stream *s = NULL;
    size_t n = 0;
    bool any = false;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < count; i++) {
        any = any || piece[i].hop > 0;
    }
    if (!any) {
        return DYT_OK;
    }
    s = malloc(count * sizeof(*s));
    if (s == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", count);
    }
    for (size_t i = 0; i < count; i++) {
        s[n++] = (struct by_stream){piece[i].src, piece[i].dst, piece[i].wave,
                                    piece[i].hop, piece[i].lo,  (uint32_t)i};
    }
    qsort(s, n, sizeof(*s), compare_stream);
    for (size_t i = 0; i < n && st == DYT_OK; i++) {
        const struct dyti_piece *p = &piece[s[i].piece];
        const struct dyti_piece *before = i > 0 ? &piece[s[i - 1].piece] : p;

        if (s[i].hop == 0) {
            continue;
        }
        if (before == p || before->src != p->src || before->dst != p->dst ||
            before->wave != p->wave || before->lo != p->lo ||
            before->hi != p->hi || before->hop + 1 != p->hop ||
            before->to != p->from || s[i - 1].piece > s[i].piece) {
            st =
                DYTI_FAIL(DYT_ERR_INVALID,
                          "piece %u (%u -> %u, hop %u, bytes %llu..%llu) does "
                          "not follow its hop before",
                          s[i].piece, p->src, p->dst, p->hop,
                          (unsigned long long)p->lo, (unsigned long long)p->hi);
        } else {
            w->next_hop[s[i - 1].piece] = s[i].piece;
            w->count[s[i].piece]++;
        }
    }
    free(s);
    return st;
}

/* Each piece waits for the one before it at either end. */
static enum dyt_status link_ends(const struct dyti_cluster *c,
                                 const struct dyti_piece *piece, size_t count,
                                 struct dyti_waits *w)
{
    size_t ports = (size_t)c->rank_count * DYTI_LINK_CLASS_COUNT;
    uint32_t *last = malloc(2 * ports * sizeof(*last) + 1);

    if (last == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu ends of links", 2 * ports);
    }
    memset(last, 0xff, 2 * ports * sizeof(*last));
    for (size_t i = 0; i < count; i++) {
        const struct dyti_piece *p = &piece[i];
        size_t class = dyti_cluster_link(c, p->from, p->to);
        uint32_t *send = &last[p->from * (size_t)DYTI_LINK_CLASS_COUNT + class];
        uint32_t *take =
            &last[ports + p->to * (size_t)DYTI_LINK_CLASS_COUNT + class];

        if (*send != NONE) {
            w->next_send[*send] = (uint32_t)i;
            w->count[i]++;
        }
        if (*take != NONE) {
            w->next_receive[*take] = (uint32_t)i;
            w->count[i]++;
        }
        *send = *take = (uint32_t)i;
    }
    free(last);
    return DYT_OK;
}

/* A piece of wave w waits for what lower waves bring to its sender. */
static enum dyt_status link_waves(const struct dyti_cluster *c,
                                  const struct dyti_piece *piece, size_t count,
                                  struct dyti_waits *w)
{
    size_t n = c->rank_count, total = 0;

    if (w->wave_count <= 1) {
        return DYT_OK;
    }
    if (__builtin_mul_overflow(n, (size_t)w->wave_count, &total) ||
        total > SIZE_MAX / 64) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "%u waves of %zu ranks",
                         w->wave_count, n);
    }
    w->gate = calloc(total, sizeof(*w->gate));
    w->gate_head = malloc(total * sizeof(*w->gate_head));
    w->gate_next = malloc(count * sizeof(*w->gate_next));
    if (w->gate == NULL || w->gate_head == NULL || w->gate_next == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u waves of %zu ranks", w->wave_count,
                         n);
    }
    memset(w->gate_head, 0xff, total * sizeof(*w->gate_head));
    for (size_t i = 0; i < count; i++) {
        for (uint32_t v = piece[i].wave + 1; v < w->wave_count; v++) {
            w->gate[v * n + piece[i].to]++;
        }
    }
    for (size_t i = count; i-- > 0;) {
        size_t at = piece[i].wave * n + piece[i].from;

        if (piece[i].wave > 0 && w->gate[at] > 0) {
            w->gate_next[i] = w->gate_head[at];
            w->gate_head[at] = (uint32_t)i;
            w->count[i]++;
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_waits_build(const struct dyti_cluster *cluster,
                                 const struct dyti_piece *piece, size_t count,
                                 struct dyti_waits *out_waits)
{
    struct dyti_waits w = {.wave_count = 1};
    enum dyt_status st = DYT_OK;

    if (count >= NONE) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu pieces", count);
    }
    for (size_t i = 0; i < count; i++) {
        const struct dyti_piece *p = &piece[i];

        if (p->from >= cluster->rank_count || p->to >= cluster->rank_count ||
            p->wave >= NONE - 1) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "piece %zu goes from %u to %u in wave %u; there "
                             "are %u ranks",
                             i, p->from, p->to, p->wave, cluster->rank_count);
        }
        w.wave_count = p->wave >= w.wave_count ? p->wave + 1 : w.wave_count;
    }
    w.count = calloc(count + 1, sizeof(*w.count));
    w.next_send = malloc(3 * (count + 1) * sizeof(*w.next_send));
    if (w.count == NULL || w.next_send == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", count);
        goto out;
    }
    memset(w.next_send, 0xff, 3 * (count + 1) * sizeof(*w.next_send));
    w.next_receive = w.next_send + count + 1;
    w.next_hop = w.next_receive + count + 1;
    st = link_ends(cluster, piece, count, &w);
    st = st != DYT_OK ? st : link_hops(piece, count, &w);
    st = st != DYT_OK ? st : link_waves(cluster, piece, count, &w);
    if (st == DYT_OK) {
        *out_waits = w;
        w = (struct dyti_waits){0};
    }
out:
    dyti_waits_fini(&w);
    return st;
}

void dyti_waits_fini(struct dyti_waits *waits)
{
    free(waits->count);
    free(waits->next_send); /* and the two behind it */
    free(waits->gate);
    free(waits->gate_head);
    free(waits->gate_next);
    *waits = (struct dyti_waits){0};
}

static void count_down(struct dyti_waits *w, uint32_t piece,
                       void (*ready)(void *arg, uint32_t piece), void *arg)
{
    if (piece != NONE && --w->count[piece] == 0) {
        ready(arg, piece);
    }
}

void dyti_waits_done(struct dyti_waits *waits,
                     const struct dyti_cluster *cluster,
                     const struct dyti_piece *piece, uint32_t index, bool ends,
                     bool arrived, void (*ready)(void *arg, uint32_t piece),
                     void *arg)
{
    struct dyti_waits *w = waits;

    if (ends) {
        count_down(w, w->next_send[index], ready, arg);
        count_down(w, w->next_receive[index], ready, arg);
    }
    if (!arrived) {
        return;
    }
    count_down(w, w->next_hop[index], ready, arg);
    for (uint32_t v = piece[index].wave + 1; v < w->wave_count; v++) {
        size_t at = (size_t)v * cluster->rank_count + piece[index].to;

        if (--w->gate[at] == 0) {
            for (uint32_t i = w->gate_head[at]; i != NONE;
                 i = w->gate_next[i]) {
                count_down(w, i, ready, arg);
            }
        }
    }
}
