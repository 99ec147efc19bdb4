/* Random models of every family, random degrees of every kind: each element of
 * each tensor is held as often as a count from the coordinates says, shards of
 * a rank never overlap in memory and stay in its region, its boxes of a tensor
 * do not overlap but for redundant experts, and equal members are found. */
#include "layout/dialect.h"
#include "layout_cases.h"

#define SEED 4242u

struct coordinates {
    uint32_t tp, cp, dp, pp, ep, etp;
};

/* Digit by digit from the order of dimensions. */
static struct coordinates where(const struct dyti_layout_desc *d, uint32_t m)
{
    struct coordinates c = {0};
    uint32_t stage = 0, step = 1;

    for (int i = 0; i < DYTI_AXIS_COUNT; i++) {
        uint32_t digit;

        switch (d->order[i]) {
        case DYTI_AXIS_TP:
            digit = c.tp = m % d->tp;
            m /= d->tp;
            stage += digit * step;
            step *= d->tp;
            break;
        case DYTI_AXIS_CP:
            digit = c.cp = m % d->cp;
            m /= d->cp;
            stage += digit * step;
            step *= d->cp;
            break;
        case DYTI_AXIS_DP:
            digit = c.dp = m % d->dp;
            m /= d->dp;
            stage += digit * step;
            step *= d->dp;
            break;
        default:
            c.pp = m % d->pp;
            m /= d->pp;
            break;
        }
    }
    c.etp = stage % d->etp;
    c.ep = stage / d->etp % d->ep;
    return c;
}

/* Virtual stages take turns: the even share of each, first ones more. */
static uint32_t stage_of(const struct dyti_layout_desc *d, int64_t layers,
                         int64_t layer)
{
    int64_t stages = (int64_t)d->pp * d->vpp, at = 0;

    for (int64_t s = 0; s < stages; s++) {
        at += layers / stages + (s < layers % stages);
        if (layer < at) {
            return (uint32_t)(s % d->pp);
        }
    }
    fail();
    return 0;
}

/* How many copies of an expert an ep rank has. */
static uint32_t copies_of(const struct dyti_layout_desc *d, int64_t experts,
                          uint32_t ep, int32_t expert)
{
    uint32_t copies = 0, rank = 0;
    int64_t taken = 0;

    if (d->experts == DYTI_EXPERTS_ROUND_ROBIN) {
        return (uint32_t)expert % d->ep == ep;
    }
    if (d->experts == DYTI_EXPERTS_EXPLICIT) {
        for (uint32_t s = 0; s < d->expert_slots; s++) {
            copies += d->expert_slot[ep * d->expert_slots + s] == expert;
        }
        return copies;
    }
    for (int32_t e = 0; e < expert; e++) {
        if (++taken == experts / d->ep + (rank < experts % d->ep)) {
            rank++;
            taken = 0;
        }
    }
    return rank == ep;
}

/* The piece that unit u of `units` falls to, dealt out as evenly as can be. */
static uint32_t piece_of(int64_t units, uint32_t pieces, int64_t u)
{
    int64_t at = 0;

    for (uint32_t p = 0; p < pieces; p++) {
        at += units / pieces + (p < units % pieces);
        if (u < at) {
            return p;
        }
    }
    fail();
    return 0;
}

/* Whether coordinates hold element x of the cut axis. */
static bool cut_holds(const struct dyti_layout *layout,
                      const struct dyti_tensor *t, int64_t x,
                      const struct coordinates *c)
{
    const struct dyti_arch *a = &layout->model->arch;

    for (uint32_t s = 0; s < t->segment_count; s++) {
        const struct dyti_segment *seg = &t->segment[s];
        int64_t units = (seg->hi - seg->lo) / seg->unit;
        int64_t u = (x - seg->lo) / seg->unit;

        if (x < seg->lo || x >= seg->hi) {
            continue;
        }
        switch (seg->cut) {
        case DYTI_CUT_NONE:
            return true;
        case DYTI_CUT_EXPERT_FFN:
            return piece_of(units, layout->desc.etp, u) == c->etp;
        case DYTI_CUT_KV_HEADS:
            for (int64_t q = 0; q < a->q_heads; q++) {
                if (piece_of(a->q_heads, layout->desc.tp, q) == c->tp &&
                    q / (a->q_heads / units) == u) {
                    return true;
                }
            }
            return false;
        default:
            return piece_of(units, layout->desc.tp, u) == c->tp;
        }
    }
    fail();
    return false;
}

