/* One model step: which rows, the model over them, and what is drawn. */
#include "rollout/internal.h"

#include <string.h>

struct rows {
    struct dyti_paged_batch batch;
    int64_t row, sequence, flat;
};

static void add_sequence(struct dyti_rollout *r, struct rows *rows,
                         const int32_t *ids, uint32_t count, uint32_t at,
                         const int32_t *table, uint32_t table_count)
{
    for (uint32_t i = 0; i < count; i++) {
        r->ids[rows->row + i] = ids[i];
        r->position[rows->row + i] = (int32_t)(at + i);
    }
    r->context[rows->sequence] = (int32_t)(at + count);
    r->table_first[rows->sequence] = (int32_t)rows->flat;
    memcpy(r->table_flat + rows->flat, table, table_count * sizeof(*table));
    rows->flat += table_count;
    rows->row += count;
    rows->sequence++;
    r->row_first[rows->sequence] = (int32_t)rows->row;
}

static void add_draw(struct dyti_rollout *r, uint32_t logits_row,
                     const struct dyti_sample *sample)
{
    r->draw[r->draw_count++] = (struct dyti_draw){.row = logits_row,
                                                  .prompt = sample->prompt,
                                                  .sample = sample->index,
                                                  .position = sample->count};
}

/* Decode rows: one per running sequence, with a block for its new position. */
static void add_running(struct dyti_rollout *r, struct rows *rows)
{
    for (uint32_t i = 0; i < r->running_count; i++) {
        struct dyti_sequence *s = &r->running[i];

        if (s->length == s->table_count * r->params.block) {
            s->table[s->table_count++] = dyti_blocks_get(&r->blocks);
        }
        add_sequence(r, rows, &s->next, 1, s->length, s->table, s->table_count);
        s->length++;
        add_draw(r, r->logit_row_count, s->sample);
        r->logit_row[r->logit_row_count++] = (int32_t)rows->row - 1;
    }
}

/* Prefill rows, in order, as many as the pass has room for. */
static void add_prefill(struct dyti_rollout *r, struct rows *rows)
{
    for (uint32_t i = 0; i < r->prefill_count; i++) {
        struct dyti_cohort *c = &r->prefill[i];
        uint32_t left, room, take;

        if (c->count == 0) {
            return; /* the open group, the last one: only kept */
        }
#ifdef DYT_TEST_HOOKS
        if (r->params.stale_kv && r->generated && c->prefilled == 0) {
            c->prefilled = c->prompt->id_count - 1;
        }
#endif
        left = c->prompt->id_count - c->prefilled;
        room = r->params.max_rows - (uint32_t)rows->row;
        take = left < room ? left : room;
        if (take == 0) {
            return;
        }
        add_sequence(r, rows, c->prompt->ids + c->prefilled, take, c->prefilled,
                     c->table, dyti_blocks_for(r, c->prefilled + take));
        c->prefilled += take;
        if (c->prefilled == c->prompt->id_count) {
            for (uint32_t k = 0; k < c->count; k++) {
                add_draw(r, r->logit_row_count, &c->sample[k]);
            }
            r->logit_row[r->logit_row_count++] = (int32_t)rows->row - 1;
        }
    }
}

/* Copy the first `filled` positions of a block: the prompt's last, partly
 * filled one, for one more sample. */
static enum dyt_status copy_block(struct dyti_rollout *r, int32_t from,
                                  int32_t to, uint32_t filled)
{
    const struct dyti_part *part = &r->nn->part;
    int64_t layers = part->layer_hi - part->layer_lo;
    uint64_t block = dyti_nn_cache_layer_bytes(r->nn, r->cache.dtype,
                                               r->cache.block_size, 1);
    int64_t bytes = (int64_t)(block / r->params.block * filled);
    size_t n = 0;

    for (int64_t l = 0; l < layers; l++) {
        unsigned char *base[2] = {
            r->cache.k + (uint64_t)l * r->cache.layer_bytes,
            r->cache.v + (uint64_t)l * r->cache.layer_bytes};

        for (int kv = 0; kv < 2; kv++) {
            int64_t item = (int64_t)dyti_dtype_bytes(r->cache.dtype);

            r->copy[n++] =
                (struct dyti_copy){.src = base[kv] + (uint64_t)from * block,
                                   .dst = base[kv] + (uint64_t)to * block,
                                   .size = {1, 1, 1, bytes / item},
                                   .src_stride = {0, 0, 0, item},
                                   .dst_stride = {0, 0, 0, item},
                                   .src_dtype = (uint8_t)r->cache.dtype,
                                   .dst_dtype = (uint8_t)r->cache.dtype};
        }
    }
    return r->params.kernels.ops->copy(r->params.kernels.self, r->copy, n);
}

