/* What holds for every dialect, over random models and degrees: layouts are
 * sound (dialect_sound.h), and what goes from one to another, element by
 * element, arrives. */
#include "dialect_dice.h"
#include "dialect_sound.h"

/* ---- from one to the other ----------------------------------------------- */

/* One kind of all ranks of a layout. */
struct memory {
    const struct dyti_layout *layout;
    enum dyti_kind kind;
    unsigned char **region; /* [world_size] */
};

static struct memory memory_of(const struct dyti_layout *l, enum dyti_kind kind)
{
    struct memory m = {l, kind, calloc(l->desc.world_size, sizeof(char *))};

    assert_non_null(m.region);
    for (uint32_t r = 0; r < l->desc.world_size; r++) {
        uint64_t bytes = l->view[r].region_bytes[kind];

        m.region[r] = malloc(bytes + 1);
        assert_non_null(m.region[r]);
        memset(m.region[r], 0xee, bytes + 1);
    }
    return m;
}

static void memory_free(struct memory *m)
{
    for (uint32_t r = 0; r < m->layout->desc.world_size; r++) {
        free(m->region[r]);
    }
    free(m->region);
}

/* What an element's bits are: its number in the model, told apart by width. */
static uint64_t bits_of(uint64_t number, uint32_t width)
{
    return width == 2   ? number * 40503u & 0xffffu
           : width == 4 ? number & 0xffffffffu
                        : number * 0x9e3779b97f4a7c15u; /* case 41: all bits */
}

enum deed { FILL, GATHER, SCATTER, CHECK };

struct work {
    struct memory *memory;
    uint32_t rank;
    const uint64_t *first;
    uint64_t *whole; /* every element, once */
    enum deed what;
};

static void touch(void *arg, const struct dyti_shard *s, int64_t index,
                  uint64_t offset)
{
    struct work *w = arg;
    unsigned char *at = w->memory->region[w->rank] + offset;
    uint64_t number = w->first[s->tensor] + (uint64_t)index;
    uint32_t width = dyti_dtype_bytes((enum dyti_dtype)s->dtype);
    uint64_t want = bits_of(number, width), got = 0;

    switch (w->what) {
    case FILL:
        memcpy(at, &want, width);
        break;
    case GATHER:
        memcpy(&w->whole[number], at, width);
        break;
    case SCATTER:
        memcpy(at, &w->whole[number], width);
        break;
    default:
        memcpy(&got, at, width);
        if (got != want) {
            fail_msg("element %lld of %s is not what it was", (long long)index,
                     w->memory->layout->model->tensor[s->tensor].name);
        }
    }
}

static void do_all(struct work *w, enum deed what)
{
    const struct dyti_layout *l = w->memory->layout;
    enum dyti_kind kind = w->memory->kind;

    w->what = what;
    for (w->rank = 0; w->rank < l->desc.world_size; w->rank++) {
        const struct dyti_view *v = &l->view[w->rank];

        for (uint32_t i = v->kind_first[kind]; i < v->kind_first[kind + 1];
             i++) {
            dyt_each_element(l->model, &v->shard[i], touch, w);
        }
    }
}

/* a -> b -> a, element by element; both ways it is what it was. */
static void assert_round_trip(const struct dyti_layout *a,
                              const struct dyti_layout *b, enum dyti_kind kind)
{
    struct memory from = memory_of(a, kind), to = memory_of(b, kind);
    uint64_t total;
    uint64_t *first = first_elements(a->model, &total);
    uint64_t *whole = calloc(total + 1, sizeof(*whole));
    struct work x = {.memory = &from, .first = first, .whole = whole};
    struct work y = {.memory = &to, .first = first, .whole = whole};

    assert_non_null(whole);
    do_all(&x, FILL);
    do_all(&x, GATHER);
    do_all(&y, SCATTER);
    do_all(&y, CHECK);
    for (uint32_t r = 0; r < a->desc.world_size; r++) {
        memset(from.region[r], 0, a->view[r].region_bytes[kind]);
    }
    memset(whole, 0, total * sizeof(*whole));
    do_all(&y, GATHER);
    do_all(&x, SCATTER);
    do_all(&x, CHECK);
    memory_free(&from);
    memory_free(&to);
    free(first);
    free(whole);
}