static uint32_t want_holders(const struct dyti_layout *layout,
                             const struct dyti_tensor *t, const int64_t *at,
                             bool cut)
{
    const struct dyti_layout_desc *d = &layout->desc;
    int64_t experts = layout->model->arch.moe.count;
    uint32_t count = 0, group = d->dp * d->cp;

    for (uint32_t m = 0; m < layout->member_count; m++) {
        struct coordinates c = where(d, m);
        bool home = t->layer >= 0 ? stage_of(d, layout->model->arch.layers,
                                             t->layer) == c.pp
                                  : (t->on_first && c.pp == 0) ||
                                        (t->on_last && c.pp + 1 == d->pp);
        uint32_t copies =
            t->expert < 0 ? 1 : copies_of(d, experts, c.ep, t->expert);

        if (home && cut_holds(layout, t, at[t->cut_axis], &c)) {
            count += copies;
        }
    }
    if (t->expert >= 0) {
        group = d->tp * d->cp * d->dp / (d->ep * d->etp);
    }
    if (cut) {
        assert_int_equal(0, count % group);
        count /= group;
    }
    return count;
}

static uint32_t want_extra(const struct dyti_layout *layout,
                           const struct dyti_tensor *t, const int64_t *at)
{
    const struct dyti_tensor *of;
    int64_t x[DYT_MAX_DIMS] = {0};
    uint32_t count = 0;

    switch (t->extra) {
    case DYTI_EXTRA_EVERY:
        return layout->member_count;
    case DYTI_EXTRA_SHARDED:
        break;
    default:
        return 1;
    }
    /* Each member that holds some element of the block, once. */
    of = &layout->model->tensor[t->extra_of];
    for (uint32_t m = 0; m < layout->member_count; m++) {
        const struct dyti_layout_desc *d = &layout->desc;
        struct coordinates c = where(d, m);
        int64_t first = at[t->cut_axis] * t->block[t->cut_axis];
        int64_t end = first + t->block[t->cut_axis];
        bool home = of->layer >= 0 ? stage_of(d, layout->model->arch.layers,
                                              of->layer) == c.pp
                                   : (of->on_first && c.pp == 0) ||
                                         (of->on_last && c.pp + 1 == d->pp);
        bool some = false;

        end = end < of->shape[of->cut_axis] ? end : of->shape[of->cut_axis];
        for (x[0] = first; x[0] < end; x[0]++) {
            some = some || cut_holds(layout, of, x[0], &c);
        }
        count += home && some &&
                 (of->expert < 0 || copies_of(d, layout->model->arch.moe.count,
                                              c.ep, of->expert) > 0);
    }
    return count;
}

static bool boxes_meet(const struct dyt_box *a, const struct dyt_box *b)
{
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->lo[d] >= b->hi[d] || b->lo[d] >= a->hi[d]) {
            return false;
        }
    }
    return true;
}

/* Boxes of one tensor meet only where an expert is there twice. */
static void check_boxes(const struct dyti_layout *layout,
                        const struct dyti_view *view, int kind)
{
    const struct dyti_shard *s = view->shard;

    for (uint32_t i = view->kind_first[kind]; i < view->kind_first[kind + 1];
         i++) {
        const struct dyti_tensor *t = &layout->model->tensor[s[i].tensor];
        bool twice = t->expert >= 0 &&
                     copies_of(&layout->desc, layout->model->arch.moe.count,
                               view->part.ep_rank, t->expert) == 2;

        for (uint32_t j = i + 1; j < view->kind_first[kind + 1] &&
                                 s[j].tensor == s[i].tensor && !twice;
             j++) {
            assert_false(boxes_meet(&s[i].box, &s[j].box));
        }
    }
}

