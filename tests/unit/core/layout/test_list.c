/* Layouts from handed-in shards: what a dialect made is taken as it is; each
 * fault is named; damaged lists are refused exactly when a byte map and a count
 * of elements say so. */
#include "layout/list.h"

#include "layout/pattern.h"
#include "layout_cases.h"

#define SEED 31337u

static struct dyti_view *views_of(const struct dyti_layout *layout)
{
    struct dyti_view *view = calloc(layout->desc.world_size, sizeof(*view));

    assert_non_null(view);
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        assert_ok(dyti_layout_view_build(layout, r, &view[r]));
    }
    return view;
}

static void free_views(struct dyti_view *view, uint32_t count)
{
    for (uint32_t r = 0; r < count; r++) {
        dyti_view_fini(&view[r]);
    }
    free(view);
}

static void check_same_holders(const struct dyti_layout *a,
                               const struct dyti_layout *b)
{
    struct dyti_patterns *p = NULL, *q = NULL;
    uint32_t tensors = a->model->tensor_count;

    assert_ok(dyti_patterns_build(a, &p));
    assert_ok(dyti_patterns_build(b, &q));
    assert_int_equal(p->geometry_count, q->geometry_count);
    for (uint32_t i = 0; i < p->geometry_count * tensors; i++) {
        uint32_t x = p->pattern_of[i], y = q->pattern_of[i];

        assert_int_equal(x == DYTI_NO_PATTERN, y == DYTI_NO_PATTERN);
        if (x != DYTI_NO_PATTERN) {
            assert_true(p->pattern[x].hash == q->pattern[y].hash);
        }
    }
    dyti_patterns_destroy(p);
    dyti_patterns_destroy(q);
}

static void what_a_dialect_made_is_taken(void **state)
{
    static const enum dyti_dialect dialect[] = {
        DYTI_DIALECT_NATIVE, DYTI_DIALECT_VLLM, DYTI_DIALECT_MEGATRON,
        DYTI_DIALECT_FSDP2};

    (void)state;
    for (uint64_t trial = 0; trial < dyt_test_rounds(80, 800); trial++) {
        struct dyti_model *model = dyt_case_any_model(SEED, trial);
        struct dyti_layout *layout = dyt_case_build(
            SEED, trial, model, 1 + (uint32_t)dyt_case_pick(SEED, trial, 0, 8),
            dialect[trial % 4], NULL);
        struct dyti_view *view = views_of(layout);
        struct dyti_layout *list = NULL;
        uint32_t world = layout->desc.world_size;

        assert_ok(dyti_layout_from_views(model, &layout->desc, view, &list));
        assert_int_equal(DYTI_DIALECT_LIST, list->desc.dialect);
        check_same_holders(layout, list);
        for (uint32_t r = 0; r < world; r++) {
            struct dyti_view copy = {0};

            assert_null(view[r].shard); /* taken over */
            assert_int_equal(layout->view[r].shard_count,
                             list->view[r].shard_count);
            assert_ok(dyti_layout_view_build(list, r, &copy));
            assert_int_equal(copy.shard_count, list->view[r].shard_count);
            dyti_view_fini(&copy);
        }
        free_views(view, world);
        dyti_layout_destroy(list);
        dyti_layout_destroy(layout);
        dyti_model_destroy(model);
    }
}

/* ---- faults -------------------------------------------------------------- */

struct one {
    struct dyti_model *model;
    struct dyti_layout *layout;
    struct dyti_view *view;
};

static void begin(struct one *o)
{
    const struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    struct dyti_layout_desc desc = {
        .phase = "rollout", .world_size = 2, .tp = 2, .pp = 1, .dp = 1};

    memset(o, 0, sizeof(*o));
    for (int kind = DYTI_GRAD; kind < DYTI_KIND_COUNT; kind++) {
        desc.residency[kind] = DYTI_DROPPED;
    }
    assert_ok(dyti_model_build(&arch, &o->model));
    assert_ok(dyti_layout_build(o->model, &desc, &o->layout));
    o->view = views_of(o->layout);
}

static void end(struct one *o)
{
    free_views(o->view, 2);
    dyti_layout_destroy(o->layout);
    dyti_model_destroy(o->model);
}

static struct dyti_shard *shard_of(struct one *o, uint32_t rank, int32_t layer,
                                   enum dyti_slot slot)
{
    uint32_t tensor = dyti_model_find(o->model, layer, slot);

    for (uint32_t i = 0; i < o->view[rank].shard_count; i++) {
        if (o->view[rank].shard[i].tensor == tensor) {
            return &o->view[rank].shard[i];
        }
    }
    fail();
    return NULL;
}