/* ---- tests --------------------------------------------------------------- */

static uint64_t rounds(void)
{
    return dyt_test_rounds(40, 400);
}

static void every_dialect_is_sound(void **state)
{
    struct dice d = {.state = 17};

    (void)state;
    for (uint64_t i = 0; i < rounds(); i++) {
        struct dyti_model *m = dyt_model(random_arch(&d));
        struct dyti_layout *l =
            random_layout(&d, m, (enum dyti_dialect)(i % DYTI_DIALECT_LIST));

        assert_sound(l);
        dyti_layout_destroy(l);
        dyti_model_destroy(m);
    }
}

/* cases 30, 61, 62, 65: whatever the shards, the values are the same. */
static void what_goes_comes_back(void **state)
{
    struct dice d = {.state = 42};

    (void)state;
    for (uint64_t i = 0; i < rounds(); i++) {
        struct dyti_model *m = dyt_model(random_arch(&d));
        struct dyti_layout *a =
            random_layout(&d, m, (enum dyti_dialect)(i % DYTI_DIALECT_LIST));
        struct dyti_layout *b = random_layout(
            &d, m, (enum dyti_dialect)roll(&d, DYTI_DIALECT_LIST));

        if (a->desc.dtype[DYTI_PARAM] == b->desc.dtype[DYTI_PARAM]) {
            assert_round_trip(a, b, DYTI_PARAM);
        }
        assert_round_trip(a, b, DYTI_MASTER);
        dyti_layout_destroy(a);
        dyti_layout_destroy(b);
        dyti_model_destroy(m);
    }
}

/* case 30: 1, 2 and 8 shards of the same values, and back, 20 times. */
static void shards_of_the_same_values_are_the_same(void **state)
{
    static const uint32_t ranks[] = {1, 2, 8};
    struct dyti_arch arch = DYT_ARCH_TINY_9_3;
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *serve =
        dyt_layout(m, (struct dyti_layout_desc){.dialect = DYTI_DIALECT_VLLM});

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(ranks); i++) {
        struct dyti_layout *l = dyt_layout(
            m, (struct dyti_layout_desc){
                   .dialect = DYTI_DIALECT_FSDP2, .zero = 3, .dp = ranks[i]});

        for (int cycle = 0; cycle < 20; cycle++) {
            assert_round_trip(l, serve, DYTI_PARAM);
        }
        dyti_layout_destroy(l);
    }
    dyti_layout_destroy(serve);
    dyti_model_destroy(m);
}

/* case 59: the members of TP2 x DP2 are all ranks, each once, in any order. */
static void ranks_have_no_gaps(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    struct dyti_model *m = dyt_model(arch);

    (void)state;
    for (int k = 0; k < DYTI_DIALECT_LIST; k++) {
        bool seen[4] = {false};
        struct dyti_layout *l = dyt_layout(
            m, (struct dyti_layout_desc){.dialect = (enum dyti_dialect)k,
                                         .tp = k == DYTI_DIALECT_HF ? 1 : 2,
                                         .dp = k == DYTI_DIALECT_HF ? 4 : 2});

        for (uint32_t tp = 0; tp < l->desc.tp; tp++) {
            for (uint32_t dp = 0; dp < l->desc.dp; dp++) {
                uint32_t r = dyti_layout_rank(l, tp, 0, dp);

                assert_true(r < 4 && !seen[r]);
                seen[r] = true;
                assert_int_equal(l->view[r].part.tp_rank, tp);
                assert_int_equal(l->view[r].part.dp_rank, dp);
            }
        }
        dyti_layout_destroy(l);
    }
    dyti_model_destroy(m);
}

