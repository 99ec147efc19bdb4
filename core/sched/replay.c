/* A discrete-event player: a heap of times, and speeds that change when others
 * come and go on a shared link. */
#include "sched/replay.h"

#include "base/array.h"
#include "base/num.h"

#include <stdlib.h>
#include <string.h>

#define NONE   DYTI_REPLAY_NONE
#define SHARES 5u /* a piece lies on at most so many shared links */

enum event_kind {
    EVENT_POSTED, /* the message is posted: its bytes begin */
    EVENT_END,    /* its last byte has left */
    EVENT_ARRIVE
};

struct event {
    double at;
    uint32_t piece;
    uint32_t stamp; /* of EVENT_END: stale if the piece's differs */
    uint8_t kind;
};

/* A link that several pieces use at once. */
struct share {
    double bytes_per_s;
    uint32_t *user; /* pieces */
    size_t user_count, user_cap;
    bool dirty;
};

/* What only pieces on shared links need. */
struct flowing {
    double left, rate, since;
    uint32_t at[SHARES];    /* its place in share.user */
    uint32_t share[SHARES]; /* which; NONE */
};

struct player {
    const struct dyti_cluster *cluster;
    const struct dyti_piece *piece;
    size_t count, done;
    const struct dyti_replay_options *options;
    struct dyti_waits waits;
    struct dyti_replay_span *span;
    uint32_t *stamp;
    struct flowing *flowing; /* NULL: nothing is shared */
    struct share *share;
    size_t share_count;
    uint32_t *dirty;
    size_t dirty_count, dirty_cap;
    struct event *heap;
    size_t heap_count, heap_cap;
    uint32_t *ready; /* to start at `now` */
    size_t ready_count, fence_at;
    double now, last; /* last: when a piece arrived */
    uint32_t cause;   /* piece whose end is being dealt with */
    enum dyt_status status;
};

/* ---- heap: by time, then piece, then kind: the same everywhere ---------- */

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at         ? a->at < b->at
           : a->piece != b->piece ? a->piece < b->piece
                                  : a->kind < b->kind;
}

static void push(struct player *p, double at, uint32_t piece,
                 enum event_kind kind)
{
    struct event e = {.at = at,
                      .piece = piece,
                      .stamp = p->stamp[piece],
                      .kind = (uint8_t)kind};
    size_t i;

    if (p->status != DYT_OK) {
        return;
    }
    p->status = DYTI_GROW(p->heap, p->heap_cap, p->heap_count + 1);
    if (p->status != DYT_OK) {
        return;
    }
    for (i = p->heap_count++; i > 0 && before(&e, &p->heap[(i - 1) / 2]);
         i = (i - 1) / 2) {
        p->heap[i] = p->heap[(i - 1) / 2];
    }
    p->heap[i] = e;
}

static struct event pop(struct player *p)
{
    struct event top = p->heap[0], last = p->heap[--p->heap_count];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= p->heap_count) {
            break;
        }
        if (child + 1 < p->heap_count &&
            before(&p->heap[child + 1], &p->heap[child])) {
            child++;
        }
        if (!before(&p->heap[child], &last)) {
            break;
        }
        p->heap[i] = p->heap[child];
        i = child;
    }
    if (p->heap_count > 0) {
        p->heap[i] = last;
    }
    return top;
}

/* ---- shared links ------------------------------------------------------- */

static const struct dyti_link_speed *link_of(const struct player *p,
                                             uint32_t piece)
{
    const struct dyti_piece *x = &p->piece[piece];

    return &p->cluster->link[dyti_cluster_link(p->cluster, x->from, x->to)];
}

/* Shares: out of each host, into each host, the core upward and downward, what
 * goes on inside each host, then each rank's link of each class where that goes
 * one way at a time. */
static enum dyt_status make_shares(struct player *p)
{
    const struct dyti_cluster *c = p->cluster;
    size_t hosts = c->host_count, base = 3 * hosts + 2;
    bool half = false;

    for (int k = 0; k < DYTI_LINK_CLASS_COUNT; k++) {
        half = half || c->link[k].half_duplex;
    }
    if (!half && !(c->host_nic_bytes_per_s > 0.0) &&
        !(c->core_bytes_per_s > 0.0) && !(c->host_bytes_per_s > 0.0)) {
        return DYT_OK;
    }
    p->share_count = base + (size_t)c->rank_count * DYTI_LINK_CLASS_COUNT;
    p->share = calloc(p->share_count, sizeof(*p->share));
    p->flowing = calloc(p->count + 1, sizeof(*p->flowing));
    if (p->share == NULL || p->flowing == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces, %zu links", p->count,
                         p->share_count);
    }
    for (size_t h = 0; h < 2 * hosts; h++) {
        p->share[h].bytes_per_s = c->host_nic_bytes_per_s;
    }
    p->share[2 * hosts].bytes_per_s = c->core_bytes_per_s;
    p->share[2 * hosts + 1].bytes_per_s = c->core_bytes_per_s;
    for (size_t h = 0; h < hosts; h++) {
        p->share[2 * hosts + 2 + h].bytes_per_s = c->host_bytes_per_s;
    }
    for (size_t i = base; i < p->share_count; i++) {
        const struct dyti_link_speed *l =
            &c->link[(i - base) % DYTI_LINK_CLASS_COUNT];

        p->share[i].bytes_per_s = l->half_duplex ? l->bytes_per_s : 0.0;
    }
    return DYT_OK;
}

