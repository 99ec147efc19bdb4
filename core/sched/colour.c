/* König's theorem as an algorithm: the parts are coloured one after the other;
 * where the two ends have no free colour in common, two colours are exchanged
 * along a path.  A colour is a round. */
#include "sched/order.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct colouring {
    uint32_t colours; /* the busiest rank's parts */
    size_t words;     /* of a set of colours */
    /* [2][ranks][colours]: which part has this colour at this end */
    uint32_t *at[2];
    uint64_t *free[2];  /* [2][ranks][words]: colours not in use */
    uint32_t (*end)[2]; /* [parts]: row, column */
    uint32_t *colour;   /* [parts] */
    uint32_t *edge;     /* [parts]: of the graph */
    uint32_t *path;     /* [2 * ranks + 1] */
    uint32_t *parts;    /* [edges] */
    size_t part_count;
};

static uint32_t lowest(const uint64_t *set, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        if (set[i] != 0) {
            return (uint32_t)(i * 64 + (size_t)__builtin_ctzll(set[i]));
        }
    }
    return NONE;
}

static uint32_t lowest_of_both(const uint64_t *a, const uint64_t *b,
                               size_t words)
{
    for (size_t i = 0; i < words; i++) {
        if ((a[i] & b[i]) != 0) {
            return (uint32_t)(i * 64 + (size_t)__builtin_ctzll(a[i] & b[i]));
        }
    }
    return NONE;
}

static void set_colour(struct colouring *c, uint32_t part, uint32_t colour,
                       bool on)
{
    for (int side = 0; side < 2; side++) {
        size_t v = c->end[part][side];
        uint64_t bit = 1ull << (colour % 64);

        if (on) {
            c->at[side][v * c->colours + colour] = part;
            c->free[side][v * c->words + colour / 64] &= ~bit;
        } else {
            c->at[side][v * c->colours + colour] = NONE;
            c->free[side][v * c->words + colour / 64] |= bit;
        }
    }
    c->colour[part] = colour;
}

/* `a` is free at the part's row, `b` at its column.  Exchange both along the
 * path that starts at the column with `a`: it cannot end at the row, which it
 * would enter by `a`; after it `a` is free at the column too. */
static void exchange(struct colouring *c, uint32_t column, uint32_t a,
                     uint32_t b)
{
    uint32_t want = a;
    size_t v = column, count = 0;
    int side = 1;
    uint32_t part = c->at[side][v * c->colours + want];

    while (part != NONE) {
        c->path[count++] = part;
        side = 1 - side;
        v = c->end[part][side];
        want = want == a ? b : a;
        part = c->at[side][v * c->colours + want];
    }
    for (size_t i = 0; i < count; i++) { /* every other one has `a` */
        set_colour(c, c->path[i], i % 2 == 0 ? a : b, false);
    }
    for (size_t i = 0; i < count; i++) {
        set_colour(c, c->path[i], i % 2 == 0 ? b : a, true);
    }
}

static void colour_part(struct colouring *c, uint32_t part)
{
    const uint64_t *row = &c->free[0][c->end[part][0] * c->words];
    const uint64_t *column = &c->free[1][c->end[part][1] * c->words];
    uint32_t colour = lowest_of_both(row, column, c->words);

    if (colour == NONE) {
        colour = lowest(row, c->words);
        exchange(c, c->end[part][1], colour, lowest(column, c->words));
    }
    set_colour(c, part, colour, true);
}

static void colouring_fini(struct colouring *c)
{
    for (int side = 0; side < 2; side++) {
        free(c->at[side]);
        free(c->free[side]);
    }
    free(c->end);
    free(c->colour);
    free(c->path);
    free(c->edge);
    free(c->parts);
}

/* How many parts each edge has, and the degrees that follow. */
static enum dyt_status count_parts(const struct dyti_graph *g,
                                   struct colouring *c)
{
    size_t n = g->rank_count;
    uint32_t *degree = calloc(2 * n + 1, sizeof(*degree));
    enum dyt_status st = DYT_OK;

    c->parts = calloc(g->count + 1, sizeof(*c->parts));
    if (degree == NULL || c->parts == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows of %zu ranks", g->count, n);
    }
    for (size_t i = 0; i < g->count && st == DYT_OK; i++) {
        uint64_t parts = dyti_part_count(g->edge[i].bytes, g->chunk_bytes);
        uint32_t *a = &degree[g->edge[i].from];
        uint32_t *b = &degree[n + g->edge[i].to];

        c->part_count += parts;
        if (parts > UINT32_MAX || c->part_count >= NONE) {
            st = DYTI_FAIL(DYT_ERR_OVERFLOW,
                           "more than 2^32 pieces of %llu bytes",
                           (unsigned long long)g->chunk_bytes);
            break;
        }
        c->parts[i] = (uint32_t)parts;
        *a += (uint32_t)parts;
        *b += (uint32_t)parts;
        c->colours = *a > c->colours ? *a : c->colours;
        c->colours = *b > c->colours ? *b : c->colours;
    }
    free(degree);
    return st;
}

