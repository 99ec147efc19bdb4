/* Slices: as long as it is doubly stochastic, a matrix has a perfect matching
 * in its positive entries (Birkhoff, von Neumann).  Entries of at least `r` are
 * looked at first, and a matching of them is sent for r bytes; where there is
 * none, r is halved.  Rows and columns that have less than the busiest are
 * stuffed with bytes that nobody sends. */
#include "sched/order.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
/* Slices end where less than 1/TAIL of the load is left: the rest goes as it
 * comes. */
#define TAIL 512u
/* Edges looked at, at most: beyond it the answer comes too late. */
#define EFFORT 300000000u

struct cell {
    uint32_t to;
    uint32_t edge; /* NONE: stuffing alone */
    uint64_t real, stuffed;
};

struct slicer {
    const struct dyti_graph *g;
    struct cell *cell;
    size_t *first; /* [ranks + 1]: cells of a row */
    size_t cell_count;
    uint32_t *column_of; /* [ranks]: cell that a row is matched by, or NONE */
    uint32_t *row_of;    /* [ranks]: row that a column is matched by */
    uint32_t *queue, *parent, *via; /* of the search, by row and column */
    uint32_t *mark, stamp;
    uint64_t effort;
};

static bool usable(const struct cell *c, uint64_t r)
{
    return c->real + c->stuffed >= r;
}

/* Breadth first from a free row to a free column; turns the path over. */
static bool augment(struct slicer *s, uint32_t from, uint64_t r)
{
    size_t head = 0, tail = 0;

    s->stamp++;
    s->queue[tail++] = from;
    while (head < tail) {
        uint32_t row = s->queue[head++];

        for (size_t i = s->first[row]; i < s->first[row + 1]; i++) {
            uint32_t column = s->cell[i].to;

            s->effort++;
            if (!usable(&s->cell[i], r) || s->mark[column] == s->stamp) {
                continue;
            }
            s->mark[column] = s->stamp;
            s->parent[column] = row;
            s->via[column] = (uint32_t)i;
            if (s->row_of[column] != NONE) {
                s->queue[tail++] = s->row_of[column];
                continue;
            }
            for (;;) { /* back to the free row */
                uint32_t up = s->parent[column];
                uint32_t before = s->column_of[up];

                s->row_of[column] = up;
                s->column_of[up] = s->via[column];
                if (up == from) {
                    return true;
                }
                column = s->cell[before].to;
            }
        }
    }
    return false;
}

/* Make the matching perfect among entries of at least r; what still holds of
 * the last one stays. */
static bool match_all(struct slicer *s, uint64_t r)
{
    uint32_t n = s->g->rank_count;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = s->column_of[i];

        if (c != NONE && !usable(&s->cell[c], r)) {
            s->row_of[s->cell[c].to] = NONE;
            s->column_of[i] = NONE;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (s->column_of[i] == NONE && !augment(s, i, r)) {
            return false;
        }
    }
    return true;
}

static enum dyt_status send_slice(struct slicer *s, uint64_t r, uint32_t round,
                                  struct dyti_takes *out)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < s->g->rank_count && st == DYT_OK; i++) {
        struct cell *c = &s->cell[s->column_of[i]];
        uint64_t bytes = c->real < r ? c->real : r;

        c->real -= bytes;
        c->stuffed -= r - bytes;
        if (bytes > 0) {
            st = dyti_take_add(out, c->edge, round, bytes);
        }
    }
    return st;
}

/* What slices left over, by list scheduling behind them. */
static enum dyt_status send_rest(struct slicer *s, struct dyti_takes *out)
{
    struct dyti_graph rest = *s->g;
    struct dyti_edge *edge = malloc((s->cell_count + 1) * sizeof(*edge));
    struct dyti_takes tail = {0};
    uint32_t round = out->round_count;
    enum dyt_status st = DYT_OK;

    if (edge == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows", s->cell_count);
    }
    rest.edge = edge;
    rest.count = 0;
    for (uint32_t row = 0; row < s->g->rank_count; row++) {
        for (size_t i = s->first[row]; i < s->first[row + 1]; i++) {
            if (s->cell[i].real > 0) {
                edge[rest.count++] = (struct dyti_edge){
                    row, s->cell[i].to, s->cell[i].real, s->cell[i].edge};
            }
        }
    }
    st = dyti_takes_greedy(&rest, &tail);
    for (size_t i = 0; i < tail.count && st == DYT_OK; i++) {
        st = dyti_take_add(out, edge[tail.take[i].edge].flow,
                           round + tail.take[i].round, tail.take[i].bytes);
    }
    free(tail.take);
    free(edge);
    return st;
}

/* ---- set-up ------------------------------------------------------------- */

static int compare_cell(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;

    return (x->to > y->to) - (x->to < y->to);
}

/* Rows and columns with less than `most` get stuffing: at most one more cell
 * for each row and column.  add: count the cells (cell NULL) or make them. */
static size_t stuff(const uint64_t *row, const uint64_t *column, uint32_t n,
                    uint64_t most, size_t *end, struct cell *cell)
{
    uint32_t i = 0, j = 0;
    uint64_t a = n > 0 ? most - row[0] : 0, b = n > 0 ? most - column[0] : 0;
    size_t count = 0;

    while (i < n && j < n) {
        uint64_t x = a < b ? a : b;

        if (x > 0) {
            count++;
            if (cell != NULL) {
                cell[end[i]++] = (struct cell){j, NONE, 0, x};
            } else {
                end[i]++;
            }
        }
        a -= x;
        b -= x;
        if (a == 0 && ++i < n) {
            a = most - row[i];
        }
        if (b == 0 && ++j < n) {
            b = most - column[j];
        }
    }
    return count;
}

