/* Look-ups in a catalogue: by (layer, slot), which is arithmetic on the fixed
 * order, and by name, in a table of hashes. */
#include "base/hash.h"
#include "vps/catalogue.h"
#include "vps/slots.h"

#include <stdlib.h>
#include <string.h>

/* Position of a layered slot in its layer; the layer has the slot. */
static uint32_t place_in_layer(const struct dyti_arch *arch, int32_t layer,
                               int32_t expert, enum dyti_slot slot)
{
    uint32_t at = 0;
    size_t count, i = 0;
    const enum dyti_slot *order = dyti_layer_order(&count);

    while (i < count) {
        uint32_t run = 0, mine = 0; /* slots of a run of experts */

        if (!dyti_slot_rule(arch, order[i])->per_expert) {
            if (order[i] == slot) {
                return at;
            }
            at += dyti_slot_present(arch, order[i++], layer);
            continue;
        }
        for (; i < count && dyti_slot_rule(arch, order[i])->per_expert; i++) {
            mine = order[i] == slot ? run + 1 : mine;
            run += dyti_slot_present(arch, order[i], layer);
        }
        if (mine > 0) {
            return at + (uint32_t)expert * run + mine - 1;
        }
        at += run * (uint32_t)arch->moe.count;
    }
    return at; /* not reached: the layer has the slot */
}

static uint32_t find_outer(const struct dyti_model *model, enum dyti_slot slot)
{
    uint32_t first = model->layer_first[0];
    uint32_t last = model->layer_first[model->arch.layers];

    for (uint32_t i = 0; i < first; i++) {
        if (model->tensor[i].slot == slot) {
            return i;
        }
    }
    for (uint32_t i = last; i < model->parameter_count; i++) {
        if (model->tensor[i].slot == slot) {
            return i;
        }
    }
    return UINT32_MAX;
}

static uint32_t find(const struct dyti_model *model, int32_t layer,
                     int32_t expert, enum dyti_slot slot)
{
    const struct dyti_arch *arch = &model->arch;

    if ((unsigned)slot >= DYTI_SLOT_COUNT || dyti_model_is_listed(model)) {
        return UINT32_MAX;
    }
    if (slot == DYTI_SLOT_HEAD && arch->tied) {
        return find_outer(model, DYTI_SLOT_EMBED);
    }
    if (!dyti_slot_rule(arch, slot)->layered) {
        return find_outer(model, slot);
    }
    if (layer < 0 || layer >= arch->layers ||
        !dyti_slot_present(arch, slot, layer)) {
        return UINT32_MAX;
    }
    return model->layer_first[layer] +
           place_in_layer(arch, layer, expert, slot);
}

uint32_t dyti_model_find(const struct dyti_model *model, int32_t layer,
                         enum dyti_slot slot)
{
    bool of_expert = (unsigned)slot < DYTI_SLOT_COUNT &&
                     dyti_slot_rule(&model->arch, slot)->per_expert;

    return of_expert ? UINT32_MAX : find(model, layer, -1, slot);
}

uint32_t dyti_model_find_expert(const struct dyti_model *model, int32_t layer,
                                int32_t expert, enum dyti_slot slot)
{
    bool of_expert = (unsigned)slot < DYTI_SLOT_COUNT &&
                     dyti_slot_rule(&model->arch, slot)->per_expert;

    return !of_expert || expert < 0 || expert >= model->arch.moe.count
               ? UINT32_MAX
               : find(model, layer, expert, slot);
}

/* ---- by name ------------------------------------------------------------- */

/* Where the name is, or the free place where it would be. */
static uint32_t *place_of_name(const struct dyti_model *model, const char *name)
{
    uint32_t mask = model->by_name_size - 1;
    uint32_t i =
        (uint32_t)dyti_fingerprint_text(DYTI_FINGERPRINT_SEED, name) & mask;

    while (model->by_name[i] != UINT32_MAX &&
           strcmp(model->tensor[model->by_name[i]].name, name) != 0) {
        i = (i + 1) & mask;
    }
    return &model->by_name[i];
}

enum dyt_status dyti_names_init(struct dyti_model *model, uint32_t count)
{
    uint32_t size = 4;

    while (size < count * 2u) {
        size *= 2;
    }
    model->by_name = malloc((size_t)size * sizeof(*model->by_name));
    if (model->by_name == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "names of %u tensors", count);
    }
    memset(model->by_name, 0xff, (size_t)size * sizeof(*model->by_name));
    model->by_name_size = size;
    return DYT_OK;
}

enum dyt_status dyti_names_add(struct dyti_model *model, uint32_t index)
{
    uint32_t *place = place_of_name(model, model->tensor[index].name);

    if (*place != UINT32_MAX) {
        return DYTI_FAIL(DYT_ERR_INVALID, "two tensors are called %s",
                         model->tensor[index].name);
    }
    *place = index;
    return DYT_OK;
}

uint32_t dyti_model_find_name(const struct dyti_model *model, const char *name)
{
    return *place_of_name(model, name);
}