static void share_join(struct player *p, uint32_t piece, uint32_t slot,
                       size_t index)
{
    struct share *s = &p->share[index];

    if (!(s->bytes_per_s > 0.0) || p->status != DYT_OK) {
        return;
    }
    p->status = DYTI_GROW(s->user, s->user_cap, s->user_count + 1);
    if (p->status == DYT_OK && !s->dirty) {
        p->status = DYTI_GROW(p->dirty, p->dirty_cap, p->dirty_count + 1);
    }
    if (p->status != DYT_OK) {
        return;
    }
    p->flowing[piece].share[slot] = (uint32_t)index;
    p->flowing[piece].at[slot] = (uint32_t)s->user_count;
    s->user[s->user_count++] = piece;
    if (!s->dirty) {
        s->dirty = true;
        p->dirty[p->dirty_count++] = (uint32_t)index;
    }
}

static void join_shares(struct player *p, uint32_t piece)
{
    const struct dyti_cluster *c = p->cluster;
    const struct dyti_piece *x = &p->piece[piece];
    size_t class = dyti_cluster_link(c, x->from, x->to), hosts = c->host_count;
    size_t a = c->host[x->from], b = c->host[x->to];
    size_t base = 3 * hosts + 2;

    memset(p->flowing[piece].share, 0xff, sizeof(p->flowing[piece].share));
    if (class == DYTI_LINK_NIC) {
        share_join(p, piece, 0, a);
        share_join(p, piece, 1, hosts + b);
        if ((2 * a < hosts) != (2 * b < hosts)) {
            share_join(p, piece, 2, 2 * hosts + (2 * a < hosts ? 0 : 1));
        }
    }
    if (class == DYTI_LINK_HOST) {
        share_join(p, piece, 2, 2 * hosts + 2 + a);
    }
    share_join(p, piece, 3, base + x->from * DYTI_LINK_CLASS_COUNT + class);
    if (x->to != x->from) {
        share_join(p, piece, 4, base + x->to * DYTI_LINK_CLASS_COUNT + class);
    }
}

static void leave_shares(struct player *p, uint32_t piece)
{
    struct flowing *f = &p->flowing[piece];

    for (uint32_t k = 0; k < SHARES && p->status == DYT_OK; k++) {
        struct share *s = f->share[k] == NONE ? NULL : &p->share[f->share[k]];
        uint32_t moved;

        if (s == NULL) {
            continue;
        }
        moved = s->user[--s->user_count];
        s->user[f->at[k]] = moved;
        for (uint32_t j = 0; j < SHARES; j++) {
            if (p->flowing[moved].share[j] == f->share[k]) {
                p->flowing[moved].at[j] = f->at[k];
            }
        }
        if (!s->dirty) {
            p->status = DYTI_GROW(p->dirty, p->dirty_cap, p->dirty_count + 1);
            if (p->status == DYT_OK) {
                s->dirty = true;
                p->dirty[p->dirty_count++] = f->share[k];
            }
        }
    }
}

/* A piece's speed has to be looked at anew. */
static void set_rate(struct player *p, uint32_t piece)
{
    struct flowing *f = &p->flowing[piece];
    double rate = link_of(p, piece)->bytes_per_s;

    for (uint32_t k = 0; k < SHARES; k++) {
        if (f->share[k] != NONE) {
            const struct share *s = &p->share[f->share[k]];

            rate = dyti_min_f64(rate, s->bytes_per_s / (double)s->user_count);
        }
    }
    if (rate == f->rate) {
        return;
    }
    if (f->rate > 0.0) {
        f->left = dyti_max_f64(0.0, f->left - f->rate * (p->now - f->since));
    }
    f->rate = rate;
    f->since = p->now;
    p->stamp[piece]++;
    push(p, p->now + f->left / rate, piece, EVENT_END);
}

static void settle(struct player *p)
{
    for (size_t i = 0; i < p->dirty_count; i++) {
        struct share *s = &p->share[p->dirty[i]];

        s->dirty = false;
        for (size_t k = 0; k < s->user_count; k++) {
            set_rate(p, s->user[k]);
        }
    }
    p->dirty_count = 0;
}

/* ---- playing ------------------------------------------------------------ */

static void on_ready(void *arg, uint32_t piece)
{
    struct player *p = arg;

    p->span[piece].held_by = p->cause;
    p->ready[p->ready_count++] = piece;
}

static void begin_bytes(struct player *p, uint32_t piece)
{
    double bytes = (double)(p->piece[piece].hi - p->piece[piece].lo);

    p->span[piece].bytes_s = p->now;
    if (p->flowing == NULL) {
        push(p, p->now + bytes / link_of(p, piece)->bytes_per_s, piece,
             EVENT_END);
        return;
    }
    p->flowing[piece].left = bytes;
    join_shares(p, piece);
    set_rate(p, piece);
}