/* Count the elements of a rank's shards; each byte is used at most once. */
static void count_rank(const struct dyti_layout *layout, uint32_t rank,
                       int kind, const uint64_t *first, uint32_t *count)
{
    const struct dyti_view *view = &layout->view[rank];
    unsigned char *used = calloc(view->region_bytes[kind] + 1, 1);

    assert_non_null(used);
    for (uint32_t i = view->kind_first[kind]; i < view->kind_first[kind + 1];
         i++) {
        const struct dyti_shard *s = &view->shard[i];
        const struct dyti_tensor *t = &layout->model->tensor[s->tensor];
        uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)s->dtype);
        int64_t at[DYT_MAX_DIMS];

        assert_int_equal(kind, s->kind);
        assert_int_equal(t->ndim, s->box.ndim);
        assert_true(i == view->kind_first[kind] || s[-1].tensor < s->tensor ||
                    (s[-1].tensor == s->tensor && s[-1].offset < s->offset));
        memcpy(at, s->box.lo, sizeof(at));
        do {
            uint64_t byte = dyt_case_offset(s, at);

            count[first[s->tensor] + dyt_case_index(t, at)]++;
            assert_true(byte + bytes <= view->region_bytes[kind]);
            assert_int_equal(0, byte % bytes);
            for (uint64_t b = 0; b < bytes; b++) {
                assert_int_equal(0, used[byte + b]++);
            }
        } while (dyt_case_next(&s->box, at));
    }
    free(used);
    check_boxes(layout, view, kind);
}

static bool is_flat(const struct dyti_tensor *t)
{
    return t->extra == DYTI_EXTRA_NONE && !t->fixed_dtype &&
           (t->kinds & 31u) == 31u;
}

static void check_kind(const struct dyti_layout *layout, int kind)
{
    const struct dyti_model *model = layout->model;
    uint64_t base = 0;
    uint32_t *count;
    uint64_t *first = calloc(model->tensor_count, sizeof(*first));
    uint32_t zero = layout->desc.zero;
    bool cut = kind == DYTI_PARAM  ? zero >= 3
               : kind == DYTI_GRAD ? zero >= 2
                                   : zero >= 1;

    assert_non_null(first);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        first[i] = base;
        base += dyti_tensor_elements(&model->tensor[i]);
    }
    count = calloc(base + 1, sizeof(*count));
    assert_non_null(count);
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        count_rank(layout, r, kind, first, count);
    }
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *t = &model->tensor[i];
        struct dyt_box whole = {.ndim = t->ndim};
        int64_t at[DYT_MAX_DIMS] = {0};

        memcpy(whole.hi, t->shape, sizeof(whole.hi));
        do {
            uint32_t want = 0;
            uint32_t got = count[first[i] + dyt_case_index(t, at)];

            if ((t->kinds >> kind & 1u) != 0) {
                want = kind == DYTI_EXTRA
                           ? want_extra(layout, t, at)
                           : want_holders(layout, t, at, cut && is_flat(t));
                assert_true(want > 0);
            }
            if (want != got) {
                fail_msg("%s %s: %u holders, want %u",
                         dyti_kind_name((enum dyti_kind)kind), t->name, got,
                         want);
            }
        } while (dyt_case_next(&whole, at));
    }
    free(count);
    free(first);
}

static void check_same_view(const struct dyti_view *a,
                            const struct dyti_view *b)
{
    assert_int_equal(a->shard_count, b->shard_count);
    for (uint32_t i = 0; i < a->shard_count; i++) {
        const struct dyti_shard *x = &a->shard[i], *y = &b->shard[i];

        assert_int_equal(x->tensor, y->tensor);
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->offset, y->offset);
        assert_true(dyt_case_same_box(&x->box, &y->box));
        assert_memory_equal(x->stride, y->stride, sizeof(x->stride));
    }
    assert_memory_equal(a->region_bytes, b->region_bytes,
                        sizeof(a->region_bytes));
    assert_memory_equal(a->kind_first, b->kind_first, sizeof(a->kind_first));
    assert_int_equal(a->flat_elements, b->flat_elements);
    assert_int_equal(a->zero_count, b->zero_count);
    for (uint32_t i = 0; i < a->zero_count; i++) {
        assert_int_equal(a->zero[i].lo, b->zero[i].lo);
        assert_int_equal(a->zero[i].hi, b->zero[i].hi);
    }
}

