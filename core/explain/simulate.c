/* Plays the pieces with all costs and keeps what it sees. */
#include "explain/simulate.h"

#include "base/array.h"
#include "base/num.h"
#include "base/sort.h"
#include "explain/rings.h"
#include "explain/words.h"
#include "explain/work.h"
#include "sched/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE DYTI_REPLAY_NONE
/* A link that is busy for so much of the time is what holds things up. */
#define MOST 0.6

/* Staging memory comes and goes. */
struct change {
    double at;
    int64_t bytes;
    uint32_t rank;
};

struct simulator {
    const struct dyti_simulate_inputs *in;
    const struct dyti_cluster *cluster;
    struct dyti_piece *piece; /* collectives of wave 0, pieces, the others */
    size_t count, cap;
    size_t *fence;
    uint32_t *before; /* [count] hop before, or NONE */
    bool *passes;     /* [count] another hop follows */
    double *start;    /* [count] */
    struct change *change;
    size_t change_count, change_cap;
    size_t bar_cap;
    double *post_s; /* [rank_count][link classes] of sending messages */
    double *work_s; /* [rank_count] beside its links */
    double moved_s; /* when the last piece arrived */
    struct dyti_simulation out;
    enum dyt_status status;
};

void dyti_simulation_fini(struct dyti_simulation *simulation)
{
    free(simulation->peak_staging);
    free(simulation->done_s);
    free(simulation->bar);
    free(simulation->memory);
    *simulation = (struct dyti_simulation){0};
}

/* ---- what is played ----------------------------------------------------- */

static enum dyt_status gather_pieces(struct simulator *s)
{
    const struct dyti_simulate_inputs *in = s->in;
    size_t shift, more = in->pieces != NULL ? in->pieces->count : 0;
    enum dyt_status st = DYT_OK;

    if (in->promotion != NULL) {
        st = dyti_rings_add(s->cluster, in->promotion, false,
                            in->collective_chunk_bytes, &s->piece, &s->count,
                            &s->cap);
    }
    shift = s->count;
    st = st != DYT_OK ? st : DYTI_GROW(s->piece, s->cap, s->count + more + 1);
    if (st == DYT_OK && more > 0) {
        memcpy(s->piece + s->count, in->pieces->piece,
               more * sizeof(*s->piece));
        s->count += more;
    }
    if (st == DYT_OK && in->promotion != NULL) {
        st = dyti_rings_add(s->cluster, in->promotion, true,
                            in->collective_chunk_bytes, &s->piece, &s->count,
                            &s->cap);
    }
    if (st == DYT_OK && in->fence_count > 0) {
        s->fence = malloc(in->fence_count * sizeof(*s->fence));
        if (s->fence == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%zu fences", in->fence_count);
        }
        for (size_t i = 0; i < in->fence_count; i++) {
            s->fence[i] = in->fence[i] + shift;
        }
    }
    return st;
}

static enum dyt_status check_speeds(const struct simulator *s)
{
    const struct dyti_cluster *c = s->cluster;

    for (size_t i = 0; i < s->count; i++) {
        enum dyti_link_class k;

        if (s->piece[i].from >= c->rank_count ||
            s->piece[i].to >= c->rank_count ||
            s->piece[i].hi <= s->piece[i].lo) {
            return DYTI_FAIL(DYT_ERR_INVALID, "piece %zu is none of %u ranks",
                             i, c->rank_count);
        }
        k = dyti_cluster_link(c, s->piece[i].from, s->piece[i].to);
        if (!(c->link[k].bytes_per_s > 0.0)) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "the cluster's %s link has no speed",
                             dyti_link_class_name(k));
        }
    }
    return DYT_OK;
}

/* Which pieces pass through a rank. */
static enum dyt_status find_hops(struct simulator *s)
{
    struct dyti_waits w;
    enum dyt_status st = dyti_waits_build(s->cluster, s->piece, s->count, &w);

    if (st != DYT_OK) {
        return st;
    }
    s->before = malloc((s->count + 1) * sizeof(*s->before));
    s->passes = calloc(s->count + 1, sizeof(*s->passes));
    s->start = calloc(s->count + 1, sizeof(*s->start));
    if (s->before == NULL || s->passes == NULL || s->start == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", s->count);
    } else {
        memset(s->before, 0xff, s->count * sizeof(*s->before));
        for (size_t i = 0; i < s->count; i++) {
            if (w.next_hop[i] != NONE) {
                s->before[w.next_hop[i]] = (uint32_t)i;
                s->passes[i] = true;
            }
        }
    }
    dyti_waits_fini(&w);
    return st;
}