static void refused(struct one *o, const char *says)
{
    struct dyti_layout *list = NULL;

    assert_status(
        DYT_ERR_LAYOUT,
        dyti_layout_from_views(o->model, &o->layout->desc, o->view, &list));
    assert_null(list);
    assert_error_has(says);
    assert_error_has("while taking the shards of phase rollout");
    end(o);
}

static void each_fault_is_named(void **state)
{
    struct one o;

    (void)state;
    begin(&o);
    o.view[1].shard[0].kind = DYTI_GRAD;
    refused(&o, "rank 1, shard 0: kind 1 is none that the phase holds");
    begin(&o);
    o.view[1].shard[3].tensor = 900;
    refused(&o, "rank 1, shard 3: tensor 900");
    begin(&o);
    shard_of(&o, 0, 0, DYTI_SLOT_Q)->dtype = DYTI_BF16;
    refused(&o, "rank 0: param of model.layers.0.self_attn.q_proj.weight is "
                "bf16, the phase says f32");
    begin(&o);
    shard_of(&o, 0, 0, DYTI_SLOT_Q)->box.ndim = 1;
    refused(&o, "has 1 dimensions, the tensor 2");
    begin(&o);
    shard_of(&o, 1, 0, DYTI_SLOT_Q)->box.hi[0] = 17;
    refused(&o, "[8:17, 0:16] lies outside: dimension 0 has 16 elements");
    begin(&o);
    shard_of(&o, 1, 0, DYTI_SLOT_Q)->offset += 1u << 20;
    refused(&o, "reaches out of its region of");
    begin(&o);
    shard_of(&o, 1, 0, DYTI_SLOT_Q)->stride[0] = INT64_MAX / 2;
    refused(&o, "reaches out of its region of");
    begin(&o);
    shard_of(&o, 1, 0, DYTI_SLOT_Q)->stride[0] = -64;
    shard_of(&o, 1, 0, DYTI_SLOT_Q)->offset = 0;
    refused(&o, "reaches out of its region of");
    begin(&o);
    shard_of(&o, 1, 0, DYTI_SLOT_Q)->offset += 2;
    refused(&o, "must be multiples of its 4 bytes");
    begin(&o);
    shard_of(&o, 1, 0, DYTI_SLOT_Q)->stride[0] = 4;
    refused(&o, "lies twice over byte");
    begin(&o);
    shard_of(&o, 1, 0, DYTI_SLOT_K)->offset =
        shard_of(&o, 1, 0, DYTI_SLOT_Q)->offset + 4;
    refused(&o,
            "q_proj.weight [8:16, 0:16] and of "
            "model.layers.0.self_attn.k_proj.weight [2:4, 0:16] share byte");
    begin(&o);
    shard_of(&o, 1, 0, DYTI_SLOT_Q)->box.lo[0] = 9;
    refused(&o, "no rank holds param of model.layers.0.self_attn.q_proj.weight "
                "at [8:9, 0:1]");
}

static void ten_faults_are_said_at_once(void **state)
{
    struct one o;

    (void)state;
    begin(&o);
    for (uint32_t i = 0; i < 12; i++) {
        o.view[0].shard[i].tensor = 900 + i;
    }
    refused(&o, "shard 9: tensor 909");
    assert_error_has("shard 0: tensor 900");
    assert_error_has("there may be more than these ten");
    assert_null(strstr(dyti_error_text(), "tensor 910"));
}

/* Columns of one wide matrix in two shards, a transposed and a reversed one:
 * interleaved memory that does not overlap. */
static void interleaved_strides_are_fine(void **state)
{
    struct dyti_layout *list = NULL;
    struct one o;
    struct dyti_shard *q, *k;
    uint64_t at;

    (void)state;
    begin(&o);
    q = shard_of(&o, 0, 0, DYTI_SLOT_Q); /* [8, 16] */
    k = shard_of(&o, 0, 0, DYTI_SLOT_K); /* [2, 16] */
    at = o.view[0].region_bytes[DYTI_PARAM];
    o.view[0].region_bytes[DYTI_PARAM] += 4096;
    q->offset = at; /* transposed: columns 40 bytes apart, k in between */
    q->stride[0] = 4;
    q->stride[1] = 40;
    k->offset = at + 32 + 15 * 40; /* from the back */
    k->stride[0] = 4;
    k->stride[1] = -40;
    assert_ok(dyti_layout_from_views(o.model, &o.layout->desc, o.view, &list));
    dyti_layout_destroy(list);
    end(&o);
    begin(&o);
    q = shard_of(&o, 0, 0, DYTI_SLOT_Q);
    k = shard_of(&o, 0, 0, DYTI_SLOT_K);
    at = o.view[0].region_bytes[DYTI_PARAM];
    o.view[0].region_bytes[DYTI_PARAM] += 4096;
    q->offset = at;
    q->stride[0] = 4;
    q->stride[1] = 36; /* one element too narrow */
    k->offset = at + 32;
    k->stride[0] = 4;
    k->stride[1] = 36;
    refused(&o, "share byte");
}

