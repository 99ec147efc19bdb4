/* DeepSpeed ZeRO-3: each parameter flattened, padded, cut evenly. */
#include "dialect_world.h"

/* Rule: rank k keeps [k p, (k + 1) p) of the flattened parameter, p the
 * elements over the ranks rounded up; what lies behind the end is junk. */
static void each_parameter_is_cut_alone(void **state)
{
    static const struct {
        int64_t elements;
        uint32_t ranks;
        int64_t part;    /* p */
        int64_t held[8]; /* elements that are no junk */
    } row[] = {{10, 4, 3, {3, 3, 3, 1}}, {7, 8, 1, {1, 1, 1, 1, 1, 1, 1, 0}}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        for (uint32_t r = 0; r < row[i].ranks; r++) {
            struct dyt_hand h;
            struct dyt_shown s;
            char want[64] = "";
            int64_t lo = r * row[i].part;

            dyt_hand_init(&h, &row[i].elements, 1, 0, DYTI_DIALECT_ZERO3, 3,
                          row[i].ranks, r);
            if (row[i].held[r] > 0) {
                snprintf(want, sizeof(want), "A[%lld:%lld]@0", (long long)lo,
                         (long long)(lo + row[i].held[r]));
            }
            for (int kind = 0; kind < DYTI_EXTRA; kind++) {
                s = dyt_show(&h, &dyti_dialect_zero3, (enum dyti_kind)kind);
                assert_string_equal(s.text, want);
                /* the junk is in the region, and in no shard */
                assert_int_equal(s.bytes, row[i].part * 4);
            }
        }
    }
}

/* The master is the parts one behind the other, each with its junk. */
static void parts_follow_each_other_in_the_master(void **state)
{
    static const int64_t rows[] = {10, 7};
    struct dyt_hand h;
    struct dyt_shown s;

    (void)state;
    dyt_hand_init(&h, rows, 2, 0, DYTI_DIALECT_ZERO3, 3, 4, 3);
    s = dyt_show(&h, &dyti_dialect_zero3, DYTI_MASTER);
    assert_string_equal(s.text, "A[9:10]@0 B[6:7]@3");
    assert_int_equal(s.bytes, (3 + 2) * 4);
}

static void the_bias_of_a_router_is_a_buffer(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_MLA;
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l =
        dyt_layout(m, (struct dyti_layout_desc){.dialect = DYTI_DIALECT_ZERO3,
                                                .zero = 3,
                                                .dp = 4,
                                                .dtype = {DYTI_BF16}});

    (void)state;
    for (uint32_t r = 0; r < 4; r++) {
        const struct dyti_view_buffer *b =
            dyt_buffer(l, r, DYTI_PARAM,
                       "model.layers.1.mlp.gate.e_score_correction_bias");

        assert_non_null(b);
        assert_int_equal(b->dtype, DYTI_F32);
        assert_int_equal(b->shape[0], 5);
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

static void what_deepspeed_has_not_is_refused(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    struct dyti_model *m = dyt_model(arch);
    const struct dyti_layout_desc d = {.dialect = DYTI_DIALECT_ZERO3};
    struct dyti_layout_desc x;

    (void)state;
    x = d;
    x.zero = 1;
    dyt_refused(m, x, "nearest that works is zero 3");
    x = d;
    x.pp = 2;
    dyt_refused(m, x, "nearest degree that works is pp 1");
    dyti_model_destroy(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_parameter_is_cut_alone),
    cmocka_unit_test(parts_follow_each_other_in_the_master),
    cmocka_unit_test(the_bias_of_a_router_is_a_buffer),
    cmocka_unit_test(what_deepspeed_has_not_is_refused),
};

DYT_TEST_MAIN(tests)
