/* Look-ups in a catalogue: by (layer, slot) and by name.  Both are arithmetic
 * on the fixed order of the catalogue, no table is searched. */
#include "vps/slots.h"

#include <string.h>

/* Tensors of the slots [first, slot) in one run of the catalogue. */
static uint32_t present_before(const struct dyti_arch *arch, int first,
                               int slot)
{
    uint32_t count = 0;

    for (int s = first; s < slot; s++) {
        count += dyti_slot_present(arch, (enum dyti_slot)s);
    }
    return count;
}

uint32_t dyti_model_find(const struct dyti_model *model, int32_t layer,
                         enum dyti_slot slot)
{
    const struct dyti_arch *arch = &model->arch;
    const int first = DYTI_SLOT_EMBED + 1;
    uint32_t per_layer = present_before(arch, first, DYTI_SLOT_FINAL_NORM);

    if (slot == DYTI_SLOT_HEAD && arch->tied) {
        return 0;
    }
    if ((unsigned)slot >= DYTI_SLOT_COUNT || !dyti_slot_present(arch, slot)) {
        return UINT32_MAX;
    }
    if (!dyti_slot_rule[slot].layered) {
        return slot == DYTI_SLOT_EMBED
                   ? 0
                   : 1 + (uint32_t)arch->layers * per_layer +
                         present_before(arch, DYTI_SLOT_FINAL_NORM, (int)slot);
    }
    if (layer < 0 || layer >= arch->layers) {
        return UINT32_MAX;
    }
    return 1 + (uint32_t)layer * per_layer +
           present_before(arch, first, (int)slot);
}

/* "<number>." at *text: digits as one writes them, no leading zero. */
static int32_t read_layer(const char **text)
{
    const char *p = *text;
    int64_t value = 0;

    if (*p == '0' && p[1] != '.') {
        return -1;
    }
    for (; *p >= '0' && *p <= '9'; p++) {
        value = value * 10 + (*p - '0');
        if (value > INT32_MAX) {
            return -1;
        }
    }
    if (p == *text || *p != '.') {
        return -1;
    }
    *text = p + 1;
    return (int32_t)value;
}

uint32_t dyti_model_find_name(const struct dyti_model *model, const char *name)
{
    static const char prefix[] = "model.layers.";
    bool layered = strncmp(name, prefix, sizeof(prefix) - 1) == 0;
    int32_t layer = -1;

    if (layered) {
        name += sizeof(prefix) - 1;
        layer = read_layer(&name);
        if (layer < 0) {
            return UINT32_MAX;
        }
    }
    for (int s = 0; s < DYTI_SLOT_COUNT; s++) {
        if (dyti_slot_rule[s].suffix != NULL &&
            dyti_slot_rule[s].layered == layered &&
            strcmp(dyti_slot_rule[s].suffix, name) == 0) {
            /* A tied model has no tensor of the head's name. */
            return dyti_slot_present(&model->arch, (enum dyti_slot)s)
                       ? dyti_model_find(model, layer, (enum dyti_slot)s)
                       : UINT32_MAX;
        }
    }
    return UINT32_MAX;
}
