/* What the native dialect refuses, and which members are replicas. */
#include "layout/check.h"
#include "layout/index.h"
#include "layout/native.h"
#include "layout/native_keep.h"

#include <string.h>

/* ---- check --------------------------------------------------------------- */

static const char *unit_name(enum dyti_cut cut)
{
    switch (cut) {
    case DYTI_CUT_VOCAB:
        return "vocabulary rows";
    case DYTI_CUT_Q_HEADS:
        return "query heads";
    default:
        return "FFN rows";
    }
}

/* "self_attn.q_proj.weight" of "model.layers.3.self_attn.q_proj.weight": it is
 * not the layer that cannot be cut. */
static const char *short_name(const struct dyti_tensor *t)
{
    const char *at = t->name;

    if (t->layer < 0) {
        return at;
    }
    for (; *at != '\0'; at++) {
        if (*at == '.' && at[1] >= '0' && at[1] <= '9') {
            const char *end = at + 1 + strspn(at + 1, "0123456789");

            if (*end == '.') {
                return end + 1;
            }
        }
    }
    return t->name;
}

/* Every rank gets at least one of what its degree cuts. */
static enum dyt_status check_cut(const struct dyti_model *model, bool experts,
                                 const char *degree_name, uint32_t degree)
{
    int64_t most = INT64_MAX;
    const struct dyti_tensor *bad = NULL;
    const struct dyti_segment *bad_segment = NULL;

    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *t = &model->tensor[i];

        if (t->extra != DYTI_EXTRA_NONE) {
            continue;
        }
        for (uint32_t s = 0; s < t->segment_count; s++) {
            const struct dyti_segment *seg = &t->segment[s];
            int64_t units = (seg->hi - seg->lo) / seg->unit;

            if (seg->cut == DYTI_CUT_NONE || seg->cut == DYTI_CUT_KV_HEADS ||
                (seg->cut == DYTI_CUT_EXPERT_FFN) != experts) {
                continue;
            }
            most = units < most ? units : most;
            if (units < degree &&
                (bad == NULL || seg->cut == DYTI_CUT_Q_HEADS) &&
                (bad == NULL || bad_segment->cut != DYTI_CUT_Q_HEADS)) {
                bad = t;
                bad_segment = seg;
            }
        }
    }
    if (bad == NULL) {
        return DYT_OK;
    }
    return DYTI_FAIL(
        DYT_ERR_LAYOUT,
        "%s %u: %s has %lld %s to share, some rank would hold none; the "
        "nearest degree that works is %s %lld",
        degree_name, degree, short_name(bad),
        (long long)((bad_segment->hi - bad_segment->lo) / bad_segment->unit),
        unit_name(bad_segment->cut), degree_name, (long long)most);
}

enum dyt_status dyti_native_check(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;
    uint32_t edp = d->tp * d->cp * d->dp / (d->ep * d->etp);
    enum dyt_status st = check_cut(layout->model, false, "tp", d->tp);

    st = st != DYT_OK ? st : check_cut(layout->model, true, "etp", d->etp);
    st = st != DYT_OK
             ? st
             : dyti_zero_ranges_check("zero_range", d->zero_range,
                                      d->zero_range_count, d->dp * d->cp);
    return st != DYT_OK
               ? st
               : dyti_zero_ranges_check("expert_zero_range",
                                        d->expert_zero_range,
                                        d->expert_zero_range_count, edp);
}

/* ---- replicas ------------------------------------------------------------ */

/* Position of a member in its stage group. */
static uint32_t in_stage(const struct dyti_part *p)
{
    return p->etp_rank + p->etp_size * (p->ep_rank + p->ep_size * p->edp_rank);
}

/* Members between two that differ by one in tp, within the stage group. */
static uint32_t tp_step(const struct dyti_layout_desc *d)
{
    const uint32_t size[DYTI_AXIS_COUNT] = {1, d->cp, d->dp, 1};
    uint32_t step = 1;

    for (int i = 0; d->order[i] != DYTI_AXIS_TP; i++) {
        step *= size[d->order[i]];
    }
    return step;
}

/* The lowest position of the stage group with the tp rank and the expert
 * coordinates of `at`. */
static uint32_t lowest_alike(const struct dyti_layout_desc *d, uint32_t at)
{
    uint32_t step = tp_step(d), experts = d->ep * d->etp;
    uint32_t tp = at / step % d->tp;

    for (uint32_t i = at % experts; i < at; i += experts) {
        if (i / step % d->tp == tp) {
            return i;
        }
    }
    return at;
}

/* Member at a position of a stage group. */
static uint32_t member_at(const struct dyti_layout *layout, uint32_t pp,
                          uint32_t at)
{
    const struct dyti_layout_desc *d = &layout->desc;
    const uint32_t size[DYTI_AXIS_COUNT] = {d->tp, d->cp, d->dp, 1};
    uint32_t coordinate[DYTI_AXIS_COUNT] = {0};

    for (int i = 0; i < DYTI_AXIS_COUNT; i++) {
        coordinate[d->order[i]] = at % size[d->order[i]];
        at /= size[d->order[i]];
    }
    return dyti_layout_member(layout, coordinate[DYTI_AXIS_TP],
                              coordinate[DYTI_AXIS_CP],
                              coordinate[DYTI_AXIS_DP], pp);
}

static bool has_own_extras(const struct dyti_layout *layout)
{
    const struct dyti_layout_index *index = layout->index;

    for (uint32_t i = 0; i < index->extra_count; i++) {
        enum dyti_extra_rule rule =
            layout->model->tensor[index->extra[i]].extra;

        if (rule == DYTI_EXTRA_PER_RANK || rule == DYTI_EXTRA_OWNER) {
            return true;
        }
    }
    return false;
}

uint32_t dyti_layout_alike(const struct dyti_layout *layout, uint32_t member)
{
    struct dyti_part part;

    dyti_layout_part(layout, member, &part);
    if (!layout->index->has_experts) {
        return dyti_layout_member(layout, part.tp_rank, 0, 0, part.pp_rank);
    }
    return member_at(layout, part.pp_rank,
                     lowest_alike(&layout->desc, in_stage(&part)));
}

uint32_t dyti_native_representative(const struct dyti_layout *layout,
                                    uint32_t member, enum dyti_kind kind)
{
    const struct dyti_layout_desc *d = &layout->desc;
    uint32_t edp = d->tp * d->cp * d->dp / (d->ep * d->etp);
    bool own = kind == DYTI_EXTRA
                   ? has_own_extras(layout)
                   : dyti_native_is_cut(d->zero, kind) &&
                         (d->dp * d->cp > 1 ||
                          (layout->index->experts_apart && edp > 1));

    return own ? member : dyti_layout_alike(layout, member);
}
