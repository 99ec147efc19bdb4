/* The hf dialect: one model.safetensors in memory, on every member. */
#include "dialect_world.h"

static void tensors_follow_each_other_whole(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = dyt_layout(
        m, (struct dyti_layout_desc){.dialect = DYTI_DIALECT_HF, .dp = 3});

    (void)state;
    for (uint32_t r = 0; r < 3; r++) {
        const struct dyti_view *v = &l->view[r];
        uint64_t end = 0;

        assert_int_equal(v->kind_first[DYTI_GRAD], m->tensor_count);
        for (uint32_t i = 0; i < m->tensor_count; i++) {
            assert_string_equal(v->buffer[i].name, m->tensor[i].name);
            assert_int_equal(v->buffer[i].offset, end);
            assert_int_equal(v->shard[i].offset, end);
            end += v->buffer[i].bytes;
        }
        assert_int_equal(v->region_bytes[DYTI_PARAM], end);
        assert_int_equal(end, 4 * dyti_model_elements(m));
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* cases 28, 42: a file holds wider types first, each at its own place, and an
 * f32 tensor among bf16 ones stays f32. */
static void types_are_of_each_tensor(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_MLA;
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l =
        dyt_layout(m, (struct dyti_layout_desc){.dialect = DYTI_DIALECT_HF,
                                                .dtype = {DYTI_BF16}});
    const struct dyti_view *v = &l->view[0];
    bool narrow = false;
    uint32_t wide = 0;

    (void)state;
    for (uint32_t i = 0; i < v->buffer_count && v->buffer[i].kind == DYTI_PARAM;
         i++) {
        uint32_t t = dyti_model_find_name(m, v->buffer[i].name);

        assert_int_equal(v->buffer[i].dtype, m->tensor[t].fixed_dtype
                                                 ? m->tensor[t].dtype
                                                 : DYTI_BF16);
        assert_int_equal(
            v->buffer[i].offset %
                dyti_dtype_bytes((enum dyti_dtype)v->buffer[i].dtype),
            0);
        narrow = narrow || v->buffer[i].dtype == DYTI_BF16;
        wide += v->buffer[i].dtype == DYTI_F32;
        assert_false(narrow && v->buffer[i].dtype == DYTI_F32);
    }
    assert_true(narrow);
    assert_int_equal(wide, 3); /* one bias of a router per MoE layer */
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* case 46: a tied head is the embedding, an untied one a tensor. */
static void a_tied_head_is_no_tensor(void **state)
{
    struct dyti_arch tied = DYT_ARCH_TINY_9_3, untied = DYT_ARCH_TINY_8_2;
    const struct dyti_arch *arch[] = {&tied, &untied};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dyti_model *m = dyt_model(*arch[i]);
        struct dyti_layout *l = dyt_layout(
            m, (struct dyti_layout_desc){.dialect = DYTI_DIALECT_HF});

        assert_true((dyt_buffer(l, 0, DYTI_PARAM, "lm_head.weight") == NULL) ==
                    arch[i]->tied);
        dyti_layout_destroy(l);
        dyti_model_destroy(m);
    }
}

static void what_would_cut_is_refused(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_MOE;
    struct dyti_model *m = dyt_model(arch);
    const struct dyti_layout_desc d = {.dialect = DYTI_DIALECT_HF};
    struct dyti_layout_desc x;

    (void)state;
    x = d;
    x.tp = 2;
    dyt_refused(m, x, "nearest degree that works is tp 1");
    x = d;
    x.pp = 2;
    dyt_refused(m, x, "nearest degree that works is pp 1");
    x = d;
    x.zero = 1;
    dyt_refused(m, x, "nearest that works is zero 0");
    x = d;
    x.dp = x.ep = 2;
    dyt_refused(m, x, "nearest degree that works is ep 1");
    dyti_model_destroy(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tensors_follow_each_other_whole),
    cmocka_unit_test(types_are_of_each_tensor),
    cmocka_unit_test(a_tied_head_is_no_tensor),
    cmocka_unit_test(what_would_cut_is_refused),
};

DYT_TEST_MAIN(tests)