/* ---- what is seen ------------------------------------------------------- */

static void add_change(struct simulator *s, uint32_t rank, double from,
                       double to, uint64_t bytes)
{
    if (s->status == DYT_OK) {
        s->status = DYTI_GROW(s->change, s->change_cap, s->change_count + 2);
    }
    if (s->status == DYT_OK) {
        s->change[s->change_count++] =
            (struct change){from, (int64_t)bytes, rank};
        s->change[s->change_count++] =
            (struct change){to, -(int64_t)bytes, rank};
    }
}

static void add_bar(struct simulator *s, const struct dyti_bar *bar)
{
    if (s->status == DYT_OK) {
        s->status = DYTI_GROW(s->out.bar, s->bar_cap, s->out.bar_count + 1);
    }
    if (s->status == DYT_OK) {
        s->out.bar[s->out.bar_count++] = *bar;
    }
}

static void see_end(void *arg, size_t index,
                    const struct dyti_replay_span *span)
{
    struct simulator *s = arg;
    const struct dyti_piece *p = &s->piece[index];
    enum dyti_link_class k = dyti_cluster_link(s->cluster, p->from, p->to);
    uint32_t messages = p->messages > 0 ? p->messages : 1;
    struct dyti_bar bar = {.rank = p->from,
                           .peer = p->to,
                           .link = (uint8_t)k,
                           .start_s = span->start_s,
                           .end_s = span->end_s,
                           .bytes = p->hi - p->lo};
    double *from = &s->out.done_s[p->from], *to = &s->out.done_s[p->to];

    s->start[index] = span->start_s;
    s->out.bytes[k] += bar.bytes;
    s->out.messages[k] += messages;
    s->post_s[p->from * (size_t)DYTI_LINK_CLASS_COUNT + k] +=
        messages * s->cluster->link[k].message_s;
    *from = dyti_max_f64(*from, span->end_s);
    *to = dyti_max_f64(*to, span->arrive_s);
    s->moved_s = dyti_max_f64(s->moved_s, span->arrive_s);
    /* at the sender: its own packing, or what came by the hop before */
    if (s->before[index] == NONE) {
        add_change(s, p->from, span->start_s, span->end_s, bar.bytes);
    } else {
        add_change(s, p->from, s->start[s->before[index]], span->end_s,
                   bar.bytes);
    }
    if (!s->passes[index]) {
        add_change(s, p->to, span->start_s, span->arrive_s, bar.bytes);
    }
    if (s->in->gantt) {
        add_bar(s, &bar);
        bar.rank = p->to;
        bar.peer = p->from;
        bar.receiving = true;
        add_bar(s, &bar);
    }
}

/* ---- bars and memory ---------------------------------------------------- */

static int compare_bar(const void *a, const void *b)
{
    const struct dyti_bar *x = a, *y = b;
    uint32_t p[] = {x->rank, x->link, x->receiving};
    uint32_t q[] = {y->rank, y->link, y->receiving};

    for (size_t i = 0; i < sizeof(p) / sizeof(p[0]); i++) {
        if (p[i] != q[i]) {
            return p[i] < q[i] ? -1 : 1;
        }
    }
    return x->start_s != y->start_s ? (x->start_s < y->start_s ? -1 : 1)
                                    : (x->peer > y->peer) - (x->peer < y->peer);
}

static uint64_t place_of_bar(const void *item)
{
    const struct dyti_bar *b = item;

    return ((uint64_t)b->rank << 8 | b->link) << 1 | b->receiving;
}

/* Sorted; messages to the same peer without a pause between are one bar. */
static void join_bars(struct dyti_simulation *out)
{
    size_t kept = 0;

    if (out->bar_count == 0) {
        return;
    }
    dyti_sort(out->bar, out->bar_count, sizeof(*out->bar), place_of_bar,
              compare_bar);
    for (size_t i = 1; i < out->bar_count; i++) {
        struct dyti_bar *last = &out->bar[kept], *next = &out->bar[i];

        if (last->rank == next->rank && last->link == next->link &&
            last->receiving == next->receiving && last->peer == next->peer &&
            next->start_s <= last->end_s + 1e-9 * out->seconds) {
            last->end_s = dyti_max_f64(last->end_s, next->end_s);
            last->bytes += next->bytes;
        } else {
            out->bar[++kept] = *next;
        }
    }
    out->bar_count = kept + 1;
}

