/* Rows enter one after the other; each takes the cheapest way through columns
 * that are taken to one that is free, under potentials that keep every reduced
 * cost >= 0 and those of the matching 0. */
#include "plan/assign.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct assigner {
    const dyti_cost *cost;
    uint32_t n;
    dyti_cost *u, *v; /* potentials of rows and columns */
    dyti_cost *dist;  /* of the cheapest way to a column */
    uint32_t *before; /* row by which that way comes in */
    bool *done;       /* the column's distance is final */
    uint32_t *row_of; /* of a column, or NONE */
    uint32_t *column; /* of a row, or NONE */
};

static dyti_cost reduced(const struct assigner *a, uint32_t row, uint32_t col)
{
    return a->cost[(size_t)row * a->n + col] - a->u[row] - a->v[col];
}

static void match(struct assigner *a, uint32_t row, uint32_t col)
{
    a->row_of[col] = row;
    a->column[row] = col;
}

/* Each row's cheapest column, its own one first, if nobody has it yet. */
static void start_greedily(struct assigner *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const dyti_cost *row = a->cost + (size_t)i * a->n;

        a->u[i] = row[0];
        for (uint32_t j = 1; j < a->n; j++) {
            a->u[i] = row[j] < a->u[i] ? row[j] : a->u[i];
        }
        if (row[i] == a->u[i]) {
            match(a, i, i);
        }
    }
    for (uint32_t i = 0; i < a->n; i++) {
        for (uint32_t j = 0; a->column[i] == NONE && j < a->n; j++) {
            if (a->row_of[j] == NONE && reduced(a, i, j) == 0) {
                match(a, i, j);
            }
        }
    }
}

/* The cheapest way from a free row to a free column; returns that column. */
static uint32_t find_way(struct assigner *a, uint32_t row)
{
    uint32_t at = row, column = NONE;
    dyti_cost so_far = 0;

    memset(a->done, 0, a->n * sizeof(*a->done));
    for (uint32_t j = 0; j < a->n; j++) {
        a->before[j] = NONE;
    }
    for (;;) {
        uint32_t next = NONE;

        for (uint32_t j = 0; j < a->n; j++) {
            dyti_cost d;

            if (a->done[j]) {
                continue;
            }
            d = so_far + reduced(a, at, j);
            if (a->before[j] == NONE || d < a->dist[j]) {
                a->dist[j] = d;
                a->before[j] = at;
            }
            if (next == NONE || a->dist[j] < a->dist[next]) {
                next = j;
            }
        }
        column = next;
        so_far = a->dist[column];
        a->done[column] = true;
        if (a->row_of[column] == NONE) {
            return column;
        }
        at = a->row_of[column];
    }
}

static void augment(struct assigner *a, uint32_t row, uint32_t column)
{
    dyti_cost all = a->dist[column];

    for (uint32_t j = 0; j < a->n; j++) {
        if (a->done[j] && j != column) {
            a->u[a->row_of[j]] += all - a->dist[j];
            a->v[j] -= all - a->dist[j];
        }
    }
    a->u[row] += all;
    for (;;) {
        uint32_t from = a->before[column], next = a->column[from];

        match(a, from, column);
        if (from == row) {
            return;
        }
        column = next;
    }
}

enum dyt_status dyti_assign(const dyti_cost *cost, uint32_t n,
                            uint32_t *out_column)
{
    struct assigner a = {.cost = cost, .n = n};
    size_t room = (size_t)n + 1;
    enum dyt_status st = DYT_OK;

    a.u = calloc(room, sizeof(*a.u));
    a.v = calloc(room, sizeof(*a.v));
    a.dist = calloc(room, sizeof(*a.dist));
    a.before = calloc(room, sizeof(*a.before));
    a.done = calloc(room, sizeof(*a.done));
    a.row_of = malloc(room * sizeof(*a.row_of));
    a.column = malloc(room * sizeof(*a.column));
    if (a.u == NULL || a.v == NULL || a.dist == NULL || a.before == NULL ||
        a.done == NULL || a.row_of == NULL || a.column == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "an assignment of %u", n);
        goto out;
    }
    memset(a.row_of, 0xff, room * sizeof(*a.row_of));
    memset(a.column, 0xff, room * sizeof(*a.column));
    start_greedily(&a);
    for (uint32_t i = 0; i < n; i++) {
        if (a.column[i] == NONE) {
            augment(&a, i, find_way(&a, i));
        }
    }
    memcpy(out_column, a.column, n * sizeof(*out_column));
out:
    free(a.u);
    free(a.v);
    free(a.dist);
    free(a.before);
    free(a.done);
    free(a.row_of);
    free(a.column);
    return st;
}
