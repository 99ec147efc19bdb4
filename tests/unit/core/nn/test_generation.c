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
    struct dyti_nn_cache cache[3]; /* by stage */
    int32_t table[SEQUENCES * 3];
};

static void cache_init(struct generator *g, enum dyti_dtype dtype)
{
    for (uint32_t s = 0; s < g->world.desc.pp; s++) {
        const struct nn_rank *r = &g->world.rank[s];
        uint64_t layers =
            (uint64_t)(r->view->part.layer_hi - r->view->part.layer_lo);
        uint64_t bytes = dyti_nn_cache_layer_bytes(r->nn, dtype, BLOCK, BLOCKS);

        g->cache[s] = (struct dyti_nn_cache){.k = nn_zeros(layers * bytes),
                                             .v = nn_zeros(layers * bytes),
                                             .dtype = dtype,
                                             .block_size = BLOCK,
                                             .block_count = BLOCKS,
                                             .layer_bytes = bytes};
        /* What was there before must never be read. */
        memset(g->cache[s].k, 0xff, layers * bytes);
        memset(g->cache[s].v, 0xff, layers * bytes);
    }
    for (int32_t i = 0; i < SEQUENCES * 3; i++) {
        g->table[i] = (i * 11 + 5) % BLOCKS; /* scattered, each once */
    }
}

static void cache_fini(struct generator *g)
{
    for (uint32_t s = 0; s < g->world.desc.pp; s++) {
        const struct nn_rank *r = &g->world.rank[s];
        uint64_t bytes =
            (uint64_t)(r->view->part.layer_hi - r->view->part.layer_lo) *
            g->cache[s].layer_bytes;

        nn_free(g->cache[s].k, bytes);
        nn_free(g->cache[s].v, bytes);
    }
}

/* One pass: the rows between two lines of the schedule, sequences without new
 * rows left out; logits go to their row of the packed batch. */
static void one_pass(struct generator *g, const struct nn_batch *b, int pass,
                     float *logits)
{
    const struct dyti_arch *arch = &g->world.desc.model->arch;
    int32_t first[SEQUENCES + 1] = {0}, context[SEQUENCES], table[SEQUENCES];
    int32_t ids[NN_ROWS], position[NN_ROWS], packed[NN_ROWS], row[NN_ROWS];
    float hidden[NN_ROWS * 24];
    struct dyti_paged_batch batch = {.row_first = first,
                                     .context = context,
                                     .table_first = table,
                                     .block_table = g->table};
    float *one = calloc(NN_ROWS, (size_t)arch->vocab * sizeof(float));

    for (int32_t s = 0; s < SEQUENCES; s++) {
        int32_t from = pass == 0 ? 0 : schedule[pass - 1][s];

        for (int32_t p = from; p < schedule[pass][s]; p++) {
            packed[batch.row_count] = nn_first[s] + p;
            row[batch.row_count] = (int32_t)batch.row_count;
            position[batch.row_count] = p;
            ids[batch.row_count++] = b->ids[nn_first[s] + p];
        }
        if (schedule[pass][s] > from) {
            context[batch.sequence_count] = schedule[pass][s];
            table[batch.sequence_count++] = s * 3;
            first[batch.sequence_count] = (int32_t)batch.row_count;
        }
    }
    for (uint32_t s = 0; s < g->world.desc.pp; s++) {
        struct nn_rank *r = &g->world.rank[s];
        struct dyti_region work;

        nn_region_new(&work, dyti_nn_infer_bytes(r->nn, batch.row_count));
        assert_ok(dyti_nn_infer(r->nn, &r->w, &g->cache[s], &batch, ids,
                                position, hidden, &work));
        if (r->view->part.has_head) {
            assert_ok(dyti_nn_logits(r->nn, &r->w, hidden, row, batch.row_count,
                                     one, &work));
        }
        assert_int_equal(work.used, 0);
        nn_region_free(&work);
    }
    for (int64_t r = 0; r < batch.row_count; r++) {
        memcpy(logits + packed[r] * arch->vocab, one + r * arch->vocab,
               (size_t)arch->vocab * sizeof(float));
    }
    free(one);
}

static void check_case(const struct dyti_arch *arch, uint32_t pp)
{
    struct dyti_model *model;
    struct generator g;
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
                                          .tp = 1,
                                          .pp = pp,
                                          .kernels = &dyti_kernels_reference,
                                          .positions = 16},
                  full);
    step.micro = &b.micro;
    step.target = b.target;
    nn_world_step(&g.world, &step);
    cache_init(&g, DYTI_F32);
    for (int pass = 0; pass < PASSES; pass++) {
        one_pass(&g, &b, pass, got);
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
        check_case(&nn_cases[c].arch, 1);
        check_case(&nn_cases[c].arch, 3);
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