/* State without a parameter's shape lies by its rule, in every dialect. */
static void extras_go_where_they_belong(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    static const struct dyti_extra_desc extra[] = {
        {.name = "step",
         .rule = DYTI_EXTRA_EVERY,
         .dtype = DYTI_I64,
         .ndim = 1,
         .shape = {1}},
        {.name = "rng",
         .rule = DYTI_EXTRA_PER_RANK,
         .dtype = DYTI_I32,
         .ndim = 2,
         .shape = {6, 3}},
        {.name = "cursor",
         .rule = DYTI_EXTRA_OWNER,
         .dtype = DYTI_I64,
         .ndim = 1,
         .shape = {2}},
        {.name = "q.scale",
         .rule = DYTI_EXTRA_SHARDED,
         .dtype = DYTI_F32,
         .ndim = 2,
         .shape = {4, 4},
         .of = "model.layers.1.self_attn.q_proj.weight",
         .block = {4, 4}},
    };
    struct dyti_model *m = NULL;
    struct dyti_layout *native;

    (void)state;
    assert_ok(dyti_model_build_with(&arch, extra, 4, &m));
    native = dyt_layout(m, (struct dyti_layout_desc){.pp = 3});
    for (int k = DYTI_DIALECT_HF; k < DYTI_DIALECT_LIST; k++) {
        struct dyti_layout *l = dyt_layout(
            m, (struct dyti_layout_desc){.dialect = (enum dyti_dialect)k,
                                         .tp = k == DYTI_DIALECT_HF ? 1 : 2,
                                         .dp = 2});

        assert_sound(l);
        for (uint32_t r = 0; r < l->desc.world_size; r++) {
            const struct dyti_view *v = &l->view[r];

            assert_non_null(
                dyti_view_find(v, DYTI_EXTRA, dyti_model_find_name(m, "step")));
            assert_int_equal(
                dyti_view_find(v, DYTI_EXTRA,
                               dyti_model_find_name(m, "cursor")) != NULL,
                r == 0);
        }
        dyti_layout_destroy(l);
    }
    dyti_layout_destroy(native);
    dyti_model_destroy(m);
}

/* ETP is the fastest dimension of the experts' ranks, TP need not be of the
 * others: then the two do not share a buffer. */
static void experts_are_whole_in_every_order(void **state)
{
    static const uint8_t order[][DYTI_AXIS_COUNT] = {
        {DYTI_AXIS_DP, DYTI_AXIS_TP, DYTI_AXIS_PP, DYTI_AXIS_CP},
        {DYTI_AXIS_CP, DYTI_AXIS_TP, DYTI_AXIS_DP, DYTI_AXIS_PP},
        {DYTI_AXIS_PP, DYTI_AXIS_TP, DYTI_AXIS_CP, DYTI_AXIS_DP}};
    struct dyti_arch arch = DYT_ARCH_TINY_MOE;
    struct dyti_model *m = dyt_model(arch);

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(order); i++) {
        struct dyti_layout_desc desc = {.dialect = DYTI_DIALECT_MEGATRON,
                                        .tp = 2,
                                        .cp = 2,
                                        .dp = 2,
                                        .etp = 2,
                                        .zero = 1};
        struct dyti_layout *l;

        memcpy(desc.order, order[i], sizeof(desc.order));
        l = dyt_layout(m, desc);
        assert_sound(l);
        dyti_layout_destroy(l);
    }
    dyti_model_destroy(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_dialect_is_sound),
    cmocka_unit_test(what_goes_comes_back),
    cmocka_unit_test(shards_of_the_same_values_are_the_same),
    cmocka_unit_test(ranks_have_no_gaps),
    cmocka_unit_test(extras_go_where_they_belong),
    cmocka_unit_test(experts_are_whole_in_every_order),
};

DYT_TEST_MAIN(tests)
