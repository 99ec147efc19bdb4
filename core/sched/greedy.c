/* List scheduling of one link class: time is counted in bytes, as all links of
 * a class are equally fast. */
#include "sched/order.h"

#include <stdlib.h>
#include <string.h>

#define NONE        UINT32_MAX
#define TABLE_RANKS 4096u

struct row { /* the edges of one rank, by side */
    uint32_t *edge;
    uint32_t count;
};

/* The least key comes out first, of equal ones the least id. */
struct item {
    uint64_t key;
    uint32_t id;
};

struct heap {
    struct item *item; /* room for all that are ever in it at once */
    size_t count;
};

struct greedy {
    const struct dyti_graph *g;
    uint32_t *edges;         /* rows' memory */
    struct row *row[2];      /* [2][ranks] */
    uint64_t *left[2];       /* [2][ranks]: bytes not yet sent, received */
    uint64_t *host_left[2];  /* [2][hosts] */
    uint32_t *slots[2];      /* [2][hosts]: in use */
    uint32_t *parts, *given; /* [edges] */
    bool *taken[2];          /* [2][ranks]: on its way */
    uint32_t *idle[2];       /* [2][ranks]: those that are not, in any order */
    uint32_t *idle_at[2];    /* [2][ranks]: where in it */
    uint32_t idle_count[2];
    /* [2][ranks][ranks]: by rank of this side and of the other the edge, or
     * NONE once all its parts have begun; NULL: not worth it */
    uint32_t *table[2];
    uint32_t *round[2]; /* [2][ranks]: next */
    struct heap busy; /* [ranks]: edges of parts on their way, by their ends */
    uint32_t *woken;  /* [2 * ranks]: rank * 2 + side, to be looked at */
    size_t woken_count;
    struct heap queue; /* [2 * ranks]: of the woken, most urgent first */
    struct dyti_takes takes;
};

/* ---- heaps -------------------------------------------------------------- */

static bool sooner(struct item a, struct item b)
{
    return a.key != b.key ? a.key < b.key : a.id < b.id;
}

static void heap_push(struct heap *h, struct item put)
{
    size_t i = h->count++;

    for (; i > 0 && sooner(put, h->item[(i - 1) / 2]); i = (i - 1) / 2) {
        h->item[i] = h->item[(i - 1) / 2];
    }
    h->item[i] = put;
}

static struct item heap_pop(struct heap *h)
{
    struct item top = h->item[0], last = h->item[--h->count];
    size_t i = 0;

    while (2 * i + 1 < h->count) {
        size_t child = 2 * i + 1;

        if (child + 1 < h->count &&
            sooner(h->item[child + 1], h->item[child])) {
            child++;
        }
        if (!sooner(h->item[child], last)) {
            break;
        }
        h->item[i] = h->item[child];
        i = child;
    }
    h->item[i] = last;
    return top;
}

/* ---- choosing ----------------------------------------------------------- */

static uint32_t end_of(const struct dyti_edge *e, int side)
{
    return side == 0 ? e->from : e->to;
}

/* How urgent is an end: its own bytes, or its host's for each of its slots. */
static uint64_t urgency(const struct greedy *s, uint32_t rank, int side)
{
    uint64_t own = s->left[side][rank], host;

    if (s->g->host_slots == 0) {
        return own;
    }
    host = s->host_left[side][s->g->host[rank]] / s->g->host_slots;
    return own > host ? own : host;
}

static bool has_slot(const struct greedy *s, uint32_t rank, int side)
{
    return s->g->host_slots == 0 ||
           s->slots[side][s->g->host[rank]] < s->g->host_slots;
}

/* The best edge so far of an end that looks for one. */
struct search {
    uint32_t edge;
    uint64_t urgency;
};

static void consider(const struct greedy *s, uint32_t edge, uint32_t other,
                     int side, struct search *best)
{
    uint64_t u;

    if (s->taken[1 - side][other] || !has_slot(s, other, 1 - side)) {
        return;
    }
    u = urgency(s, other, 1 - side);
    if (best->edge == NONE || u > best->urgency ||
        (u == best->urgency && edge < best->edge)) {
        *best = (struct search){.edge = edge, .urgency = u};
    }
}

/* The edge of a free end whose other end is free and most urgent.  Looks
 * through its own edges, dropping those that are done, or through the free
 * ends, whatever is less. */
static uint32_t choose(struct greedy *s, uint32_t rank, int side)
{
    struct row *row = &s->row[side][rank];
    struct search best = {.edge = NONE};

    if (s->taken[side][rank] || !has_slot(s, rank, side)) {
        return NONE;
    }
    if (s->table[0] != NULL && s->idle_count[1 - side] < row->count) {
        const uint32_t *edge_to =
            &s->table[side][(size_t)rank * s->g->rank_count];

        for (uint32_t i = 0; i < s->idle_count[1 - side]; i++) {
            uint32_t other = s->idle[1 - side][i];

            if (edge_to[other] != NONE) {
                consider(s, edge_to[other], other, side, &best);
            }
        }
        return best.edge;
    }
    for (uint32_t i = 0; i < row->count;) {
        uint32_t edge = row->edge[i];

        if (s->given[edge] == s->parts[edge]) {
            row->edge[i] = row->edge[--row->count];
            continue;
        }
        i++;
        consider(s, edge, end_of(&s->g->edge[edge], 1 - side), side, &best);
    }
    return best.edge;
}