/* Sample k of a cohort becomes a running sequence: full blocks shared, a
 * partly filled one copied; the group's last takes the prompt's own. */
static enum dyt_status start_sample(struct dyti_rollout *r,
                                    struct dyti_cohort *c, uint32_t k)
{
    struct dyti_sequence *s = &r->running[r->running_count];
    uint32_t full = c->prompt->id_count / r->params.block;
    bool last = k + 1 == c->count && c->left == 0;

    *s = (struct dyti_sequence){.sample = &c->sample[k],
                                .length = c->prompt->id_count,
                                .table_count = c->table_count,
                                .table = last ? c->table : dyti_table_get(r)};
    if (!last) {
        for (uint32_t b = 0; b < full; b++) {
            s->table[b] = c->table[b];
            dyti_blocks_share(&r->blocks, c->table[b]);
        }
        if (full < c->table_count) {
            enum dyt_status st;

            s->table[full] = dyti_blocks_get(&r->blocks);
            st = copy_block(r, c->table[full], s->table[full],
                            c->prompt->id_count % r->params.block);
            if (st != DYT_OK) {
                return st;
            }
        }
    }
    s->tail = dyti_table_tail(r, s->table);
    r->running_count++;
    return DYT_OK;
}

/* Cohorts whose prefill ended become running sequences, in draw order. */
static enum dyt_status start_cohorts(struct dyti_rollout *r)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < r->prefill_count; i++) {
        struct dyti_cohort *c = &r->prefill[i];

        for (uint32_t k = 0;
             c->prefilled == c->prompt->id_count && k < c->count; k++) {
            enum dyt_status st = start_sample(r, c, k);

            if (st != DYT_OK) {
                return st;
            }
        }
        if (c->prefilled == c->prompt->id_count) {
            c->count = 0;
        }
        if (c->count > 0 || c->left > 0) {
            r->prefill[kept++] = *c;
        }
    }
    r->prefill_count = kept;
    return DYT_OK;
}

/* The model over the rows, stage by stage. */
static enum dyt_status run_model(struct dyti_rollout *r,
                                 const struct dyti_paged_batch *batch)
{
    const struct dyti_group *pp = &r->params.pp;
    uint64_t bytes = (uint64_t)batch->row_count *
                     (uint64_t)r->model->arch.hidden * sizeof(float);
    uint64_t mark = dyti_region_mark(&r->work);
    enum dyt_status st;

    if (pp->size > 1 && pp->rank > 0) {
        struct dyti_p2p in = {pp->rank - 1, false, r->hidden,
                              bytes,        NULL,  NULL};

        st = pp->ops->exchange(pp->self, &in, 1);
        if (st != DYT_OK) {
            return st;
        }
    }
    st = dyti_nn_infer(r->nn, &r->weights, &r->cache, batch, r->ids,
                       r->position, r->hidden, &r->work);
    dyti_region_rewind(&r->work, mark);
    if (st == DYT_OK && pp->size > 1 && pp->rank + 1 < pp->size) {
        struct dyti_p2p out = {pp->rank + 1, true, r->hidden,
                               bytes,        NULL, NULL};

        st = pp->ops->exchange(pp->self, &out, 1);
    }
    return st;
}

enum dyt_status dyti_pass_run(struct dyti_rollout *r,
                              struct dyti_rollout_stats *stats)
{
    struct rows rows = {0};
    uint32_t decode;
    enum dyt_status st;

    r->draw_count = r->logit_row_count = 0;
    r->row_first[0] = 0;
    add_running(r, &rows);
    decode = (uint32_t)rows.row;
    add_prefill(r, &rows);
    rows.batch = (struct dyti_paged_batch){.sequence_count = rows.sequence,
                                           .row_count = rows.row,
                                           .row_first = r->row_first,
                                           .context = r->context,
                                           .table_first = r->table_first,
                                           .block_table = r->table_flat};
    st = run_model(r, &rows.batch);
    if (st != DYT_OK) {
        DYTI_NOTE("running a pass of %lld rows", (long long)rows.row);
        return st;
    }
    stats->passes++;
    stats->decode_rows += decode;
    stats->prefill_rows += (uint64_t)rows.row - decode;
    return start_cohorts(r);
}
