/* What holds for any layout: every element has a holder, no two lie in the same
 * memory, all lie in buffers with names of their own, and equal members are
 * said to be equal. */
#ifndef DYT_DIALECT_SOUND_H
#define DYT_DIALECT_SOUND_H

#include "dialect_world.h"

#include "layout/dialect.h"

struct cover {
    const struct dyti_model *model;
    const uint64_t *first; /* of each tensor */
    uint8_t *held;
};

static inline void cover_element(void *arg, const struct dyti_shard *s,
                                 int64_t index, uint64_t offset)
{
    struct cover *c = arg;

    (void)offset;
    c->held[c->first[s->tensor] + (uint64_t)index] = 1;
}

static inline uint64_t *first_elements(const struct dyti_model *model,
                                       uint64_t *out_total)
{
    uint64_t *first = malloc((model->tensor_count + 1u) * sizeof(*first));
    uint64_t total = 0;

    assert_non_null(first);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        first[i] = total;
        total += dyti_tensor_elements(&model->tensor[i]);
    }
    *out_total = total;
    return first;
}

static inline void assert_covered(const struct dyti_layout *l,
                                  enum dyti_kind kind)
{
    const struct dyti_model *m = l->model;
    uint64_t total;
    uint64_t *first = first_elements(m, &total);
    struct cover c = {m, first, calloc(total + 1, 1)};

    assert_non_null(c.held);
    for (uint32_t r = 0; r < l->desc.world_size; r++) {
        const struct dyti_view *v = &l->view[r];

        for (uint32_t i = v->kind_first[kind]; i < v->kind_first[kind + 1];
             i++) {
            dyt_each_element(m, &v->shard[i], cover_element, &c);
        }
    }
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        bool has = (m->tensor[i].kinds >> kind & 1u) != 0;
        uint64_t count = dyti_tensor_elements(&m->tensor[i]);

        for (uint64_t e = 0; e < count; e++) {
            if (c.held[first[i] + e] != has) {
                fail_msg("%s: element %llu of %s %s", dyti_kind_name(kind),
                         (unsigned long long)e, m->tensor[i].name,
                         has ? "is not held" : "is held");
            }
        }
    }
    free(first);
    free(c.held);
}

/* Every shard lies in a buffer; buffers have names of their own, follow each
 * other and end within the region. */
static inline void assert_in_buffers(const struct dyti_view *v,
                                     enum dyti_kind kind)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < v->buffer_count; i++) {
        const struct dyti_view_buffer *b = &v->buffer[i];
        uint64_t elements = 1;

        if (b->kind != kind) {
            continue;
        }
        assert_true(b->name[0] != '\0');
        assert_true(b->offset >= end);
        end = b->offset + b->bytes;
        for (uint32_t d = 0; d < b->ndim; d++) {
            elements *= (uint64_t)b->shape[d];
        }
        assert_int_equal(
            b->bytes, elements * dyti_dtype_bytes((enum dyti_dtype)b->dtype));
        for (uint32_t j = i + 1; j < v->buffer_count; j++) {
            assert_true(v->buffer[j].kind != kind ||
                        strcmp(v->buffer[j].name, b->name) != 0);
        }
    }
    assert_true(end <= v->region_bytes[kind]);
    for (uint32_t i = v->kind_first[kind]; i < v->kind_first[kind + 1]; i++) {
        bool found = false;

        for (uint32_t j = 0; j < v->buffer_count && !found; j++) {
            const struct dyti_view_buffer *b = &v->buffer[j];

            found = b->kind == kind && v->shard[i].dtype == b->dtype &&
                    v->shard[i].offset >= b->offset &&
                    v->shard[i].offset < b->offset + b->bytes;
        }
        assert_true(found);
    }
}

/* A member's list is the list of who represents it. */
static inline void assert_represented(const struct dyti_layout *l,
                                      uint32_t member, enum dyti_kind kind)
{
    const struct dyti_dialect_ops *ops = dyti_dialect_ops(l->desc.dialect);
    uint32_t other = ops->representative(l, member, kind);
    const struct dyti_view *a = &l->view[l->desc.ranks[member]];
    const struct dyti_view *b;
    uint32_t count = a->kind_first[kind + 1] - a->kind_first[kind];

    assert_true(other <= member);
    assert_int_equal(ops->representative(l, other, kind), other);
    b = &l->view[l->desc.ranks[other]];
    assert_int_equal(b->kind_first[kind + 1] - b->kind_first[kind], count);
    assert_int_equal(a->region_bytes[kind], b->region_bytes[kind]);
    for (uint32_t i = 0; i < count; i++) {
        const struct dyti_shard *x = &a->shard[a->kind_first[kind] + i];
        const struct dyti_shard *y = &b->shard[b->kind_first[kind] + i];

        assert_int_equal(x->tensor, y->tensor);
        assert_int_equal(x->offset, y->offset);
        assert_memory_equal(x->box.lo, y->box.lo,
                            x->box.ndim * sizeof(x->box.lo[0]));
        assert_memory_equal(x->box.hi, y->box.hi,
                            x->box.ndim * sizeof(x->box.hi[0]));
        assert_memory_equal(x->stride, y->stride,
                            x->box.ndim * sizeof(x->stride[0]));
    }
}

static inline void assert_sound(const struct dyti_layout *l)
{
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        enum dyti_kind kind = (enum dyti_kind)k;

        assert_covered(l, kind);
        for (uint32_t r = 0; r < l->desc.world_size; r++) {
            free(dyt_map_of(l, r, kind).cell); /* nothing overlaps */
            if (l->desc.dialect != DYTI_DIALECT_NATIVE) {
                assert_in_buffers(&l->view[r], kind);
            }
        }
        for (uint32_t m = 0; m < l->member_count; m++) {
            assert_represented(l, m, kind);
        }
    }
}

#endif /* DYT_DIALECT_SOUND_H */