static void set_taken(struct greedy *s, uint32_t rank, int side, bool taken)
{
    s->taken[side][rank] = taken;
    if (taken) {
        uint32_t at = s->idle_at[side][rank];
        uint32_t last = s->idle[side][--s->idle_count[side]];

        s->idle[side][at] = last;
        s->idle_at[side][last] = at;
    } else {
        s->idle_at[side][rank] = s->idle_count[side];
        s->idle[side][s->idle_count[side]++] = rank;
    }
}

static void set_table(struct greedy *s, const struct dyti_edge *e,
                      uint32_t value)
{
    size_t n = s->g->rank_count;

    s->table[0][e->from * n + e->to] = value;
    s->table[1][e->to * n + e->from] = value;
}

static enum dyt_status begin(struct greedy *s, uint32_t edge, uint64_t now)
{
    const struct dyti_edge *e = &s->g->edge[edge];
    uint32_t k = s->given[edge]++;
    uint64_t bytes = dyti_part_begin(e->bytes, s->parts[edge], k + 1) -
                     dyti_part_begin(e->bytes, s->parts[edge], k);
    uint32_t round = s->round[0][e->from] > s->round[1][e->to]
                         ? s->round[0][e->from]
                         : s->round[1][e->to];

    for (int side = 0; side < 2; side++) {
        uint32_t rank = end_of(e, side);

        set_taken(s, rank, side, true);
        s->left[side][rank] -= bytes;
        s->round[side][rank] = round + 1;
        if (s->g->host_slots > 0) {
            s->host_left[side][s->g->host[rank]] -= bytes;
            s->slots[side][s->g->host[rank]]++;
        }
    }
    if (s->table[0] != NULL && k + 1 == s->parts[edge]) {
        set_table(s, e, NONE);
    }
    heap_push(&s->busy, (struct item){.key = now + bytes, .id = edge});
    return dyti_take_add(&s->takes, edge, round, bytes);
}

static void wake(struct greedy *s, uint32_t edge)
{
    const struct dyti_edge *e = &s->g->edge[edge];

    for (int side = 0; side < 2; side++) {
        uint32_t rank = end_of(e, side);

        set_taken(s, rank, side, false);
        if (s->g->host_slots > 0) {
            s->slots[side][s->g->host[rank]]--;
        }
        s->woken[s->woken_count++] = rank * 2u + (uint32_t)side;
    }
}

/* With slots, an end that was woken may also free those of its host. */
static void wake_hosts(struct greedy *s)
{
    if (s->g->host_slots == 0) {
        return;
    }
    s->woken_count = 0;
    for (uint32_t i = 0; i < s->g->rank_count * 2; i++) {
        if (!s->taken[i % 2][i / 2]) {
            s->woken[s->woken_count++] = i;
        }
    }
}

/* An end that may choose, as urgent as it is now. */
static struct item urgent(const struct greedy *s, uint32_t end)
{
    return (struct item){UINT64_MAX - urgency(s, end / 2, (int)(end % 2)), end};
}

/* The woken ends choose, most urgent first.  What begins makes ends less
 * urgent, never more: one that is first in the queue and as urgent as it was
 * is the most urgent of all. */
static enum dyt_status match(struct greedy *s, uint64_t now)
{
    enum dyt_status st = DYT_OK;

    wake_hosts(s);
    for (size_t i = 0; i < s->woken_count; i++) {
        heap_push(&s->queue, urgent(s, s->woken[i]));
    }
    s->woken_count = 0;
    while (s->queue.count > 0 && st == DYT_OK) {
        struct item top = heap_pop(&s->queue), now_is = urgent(s, top.id);
        uint32_t rank = top.id / 2, edge;
        int side = (int)(top.id % 2);

        if (s->taken[side][rank]) {
            continue;
        }
        if (now_is.key != top.key) {
            heap_push(&s->queue, now_is);
            continue;
        }
        edge = choose(s, rank, side);
        if (edge != NONE) {
            st = begin(s, edge, now);
        }
    }
    return st;
}

/* ---- the whole ---------------------------------------------------------- */

/* Worth its memory where ranks talk to many. */
static enum dyt_status make_table(struct greedy *s)
{
    const struct dyti_graph *g = s->g;
    size_t n = g->rank_count;

    if (n > TABLE_RANKS || g->count < n * 16) {
        return DYT_OK;
    }
    s->table[0] = malloc(2 * n * n * sizeof(*s->table[0]));
    if (s->table[0] == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a table of %zu x %zu ranks", n, n);
    }
    s->table[1] = s->table[0] + n * n;
    memset(s->table[0], 0xff, 2 * n * n * sizeof(*s->table[0]));
    for (size_t i = 0; i < g->count; i++) {
        set_table(s, &g->edge[i], (uint32_t)i);
    }
    return DYT_OK;
}