static void start(struct player *p, uint32_t piece)
{
    uint32_t messages = p->piece[piece].messages;
    double post = p->options->costs ? link_of(p, piece)->message_s *
                                          (messages > 0 ? messages : 1)
                                    : 0.0;

    p->span[piece].start_s = p->now;
    if (post > 0.0) {
        push(p, p->now + post, piece, EVENT_POSTED);
    } else {
        begin_bytes(p, piece);
    }
}

/* What a fence holds back starts when all before it have arrived. */
static void open_fence(struct player *p)
{
    while (p->fence_at < p->options->fence_count &&
           p->options->fence[p->fence_at] <= p->done) {
        size_t lo = p->options->fence[p->fence_at++];
        size_t hi = p->fence_at < p->options->fence_count
                        ? p->options->fence[p->fence_at]
                        : p->count;

        for (size_t i = lo; i < hi && i < p->count; i++) {
            if (--p->waits.count[i] == 0) {
                on_ready(p, (uint32_t)i);
            }
        }
    }
}

static void arrive(struct player *p, uint32_t piece)
{
    p->span[piece].arrive_s = p->last = p->now;
    p->done++;
    dyti_waits_done(&p->waits, p->cluster, p->piece, piece, false, true,
                    on_ready, p);
    if (p->options->ended != NULL) {
        p->options->ended(p->options->arg, piece, &p->span[piece]);
    }
    open_fence(p);
}

static void handle(struct player *p, const struct event *e)
{
    double latency;

    p->cause = e->piece;
    if (e->kind == EVENT_POSTED) {
        begin_bytes(p, e->piece);
    } else if (e->kind == EVENT_ARRIVE) {
        arrive(p, e->piece);
    } else if (e->stamp == p->stamp[e->piece]) {
        if (p->flowing != NULL) {
            leave_shares(p, e->piece);
        }
        p->span[e->piece].end_s = p->now;
        dyti_waits_done(&p->waits, p->cluster, p->piece, e->piece, true, false,
                        on_ready, p);
        latency = p->options->costs ? link_of(p, e->piece)->latency_s : 0.0;
        if (latency > 0.0) {
            push(p, p->now + latency, e->piece, EVENT_ARRIVE);
        } else {
            arrive(p, e->piece);
        }
    }
}

static void start_ready(struct player *p)
{
    for (size_t i = 0; i < p->ready_count; i++) {
        start(p, p->ready[i]);
    }
    p->ready_count = 0;
    if (p->flowing != NULL) {
        settle(p);
    }
}

static enum dyt_status play(struct player *p)
{
    p->cause = NONE;
    for (size_t i = 0; i < p->options->fence_count; i++) {
        size_t hi = i + 1 < p->options->fence_count ? p->options->fence[i + 1]
                                                    : p->count;

        for (size_t k = p->options->fence[i]; k < hi && k < p->count; k++) {
            p->waits.count[k]++;
        }
    }
    for (size_t i = 0; i < p->count; i++) {
        if (p->waits.count[i] == 0) {
            on_ready(p, (uint32_t)i);
        }
    }
    open_fence(p);
    start_ready(p);
    while (p->heap_count > 0 && p->status == DYT_OK) {
        p->now = p->heap[0].at;
        while (p->heap_count > 0 && p->heap[0].at == p->now) {
            struct event e = pop(p);

            handle(p, &e);
        }
        start_ready(p);
    }
    if (p->status == DYT_OK && p->done < p->count) {
        p->status =
            DYTI_FAIL(DYT_ERR_INVALID, "%zu of %zu pieces wait for each other",
                      p->count - p->done, p->count);
    }
    return p->status;
}

static void player_fini(struct player *p)
{
    for (size_t i = 0; i < p->share_count && p->share != NULL; i++) {
        free(p->share[i].user);
    }
    free(p->share);
    free(p->flowing);
    free(p->dirty);
    free(p->heap);
    free(p->ready);
    free(p->span);
    free(p->stamp);
    dyti_waits_fini(&p->waits);
}

enum dyt_status dyti_replay(const struct dyti_cluster *cluster,
                            const struct dyti_piece *piece, size_t count,
                            const struct dyti_replay_options *options,
                            double *out_seconds)
{
    static const struct dyti_replay_options plain;
    struct player p = {.cluster = cluster,
                       .piece = piece,
                       .count = count,
                       .options = options != NULL ? options : &plain};
    enum dyt_status st = dyti_waits_build(cluster, piece, count, &p.waits);

    if (st == DYT_OK) {
        p.span = calloc(count + 1, sizeof(*p.span));
        p.stamp = calloc(count + 1, sizeof(*p.stamp));
        p.ready = calloc(count + 1, sizeof(*p.ready));
        if (p.span == NULL || p.stamp == NULL || p.ready == NULL) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", count);
        }
    }
    st = st != DYT_OK ? st : make_shares(&p);
    st = st != DYT_OK ? st : play(&p);
    if (st == DYT_OK) {
        *out_seconds = p.last;
    }
    player_fini(&p);
    return st;
}
