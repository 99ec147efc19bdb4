/* The generation pass gives the logits of the training forward pass, however
 * prompt and completion are cut into passes and wherever the blocks lie. */
#include "nn_cases.h"

#define SEQUENCES 4
#define BLOCK     4
#define BLOCKS    32
#define TOLERANCE 2e-5f

/* Positions of each sequence that are in the cache after pass 0, 1, 2, …:
 * whole prompts, chunked prompts, single steps, late arrivals, early ends. */
static const int32_t schedule[][SEQUENCES] = {
    {3, 1, 0, 0}, {4, 1, 4, 0}, {5, 1, 8, 2}, {5, 1, 9, 3}};
#define PASSES ((int)(sizeof(schedule) / sizeof(schedule[0])))

struct generator {
    struct nn_world world;
    struct dyti_nn_cache cache[DYT_RANKS_MAX]; /* [pp * tp] */
    int32_t table[SEQUENCES * 3];
    /* the pass that runs: */
    uint32_t stage;
    struct dyti_paged_batch batch;
    int32_t first[SEQUENCES + 1], context[SEQUENCES], table_first[SEQUENCES];
    int32_t ids[NN_ROWS], position[NN_ROWS], row[NN_ROWS];
    int32_t packed[NN_ROWS]; /* which row of the training batch it is */
    float hidden[DYT_RANKS_MAX][NN_ROWS * 24];
    float *logits; /* [NN_ROWS, V] by training row */
};

static uint64_t layer_count(const struct nn_rank *r)
{
    return (uint64_t)(r->view->part.layer_hi - r->view->part.layer_lo);
}

static void cache_init(struct generator *g)
{
    for (uint32_t i = 0; i < g->world.desc.pp * g->world.desc.tp; i++) {
        const struct nn_rank *r = &g->world.rank[i];
        uint64_t bytes =
            dyti_nn_cache_layer_bytes(r->nn, DYTI_F32, BLOCK, BLOCKS);

        g->cache[i] =
            (struct dyti_nn_cache){.k = nn_zeros(layer_count(r) * bytes),
                                   .v = nn_zeros(layer_count(r) * bytes),
                                   .block_size = BLOCK,
                                   .block_count = BLOCKS,
                                   .layer_bytes = bytes};
        /* What was there before must never be read. */
        memset(g->cache[i].k, 0xff, layer_count(r) * bytes);
        memset(g->cache[i].v, 0xff, layer_count(r) * bytes);
    }
    for (int32_t i = 0; i < SEQUENCES * 3; i++) {
        g->table[i] = (i * 11 + 5) % BLOCKS; /* scattered, each once */
    }
}

static void cache_fini(struct generator *g)
{
    for (uint32_t i = 0; i < g->world.desc.pp * g->world.desc.tp; i++) {
        uint64_t bytes =
            layer_count(&g->world.rank[i]) * g->cache[i].layer_bytes;

        nn_free(g->cache[i].k, bytes);
        nn_free(g->cache[i].v, bytes);
    }
}

/* The rows between two lines of the schedule; sequences without new rows are
 * left out. */
static void compose(struct generator *g, const struct nn_batch *b, int pass)
{
    struct dyti_paged_batch *batch = &g->batch;

    *batch = (struct dyti_paged_batch){.row_first = g->first,
                                       .context = g->context,
                                       .table_first = g->table_first,
                                       .block_table = g->table};
    for (int32_t s = 0; s < SEQUENCES; s++) {
        int32_t from = pass == 0 ? 0 : schedule[pass - 1][s];

        for (int32_t p = from; p < schedule[pass][s]; p++) {
            int64_t r = batch->row_count++;

            g->packed[r] = nn_first[s] + p;
            g->position[r] = p;
            g->ids[r] = b->ids[nn_first[s] + p];
        }
        if (schedule[pass][s] > from) {
            g->context[batch->sequence_count] = schedule[pass][s];
            g->table_first[batch->sequence_count++] = s * 3;
            g->first[batch->sequence_count] = (int32_t)batch->row_count;
        }
    }
    for (int64_t k = 0; k < batch->row_count; k++) {
        g->row[k] = (int32_t)((k + 2) % batch->row_count); /* any order */
    }
}

