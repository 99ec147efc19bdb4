/* Where the native dialect puts the tensors of a rank's flat buffers. */
#include "base/checked.h"
#include "layout/index.h"
#include "layout/native.h"

#include <string.h>

/* Tensors that continue the one before them without a gap: they are one matrix
 * for the GEMM. */
static bool continues(const struct dyti_native_walk *walk,
                      enum dyti_native_buffer buffer,
                      const struct dyti_tensor *t)
{
    enum dyti_slot last = walk->last[buffer];

    switch (t->slot) {
    case DYTI_SLOT_K:
        return last == DYTI_SLOT_Q;
    case DYTI_SLOT_V:
        return last == DYTI_SLOT_K;
    case DYTI_SLOT_K_BIAS:
        return last == DYTI_SLOT_Q_BIAS;
    case DYTI_SLOT_V_BIAS:
        return last == DYTI_SLOT_K_BIAS;
    case DYTI_SLOT_UP:
        return last == DYTI_SLOT_GATE;
    case DYTI_SLOT_SHARED_UP:
        return last == DYTI_SLOT_SHARED_GATE;
    case DYTI_SLOT_EXPERT_UP:
        return last == DYTI_SLOT_EXPERT_GATE &&
               walk->last_expert[buffer] == t->expert;
    default:
        return false;
    }
}

static void begin_run(struct dyti_native_walk *walk)
{
    for (int b = 0; b < DYTI_NATIVE_BUFFERS; b++) {
        walk->last[b] = DYTI_SLOT_COUNT;
    }
    walk->copies = false;
    walk->next = walk->run < walk->run_end
                     ? walk->layout->index->run[walk->run].first
                     : 0;
}

void dyti_native_walk_run(struct dyti_native_walk *walk,
                          const struct dyti_layout *layout,
                          const struct dyti_part *part, uint32_t run,
                          const uint64_t begin[DYTI_NATIVE_BUFFERS])
{
    memset(walk, 0, sizeof(*walk));
    walk->asked = -1;
    walk->layout = layout;
    walk->part = part;
    walk->run = run;
    walk->run_end = run + 1;
    memcpy(walk->end, begin, sizeof(walk->end));
    begin_run(walk);
}

void dyti_native_walk_init(struct dyti_native_walk *walk,
                           const struct dyti_layout *layout,
                           const struct dyti_part *part)
{
    const uint64_t begin[DYTI_NATIVE_BUFFERS] = {0};

    dyti_native_walk_run(walk, layout, part, 0, begin);
    walk->run_end = layout->index->run_count;
    begin_run(walk);
}

static void place(struct dyti_native_walk *walk, uint32_t index)
{
    const struct dyti_model *model = walk->layout->model;
    const struct dyti_tensor *t = &model->tensor[index];
    struct dyti_native_slot *slot = &walk->slot;
    enum dyti_native_buffer b =
        t->expert >= 0 && walk->layout->index->experts_apart ? DYTI_EXPERTS
                                                             : DYTI_DENSE;

    slot->tensor = index;
    slot->buffer = b;
    slot->elements = 1;
    for (uint32_t d = 0; d < t->ndim; d++) {
        slot->shape[d] = t->shape[d];
    }
    slot->range_count = dyti_native_ranges(model, t, walk->part, slot->range);
    slot->shape[t->cut_axis] = 0;
    for (uint32_t r = 0; r < slot->range_count; r++) {
        slot->shape[t->cut_axis] += slot->range[r].hi - slot->range[r].lo;
    }
    for (uint32_t d = 0; d < t->ndim; d++) {
        slot->elements *= (uint64_t)slot->shape[d];
    }
    slot->flat = continues(walk, b, t)
                     ? walk->end[b]
                     : dyti_align_up(walk->end[b], DYTI_REGION_ALIGN);
    walk->end[b] = slot->flat + slot->elements;
    walk->last[b] = t->slot;
    walk->last_expert[b] = t->expert;
}

/* Of a run whose layer the member holds. */
static bool wanted(struct dyti_native_walk *walk, uint32_t index)
{
    int32_t expert = walk->layout->index->expert_of[index];

    if (expert == DYTI_NOT_FLAT || (walk->copies && expert < 0)) {
        return false;
    }
    if (expert < 0) {
        return walk->layout->index->run[walk->run].layer >= 0 ||
               dyti_native_at_home(walk->layout,
                                   &walk->layout->model->tensor[index],
                                   walk->part);
    }
    if (expert != walk->asked) {
        walk->asked = expert;
        walk->asked_slot = dyti_layout_expert_slot(walk->layout, walk->part,
                                                   expert, &walk->asked_second);
    }
    return walk->copies ? walk->asked_second >= 0 : walk->asked_slot >= 0;
}

static bool stage_holds(const struct dyti_layout *layout,
                        const struct dyti_part *part, uint32_t run)
{
    int32_t layer = layout->index->run[run].layer;

    return layer < 0 || dyti_layout_holds_layer(layout, part, layer);
}

bool dyti_native_next(struct dyti_native_walk *walk)
{
    const struct dyti_layout_index *index = walk->layout->index;

    while (walk->run < walk->run_end) {
        const struct dyti_layout_run *run = &index->run[walk->run];

        if (stage_holds(walk->layout, walk->part, walk->run)) {
            while (walk->next < run->end) {
                uint32_t i = walk->next++;

                if (wanted(walk, i)) {
                    place(walk, i);
                    return true;
                }
            }
            if (index->has_copies && !walk->copies) {
                walk->copies = true;
                walk->next = run->first;
                continue;
            }
        }
        walk->run++;
        begin_run(walk);
    }
    return false;
}

bool dyti_native_skip_run(struct dyti_native_sizes *sizes, uint32_t run,
                          uint64_t end[DYTI_NATIVE_BUFFERS])
{
    const struct dyti_layout_run *r = &sizes->layout->index->run[run];
    bool kept = r->layer >= 0 && r->class < DYTI_RUN_CLASSES;
    uint64_t fresh[DYTI_NATIVE_BUFFERS] = {0}, *size = fresh;

    if (!stage_holds(sizes->layout, sizes->part, run)) {
        return false;
    }
    if (kept) {
        size = sizes->size[r->class];
    }
    if (!kept || !sizes->known[r->class]) {
        struct dyti_native_walk walk;

        dyti_native_walk_run(&walk, sizes->layout, sizes->part, run, fresh);
        while (dyti_native_next(&walk)) {
        }
        memcpy(size, walk.end, sizeof(walk.end));
        if (kept) {
            sizes->known[r->class] = true;
        }
    }
    for (int b = 0; b < DYTI_NATIVE_BUFFERS; b++) {
        end[b] = dyti_align_up(end[b] + size[b], DYTI_REGION_ALIGN);
    }
    return true;
}
