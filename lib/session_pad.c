/* Padding of a receiver's rows: what a rule says is of no tensor (a vocabulary
 * that is padded for its ranks) is zero, whatever lay there.  Elements that no
 * rule speaks of are not touched. */
#include "lib/link_internal.h"
#include "lib/session_device.h"

/* Whole lines where the last dimension is dense. */
static enum dyt_status clear(const struct dyti_hands *hands,
                             unsigned char *base, const struct dyti_row_pad *p,
                             size_t element)
{
    uint32_t last = p->ndim - 1;
    bool dense = p->stride[last] == (int64_t)element;
    size_t bytes = dense ? (size_t)p->shape[last] * element : element;
    int64_t x[DYT_MAX_DIMS] = {0};

    for (uint32_t d = 0; d < p->ndim; d++) {
        if (p->shape[d] == 0) {
            return DYT_OK;
        }
    }
    for (;;) {
        unsigned char *at = base + p->offset;
        uint32_t d = p->ndim;
        enum dyt_status st;

        for (uint32_t i = 0; i < p->ndim; i++) {
            at += x[i] * p->stride[i];
        }
        st = dyti_kernels_fill(&hands->kernels, at, bytes, 0);
        if (st != DYT_OK) {
            return st;
        }
        while (d-- > 0) {
            if (!(dense && d == last) && ++x[d] < p->shape[d]) {
                break;
            }
            x[d] = 0;
        }
        if (d == UINT32_MAX) {
            return DYT_OK;
        }
    }
}

static enum dyt_status clear_rows(struct dyt_session *s, uint32_t set,
                                  const struct dyti_hands *hands)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < s->pad_count && st == DYT_OK; i++) {
        const struct dyti_row_pad *p = &s->pad[i];
        const struct dyt_row *row = &s->row[p->row];
        unsigned char *base = s->mapped != NULL
                                  ? dyti_session_mapped_row(s, p->row, set)
                                  : row->data;

        /* known by a descriptor alone: left as it is; a device's comes with its
         * mirror */
        if (base != NULL && row->device.type == DYT_DEVICE_HOST) {
            st = clear(hands, base, p,
                       dyti_dtype_bytes((enum dyti_dtype)row->dtype));
        }
    }
    return st;
}

enum dyt_status dyti_session_clear_padding(struct dyt_session *s, uint32_t set)
{
    struct dyti_guard guard = {.catalogue = s->catalogue};
    struct dyti_hands hands;
    enum dyt_status st;

    if (s->pad_count == 0) {
        return DYT_OK;
    }
    st = dyti_guard_add_own(&guard, &s->memory);
    st = st != DYT_OK ? st : dyti_hands_open(&hands, 1, &guard);
    if (st == DYT_OK) {
        st = clear_rows(s, set, &hands);
        dyti_hands_close(&hands);
    }
    dyti_guard_fini(&guard);
    if (st != DYT_OK) {
        DYTI_NOTE("zeroing what pads the rows");
    }
    return st;
}