/* ---- damaged lists ------------------------------------------------------- */

static void damage(uint64_t trial, struct dyti_view *view)
{
    struct dyti_shard *s =
        &view->shard[dyt_case_pick(SEED, trial, 400, view->shard_count)];
    uint32_t axis = (uint32_t)dyt_case_pick(SEED, trial, 401, s->box.ndim);
    int64_t by = (int64_t)dyt_case_pick(SEED, trial, 402, 7) - 3;

    switch (dyt_case_pick(SEED, trial, 403, 5)) {
    case 0:
        s->offset += (uint64_t)(by * 4);
        break;
    case 1:
        s->box.lo[axis] += by;
        break;
    case 2:
        s->box.hi[axis] += by;
        break;
    case 3:
        s->stride[axis] += by * 4;
        break;
    default:
        *s = view->shard[--view->shard_count];
        break;
    }
}

/* Element by element: in range, no byte twice, each held. */
static bool is_sound(const struct dyti_layout *layout,
                     const struct dyti_view *view)
{
    const struct dyti_model *model = layout->model;
    uint64_t total = 0;
    uint64_t *first = calloc(model->tensor_count, sizeof(*first));
    unsigned char *held;
    bool sound = true;

    assert_non_null(first);
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        first[t] = total;
        total += dyti_tensor_elements(&model->tensor[t]);
    }
    held = calloc(total, 1);
    assert_non_null(held);
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        uint64_t bytes = view[r].region_bytes[DYTI_PARAM];
        unsigned char *used = calloc(bytes + 1, 1);

        for (uint32_t i = 0; i < view[r].shard_count && sound; i++) {
            const struct dyti_shard *s = &view[r].shard[i];
            const struct dyti_tensor *t = &model->tensor[s->tensor];
            int64_t at[DYT_MAX_DIMS];
            bool empty = false;

            for (uint32_t d = 0; d < t->ndim; d++) {
                sound = sound && s->box.lo[d] >= 0 &&
                        s->box.lo[d] <= s->box.hi[d] &&
                        s->box.hi[d] <= t->shape[d];
                empty = empty || s->box.lo[d] == s->box.hi[d];
            }
            memcpy(at, s->box.lo, sizeof(at));
            while (sound && !empty) {
                int64_t byte = (int64_t)dyt_case_offset(s, at);

                sound = byte >= 0 && (uint64_t)byte + 4 <= bytes &&
                        used[byte]++ == 0;
                held[first[s->tensor] + dyt_case_index(t, at)] = 1;
                if (!dyt_case_next(&s->box, at)) {
                    break;
                }
            }
        }
        free(used);
    }
    for (uint64_t i = 0; i < total; i++) {
        sound = sound && held[i] == 1;
    }
    free(held);
    free(first);
    return sound;
}

static void damaged_lists_are_refused(void **state)
{
    uint32_t taken = 0;

    (void)state;
    for (uint64_t trial = 0; trial < dyt_test_rounds(300, 3000); trial++) {
        struct dyti_layout *list = NULL;
        struct one o;
        bool sound;
        enum dyt_status st;

        begin(&o);
        damage(trial, &o.view[trial % 2]);
        sound = is_sound(o.layout, o.view);
        st = dyti_layout_from_views(o.model, &o.layout->desc, o.view, &list);
        if (st != (sound ? DYT_OK : DYT_ERR_LAYOUT)) {
            fail_msg("trial %llu: %s", (unsigned long long)trial,
                     dyti_error_text());
        }
        taken += sound;
        dyti_layout_destroy(list);
        end(&o);
    }
    assert_true(taken > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_a_dialect_made_is_taken),
    cmocka_unit_test(each_fault_is_named),
    cmocka_unit_test(ten_faults_are_said_at_once),
    cmocka_unit_test(interleaved_strides_are_fine),
    cmocka_unit_test(damaged_lists_are_refused),
};
DYT_TEST_MAIN(tests)