static void run_rank(struct dyt_rank *me)
{
    struct generator *g = me->arg;
    uint32_t i = g->stage * g->world.desc.tp + me->rank;
    struct nn_rank *r = &g->world.rank[i];
    const struct dyti_part *part = &r->view->part;
    int64_t mine = part->vocab_hi - part->vocab_lo;
    float *one = calloc(NN_ROWS, (size_t)mine * sizeof(float));
    struct dyti_region work;

    nn_region_new(&work, dyti_nn_infer_bytes(r->nn, g->batch.row_count));
    rank_ok(me, dyti_nn_infer(r->nn, &r->w, &g->cache[i], &g->batch, g->ids,
                              g->position, g->hidden[me->rank], &work));
    if (part->has_head) {
        rank_ok(me, dyti_nn_logits(r->nn, &r->w, g->hidden[me->rank], g->row,
                                   g->batch.row_count, one, &work));
    }
    rank_true(me, work.used == 0);
    nn_region_free(&work);
    for (int64_t k = 0; k < g->batch.row_count && part->has_head; k++) {
        memcpy(g->logits +
                   g->packed[g->row[k]] * g->world.desc.model->arch.vocab +
                   part->vocab_lo,
               one + k * mine, (size_t)mine * sizeof(float));
    }
    free(one);
}

static void one_pass(struct generator *g, const struct nn_batch *b, int pass)
{
    compose(g, b, pass);
    for (g->stage = 0; g->stage < g->world.desc.pp; g->stage++) {
        dyt_ranks_run(DYT_RANKS_THREADS, g->world.desc.tp, run_rank, g);
    }
}

static void check_case(const struct dyti_arch *arch, uint32_t tp, uint32_t pp)
{
    struct dyti_model *model;
    static struct generator g;
    struct nn_batch b;
    float logprob[NN_ROWS], entropy[NN_ROWS];
    float *want = calloc(NN_ROWS, (size_t)arch->vocab * sizeof(float));
    float *got = calloc(NN_ROWS, (size_t)arch->vocab * sizeof(float));
    struct nn_step step = {.scale = 1.0f,
                           .head_rows = NN_ROWS,
                           .keep_nothing = true,
                           .logprob = logprob,
                           .entropy = entropy,
                           .logits = want};
    float **full;

    assert_ok(dyti_model_build(arch, &model));
    full = nn_full_random(model, 8);
    nn_batch_init(&b, arch->vocab);
    nn_world_init(&g.world,
                  &(struct nn_world_desc){.model = model,
                                          .tp = tp,
                                          .pp = pp,
                                          .kernels = &dyti_kernels_reference,
                                          .positions = 16},
                  full);
    step.micro = &b.micro;
    step.target = b.target;
    nn_world_step(&g.world, &step);
    g.logits = got;
    cache_init(&g);
    for (int pass = 0; pass < PASSES; pass++) {
        one_pass(&g, &b, pass);
    }
    for (int64_t i = 0; i < NN_ROWS * arch->vocab; i++) {
        if (!(fabsf(want[i] - got[i]) <= TOLERANCE)) {
            fail_msg("row %d, id %d: logit %g, training pass %g",
                     (int)(i / arch->vocab), (int)(i % arch->vocab),
                     (double)got[i], (double)want[i]);
        }
    }
    cache_fini(&g);
    nn_world_fini(&g.world);
    nn_full_free(model, full);
    dyti_model_destroy(model);
    free(want);
    free(got);
}

static void passes_over_the_cache_equal_one_training_pass(void **state)
{
    (void)state;
    for (size_t c = 0; c < NN_CASE_COUNT; c++) {
        print_message("  %s\n", nn_cases[c].name);
        check_case(&nn_cases[c].arch, 1, 1);
        check_case(&nn_cases[c].arch, 1, 3);
        check_case(&nn_cases[c].arch, 4, 2);
    }
}

/* The last schedule line must have seen every row. */
static void the_schedule_covers_the_batch(void **state)
{
    (void)state;
    for (int32_t s = 0; s < SEQUENCES; s++) {
        assert_int_equal(schedule[PASSES - 1][s],
                         nn_first[s + 1] - nn_first[s]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_schedule_covers_the_batch),
    cmocka_unit_test(passes_over_the_cache_equal_one_training_pass),
};
DYT_TEST_MAIN(tests)
