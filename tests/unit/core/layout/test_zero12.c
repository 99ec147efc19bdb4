/* DeepSpeed ZeRO-1 and 2: one flat tensor, equal partitions. */
#include "dialect_world.h"

/* Rule: padded only at the end, to a multiple of twice the ranks; 180 elements
 * over 4 ranks are 184, 46 each. */
static void a_group_is_padded_at_its_end_only(void **state)
{
    static const int64_t rows[] = {100, 70, 10};
    static const char *const want[] = {"A[0:46]@0", "A[46:92]@0",
                                       "A[92:100]@0 B[0:38]@8",
                                       "B[38:70]@0 C[0:10]@32"};

    (void)state;
    for (uint32_t r = 0; r < 4; r++) {
        struct dyt_hand h;
        struct dyt_shown s;

        dyt_hand_init(&h, rows, 3, 0, DYTI_DIALECT_ZERO12, 1, 4, r);
        for (int kind = DYTI_MASTER; kind <= DYTI_EXP_AVG_SQ; kind++) {
            s = dyt_show(&h, &dyti_dialect_zero12, (enum dyti_kind)kind);
            assert_string_equal(s.text, want[r]);
            assert_int_equal(s.bytes, 46 * 4);
        }
        s = dyt_show(&h, &dyti_dialect_zero12, DYTI_PARAM);
        assert_string_equal(s.text, "A[0:100]@0 B[0:70]@100 C[0:10]@170");
        assert_int_equal(s.bytes, 184 * 4);
    }
}

/* Rule: parameter i goes to partition i mod ranks, and partitions are joined
 * before they are cut: A, C, then B, D.  100 + 10 and 70 + 50 elements over 2
 * ranks are 230, padded to 232, 116 each. */
static void parameters_may_go_round(void **state)
{
    static const int64_t rows[] = {100, 70, 10, 50};
    static const char *const want[] = {"A[0:100]@0 C[0:10]@100 B[0:6]@110",
                                       "B[6:70]@0 D[0:50]@64"};

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        struct dyt_hand h;
        struct dyt_shown s;

        dyt_hand_init(&h, rows, 4, 0, DYTI_DIALECT_ZERO12, 2, 2, r);
        h.layout.desc.round_robin = true;
        for (int kind = DYTI_GRAD; kind <= DYTI_EXP_AVG_SQ; kind++) {
            s = dyt_show(&h, &dyti_dialect_zero12, (enum dyti_kind)kind);
            assert_string_equal(s.text, want[r]);
            assert_int_equal(s.bytes, 116 * 4);
        }
        s = dyt_show(&h, &dyti_dialect_zero12, DYTI_PARAM);
        assert_string_equal(s.text,
                            "A[0:100]@0 C[0:10]@100 B[0:70]@110 D[0:50]@180");
        assert_int_equal(s.bytes, 232 * 4);
    }
}

/* ZeRO-2 cuts gradients like the master, ZeRO-1 does not. */
static void gradients_are_cut_by_stage_two(void **state)
{
    static const int64_t rows[] = {100, 80};

    (void)state;
    for (uint32_t zero = 1; zero <= 2; zero++) {
        struct dyt_hand h;
        struct dyt_shown s;

        dyt_hand_init(&h, rows, 2, 0, DYTI_DIALECT_ZERO12, zero, 4, 1);
        s = dyt_show(&h, &dyti_dialect_zero12, DYTI_GRAD);
        assert_string_equal(s.text, zero == 2 ? "A[46:92]@0"
                                              : "A[0:100]@0 B[0:80]@100");
    }
}

/* Experts are shared by other ranks: a flat tensor of their own. */
static void experts_have_their_own_group(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_MOE;
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = dyt_layout(
        m, (struct dyti_layout_desc){
               .dialect = DYTI_DIALECT_ZERO12, .zero = 1, .dp = 4, .ep = 2});
    const struct dyti_view_buffer *dense, *expert;

    (void)state;
    dense = dyt_buffer(l, 3, DYTI_MASTER, "single_partition_of_fp32_groups.0");
    expert = dyt_buffer(l, 3, DYTI_MASTER, "single_partition_of_fp32_groups.1");
    assert_non_null(dense);
    assert_non_null(expert);
    assert_true(expert->offset >= dense->offset + dense->bytes);
    /* rank 3 is ep rank 1 (two of five experts), edp rank 1 of 2 */
    assert_int_equal(expert->shape[0], 3 * 2 * (3 * 12 * 16) / 2);
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

static void what_deepspeed_has_not_is_refused(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    struct dyti_model *m = dyt_model(arch);
    const struct dyti_layout_desc d = {.dialect = DYTI_DIALECT_ZERO12};
    struct dyti_layout_desc x;

    (void)state;
    x = d;
    x.zero = 3;
    dyt_refused(m, x, "nearest that works is zero 2");
    x = d;
    x.zero = x.pp = 2;
    dyt_refused(m, x, "nearest that works is zero 1");
    x = d;
    x.tp = 4;
    dyt_refused(m, x, "nearest degree that works is tp 2");
    x = d;
    x.bucket_multiple = 65536;
    dyt_refused(m, x, "only available for the buckets of megatron");
    dyti_model_destroy(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_group_is_padded_at_its_end_only),
    cmocka_unit_test(parameters_may_go_round),
    cmocka_unit_test(gradients_are_cut_by_stage_two),
    cmocka_unit_test(experts_have_their_own_group),
    cmocka_unit_test(what_deepspeed_has_not_is_refused),
};

DYT_TEST_MAIN(tests)