/* Joins stuffing with the cell of the same column that it lies beside. */
static void join_cells(struct slicer *s)
{
    size_t kept = 0, begin = 0;

    for (uint32_t row = 0; row < s->g->rank_count; row++) {
        size_t end = s->first[row + 1];

        qsort(s->cell + begin, end - begin, sizeof(*s->cell), compare_cell);
        s->first[row] = kept;
        for (size_t i = begin; i < end; i++) {
            struct cell *last =
                kept > s->first[row] ? &s->cell[kept - 1] : NULL;

            if (last != NULL && last->to == s->cell[i].to) {
                last->real += s->cell[i].real;
                last->stuffed += s->cell[i].stuffed;
                last->edge = last->edge == NONE ? s->cell[i].edge : last->edge;
            } else {
                s->cell[kept++] = s->cell[i];
            }
        }
        begin = end;
    }
    s->first[s->g->rank_count] = kept;
    s->cell_count = kept;
}

static enum dyt_status slicer_init(struct slicer *s, uint64_t *out_load)
{
    const struct dyti_graph *g = s->g;
    size_t n = g->rank_count, total;
    uint64_t *sum = calloc(2 * n + 1, sizeof(*sum)), most = 0;
    size_t *end = calloc(n + 1, sizeof(*end));
    enum dyt_status st = DYT_OK;

    s->first = calloc(n + 2, sizeof(*s->first));
    s->column_of = malloc(6 * (n + 1) * sizeof(*s->column_of));
    if (sum == NULL || end == NULL || s->first == NULL ||
        s->column_of == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu ranks", n);
        goto out;
    }
    memset(s->column_of, 0xff, 2 * (n + 1) * sizeof(*s->column_of));
    s->row_of = s->column_of + n + 1;
    s->queue = s->row_of + n + 1;
    s->parent = s->queue + n + 1;
    s->via = s->parent + n + 1;
    s->mark = s->via + n + 1;
    memset(s->mark, 0, (n + 1) * sizeof(*s->mark));
    for (size_t i = 0; i < g->count; i++) {
        sum[g->edge[i].from] += g->edge[i].bytes;
        sum[n + g->edge[i].to] += g->edge[i].bytes;
        end[g->edge[i].from]++;
    }
    for (size_t i = 0; i < 2 * n; i++) {
        most = sum[i] > most ? sum[i] : most;
    }
    total = g->count + stuff(sum, sum + n, (uint32_t)n, most, end, NULL);
    s->cell = malloc((total + 1) * sizeof(*s->cell));
    if (s->cell == NULL || total >= NONE) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu cells", total);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        s->first[i + 1] = s->first[i] + end[i];
        end[i] = s->first[i];
    }
    for (size_t i = 0; i < g->count; i++) {
        s->cell[end[g->edge[i].from]++] =
            (struct cell){g->edge[i].to, (uint32_t)i, g->edge[i].bytes, 0};
    }
    stuff(sum, sum + n, (uint32_t)n, most, end, s->cell);
    join_cells(s);
    *out_load = most;
out:
    free(sum);
    free(end);
    return st;
}

enum dyt_status dyti_takes_sliced(const struct dyti_graph *graph,
                                  struct dyti_takes *out_takes)
{
    struct slicer s = {.g = graph};
    struct dyti_edge *own = NULL;
    struct dyti_graph g = *graph;
    struct dyti_takes takes = {0};
    uint64_t load = 0, r, unit;
    enum dyt_status st;

    /* the rest is scheduled by edges of its own: they name ours */
    own = malloc((graph->count + 1) * sizeof(*own));
    if (own == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows", graph->count);
    }
    for (size_t i = 0; i < graph->count; i++) {
        own[i] = graph->edge[i];
        own[i].flow = (uint32_t)i;
    }
    g.edge = own;
    s.g = &g;
    st = slicer_init(&s, &load);
    unit = load / TAIL / DYTI_PIECE_ALIGN * DYTI_PIECE_ALIGN;
    unit = unit < DYTI_PIECE_ALIGN ? DYTI_PIECE_ALIGN : unit;
    r = graph->chunk_bytes / DYTI_PIECE_ALIGN * DYTI_PIECE_ALIGN;
    r = r < DYTI_PIECE_ALIGN ? DYTI_PIECE_ALIGN : r;
    unit = unit > r ? r : unit;
    for (uint64_t left = load; st == DYT_OK && left >= r && r >= unit;) {
        if (s.effort > EFFORT) {
            st = DYT_ERR_UNSUPPORTED;
        } else if (match_all(&s, r)) {
            st = send_slice(&s, r, takes.round_count, &takes);
            left -= r;
        } else {
            r = r / 2 / DYTI_PIECE_ALIGN * DYTI_PIECE_ALIGN;
        }
    }
    st = st != DYT_OK ? st : send_rest(&s, &takes);
    if (st == DYT_OK) {
        *out_takes = takes;
        takes = (struct dyti_takes){0};
    }
    free(takes.take);
    free(own);
    free(s.cell);
    free(s.first);
    free(s.column_of);
    return st;
}
