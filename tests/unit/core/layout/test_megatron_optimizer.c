/* Megatron-LM's distributed optimizer: what lies where in its buckets, whose
 * slices they are, and what is padded. */
#include "dialect_world.h"

#include "layout/megatron.h"

static struct dyti_layout *train(const struct dyti_model *m,
                                 struct dyti_layout_desc d)
{
    d.dialect = DYTI_DIALECT_MEGATRON;
    return dyt_layout(m, d);
}

/* Locals A, B, C in the order of their modules. */
static void hand_list(struct dyti_locals *list, const struct dyt_hand *h,
                      uint32_t count)
{
    dyti_locals_init(list, &h->layout, &h->part, true);
    for (uint32_t i = 0; i < count; i++) {
        struct dyti_put put = {.tensor = i, .hi = h->tensor[i].shape[0]};

        dyti_locals_begin(list, i, 1, h->tensor[i].shape, "%s",
                          h->tensor[i].name);
        dyti_locals_put(list, &put);
    }
    assert_ok(list->status);
}

static void show_place(const struct dyti_locals *list, enum dyti_kind kind,
                       struct dyt_shown *shown)
{
    const struct dyti_shard_sink sink = {.self = shown,
                                         .shard = dyt_show_shard};
    const struct dyti_placer placer = {list, kind, &sink};

    shown->text[0] = '\0';
    shown->bytes = 0;
    assert_ok(dyti_megatron_place(&placer, &shown->bytes));
}

/* Rule: last parameter first, starts on 64 elements, the end on lcm(DP, 128),
 * slices that ignore borders.  A=100, B=70, C=10, DP=4: C 0-10, B 64-134, A
 * 192-292, end 384; slices of 96. */
static void slices_ignore_borders(void **state)
{
    static const int64_t rows[] = {100, 70, 10};
    static const char *const want[] = {"C[0:10]@0 B[0:32]@64", "B[32:70]@0",
                                       "A[0:96]@0", "A[96:100]@0"};

    (void)state;
    for (uint32_t r = 0; r < 4; r++) {
        struct dyt_hand h;
        struct dyti_locals list;
        struct dyt_shown s = {.model = &h.model};

        dyt_hand_init(&h, rows, 3, 0, DYTI_DIALECT_MEGATRON, 1, 4, r);
        hand_list(&list, &h, 3);
        for (int kind = DYTI_MASTER; kind <= DYTI_EXP_AVG_SQ; kind++) {
            show_place(&list, (enum dyti_kind)kind, &s);
            assert_string_equal(s.text, want[r]);
            assert_int_equal(s.bytes, 96 * 4);
        }
        for (int kind = DYTI_PARAM; kind <= DYTI_GRAD; kind++) {
            show_place(&list, (enum dyti_kind)kind, &s);
            assert_string_equal(s.text, "C[0:10]@0 B[0:70]@64 A[0:100]@192");
            assert_int_equal(s.bytes, 384 * 4);
        }
        dyti_locals_fini(&list);
    }
}

/* Rule: lcm(DP, 128), not 128 alone: 3 ranks pad to 384. */
static void the_end_is_padded_to_the_lcm(void **state)
{
    static const int64_t rows[] = {100};
    struct dyt_hand h;
    struct dyti_locals list;
    struct dyt_shown s = {.model = &h.model};

    (void)state;
    dyt_hand_init(&h, rows, 1, 0, DYTI_DIALECT_MEGATRON, 1, 3, 0);
    hand_list(&list, &h, 1);
    show_place(&list, DYTI_GRAD, &s);
    assert_int_equal(s.bytes, 384 * 4);
    show_place(&list, DYTI_MASTER, &s);
    assert_string_equal(s.text, "A[0:100]@0");
    assert_int_equal(s.bytes, 128 * 4);
    dyti_locals_fini(&list);
}

/* Rule: for the bus bandwidth lcm(DP, 128, 65536): all of A, B and C is in the
 * first of four slices of 16384, and 3 ranks pad to 196608. */