static void check_lazy(const struct dyti_layout *layout,
                       struct dyti_layout_desc desc)
{
    struct dyti_layout *lazy = NULL;

    desc.lazy = true;
    assert_ok(dyti_layout_build(layout->model, &desc, &lazy));
    assert_null(lazy->view);
    for (uint32_t r = 0; r < desc.world_size; r++) {
        struct dyti_view view = {0};

        assert_ok(dyti_layout_view_build(lazy, r, &view));
        check_same_view(&layout->view[r], &view);
        for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            uint64_t bytes;

            assert_ok(dyti_layout_region_bytes(lazy, r, (enum dyti_kind)kind,
                                               &bytes));
            assert_int_equal(view.region_bytes[kind], bytes);
        }
        dyti_view_fini(&view);
    }
    dyti_layout_destroy(lazy);
}

static bool same_kind(const struct dyti_view *a, const struct dyti_view *b,
                      int kind)
{
    uint32_t count = a->kind_first[kind + 1] - a->kind_first[kind];

    if (count != b->kind_first[kind + 1] - b->kind_first[kind]) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct dyti_shard *x = &a->shard[a->kind_first[kind] + i];
        const struct dyti_shard *y = &b->shard[b->kind_first[kind] + i];

        if (x->tensor != y->tensor || x->offset != y->offset ||
            !dyt_case_same_box(&x->box, &y->box)) {
            return false;
        }
    }
    return true;
}

/* A representative has the same list and is its own; of dense models without
 * ZeRO it is the lowest that has it. */
static void check_representatives(const struct dyti_layout *layout, int kind)
{
    const struct dyti_dialect_ops *ops = dyti_dialect_ops(layout->desc.dialect);
    const uint32_t *ranks = layout->desc.ranks;
    bool dense = layout->desc.zero == 0 && kind != DYTI_EXTRA &&
                 layout->model->arch.moe.count == 0;

    for (uint32_t m = 0; m < layout->member_count; m++) {
        const struct dyti_view *view = &layout->view[ranks[m]];
        uint32_t low = ops->representative(layout, m, (enum dyti_kind)kind);

        assert_true(low <= m);
        assert_int_equal(
            low, ops->representative(layout, low, (enum dyti_kind)kind));
        assert_true(same_kind(&layout->view[ranks[low]], view, kind));
        for (uint32_t o = 0; o < low && dense; o++) {
            assert_false(same_kind(&layout->view[ranks[o]], view, kind));
        }
    }
}

static void check_members(const struct dyti_layout *layout)
{
    for (uint32_t m = 0; m < layout->member_count; m++) {
        struct coordinates c = where(&layout->desc, m);
        struct dyti_part part;

        dyti_layout_part(layout, m, &part);
        assert_int_equal(c.tp, part.tp_rank);
        assert_int_equal(c.cp, part.cp_rank);
        assert_int_equal(c.dp, part.dp_rank);
        assert_int_equal(c.pp, part.pp_rank);
        assert_int_equal(c.ep, part.ep_rank);
        assert_int_equal(c.etp, part.etp_rank);
        assert_int_equal(m, part.member_index);
        assert_int_equal(m, dyti_layout_member(layout, c.tp, c.cp, c.dp, c.pp));
    }
}

static void every_element_has_its_holders(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < dyt_test_rounds(200, 2000); trial++) {
        struct dyti_model *model = dyt_case_any_model(SEED, trial);
        struct dyt_case_desc desc;
        struct dyti_layout *layout = dyt_case_build(
            SEED, trial, model, 1 + (uint32_t)dyt_case_pick(SEED, trial, 0, 16),
            DYTI_DIALECT_NATIVE, &desc);

        check_members(layout);
        for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            if (dyti_layout_holds(layout, (enum dyti_kind)kind)) {
                check_kind(layout, kind);
                check_representatives(layout, kind);
            }
        }
        check_lazy(layout, desc.desc);
        dyti_layout_destroy(layout);
        dyti_model_destroy(model);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_element_has_its_holders),
};
DYT_TEST_MAIN(tests)