static enum dyt_status make_rows(struct greedy *s)
{
    const struct dyti_graph *g = s->g;
    uint32_t *at;

    for (size_t i = 0; i < g->count; i++) {
        s->row[0][g->edge[i].from].count++;
        s->row[1][g->edge[i].to].count++;
    }
    at = s->edges;
    for (int side = 0; side < 2; side++) {
        for (uint32_t r = 0; r < g->rank_count; r++) {
            s->row[side][r].edge = at;
            at += s->row[side][r].count;
            s->row[side][r].count = 0;
        }
    }
    for (size_t i = 0; i < g->count; i++) {
        uint64_t parts = dyti_part_count(g->edge[i].bytes, g->chunk_bytes);

        if (parts > UINT32_MAX) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW, "%llu pieces of one flow",
                             (unsigned long long)parts);
        }
        s->parts[i] = (uint32_t)parts;
        for (int side = 0; side < 2; side++) {
            uint32_t rank = end_of(&g->edge[i], side);
            struct row *row = &s->row[side][rank];

            row->edge[row->count++] = (uint32_t)i;
            s->left[side][rank] += g->edge[i].bytes;
            if (g->host_slots > 0) {
                s->host_left[side][g->host[rank]] += g->edge[i].bytes;
            }
        }
    }
    for (int side = 0; side < 2; side++) {
        for (uint32_t r = 0; r < g->rank_count; r++) {
            if (s->row[side][r].count > 0) {
                s->idle_at[side][r] = s->idle_count[side];
                s->idle[side][s->idle_count[side]++] = r;
            }
        }
    }
    return make_table(s);
}

static enum dyt_status greedy_init(struct greedy *s)
{
    size_t n = s->g->rank_count, hosts = s->g->host_count;
    bool ok;

    s->edges = malloc((2 * s->g->count + 1) * sizeof(*s->edges));
    s->parts = calloc(s->g->count + 1, sizeof(*s->parts));
    s->given = calloc(s->g->count + 1, sizeof(*s->given));
    s->busy.item = malloc((n + 1) * sizeof(*s->busy.item));
    s->woken = malloc((2 * n + 1) * sizeof(*s->woken));
    s->queue.item = malloc((2 * n + 1) * sizeof(*s->queue.item));
    ok = s->edges != NULL && s->parts != NULL && s->given != NULL &&
         s->busy.item != NULL && s->woken != NULL && s->queue.item != NULL;
    for (int side = 0; side < 2; side++) {
        s->row[side] = calloc(n + 1, sizeof(*s->row[side]));
        s->left[side] = calloc(n + 1, sizeof(*s->left[side]));
        s->taken[side] = calloc(n + 1, sizeof(*s->taken[side]));
        s->idle[side] = calloc(n + 1, sizeof(*s->idle[side]));
        s->idle_at[side] = calloc(n + 1, sizeof(*s->idle_at[side]));
        s->round[side] = calloc(n + 1, sizeof(*s->round[side]));
        s->host_left[side] = calloc(hosts + 1, sizeof(*s->host_left[side]));
        s->slots[side] = calloc(hosts + 1, sizeof(*s->slots[side]));
        ok = ok && s->row[side] != NULL && s->left[side] != NULL &&
             s->taken[side] != NULL && s->idle[side] != NULL &&
             s->idle_at[side] != NULL && s->round[side] != NULL &&
             s->host_left[side] != NULL && s->slots[side] != NULL;
    }
    return ok ? make_rows(s)
              : DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows of %zu ranks", s->g->count,
                          n);
}

static void greedy_fini(struct greedy *s)
{
    for (int side = 0; side < 2; side++) {
        free(s->row[side]);
        free(s->left[side]);
        free(s->taken[side]);
        free(s->idle[side]);
        free(s->idle_at[side]);
        free(s->round[side]);
        free(s->host_left[side]);
        free(s->slots[side]);
    }
    free(s->table[0]); /* and the one behind it */
    free(s->edges);
    free(s->parts);
    free(s->given);
    free(s->busy.item);
    free(s->woken);
    free(s->queue.item);
    free(s->takes.take);
}

enum dyt_status dyti_takes_greedy(const struct dyti_graph *graph,
                                  struct dyti_takes *out_takes)
{
    struct greedy s = {.g = graph};
    enum dyt_status st = greedy_init(&s);

    if (st == DYT_OK) {
        for (uint32_t i = 0; i < graph->rank_count * 2; i++) {
            if (s.row[i % 2][i / 2].count > 0) {
                s.woken[s.woken_count++] = i;
            }
        }
        st = match(&s, 0);
    }
    while (st == DYT_OK && s.busy.count > 0) {
        uint64_t now = s.busy.item[0].key;

        while (s.busy.count > 0 && s.busy.item[0].key == now) {
            wake(&s, heap_pop(&s.busy).id);
        }
        st = match(&s, now);
    }
    if (st == DYT_OK) {
        *out_takes = s.takes;
        s.takes = (struct dyti_takes){0};
    }
    greedy_fini(&s);
    return st;
}
