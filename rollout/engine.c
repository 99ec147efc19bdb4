/* What an engine takes, and what it is made of: sizes, tables, weights.  What
 * it does: generate.c. */
#include "rollout/engine.h"

#include "base/checked.h"
#include "rollout/internal.h"

#include <stdlib.h>
#include <string.h>

#define LOGITS_BYTES (16u << 20) /* of one chunk of rows */

/* ---- sizes --------------------------------------------------------------- */

struct sizes {
    uint64_t layer_bytes, cache_bytes, work_bytes;
    uint32_t block_count, chunk_rows;
};

static const struct dyti_part *part_of(const struct dyti_rollout_params *p)
{
    return &dyti_layout_view(p->layout, p->rank)->part;
}

/* An nn that only knows its sizes. */
static struct dyti_nn sizing(const struct dyti_rollout_params *p)
{
    return (struct dyti_nn){.model = p->layout->model,
                            .part = *part_of(p),
                            .kernels = p->kernels,
                            .tp = p->tp};
}

/* K and V of one block on the rank of the replica that holds most: ranks admit
 * by themselves and must count the same blocks, whatever their own shares. */
static uint64_t largest_block(const struct dyti_rollout_params *p)
{
    const struct dyti_part *me = part_of(p);
    uint64_t most = 0;

    for (uint32_t i = 0; i < me->tp_size * me->pp_size; i++) {
        uint32_t rank = dyti_layout_rank(p->layout, i % me->tp_size,
                                         i / me->tp_size, me->dp_rank);
        struct dyti_nn nn = {.model = p->layout->model,
                             .part = dyti_layout_view(p->layout, rank)->part};
        uint64_t layers = (uint64_t)(nn.part.layer_hi - nn.part.layer_lo);
        uint64_t bytes =
            2 * layers *
            dyti_nn_cache_layer_bytes(&nn, p->kv_dtype, p->block, 1);

        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t dyti_block_bytes(const struct dyti_rollout_params *p)
{
    struct dyti_nn nn = sizing(p);

    return 2 * (uint64_t)(nn.part.layer_hi - nn.part.layer_lo) *
           dyti_nn_cache_layer_bytes(&nn, p->kv_dtype, p->block, 1);
}

static enum dyt_status count_blocks(const struct dyti_rollout_params *p,
                                    struct sizes *s)
{
    struct dyti_nn nn = sizing(p);
    int64_t layers = nn.part.layer_hi - nn.part.layer_lo;
    uint64_t block = largest_block(p);
    uint64_t want = p->kv_bytes / block;
    uint64_t most = (uint64_t)p->max_sequences *
                    ((p->max_positions + p->block - 1) / p->block + 1);

    if (want == 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "kv.memory of %llu bytes holds no block: one block of "
                         "%u positions takes %llu",
                         (unsigned long long)p->kv_bytes, p->block,
                         (unsigned long long)block);
    }
    want = want < most ? want : most;
    s->block_count = want < INT32_MAX ? (uint32_t)want : INT32_MAX;
    s->layer_bytes =
        dyti_nn_cache_layer_bytes(&nn, p->kv_dtype, p->block, s->block_count);
    s->cache_bytes = 2 * (uint64_t)layers * dyti_align_up(s->layer_bytes, 64u);
    return DYT_OK;
}

static enum dyt_status measure(const struct dyti_rollout_params *p,
                               struct sizes *out)
{
    const struct dyti_arch *arch = &p->layout->model->arch;
    struct dyti_nn nn = sizing(p);
    uint64_t row = (uint64_t)arch->vocab * sizeof(float);
    uint64_t fit = LOGITS_BYTES / row, pass, draw;
    struct sizes s = {0};
    enum dyt_status st;

    if (p->block == 0 || p->max_sequences == 0 || p->max_positions == 0 ||
        p->max_rows < p->max_sequences || p->tp.size > DYTI_ROLLOUT_MAX_TP) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rollout of %u sequences, %u rows, %u positions, "
                         "blocks of %u",
                         p->max_sequences, p->max_rows, p->max_positions,
                         p->block);
    }
    st = count_blocks(p, &s);
    if (st != DYT_OK) {
        return st;
    }
    s.chunk_rows =
        fit < 1 ? 1
                : (uint32_t)(fit < p->max_sequences ? fit : p->max_sequences);
    pass = dyti_nn_infer_bytes(&nn, p->max_rows);
    draw = 2 * s.chunk_rows * row + row + dyti_draw_scratch_bytes(arch->vocab) +
           dyti_nn_infer_bytes(&nn, s.chunk_rows) +
           (p->tp.size + 2) * 24ull * (s.chunk_rows + p->max_sequences) +
           dyti_draw_scan_bytes(arch->vocab) + (1u << 16);
    s.work_bytes = pass > draw ? pass : draw;
    *out = s;
    return DYT_OK;
}

