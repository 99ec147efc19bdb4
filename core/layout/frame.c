/* What the dialects of frameworks share: list the framework's tensors on a
 * rank, put them into the region of a kind; who holds the same as whom follows
 * from which kinds are cut. */
#include "layout/local.h"

static const struct dyti_dialect_ops *ops_of(const struct dyti_layout *layout)
{
    return dyti_dialect_ops(layout->desc.dialect);
}

static bool is_cut(const struct dyti_layout *layout, enum dyti_kind kind)
{
    const struct dyti_dialect_ops *ops = ops_of(layout);

    return ops->is_cut != NULL && ops->is_cut(layout, kind);
}

uint32_t dyti_frame_representative(const struct dyti_layout *layout,
                                   uint32_t member, enum dyti_kind kind)
{
    /* scales lie where the parameters lie */
    bool differ = kind != DYTI_EXTRA ? is_cut(layout, kind)
                                     : is_cut(layout, DYTI_PARAM) ||
                                           dyti_local_has_own_extras(layout);

    return differ ? member : dyti_layout_alike(layout, member);
}

bool dyti_frame_alike(const struct dyti_layout *layout, enum dyti_kind a,
                      enum dyti_kind b)
{
    return a != DYTI_EXTRA && b != DYTI_EXTRA &&
           is_cut(layout, a) == is_cut(layout, b);
}

/* Equal layers of a stage are held alike, unless the flat tensor in which they
 * lie is cut. */
void dyti_frame_first_alike(const struct dyti_layout *layout,
                            enum dyti_kind kind, uint32_t *out_first)
{
    const struct dyti_layout_index *index = layout->index;
    bool differ =
        kind == DYTI_EXTRA || (ops_of(layout)->flat && is_cut(layout, kind));

    for (uint32_t t = 0; t < layout->model->tensor_count; t++) {
        out_first[t] = t;
    }
    for (uint32_t run = 0; !differ && run < index->run_count; run++) {
        const struct dyti_layout_run *r = &index->run[run];
        uint32_t like = dyti_layout_run_before(layout, run);

        for (uint32_t t = r->first; like != UINT32_MAX && t < r->end; t++) {
            out_first[t] = out_first[index->run[like].first + t - r->first];
        }
    }
}

enum dyt_status dyti_frame_emit(const struct dyti_layout *layout,
                                const struct dyti_part *part,
                                enum dyti_kind kind,
                                const struct dyti_shard_sink *sink,
                                uint64_t *out_region_bytes)
{
    const struct dyti_dialect_ops *ops = ops_of(layout);
    struct dyti_locals list;
    const struct dyti_placer placer = {&list, kind, sink};
    uint64_t offset = 0;
    enum dyt_status st;

    if (kind == DYTI_EXTRA) {
        return dyti_local_extras(layout, part, ops, sink, out_region_bytes);
    }
    dyti_locals_init(&list, layout, part, sink->buffer != NULL);
    list.once = sink->once && !(ops->flat && is_cut(layout, kind));
    if (ops->list != NULL) {
        ops->list(&list);
    }
    st = list.status;
    st = st != DYT_OK ? st : ops->place(&placer, &list, &offset);
    if (st == DYT_OK) {
        *out_region_bytes = offset;
    }
    dyti_locals_fini(&list);
    return st;
}
