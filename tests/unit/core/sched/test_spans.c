/* Folding, joining and splitting of strided copies, on plans made by hand. */
#include "layout_cases.h"

#include "sched/spans.h"

/* A plan of one transfer of one tensor; source and destination shards as the
 * test likes. */
struct hand {
    struct dyti_tensor tensor;
    struct dyti_model model;
    struct dyti_shard shard[2];
    struct dyti_view view[2];
    struct dyti_layout layout[2];
    struct dyti_transfer transfer;
    struct dyti_plan_pair pair;
    struct dyti_plan plan;
};

static void open_hand(uint32_t ndim, const int64_t *shape, int64_t pad,
                      struct hand *h)
{
    memset(h, 0, sizeof(*h));
    h->model.tensor = &h->tensor;
    h->model.tensor_count = 1;
    h->tensor.ndim = ndim;
    for (int i = 0; i < 2; i++) {
        int64_t stride = 4;

        h->shard[i].box.ndim = ndim;
        for (uint32_t d = ndim; d-- > 0;) {
            h->tensor.shape[d] = shape[d];
            h->shard[i].box.hi[d] = shape[d];
            h->shard[i].stride[d] = stride;
            stride = (shape[d] + (i == 1 ? pad : 0)) * stride;
        }
        h->view[i].shard = &h->shard[i];
        h->layout[i].view = &h->view[i];
        h->layout[i].model = &h->model;
    }
    h->plan.inputs.dst = &h->layout[1];
    h->plan.inputs.want[0].source[0].layout = &h->layout[0];
    h->plan.transfer = &h->transfer;
    h->transfer.box = h->shard[0].box;
    h->pair.transfer_count = 1;
}

/* Every element of the transfer once: source and destination byte of each. */
static void check_elements(const struct hand *h,
                           const struct dyti_span_list *list)
{
    uint64_t total = dyti_tensor_elements(&h->tensor), seen = 0;

    for (size_t i = 0; i < list->span_count; i++) {
        const struct dyti_span *s = &list->span[i];
        const struct dyt_box box = {
            4, {0}, {s->size[0], s->size[1], s->size[2], s->size[3]}};
        int64_t at[DYT_MAX_DIMS] = {0};

        do {
            int64_t src = (int64_t)s->src_offset, dst = (int64_t)s->dst_offset;
            int64_t where[DYT_MAX_DIMS] = {0};
            int64_t index;

            for (uint32_t d = 0; d < 4; d++) {
                src += at[d] * s->src_stride[d];
                dst += at[d] * s->dst_stride[d];
            }
            index = src / 4; /* the source is dense: this names the element */
            for (uint32_t d = h->tensor.ndim; d-- > 0;) {
                where[d] = index % h->tensor.shape[d];
                index /= h->tensor.shape[d];
            }
            assert_int_equal(dyt_case_offset(&h->shard[1], where), dst);
            seen++;
        } while (dyt_case_next(&box, at));
    }
    assert_int_equal(total, seen);
}

static void dims_fold_as_far_as_both_sides_allow(void **state)
{
    static const struct {
        const char *what;
        uint32_t ndim;
        int64_t shape[6], pad;
        uint64_t chunk;
        size_t spans;
    } row[] = {
        {"dense on both sides", 3, {4, 5, 6}, 0, 1 << 20, 1},
        {"padded rows", 3, {4, 5, 6}, 3, 1 << 20, 1},
        {"six dims, four fit", 6, {2, 3, 2, 3, 2, 5}, 1, 1 << 20, 6},
        {"dims of one vanish", 6, {1, 3, 1, 3, 1, 5}, 1, 1 << 20, 1},
        {"one element", 2, {1, 1}, 2, 1 << 20, 1},
        {"dense, cut at 64 elements", 1, {1000}, 0, 300, 16},
        {"rows, three a chunk", 2, {10, 25}, 1, 300, 4},
        {"rows longer than a chunk", 2, {3, 200}, 1, 300, 12},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_span_list list = {0};
        struct hand h;

        open_hand(row[i].ndim, row[i].shape, row[i].pad, &h);
        assert_ok(dyti_spans_add(&list, &h.plan, &h.pair, row[i].chunk));
        if (list.span_count != row[i].spans) {
            fail_msg("%s: %zu spans", row[i].what, list.span_count);
        }
        check_elements(&h, &list);
        for (size_t k = 0; k < list.span_count; k++) {
            assert_true(dyti_span_elements(&list.span[k]) * 4 <=
                        (row[i].chunk < 256 ? 256 : row[i].chunk));
        }
        dyti_spans_fini(&list);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(dims_fold_as_far_as_both_sides_allow),
};
DYT_TEST_MAIN(tests)
