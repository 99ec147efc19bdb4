/* FSDP2: chunks of dimension 0, uneven and empty, padded to the first. */
#include "dialect_world.h"

/* Rule: ceil(n / ranks) rows each, later ranks fewer or none; storage has the
 * rows of chunk 0. */
static void rows_are_chunked(void **state)
{
    static const struct {
        int64_t rows;
        uint32_t ranks;
        int64_t held[8];
    } row[] = {{10, 4, {3, 3, 3, 1}},
               {5, 4, {2, 2, 1, 0}},
               {9, 8, {2, 2, 2, 2, 1, 0, 0, 0}}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        int64_t at = 0;

        for (uint32_t r = 0; r < row[i].ranks; r++) {
            struct dyt_hand h;
            struct dyt_shown s;
            char want[64] = "";

            dyt_hand_init(&h, &row[i].rows, 1, 6, DYTI_DIALECT_FSDP2, 3,
                          row[i].ranks, r);
            if (row[i].held[r] > 0) {
                snprintf(want, sizeof(want), "A[%lld:%lld]@0", (long long)at,
                         (long long)(at + row[i].held[r]));
            }
            for (int kind = 0; kind < DYTI_EXTRA; kind++) {
                s = dyt_show(&h, &dyti_dialect_fsdp2, (enum dyti_kind)kind);
                assert_string_equal(s.text, want);
                assert_int_equal(s.bytes, row[i].held[0] * 6 * 4);
            }
            at += row[i].held[r];
        }
        assert_int_equal(at, row[i].rows);
    }
}

/* TP first: where it cuts dimension 0 too, a rank's rows are a chunk of its TP
 * shard, and a tensor's rows are spread in strides over the world. */
static void tp_on_the_same_dimension_comes_first(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2; /* q: 16 rows, o: 16 x 16 */
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = dyt_layout(
        m, (struct dyti_layout_desc){
               .dialect = DYTI_DIALECT_FSDP2, .zero = 3, .tp = 2, .dp = 3});
    static const char q[] = "model.layers.0.self_attn.q_proj.weight";
    static const char o[] = "model.layers.0.self_attn.o_proj.weight";

    (void)state;
    for (uint32_t dp = 0; dp < 3; dp++) {
        for (uint32_t tp = 0; tp < 2; tp++) {
            uint32_t r = dp * 2 + tp;
            const struct dyti_view_buffer *b = dyt_buffer(l, r, DYTI_PARAM, q);
            struct dyt_cell c;

            /* 8 rows of the TP shard in chunks of 3, 3, 2 */
            assert_int_equal(b->shape[0], 3);
            dyt_assert_rows(l, r, q, 0, dp < 2 ? 3 : 2, q, tp * 8 + dp * 3);
            if (dp == 2) {
                dyt_assert_rows(l, r, q, 2, 1, NULL, -1);
            }
            /* o: rows over FSDP, columns over TP */
            b = dyt_buffer(l, r, DYTI_PARAM, o);
            assert_int_equal(b->shape[0], 6);
            assert_int_equal(b->shape[1], 8);
            c = dyt_at(l, r, o, 0);
            assert_int_equal(c.index, dp * 6 * 16 + tp * 8);
        }
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* case 44: 50 rows over 4 ranks, tied: 13, 13, 13, 11; row 49 is the last
 * rank's, and nobody else's. */
static void the_last_row_of_a_tied_embedding_has_an_owner(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_9_3;
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l =
        dyt_layout(m, (struct dyti_layout_desc){
                          .dialect = DYTI_DIALECT_FSDP2, .zero = 3, .dp = 4});
    static const char embed[] = "model.embed_tokens.weight";

    (void)state;
    dyt_assert_rows(l, 3, embed, 0, 11, embed, 39);
    dyt_assert_rows(l, 3, embed, 11, 2, NULL, -1);
    for (uint32_t r = 0; r < 3; r++) {
        dyt_assert_rows(l, r, embed, 0, 13, embed, r * 13);
    }
    assert_null(dyt_buffer(l, 3, DYTI_PARAM, "lm_head.weight"));
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

static void what_fsdp2_has_not_is_refused(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    struct dyti_model *m = dyt_model(arch);
    const struct dyti_layout_desc d = {.dialect = DYTI_DIALECT_FSDP2};
    struct dyti_layout_desc x;

    (void)state;
    x = d;
    x.zero = 2;
    dyt_refused(m, x, "nearest that works is zero 3");
    x = d;
    x.tp = 3;
    dyt_refused(m, x, "nearest degree that works is tp 2");
    dyti_model_destroy(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_are_chunked),
    cmocka_unit_test(tp_on_the_same_dimension_comes_first),
    cmocka_unit_test(the_last_row_of_a_tied_embedding_has_an_owner),
    cmocka_unit_test(what_fsdp2_has_not_is_refused),
};

DYT_TEST_MAIN(tests)
