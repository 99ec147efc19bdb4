/* Random architectures and degrees: each element of each tensor has exactly
 * the stated number of holders, counted point by point; shards of a rank never
 * overlap in memory; ZeRO cuts keep each element once. */
#include "layout_cases.h"

#define TRIALS 120u
#define SEED   20240501u

/* How many ranks must hold an element, said in another way than the layout
 * does: ask each member's heads, rows and layers. */
static uint32_t want_holders(const struct dyti_layout *layout,
                             const struct dyti_tensor *t, const int64_t *at,
                             bool zero_kind)
{
    const struct dyti_arch *a = &layout->model->arch;
    const struct dyti_layout_desc *d = &layout->desc;
    int64_t x = at[t->cut_axis], group = a->q_heads / a->kv_heads;
    uint32_t tp_holders = 0, homes = 1;
    int64_t next_q = 0;

    for (uint32_t tp = 0; tp < d->tp; tp++) {
        int64_t heads = a->q_heads / d->tp + (tp < a->q_heads % d->tp);
        bool holds = false;

        switch (t->segment[0].cut) {
        case DYTI_CUT_NONE:
            holds = true;
            break;
        case DYTI_CUT_Q_HEADS:
            holds =
                x / a->head_dim >= next_q && x / a->head_dim < next_q + heads;
            break;
        case DYTI_CUT_KV_HEADS:
            for (int64_t q = next_q; q < next_q + heads; q++) {
                holds = holds || q / group == x / a->head_dim;
            }
            break;
        default: /* cut without replicas */
            holds = tp == 0;
            break;
        }
        next_q += heads;
        tp_holders += holds;
    }
    if (t->layer < 0 && t->on_first && t->on_last && d->pp > 1) {
        homes = 2;
    }
    return tp_holders * homes * (zero_kind && d->zero ? 1 : d->dp);
}

/* Count holders of every element of `kind`, and bytes used twice. */
static void check_kind(const struct dyti_layout *layout, enum dyti_kind kind)
{
    const struct dyti_model *model = layout->model;
    uint64_t total = dyti_model_elements(model), base = 0;
    uint32_t *count = calloc(total, sizeof(*count));
    uint64_t *first = calloc(model->tensor_count, sizeof(*first));
    bool zero_kind = kind >= DYTI_MASTER;

    assert_non_null(count);
    assert_non_null(first);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        first[i] = base;
        base += dyti_tensor_elements(&model->tensor[i]);
    }
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = &layout->view[r];
        unsigned char *used = calloc(view->region_bytes[kind] + 1, 1);

        assert_non_null(used);
        for (uint32_t i = view->kind_first[kind];
             i < view->kind_first[kind + 1]; i++) {
            const struct dyti_shard *s = &view->shard[i];
            const struct dyti_tensor *t = &model->tensor[s->tensor];
            int64_t at[DYT_MAX_DIMS];

            assert_int_equal(kind, s->kind);
            assert_true(
                i == view->kind_first[kind] || s[-1].tensor < s->tensor ||
                (s[-1].tensor == s->tensor && s[-1].offset < s->offset));
            memcpy(at, s->box.lo, sizeof(at));
            do {
                uint64_t byte = dyt_case_offset(s, at);

                count[first[s->tensor] + dyt_case_index(t, at)]++;
                assert_true(byte + 4 <= view->region_bytes[kind]);
                assert_int_equal(0, byte % 4);
                assert_int_equal(0, used[byte]++);
            } while (dyt_case_next(&s->box, at));
        }
        free(used);
    }
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *t = &model->tensor[i];
        struct dyt_box whole = {.ndim = t->ndim};
        int64_t at[DYT_MAX_DIMS] = {0};

        memcpy(whole.hi, t->shape, sizeof(whole.hi));
        do {
            uint32_t want = want_holders(layout, t, at, zero_kind);
            uint32_t got = count[first[i] + dyt_case_index(t, at)];

            if (want != got) {
                fail_msg("%s %s: %u holders, want %u", dyti_kind_name(kind),
                         t->name, got, want);
            }
        } while (dyt_case_next(&whole, at));
    }
    free(count);
    free(first);
}

/* The flat buffer is the same in all kinds: a shard of master lies zero_lo
 * elements before where param has that element. */
static void check_kinds_agree(const struct dyti_layout *layout)
{
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = &layout->view[r];

        for (uint32_t i = view->kind_first[DYTI_MASTER];
             i < view->kind_first[DYTI_MASTER + 1]; i++) {
            const struct dyti_shard *m = &view->shard[i];
            const struct dyti_shard *p =
                dyti_view_find(view, DYTI_PARAM, m->tensor);

            assert_non_null(p);
            assert_int_equal(dyt_case_offset(p, m->box.lo),
                             m->offset + view->zero_lo * 4);
        }
    }
}

static void each_element_has_its_holders(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        struct dyti_arch arch = dyt_case_arch(SEED, trial);
        struct dyt_case_desc desc;
        struct dyti_model *model = NULL;
        struct dyti_layout *layout = NULL;

        dyt_case_layout(SEED, trial, &arch,
                        1 + (uint32_t)dyt_case_pick(SEED, trial, 0, 16),
                        "train", &desc);
        assert_ok(dyti_model_build(&arch, &model));
        assert_ok(dyti_layout_build(model, &desc.desc, &layout));
        check_kind(layout, DYTI_PARAM);
        check_kind(layout, DYTI_MASTER);
        check_kind(layout, DYTI_EXP_AVG_SQ);
        check_kinds_agree(layout);
        dyti_layout_destroy(layout);
        dyti_model_destroy(model);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_element_has_its_holders),
};
DYT_TEST_MAIN(tests)