enum dyt_status dyti_rollout_workspace_bytes(
    const struct dyti_rollout_params *params, uint64_t *out_bytes)
{
    struct sizes s;
    enum dyt_status st = measure(params, &s);

    if (st == DYT_OK) {
        *out_bytes = s.cache_bytes + s.work_bytes + 64u;
    }
    return st;
}

/* ---- create, destroy ----------------------------------------------------- */

static bool make_tables(struct dyti_rollout *r)
{
    size_t n = r->params.max_sequences, rows = r->params.max_rows;
    size_t hidden = (size_t)r->model->arch.hidden;
    size_t layers = (size_t)(r->nn->part.layer_hi - r->nn->part.layer_lo);

    r->table_max = dyti_blocks_for(r, r->params.max_positions) + 1;
    r->table_pool = calloc(2 * n * r->table_max, sizeof(*r->table_pool));
    r->table_free = calloc(2 * n, sizeof(*r->table_free));
    r->tail = calloc(2 * n, DYTI_ROLLOUT_TAIL);
    r->running = calloc(n, sizeof(*r->running));
    r->prefill = calloc(n + 1, sizeof(*r->prefill));
    r->draw = calloc(n, sizeof(*r->draw));
    r->logit_row = calloc(n, sizeof(*r->logit_row));
    r->ids = calloc(rows, sizeof(*r->ids));
    r->position = calloc(rows, sizeof(*r->position));
    r->row_first = calloc(n + 1, sizeof(*r->row_first));
    r->context = calloc(n, sizeof(*r->context));
    r->table_first = calloc(n, sizeof(*r->table_first));
    r->table_flat = calloc(n * r->table_max, sizeof(*r->table_flat));
    r->hidden = calloc(rows * hidden, sizeof(*r->hidden));
    r->copy = calloc(2 * layers + 1, sizeof(*r->copy));
    r->stats = calloc(5 * (size_t)r->chunk_rows, sizeof(*r->stats));
    r->no_target = calloc(r->chunk_rows, sizeof(*r->no_target));
    if (r->table_pool == NULL || r->table_free == NULL || r->tail == NULL ||
        r->running == NULL || r->prefill == NULL || r->draw == NULL ||
        r->logit_row == NULL || r->ids == NULL || r->position == NULL ||
        r->row_first == NULL || r->context == NULL || r->table_first == NULL ||
        r->table_flat == NULL || r->hidden == NULL || r->copy == NULL ||
        r->stats == NULL || r->no_target == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < r->chunk_rows; i++) {
        r->no_target[i] = -1;
    }
    return true;
}

void dyti_tables_clear(struct dyti_rollout *r)
{
    uint32_t slots = 2 * r->params.max_sequences;

    dyti_blocks_clear(&r->blocks);
    r->running_count = r->prefill_count = 0;
    r->table_free_count = slots;
    for (uint32_t i = 0; i < slots; i++) {
        r->table_free[i] = (int32_t)(slots - 1 - i);
    }
}

static void lay_out_work(struct dyti_rollout *r, const struct sizes *s,
                         unsigned char *work, uint64_t work_bytes)
{
    uint64_t layers = (uint64_t)(r->nn->part.layer_hi - r->nn->part.layer_lo);
    uint64_t each = dyti_align_up(s->layer_bytes, 64u);

    r->cache = (struct dyti_nn_cache){.k = work,
                                      .v = work + layers * each,
                                      .dtype = r->params.kv_dtype,
                                      .block_size = r->params.block,
                                      .block_count = s->block_count,
                                      .layer_bytes = each};
    dyti_region_init(&r->work, work + s->cache_bytes,
                     work_bytes - s->cache_bytes);
}

