/* The verifier alone, one rank: every changed element is seen by full, a sample
 * is at most 1 % and in time sees every part, narrowing is hashed as stored. */
#include "dyt_test.h"

#include "base/num.h"
#include "base/rng.h"
#include "device/host/host.h"
#include "exec/verify.h"

struct fixture {
    struct dyti_model *model;
    struct dyti_layout *src, *dst;
    unsigned char *region[2][DYTI_KIND_COUNT]; /* [slot] */
    struct dyti_kernels kernels;
    struct dyti_verifier verifier;
};

static unsigned char *region(const void *arg, uint32_t slot, uint32_t kind,
                             uint64_t offset)
{
    const struct fixture *f = arg;

    return f->region[slot][kind] + offset;
}

static void build(struct fixture *f, bool trains, enum dyti_dtype dtype,
                  struct dyti_layout **out)
{
    struct dyti_layout_desc desc = {.phase = trains ? "train" : "rollout",
                                    .world_size = 1,
                                    .tp = 1,
                                    .pp = 1,
                                    .dp = 1};

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        desc.residency[k] = trains ? DYTI_HELD : DYTI_PARKED;
    }
    desc.residency[DYTI_PARAM] = DYTI_HELD;
    desc.dtype[DYTI_PARAM] = dtype;
    assert_ok(dyti_layout_build(f->model, &desc, out));
}

static void setup(struct fixture *f, enum dyti_dtype dtype, int64_t hidden)
{
    struct dyti_arch arch = {.family = DYTI_LLAMA,
                             .vocab = 300,
                             .hidden = hidden,
                             .layers = 2,
                             .q_heads = 4,
                             .kv_heads = 2,
                             .head_dim = 8,
                             .ffn = 40,
                             .max_positions = 8,
                             .rms_eps = 1e-5,
                             .init_std = 0.1,
                             .rope = {.theta = 10000},
                             .tied = true};
    struct dyti_kernel_params kernel = {.struct_size = sizeof(kernel)};
    struct dyti_plan_inputs inputs;

    *f = (struct fixture){.kernels = {.ops = &dyti_kernels_host}};
    assert_ok(dyti_model_build(&arch, &f->model));
    build(f, true, dtype, &f->src);
    build(f, false, dtype, &f->dst);
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        f->region[0][k] = calloc(1, f->dst->view->region_bytes[k] + 1);
        f->region[1][k] = calloc(1, f->src->view->region_bytes[k] + 1);
    }
    for (uint64_t i = 0; i < f->src->view->flat_elements; i++) {
        float x = (float)dyti_rng_unit(dyti_rng_u64(1, i, 0, 0)) - 0.5f;
        uint16_t narrow = dyti_f32_to_bf16(x);

        ((float *)(void *)f->region[1][DYTI_MASTER])[i] = x;
        if (dtype == DYTI_F32) {
            ((float *)(void *)f->region[0][DYTI_PARAM])[i] = x;
        } else {
            ((uint16_t *)(void *)f->region[0][DYTI_PARAM])[i] = narrow;
        }
    }
    assert_ok(f->kernels.ops->open(&kernel, &f->kernels.self));
    assert_ok(dyti_plan_inputs_init(f->src, DYTI_ARENA_TRAIN, f->dst,
                                    DYTI_ARENA_ROLLOUT, DYTI_PLAN_KINDS_STATE,
                                    &inputs));
    assert_ok(dyti_verifier_init(&f->verifier, &inputs, 0, &f->kernels, NULL,
                                 region, f));
}

static void teardown(struct fixture *f)
{
    dyti_verifier_fini(&f->verifier);
    f->kernels.ops->close(f->kernels.self);
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        free(f->region[0][k]);
        free(f->region[1][k]);
    }
    dyti_layout_destroy(f->src);
    dyti_layout_destroy(f->dst);
    dyti_model_destroy(f->model);
}

static enum dyt_status run(struct fixture *f, bool full, uint64_t seed,
                           uint64_t *bytes)
{
    return dyti_verifier_run(&f->verifier, NULL, full, seed, DYT_OK, bytes);
}

/* Bit 0 of element i of the destination. */
static void flip(struct fixture *f, enum dyti_dtype dtype, uint64_t element)
{
    f->region[0][DYTI_PARAM][element * dyti_dtype_bytes(dtype)] ^= 1u;
}

static void full_sees_every_element(void **state)
{
    static const enum dyti_dtype dtypes[] = {DYTI_F32, DYTI_BF16};

    (void)state;
    for (size_t d = 0; d < 2; d++) {
        struct fixture f;
        const struct dyti_view *view;
        uint64_t bytes = 0;

        setup(&f, dtypes[d], 32);
        view = f.dst->view;
        assert_ok(run(&f, true, 0, &bytes));
        assert_true(bytes > 0);
        for (uint32_t s = view->kind_first[DYTI_PARAM];
             s < view->kind_first[DYTI_PARAM + 1]; s++) {
            uint64_t at = view->shard[s].offset / dyti_dtype_bytes(dtypes[d]);

            flip(&f, dtypes[d], at);
            assert_status(DYT_ERR_VERIFY, run(&f, true, 0, &bytes));
            assert_error_has(f.model->tensor[view->shard[s].tensor].name);
            flip(&f, dtypes[d], at);
        }
        assert_ok(run(&f, true, 0, &bytes));
        teardown(&f);
    }
}

static void sample_is_small_and_sees_all_in_time(void **state)
{
    struct fixture f;
    uint64_t all = 0, bytes = 0, elements;
    uint32_t seen = 0;

    (void)state;
    setup(&f, DYTI_F32, 32);
    elements = dyti_model_elements(f.model);
    for (uint64_t seed = 0; seed < 50; seed++) {
        assert_ok(run(&f, false, seed, &bytes));
        assert_true(bytes > 0);
        assert_true(bytes <= 2 * 4 * elements / 100); /* both sides */
        all += bytes;
    }
    assert_true(all > 50 * elements * 4 / 200); /* and not next to nothing */
    flip(&f, DYTI_F32, 5 * 32 + 7); /* an element of the embedding */
    for (uint64_t seed = 0; seed < 2000; seed++) {
        seen += run(&f, false, seed, &bytes) == DYT_ERR_VERIFY;
    }
    assert_true(seen > 0 && seen < 200);
    teardown(&f);
}

/* A shape whose rows do not fit the scratch of narrowing, in one call. */
static void wide_rows_are_narrowed_in_pieces(void **state)
{
    struct fixture f;
    uint64_t bytes = 0;

    (void)state;
    setup(&f, DYTI_BF16, 1024);
    assert_ok(run(&f, true, 0, &bytes));
    flip(&f, DYTI_BF16, 299 * 1024 + 1023);
    assert_status(DYT_ERR_VERIFY, run(&f, true, 0, &bytes));
    teardown(&f);
}

static void a_failed_transfer_is_not_hashed(void **state)
{
    struct fixture f;
    uint64_t bytes = 7;

    (void)state;
    setup(&f, DYTI_F32, 32);
    assert_status(DYT_ERR_DEVICE, dyti_verifier_run(&f.verifier, NULL, true, 0,
                                                    DYT_ERR_DEVICE, &bytes));
    assert_int_equal(7, bytes);
    teardown(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(full_sees_every_element),
    cmocka_unit_test(sample_is_small_and_sees_all_in_time),
    cmocka_unit_test(wide_rows_are_narrowed_in_pieces),
    cmocka_unit_test(a_failed_transfer_is_not_hashed),
};
DYT_TEST_MAIN(tests)