static int compare_change(const void *a, const void *b)
{
    const struct change *x = a, *y = b;

    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    if (x->at != y->at) {
        return x->at < y->at ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* free first */
}

static uint64_t place_of_change(const void *item)
{
    return ((const struct change *)item)->rank;
}

static void fill_buckets(struct simulator *s, uint32_t rank, double from,
                         double to, uint64_t bytes)
{
    uint32_t n = s->out.memory_buckets;
    double width = s->out.seconds / (n > 0 ? n : 1);
    uint32_t lo, hi;

    if (n == 0 || !(width > 0.0)) {
        return;
    }
    lo = (uint32_t)dyti_min_f64(from / width, n - 1.0);
    hi = (uint32_t)dyti_min_f64(to / width, n - 1.0);
    bytes += s->in->resident_bytes != NULL ? s->in->resident_bytes[rank] : 0;
    for (uint32_t k = lo; k <= hi; k++) {
        uint64_t *most = &s->out.memory[(size_t)rank * n + k];

        *most = bytes > *most ? bytes : *most;
    }
}

static void add_up_memory(struct simulator *s)
{
    int64_t now = 0;

    dyti_sort(s->change, s->change_count, sizeof(*s->change), place_of_change,
              compare_change);
    for (uint32_t r = 0; r < s->cluster->rank_count; r++) {
        fill_buckets(s, r, 0.0, s->out.seconds, 0);
    }
    for (size_t i = 0; i < s->change_count; i++) {
        const struct change *c = &s->change[i];
        double until =
            i + 1 < s->change_count && c[1].rank == c->rank ? c[1].at : c->at;

        now = i > 0 && c[-1].rank == c->rank ? now + c->bytes : c->bytes;
        if (now > 0) {
            uint64_t *peak = &s->out.peak_staging[c->rank];

            *peak = (uint64_t)now > *peak ? (uint64_t)now : *peak;
            fill_buckets(s, c->rank, c->at, until, (uint64_t)now);
        }
    }
    for (uint32_t r = 0; r < s->cluster->rank_count; r++) {
        uint64_t peak = s->out.peak_staging[r];

        s->out.staging_most =
            peak > s->out.staging_most ? peak : s->out.staging_most;
    }
}

/* ---- what holds it up --------------------------------------------------- */

static void name_busiest(const struct dyti_busiest *b, char *text, size_t bytes)
{
    if (b->place == DYTI_PLACE_HOST && b->link == DYTI_LINK_HOST) {
        snprintf(text, bytes, "memory of host %u", b->at);
    } else if (b->place == DYTI_PLACE_HOST) {
        snprintf(text, bytes, "NICs of host %u, %s", b->at,
                 b->receiving ? "receiving" : "sending");
    } else if (b->place == DYTI_PLACE_CORE) {
        snprintf(text, bytes, "core of the fabric, %s",
                 b->at == 0 ? "upward" : "downward");
    } else {
        snprintf(text, bytes, "%s link of rank %u, %s",
                 dyti_link_class_name(b->link), b->at,
                 b->receiving ? "receiving" : "sending");
    }
}

/* The rank that posts longest.  Link classes work side by side, and of the
 * latencies of one after the other only the last is not hidden. */
static uint32_t find_poster(struct simulator *s)
{
    uint32_t poster = 0;

    for (uint32_t r = 0; r < s->cluster->rank_count; r++) {
        const double *post = &s->post_s[r * (size_t)DYTI_LINK_CLASS_COUNT];

        for (uint32_t k = 0; k < DYTI_LINK_CLASS_COUNT; k++) {
            double took =
                post[k] > 0.0 ? post[k] + s->cluster->link[k].latency_s : 0.0;

            if (took > s->out.message_s) {
                s->out.message_s = took;
                poster = r;
            }
        }
    }
    return poster;
}

/* Where none of them explains the time, the one that comes nearest is named. */
static void find_bottleneck(struct simulator *s, const struct dyti_work *work)
{
    struct dyti_simulation *o = &s->out;
    uint32_t last = 0, poster = find_poster(s);
    bool full = o->busiest.seconds >= MOST * o->seconds;
    bool posts = !full && o->message_s > o->busiest.seconds;
    double most = posts ? o->message_s : o->busiest.seconds;
    char place[64], share[2 * sizeof(struct dyti_words) + 8];

    for (uint32_t r = 0; r < s->cluster->rank_count; r++) {
        last = o->done_s[r] > o->done_s[last] ? r : last;
    }
    name_busiest(&o->busiest, place, sizeof(place));
    if (posts) {
        snprintf(place, sizeof(place), "posting of rank %u's messages", poster);
    }
    snprintf(share, sizeof(share), "%s of %s", dyti_words_seconds(most).text,
             dyti_words_seconds(o->seconds).text);
    if (!(o->seconds > 0.0)) {
        snprintf(o->text, sizeof(o->text), "nothing moves");
    } else if (work->seconds >= s->moved_s) {
        o->bottleneck =
            work->cores ? DYTI_BOTTLENECK_CORES : DYTI_BOTTLENECK_COPIES;
        o->at = work->at;
        snprintf(o->text, sizeof(o->text), "%s %u: %s",
                 work->cores ? "cores of host" : "copies inside rank", work->at,
                 dyti_words_seconds(work->seconds).text);
    } else if (full || (posts && o->message_s + o->busiest.seconds >=
                                     MOST * o->seconds)) {
        o->bottleneck =
            posts ? DYTI_BOTTLENECK_MESSAGES : DYTI_BOTTLENECK_BYTES;
        o->at = posts ? poster : o->busiest.at;
        snprintf(o->text, sizeof(o->text), "%s: %s", place, share);
    } else {
        o->bottleneck = DYTI_BOTTLENECK_WAITING;
        o->at = last;
        snprintf(o->text, sizeof(o->text),
                 "rank %u waits for others; the busiest, %s, needs %s", last,
                 place, share);
    }
}

/* ---- the whole ---------------------------------------------------------- */

static void add_kept(struct simulator *s)
{
    for (uint32_t r = 0; r < s->cluster->rank_count; r++) {
        s->out.bytes[DYTI_LINK_SELF] +=
            s->in->keep_bytes != NULL ? s->in->keep_bytes[r] : 0;
        s->out.done_s[r] = dyti_max_f64(s->out.done_s[r], s->work_s[r]);
    }
}

static enum dyt_status simulator_init(struct simulator *s)
{
    size_t n = s->cluster->rank_count;

    s->out.rank_count = s->cluster->rank_count;
    s->out.memory_buckets = s->in->memory_buckets;
    s->out.peak_staging = calloc(n + 1, sizeof(*s->out.peak_staging));
    s->out.done_s = calloc(n + 1, sizeof(*s->out.done_s));
    s->post_s = calloc(n * DYTI_LINK_CLASS_COUNT + 1, sizeof(*s->post_s));
    s->work_s = calloc(n + 1, sizeof(*s->work_s));
    s->out.memory =
        calloc(n * s->in->memory_buckets + 1, sizeof(*s->out.memory));
    if (s->out.peak_staging == NULL || s->out.done_s == NULL ||
        s->post_s == NULL || s->work_s == NULL || s->out.memory == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu ranks", n);
    }
    return DYT_OK;
}

static void simulator_fini(struct simulator *s)
{
    free(s->piece);
    free(s->fence);
    free(s->before);
    free(s->passes);
    free(s->start);
    free(s->change);
    free(s->post_s);
    free(s->work_s);
    dyti_simulation_fini(&s->out);
}

enum dyt_status dyti_simulate(const struct dyti_simulate_inputs *in,
                              struct dyti_simulation *out_simulation)
{
    struct simulator s = {.in = in, .cluster = in->cluster};
    struct dyti_replay_options play = {.costs = true, .ended = see_end};
    struct dyti_work work = {0};
    double seconds = 0.0;
    enum dyt_status st = simulator_init(&s);

    st = st != DYT_OK ? st : gather_pieces(&s);
    st = st != DYT_OK ? st : check_speeds(&s);
    st = st != DYT_OK ? st : find_hops(&s);
    if (st == DYT_OK) {
        play.arg = &s;
        play.fence = s.fence;
        play.fence_count = in->fence_count;
        st = dyti_replay(s.cluster, s.piece, s.count, &play, &seconds);
    }
    st = st != DYT_OK ? st : s.status;
    st = st != DYT_OK ? st
                      : dyti_busiest_of_pieces(s.cluster, s.piece, s.count,
                                               &s.out.busiest);
    st =
        st != DYT_OK ? st : dyti_work_of(in, s.piece, s.count, s.work_s, &work);
    if (st == DYT_OK) {
        s.out.seconds =
            dyti_max_f64(s.moved_s, work.seconds) + in->cluster->start_s;
        add_kept(&s);
        join_bars(&s.out);
        add_up_memory(&s);
        find_bottleneck(&s, &work);
        *out_simulation = s.out;
        s.out = (struct dyti_simulation){0};
    } else {
        DYTI_NOTE("simulating %zu pieces", s.count);
    }
    simulator_fini(&s);
    return st;
}