static void the_end_may_be_padded_for_the_bus(void **state)
{
    static const int64_t rows[] = {100, 70, 10};

    (void)state;
    for (uint32_t ranks = 3; ranks <= 4; ranks++) {
        for (uint32_t r = 0; r < ranks; r++) {
            struct dyt_hand h;
            struct dyti_locals list;
            struct dyt_shown s = {.model = &h.model};

            dyt_hand_init(&h, rows, 3, 0, DYTI_DIALECT_MEGATRON, 1, ranks, r);
            h.layout.desc.bucket_multiple = 65536;
            hand_list(&list, &h, 3);
            show_place(&list, DYTI_MASTER, &s);
            assert_string_equal(
                s.text, r == 0 ? "C[0:10]@0 B[0:70]@64 A[0:100]@192" : "");
            assert_int_equal(s.bytes, ranks == 4 ? 16384 * 4 : 65536 * 4);
            show_place(&list, DYTI_PARAM, &s);
            assert_int_equal(s.bytes, ranks == 4 ? 65536 * 4 : 196608 * 4);
            dyti_locals_fini(&list);
        }
    }
}

/* Rule: an embedding that two stages share has a bucket of its own: it begins
 * where the one before ends, padded, and what follows begins anew. */
static void a_shared_embedding_has_its_own_bucket(void **state)
{
    static const int64_t rows[] = {100, 70, 10};
    struct dyt_hand h;
    struct dyti_locals list;
    struct dyt_shown s = {.model = &h.model};

    (void)state;
    dyt_hand_init(&h, rows, 3, 0, DYTI_DIALECT_MEGATRON, 1, 4, 0);
    hand_list(&list, &h, 3);
    list.local[1].own_bucket = true;
    show_place(&list, DYTI_PARAM, &s);
    assert_string_equal(s.text, "C[0:10]@0 B[0:70]@128 A[0:100]@256");
    assert_int_equal(s.bytes, 384 * 4);
    show_place(&list, DYTI_MASTER, &s);
    assert_string_equal(s.text, "C[0:10]@0 B[0:32]@32 A[0:32]@64");
    dyti_locals_fini(&list);
}

/* ... which a tied model has on both of its stages, and an untied has not. */
static void both_homes_share_the_embedding(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_9_3;
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l =
        train(m, (struct dyti_layout_desc){.pp = 2, .dp = 2, .zero = 1});

    (void)state;
    for (uint32_t r = 0; r < 4; r++) {
        assert_non_null(dyt_buffer(l, r, DYTI_PARAM,
                                   r < 2 ? "embedding.word_embeddings.weight"
                                         : "output_layer.weight"));
        assert_non_null(
            dyt_buffer(l, r, DYTI_MASTER, "buffers.0.buckets.1.main_param"));
        assert_null(
            dyt_buffer(l, r, DYTI_MASTER, "buffers.0.buckets.2.main_param"));
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* Rule: a buffer per type of parameters, and one for experts that other ranks
 * share. */
static void experts_have_their_own_buffer(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_MIXTRAL;
    struct dyti_model *m = dyt_model(arch);

    (void)state;
    for (uint32_t ep = 1; ep <= 2; ep++) {
        struct dyti_layout *l =
            train(m, (struct dyti_layout_desc){.dp = 2, .ep = ep, .zero = 1});

        assert_non_null(
            dyt_buffer(l, 0, DYTI_MASTER, "buffers.0.buckets.0.main_param"));
        assert_int_equal(dyt_buffer(l, 0, DYTI_MASTER,
                                    "buffers.1.buckets.0.main_param") != NULL,
                         ep == 2);
        dyti_layout_destroy(l);
    }
    dyti_model_destroy(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(slices_ignore_borders),
    cmocka_unit_test(the_end_is_padded_to_the_lcm),
    cmocka_unit_test(the_end_may_be_padded_for_the_bus),
    cmocka_unit_test(a_shared_embedding_has_its_own_bucket),
    cmocka_unit_test(both_homes_share_the_embedding),
    cmocka_unit_test(experts_have_their_own_buffer),
};

DYT_TEST_MAIN(tests)
