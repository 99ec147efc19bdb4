/* FSDP2: chunks of dimension 0, uneven and empty, padded to the first; and what
 * PyTorch itself does (tests/data/fsdp2.json). */
#include "dialect_world.h"

#include <jansson.h>

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

/* ---- against PyTorch ----------------------------------------------------- */

static int64_t number(const json_t *of, const char *key)
{
    const json_t *value = json_object_get(of, key);

    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* One range of a rank's box: "rows" or "columns". */
static void range_of(const json_t *test, size_t rank, const char *key,
                     int64_t out_range[2])
{
    const json_t *held = json_array_get(json_object_get(test, "held"), rank);
    const json_t *range = json_object_get(held, key);

    assert_int_equal(2, json_array_size(range));
    out_range[0] = json_integer_value(json_array_get(range, 0));
    out_range[1] = json_integer_value(json_array_get(range, 1));
}

struct one_box {
    struct dyti_shard shard;
    size_t count;
};

static enum dyt_status keep_box(void *self, const struct dyti_shard *shard)
{
    struct one_box *one = self;

    one->shard = *shard;
    one->count++;
    return DYT_OK;
}

/* A tensor that TP cuts along `tp_dim` (-1: not), on rank dp * tp + tp_rank. */
static void is_held_as_in(const json_t *test, uint32_t rank)
{
    const int64_t rows = number(test, "rows");
    const int64_t columns = number(test, "columns");
    const int64_t tp = number(test, "tp"), dim = number(test, "tp_dim");
    const int64_t width = dim == 1 ? columns / tp : columns;
    struct one_box one = {.count = 0};
    const struct dyti_shard_sink sink = {.self = &one, .shard = keep_box};
    struct dyt_hand h;
    int64_t row[2], column[2];
    uint64_t bytes;

    dyt_hand_init(&h, &rows, 1, columns, DYTI_DIALECT_FSDP2, 3,
                  (uint32_t)number(test, "dp"), rank / (uint32_t)tp);
    h.layout.desc.tp = h.part.tp_size = (uint32_t)tp;
    h.part.tp_rank = rank % (uint32_t)tp;
    if (dim >= 0) {
        h.tensor[0].cut_axis = (uint32_t)dim;
        h.tensor[0].segment[0] = (struct dyti_segment){
            0, dim == 1 ? columns : rows, DYTI_CUT_VOCAB, 1};
    }
    range_of(test, rank, "rows", row);
    range_of(test, rank, "columns", column);
    assert_ok(
        dyti_dialect_fsdp2.emit(&h.layout, &h.part, DYTI_PARAM, &sink, &bytes));
    assert_int_equal(bytes, number(test, "padded_rows") * width * 4);
    assert_int_equal(one.count, row[0] < row[1] ? 1 : 0);
    if (one.count > 0) {
        assert_int_equal(one.shard.box.lo[0], row[0]);
        assert_int_equal(one.shard.box.hi[0], row[1]);
        assert_int_equal(one.shard.box.lo[1], column[0]);
        assert_int_equal(one.shard.box.hi[1], column[1]);
        assert_int_equal(one.shard.offset, 0);
    }
}

static void each_rank_holds_what_pytorch_gives_it(void **state)
{
    json_error_t error;
    json_t *all = json_load_file("tests/data/fsdp2.json", 0, &error);
    const json_t *cases = json_object_get(all, "cases"), *test;
    size_t i, uneven = 0, strided = 0;

    (void)state;
    if (all == NULL) {
        fail_msg("tests/data/fsdp2.json:%d: %s", error.line, error.text);
    }
    json_array_foreach(cases, i, test)
    {
        size_t ranks = json_array_size(json_object_get(test, "held"));

        assert_int_equal(ranks, number(test, "tp") * number(test, "dp"));
        for (uint32_t r = 0; r < ranks; r++) {
            is_held_as_in(test, r);
        }
        uneven += number(test, "rows") % number(test, "dp") != 0;
        strided += number(test, "tp_dim") == 0;
    }
    assert_true(json_array_size(cases) >= 80 && uneven >= 30 && strided >= 5);
    json_decref(all);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_are_chunked),
    cmocka_unit_test(tp_on_the_same_dimension_comes_first),
    cmocka_unit_test(the_last_row_of_a_tied_embedding_has_an_owner),
    cmocka_unit_test(what_fsdp2_has_not_is_refused),
    cmocka_unit_test(each_rank_holds_what_pytorch_gives_it),
};

DYT_TEST_MAIN(tests)
