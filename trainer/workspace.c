/* The order of things in work memory. */
#include "trainer/workspace.h"

#define HEAD_CHUNK_BYTES ((uint64_t)32 << 20)

/* Rows of the largest micro-batch that can come: a job with small steps needs
 * less than micro_batch_tokens asks for. */
static void size_rows(struct dyti_workspace *ws, const struct dyti_nn *nn,
                      const struct dyti_trainer_config *c, int64_t positions)
{
    uint64_t longest = (uint64_t)positions, cap = c->micro_batch_tokens;
    uint64_t each = c->batch_sequences, all = UINT64_MAX;

    if (each != 0) {
        /* Dealing evenly gives a dp rank at most a piece of a prompt's samples
         * above the mean; passes without update take the whole batch. */
        all = (nn->part.dp_size == 1 ? each : 2 * each / nn->part.dp_size + 2) *
              longest;
    }
    cap = cap < all ? cap : all;
    ws->micro_cap = cap; /* so no micro-batch is ever too large for `rows` */
    ws->rows = (int64_t)(cap > longest ? cap : longest);
}

/* The same on all TP members, whose shares of the vocabulary may differ by a
 * row: they walk the chunks together. */
static int64_t size_head(const struct dyti_workspace *ws,
                         const struct dyti_nn *nn,
                         const struct dyti_trainer_config *c)
{
    uint64_t bytes =
        c->head_chunk_bytes ? c->head_chunk_bytes : HEAD_CHUNK_BYTES;
    uint64_t tp = nn->part.tp_size;
    uint64_t row =
        ((uint64_t)nn->model->arch.vocab + tp - 1) / tp * sizeof(float);
    int64_t rows = (int64_t)(bytes / row);

    rows = rows < 1 ? 1 : rows;
    return rows < ws->rows ? rows : ws->rows;
}

static enum dyt_status take_head(struct dyti_workspace *ws,
                                 struct dyti_region *region, int64_t h)
{
    uint64_t head = (uint64_t)ws->head_rows, rows = (uint64_t)ws->rows;
    enum dyt_status st;

    st = DYTI_TAKE(region, &ws->head_hidden, head * (uint64_t)h);
    st = st ? st : DYTI_TAKE(region, &ws->head_dhidden, head * (uint64_t)h);
    st = st ? st : DYTI_TAKE(region, &ws->head_logprob, head);
    st = st ? st : DYTI_TAKE(region, &ws->head_entropy, head);
    st = st ? st : DYTI_TAKE(region, &ws->dlogprob, rows);
    return st ? st : DYTI_TAKE(region, &ws->dentropy, rows);
}

static enum dyt_status take_passes(struct dyti_workspace *ws,
                                   struct dyti_region *region, int64_t h)
{
    uint64_t hidden = (uint64_t)ws->rows * (uint64_t)h;
    enum dyt_status st;

    st = dyti_region_take_items(region, ws->slot_count, ws->slot_bytes,
                                (void **)&ws->slot);
    st = st ? st : DYTI_TAKE(region, &ws->hidden, hidden);
    st = st ? st : DYTI_TAKE(region, &ws->dhidden, hidden);
    return st ? st : dyti_region_take(region, ws->nn_bytes, 64, &ws->nn);
}

enum dyt_status dyti_workspace_carve(struct dyti_workspace *ws,
                                     struct dyti_region *region,
                                     const struct dyti_nn *nn,
                                     const struct dyti_trainer_config *config,
                                     const struct dyti_shares *shares,
                                     int64_t positions)
{
    int64_t h = nn->model->arch.hidden;
    uint64_t mark = dyti_region_mark(region);
    enum dyt_status st;

    *ws = (struct dyti_workspace){0};
    size_rows(ws, nn, config, positions);
    ws->head_rows = size_head(ws, nn, config);
    ws->slot_count = nn->part.pp_size - nn->part.pp_rank;
    /* A whole number of cache lines, so that every slot starts on one. */
    ws->slot_bytes =
        (dyti_nn_saved_bytes(nn, ws->rows, ws->rows, config->recompute) + 63) &
        ~(uint64_t)63;
    ws->nn_bytes = dyti_nn_train_bytes(nn, ws->rows, ws->head_rows);
    st = dyti_region_take(region, dyti_shares_bytes(shares), 64,
                          (void **)&ws->shares);
    dyti_region_rewind(region, mark);
    st = st ? st : take_passes(ws, region, h);
    if (st == DYT_OK && nn->part.has_head) {
        st = take_head(ws, region, h);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("laying out %lld rows of training in work memory",
                  (long long)ws->rows);
    }
    return st;
}

enum dyt_status dyti_trainer_workspace_bytes(
    const struct dyti_layout *layout, uint32_t rank,
    const struct dyti_trainer_config *config, int64_t positions,
    uint64_t *out_bytes)
{
    struct dyti_nn nn = {.model = layout->model,
                         .part = dyti_layout_view(layout, rank)->part};
    struct dyti_shares shares = {0};
    struct dyti_workspace ws;
    struct dyti_region region;
    enum dyt_status st;

    if (!nn.part.member) {
        *out_bytes = 0;
        return DYT_OK;
    }
    st = dyti_shares_build(layout, rank, &shares);
    if (st != DYT_OK) {
        return st;
    }
    dyti_region_init(&region, NULL, UINT64_MAX);
    st = dyti_workspace_carve(&ws, &region, &nn, config, &shares, positions);
    if (st == DYT_OK) {
        *out_bytes = region.high_water + 64; /* wherever the memory begins */
    }
    dyti_shares_fini(&shares);
    return st;
}