static enum dyt_status colouring_init(const struct dyti_graph *g,
                                      struct colouring *c)
{
    size_t n = g->rank_count, most;
    enum dyt_status st = count_parts(g, c);

    if (st != DYT_OK) {
        return st;
    }
    most = c->part_count;
    c->words = (c->colours + 63u) / 64u;
    c->end = malloc((most + 1) * sizeof(*c->end));
    c->colour = malloc((most + 1) * sizeof(*c->colour));
    c->edge = malloc((most + 1) * sizeof(*c->edge));
    c->path = malloc((2 * n + 2) * sizeof(*c->path));
    for (int side = 0; side < 2; side++) {
        c->at[side] = malloc((n * c->colours + 1) * sizeof(*c->at[side]));
        c->free[side] = calloc(n * c->words + 1, sizeof(*c->free[side]));
    }
    if (c->end == NULL || c->colour == NULL || c->path == NULL ||
        c->edge == NULL || c->at[0] == NULL || c->at[1] == NULL ||
        c->free[0] == NULL || c->free[1] == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces in %u rounds", most,
                         c->colours);
    }
    for (int side = 0; side < 2; side++) {
        memset(c->at[side], 0xff, n * c->colours * sizeof(*c->at[side]));
        for (size_t i = 0; i < n * c->colours; i++) {
            c->free[side][i / c->colours * c->words + i % c->colours / 64] |=
                1ull << (i % c->colours % 64);
        }
    }
    return DYT_OK;
}

/* Longest rounds first: what is left at the end is short. */
struct round_size {
    uint64_t bytes;
    uint32_t colour;
};

static int compare_size(const void *a, const void *b)
{
    const struct round_size *x = a, *y = b;

    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return (x->colour > y->colour) - (x->colour < y->colour);
}

static uint64_t part_bytes(const struct dyti_graph *g,
                           const struct colouring *c, uint32_t edge)
{
    return g->edge[edge].bytes / c->parts[edge];
}

static enum dyt_status emit(const struct dyti_graph *g, struct colouring *c,
                            struct dyti_takes *out)
{
    struct round_size *size = calloc(c->colours + 1, sizeof(*size));
    uint32_t *round = calloc(c->colours + 1, sizeof(*round));
    uint32_t *given = calloc(g->count + 1, sizeof(*given));
    enum dyt_status st = DYT_OK;

    if (size == NULL || round == NULL || given == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%u rounds", c->colours);
        goto out;
    }
    for (uint32_t k = 0; k < c->colours; k++) {
        size[k].colour = k;
    }
    for (size_t i = 0; i < c->part_count; i++) {
        size[c->colour[i]].bytes += part_bytes(g, c, c->edge[i]);
    }
    qsort(size, c->colours, sizeof(*size), compare_size);
    for (uint32_t k = 0; k < c->colours; k++) {
        round[size[k].colour] = k;
    }
    for (size_t i = 0; i < c->part_count && st == DYT_OK; i++) {
        uint32_t e = c->edge[i], k = given[e]++;
        uint64_t bytes = g->edge[e].bytes;

        st = dyti_take_add(out, e, round[c->colour[i]],
                           dyti_part_begin(bytes, c->parts[e], k + 1) -
                               dyti_part_begin(bytes, c->parts[e], k));
    }
out:
    free(size);
    free(round);
    free(given);
    return st;
}

enum dyt_status dyti_takes_coloured(const struct dyti_graph *graph,
                                    struct dyti_takes *out_takes)
{
    struct colouring c = {0};
    struct dyti_takes takes = {0};
    enum dyt_status st = colouring_init(graph, &c);
    uint32_t part = 0, left = 1;

    /* one part of each edge in turn: an edge's parts spread over the rounds */
    for (uint32_t turn = 0; st == DYT_OK && left > 0; turn++) {
        left = 0;
        for (size_t i = 0; i < graph->count; i++) {
            if (turn < c.parts[i]) {
                c.end[part][0] = graph->edge[i].from;
                c.end[part][1] = graph->edge[i].to;
                c.edge[part] = (uint32_t)i;
                colour_part(&c, part++);
                left++;
            }
        }
    }
    st = st != DYT_OK ? st : emit(graph, &c, &takes);
    if (st == DYT_OK) {
        *out_takes = takes;
    } else {
        free(takes.take);
    }
    colouring_fini(&c);
    return st;
}
