/* Rows with padding: every element of a row is of one piece, or padding, once.
 */
#include "plugin_cases.h"

#include "base/rng.h"

#define MOST 4096

struct trial {
    int64_t n, other; /* of the tensor: along the cut axis, and the other */
    uint32_t tp, rank, axis, transposed;
    int64_t unit, pitch; /* pitch: further elements of a line in memory */
};

static struct trial draw(uint64_t seed)
{
    uint64_t r = dyti_rng_u64(7, seed, 0, 0);
    struct trial t = {.n = 1 + (int64_t)(r % 61),
                      .other = 1 + (int64_t)(r >> 8 & 3),
                      .tp = 1 + (uint32_t)(r >> 16 & 7),
                      .axis = r >> 24 & 1,
                      .transposed = r >> 25 & 1,
                      .unit = 1 + (int64_t)(r >> 32 & 15),
                      .pitch = (int64_t)(r >> 40 & 3)};

    t.rank = (uint32_t)(r >> 48) % t.tp;
    return t;
}

static void mark(unsigned char *seen, uint64_t offset, uint32_t ndim,
                 const int64_t *shape, const int64_t *stride)
{
    int64_t x[DYT_MAX_DIMS] = {0}, n = 1;

    for (uint32_t d = 0; d < ndim; d++) {
        n *= shape[d];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (int64_t)offset;

        for (uint32_t d = 0; d < ndim; d++) {
            at += x[d] * stride[d];
        }
        assert_true(at % 4 == 0 && at / 4 < MOST);
        seen[at / 4]++;
        for (uint32_t d = ndim; d-- > 0 && ++x[d] == shape[d];) {
            x[d] = 0;
        }
    }
}

/* The row that rank holds of [n padded, other], or of its transpose. */
static void apply(const struct trial *t, struct dyti_row_pieces *out,
                  int64_t shape[2])
{
    int64_t padded = (t->n + t->unit - 1) / t->unit * t->unit;
    struct dyt_rule_part part = {.struct_size = sizeof(part),
                                 .tensor = "w",
                                 .cut = DYT_RULE_VOCAB,
                                 .axis = t->axis,
                                 .transposed = t->transposed,
                                 .unit = t->unit};
    struct dyt_rule rule = {.struct_size = sizeof(rule),
                            .part_struct_size = sizeof(part),
                            .name = "row",
                            .part = &part,
                            .part_count = 1};
    struct dyt_rules rules = {.struct_size = sizeof(rules),
                              .rule_struct_size = sizeof(rule),
                              .family = "mine",
                              .rule = &rule,
                              .rule_count = 1};
    struct dyti_listed_desc desc = {
        .name = "w", .ndim = 2, .layer = -1, .expert = -1};
    struct dyti_place place = {
        .tp_rank = t->rank, .tp_size = t->tp, .ep_size = 1};
    struct dyti_model *model = NULL;
    struct case_view v = {0};
    struct dyt_row *row;

    desc.shape[t->axis] = t->n;
    desc.shape[1 - t->axis] = t->other;
    shape[t->axis] = (padded + t->tp - 1) / t->tp;
    shape[1 - t->axis] = t->other;
    if (t->transposed != 0) {
        int64_t first = shape[0];

        shape[0] = shape[1];
        shape[1] = first;
    }
    assert_ok(dyti_model_build_listed(&desc, 1, &model));
    row = CASE_ROW(&v, "row", shape[0], shape[1]);
    row->stride[0] = shape[1] + t->pitch;
    row->stride[1] = 1;
    row->dtype = DYT_F32;
    if (dyti_rules_apply(model, case_view(&v), &rules, &place, out) != DYT_OK) {
        assert_true(padded % t->tp != 0); /* it cannot be cut so */
    }
    case_view_free(&v);
    dyti_model_destroy(model);
}

static void each_element_is_of_a_piece_or_padding(void **state)
{
    uint64_t padding = 0, rounds = dyt_test_rounds(2000, 20000);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        struct trial t = draw(seed);
        struct dyti_row_pieces got = {0};
        unsigned char seen[MOST] = {0};
        int64_t shape[2], size[2];

        apply(&t, &got, shape);
        for (size_t i = 0; i < got.count; i++) {
            for (uint32_t d = 0; d < 2; d++) {
                size[d] = got.piece[i].box.hi[d] - got.piece[i].box.lo[d];
            }
            mark(seen, got.piece[i].offset, 2, size, got.piece[i].stride);
        }
        for (size_t i = 0; i < got.pad_count; i++) {
            mark(seen, got.pad[i].offset, got.pad[i].ndim, got.pad[i].shape,
                 got.pad[i].stride);
            padding++;
        }
        for (int64_t i = 0; i < MOST && got.count + got.pad_count > 0; i++) {
            int64_t line = shape[1] + t.pitch;
            bool inside = i / line < shape[0] && i % line < shape[1];

            if (seen[i] != inside) {
                fail_msg("seed %llu: element %lld is told %u times",
                         (unsigned long long)seed, (long long)i, seen[i]);
            }
        }
        dyti_row_pieces_fini(&got);
    }
    assert_true(padding > rounds / 20);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_element_is_of_a_piece_or_padding),
};
DYT_TEST_MAIN(tests)
