/* König's theorem as an algorithm: the parts are coloured one after the other;
 * where the two ends have no free colour in common, two colours are exchanged
 * along a path.  A colour is a round. */
#include "sched/order.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
/* Parts of a rank up to which they are looked through for a colour: thousands
 * of ranks that hear from one would need a row of thousands each. */
#define FEW 32u

struct colouring {
    uint32_t colours; /* the busiest rank's parts */
    size_t words;     /* of a set of colours */
    /* Which part has a colour at this end: in a row of all colours, or of the
     * rank's own parts the one that has it. */
    uint32_t *at[2];    /* [rows][colours] */
    uint32_t *row[2];   /* [ranks]; NONE: few parts */
    uint32_t *first[2]; /* [ranks + 1]: of its own */
    uint32_t *own[2];   /* [parts], by rank */
    uint64_t *free[2];  /* [2][ranks][words]: colours not in use */
    uint32_t (*end)[2]; /* [parts]: row, column */
    uint32_t *colour;   /* [parts]; NONE: not yet */
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

        if (c->row[side][v] != NONE) {
            c->at[side][(size_t)c->row[side][v] * c->colours + colour] =
                on ? part : NONE;
        }
        if (on) {
            c->free[side][v * c->words + colour / 64] &= ~bit;
        } else {
            c->free[side][v * c->words + colour / 64] |= bit;
        }
    }
    c->colour[part] = on ? colour : NONE;
}

/* The part of this colour at an end, or NONE. */
static uint32_t part_at(const struct colouring *c, int side, size_t v,
                        uint32_t colour)
{
    if (c->row[side][v] != NONE) {
        return c->at[side][(size_t)c->row[side][v] * c->colours + colour];
    }
    for (uint32_t i = c->first[side][v]; i < c->first[side][v + 1]; i++) {
        if (c->colour[c->own[side][i]] == colour) {
            return c->own[side][i];
        }
    }
    return NONE;
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
    uint32_t part = part_at(c, side, v, want);

    while (part != NONE) {
        c->path[count++] = part;
        side = 1 - side;
        v = c->end[part][side];
        want = want == a ? b : a;
        part = part_at(c, side, v, want);
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
        free(c->row[side]);
        free(c->first[side]);
        free(c->own[side]);
        free(c->free[side]);
    }
    free(c->end);
    free(c->colour);
    free(c->path);
    free(c->edge);
    free(c->parts);
}

/* How many parts each edge has; of each rank they are counted in first[v+1]. */
static enum dyt_status count_parts(const struct dyti_graph *g,
                                   struct colouring *c)
{
    c->parts = calloc(g->count + 1, sizeof(*c->parts));
    for (int side = 0; side < 2; side++) {
        c->first[side] = calloc(g->rank_count + 2u, sizeof(*c->first[side]));
    }
    if (c->parts == NULL || c->first[0] == NULL || c->first[1] == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows of %u ranks", g->count,
                         g->rank_count);
    }
    for (size_t i = 0; i < g->count; i++) {
        uint64_t parts = dyti_part_count(g->edge[i].bytes, g->chunk_bytes);
        uint32_t *a = &c->first[0][g->edge[i].from + 1];
        uint32_t *b = &c->first[1][g->edge[i].to + 1];

        c->part_count += parts;
        if (parts > UINT32_MAX || c->part_count >= NONE) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW,
                             "more than 2^32 pieces of %llu bytes",
                             (unsigned long long)g->chunk_bytes);
        }
        c->parts[i] = (uint32_t)parts;
        *a += (uint32_t)parts;
        *b += (uint32_t)parts;
        c->colours = *a > c->colours ? *a : c->colours;
        c->colours = *b > c->colours ? *b : c->colours;
    }
    return DYT_OK;
}

/* Rows of those that have many parts, and where the parts of each begin. */
static enum dyt_status make_rows(const struct dyti_graph *g,
                                 struct colouring *c, int side)
{
    uint32_t n = g->rank_count, rows = 0;
    uint32_t *first = c->first[side];

    c->row[side] = malloc((n + 1u) * sizeof(*c->row[side]));
    c->own[side] = malloc((c->part_count + 1) * sizeof(*c->own[side]));
    if (c->row[side] == NULL || c->own[side] == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", c->part_count);
    }
    for (uint32_t v = 0; v < n; v++) {
        c->row[side][v] = first[v + 1] > FEW ? rows++ : NONE;
        first[v + 1] += first[v];
    }
    c->at[side] =
        malloc(((size_t)rows * c->colours + 1) * sizeof(*c->at[side]));
    c->free[side] = malloc((n * c->words + 1) * sizeof(*c->free[side]));
    if (c->at[side] == NULL || c->free[side] == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces in %u rounds",
                         c->part_count, c->colours);
    }
    memset(c->at[side], 0xff, (size_t)rows * c->colours * sizeof(*c->at[side]));
    memset(c->free[side], 0xff, n * c->words * sizeof(*c->free[side]));
    for (uint32_t v = 0; v < n && c->colours % 64 != 0; v++) {
        c->free[side][(v + 1) * c->words - 1] = (1ull << c->colours % 64) - 1;
    }
    return DYT_OK;
}

/* One part of each edge in turn: an edge's parts spread over the rounds. */
static void list_parts(const struct dyti_graph *g, struct colouring *c,
                       uint32_t *filled[2])
{
    uint32_t part = 0;

    for (uint32_t turn = 0; part < c->part_count; turn++) {
        for (size_t i = 0; i < g->count; i++) {
            if (turn >= c->parts[i]) {
                continue;
            }
            c->end[part][0] = g->edge[i].from;
            c->end[part][1] = g->edge[i].to;
            c->edge[part] = (uint32_t)i;
            for (int side = 0; side < 2; side++) {
                uint32_t v = c->end[part][side];

                c->own[side][c->first[side][v] + filled[side][v]++] = part;
            }
            part++;
        }
    }
}

static enum dyt_status colouring_init(const struct dyti_graph *g,
                                      struct colouring *c)
{
    size_t n = g->rank_count, most;
    uint32_t *filled[2] = {calloc(n + 1, sizeof(**filled)),
                           calloc(n + 1, sizeof(**filled))};
    enum dyt_status st = count_parts(g, c);

    most = c->part_count;
    c->words = (c->colours + 63u) / 64u;
    for (int side = 0; side < 2 && st == DYT_OK; side++) {
        st = make_rows(g, c, side);
    }
    if (st != DYT_OK) {
        goto out;
    }
    c->end = malloc((most + 1) * sizeof(*c->end));
    c->colour = malloc((most + 1) * sizeof(*c->colour));
    c->edge = malloc((most + 1) * sizeof(*c->edge));
    c->path = malloc((2 * n + 2) * sizeof(*c->path));
    if (c->end == NULL || c->colour == NULL || c->path == NULL ||
        c->edge == NULL || filled[0] == NULL || filled[1] == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces in %u rounds", most,
                       c->colours);
        goto out;
    }
    memset(c->colour, 0xff, most * sizeof(*c->colour));
    list_parts(g, c, filled);
out:
    free(filled[0]);
    free(filled[1]);
    return st;
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

    for (uint32_t part = 0; st == DYT_OK && part < c.part_count; part++) {
        colour_part(&c, part);
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