/* A group without a table is this rank alone. */
static void alone_is_one(struct dyti_group *group)
{
    if (group->ops == NULL) {
        *group = (struct dyti_group){.size = 1};
    }
}

static enum dyt_status fill(struct dyti_rollout *r, const struct sizes *s)
{
    const struct dyti_view *view =
        dyti_layout_view(r->params.layout, r->params.rank);
    enum dyt_status st =
        dyti_nn_create(r->model, &view->part, &r->params.kernels, &r->params.tp,
                       r->params.max_positions, &r->nn);

    st = st != DYT_OK ? st
                      : dyti_nn_bind(r->model, view, DYTI_PARAM,
                                     r->params.weights, &r->weights);
    if (st == DYT_OK && r->params.other_weights != NULL) {
        st = dyti_nn_bind(r->model, view, DYTI_PARAM, r->params.other_weights,
                          &r->other);
    }
    st = st != DYT_OK ? st : dyti_blocks_init(&r->blocks, s->block_count);
    if (st == DYT_OK && !make_tables(r)) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "tables for %u sequences",
                       r->params.max_sequences);
    }
    return st;
}

enum dyt_status dyti_rollout_create(const struct dyti_rollout_params *params,
                                    void *work, uint64_t work_bytes,
                                    struct dyti_rollout **out_rollout)
{
    struct dyti_rollout *r = NULL;
    struct sizes s;
    enum dyt_status st = measure(params, &s);

    if (st != DYT_OK) {
        return st;
    }
    if (work_bytes < s.cache_bytes + s.work_bytes) {
        return DYTI_FAIL(DYT_ERR_INVALID, "workspace of %llu bytes, needs %llu",
                         (unsigned long long)work_bytes,
                         (unsigned long long)(s.cache_bytes + s.work_bytes));
    }
    r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "rollout engine");
    }
    r->params = *params;
    alone_is_one(&r->params.tp);
    alone_is_one(&r->params.pp);
    r->model = params->layout->model;
    r->chunk_rows = s.chunk_rows;
    st = fill(r, &s);
    if (st != DYT_OK) {
        DYTI_NOTE("making the rollout engine of rank %u", params->rank);
        goto out;
    }
    lay_out_work(r, &s, work, work_bytes);
    dyti_tables_clear(r);
    *out_rollout = r;
    r = NULL;
out:
    dyti_rollout_destroy(r);
    return st;
}

void dyti_rollout_destroy(struct dyti_rollout *r)
{
    if (r == NULL) {
        return;
    }
    dyti_nn_unbind(&r->weights);
    dyti_nn_unbind(&r->other);
    dyti_nn_destroy(r->nn);
    dyti_blocks_fini(&r->blocks);
    free(r->table_pool);
    free(r->table_free);
    free(r->tail);
    free(r->running);
    free(r->prefill);
    free(r->draw);
    free(r->logit_row);
    free(r->ids);
    free(r->position);
    free(r->row_first);
    free(r->context);
    free(r->table_first);
    free(r->table_flat);
    free(r->hidden);
    free(r->copy);
    free(r->stats);
    free(r->no_target);
    free(r);
}

void dyti_rollout_set_version(struct dyti_rollout *r, uint64_t version)
{
    r->version = version;
    r->serving = true;
}

void dyti_rollout_invalidate(struct dyti_rollout *r)
{
    r->serving = false;
}

enum dyt_status dyti_rollout_set_weights(struct dyti_rollout *r,
                                         const void *weights)
{
    struct dyti_nn_weights live = r->other;
    void *base = r->params.other_weights;

    if (weights == r->params.weights) {
        return DYT_OK;
    }
    if (weights == NULL || weights != base) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u was told to generate from weights at an "
                         "address that it does not know",
                         r->params.rank);
    }
    r->other = r->weights;
    r->weights = live;
    r->params.other_weights = r->params.weights;
    r->params.weights = base;
    return DYT_OK;
}
