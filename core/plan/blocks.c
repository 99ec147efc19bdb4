/* Sorts tensors into blocks: equal wants, equal patterns at both ends. */
#include "plan/common_build.h"

#include "base/array.h"
#include "base/hash.h"
#include "plan/boxes.h"

#include <stdlib.h>
#include <string.h>

/* ---- groups ------------------------------------------------------------- */

static const struct dyti_patterns *patterns_of(
    const struct dyti_common_builder *b, const struct dyti_layout *layout)
{
    for (uint32_t i = 0; i < b->pattern_count; i++) {
        if (b->patterns[i]->layout == layout) {
            return b->patterns[i];
        }
    }
    return NULL;
}

static enum dyt_status make_base(const struct dyti_common_builder *b,
                                 uint32_t w, struct dyti_common_base *out)
{
    const struct dyti_plan_inputs *in = &b->atoms->inputs;
    const struct dyti_plan_want *want = &in->want[w];

    memset(out, 0, sizeof(*out));
    out->want[0] = w;
    out->want_count = 1;
    out->source_count = want->source_count;
    out->dst = patterns_of(b, in->dst);
    for (uint32_t s = 0; s < want->source_count; s++) {
        out->src[s] = patterns_of(b, want->source[s].layout);
        if (out->src[s] == NULL) {
            break;
        }
        out->src_geometry[s] = out->src[s]->geometry_of[want->source[s].kind];
    }
    if (out->dst == NULL || out->src[out->source_count - 1] == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the patterns of a layout of %s are missing",
                         dyti_kind_name(want->kind));
    }
    out->dst_geometry = out->dst->geometry_of[want->kind];
    return DYT_OK;
}

static bool is_same_base(const struct dyti_common_base *a,
                         const struct dyti_common_base *b)
{
    bool same = a->dst_geometry == b->dst_geometry &&
                a->source_count == b->source_count;

    for (uint32_t s = 0; same && s < a->source_count; s++) {
        same =
            a->src[s] == b->src[s] && a->src_geometry[s] == b->src_geometry[s];
    }
    return same;
}

enum dyt_status dyti_common_bases(struct dyti_common_builder *b)
{
    const struct dyti_plan_inputs *in = &b->atoms->inputs;

    for (uint32_t w = 0; w < in->want_count; w++) {
        struct dyti_common_base base;
        uint32_t i = 0;
        enum dyt_status st = make_base(b, w, &base);

        if (st != DYT_OK) {
            return st;
        }
        if (base.dst_geometry == DYTI_NO_GEOMETRY) {
            continue;
        }
        while (i < b->base_count && !is_same_base(&b->base[i], &base)) {
            i++;
        }
        if (i == b->base_count) {
            b->base[b->base_count++] = base;
        } else {
            b->base[i].want[b->base[i].want_count++] = w;
        }
    }
    return DYT_OK;
}

/* The dtype that a tensor has in a layout, whatever its kind's is. */
static uint32_t own_dtype(const struct dyti_tensor *t,
                          const struct dyti_common_base *base,
                          const struct dyti_plan_inputs *in)
{
    enum dyti_kind kind = in->want[base->want[0]].kind;

    return kind == DYTI_EXTRA || (kind == DYTI_PARAM && t->fixed_dtype)
               ? 1u + (uint32_t)t->dtype
               : 0u;
}

static enum dyt_status group_of(struct dyti_common_builder *b, uint32_t base_at,
                                uint32_t source, uint32_t dtype,
                                uint32_t *out_group)
{
    struct dyti_common *atoms = b->atoms;
    const struct dyti_plan_inputs *in = &atoms->inputs;
    const struct dyti_common_base *base = &b->base[base_at];
    struct dyti_want_group group = {.base = base_at,
                                    .source = source,
                                    .dtype = dtype,
                                    .want_count = base->want_count};
    enum dyt_status st;

    for (size_t g = 0; g < atoms->group_count; g++) {
        const struct dyti_want_group *have = &atoms->group[g];

        if (have->base == base_at && have->source == source &&
            have->dtype == dtype) {
            *out_group = (uint32_t)g;
            return DYT_OK;
        }
    }
    for (uint32_t i = 0; i < base->want_count; i++) {
        const struct dyti_plan_want *want = &in->want[base->want[i]];
        const struct dyti_plan_source *from = &want->source[source];
        enum dyti_dtype to = in->dst->desc.dtype[want->kind];
        enum dyti_dtype have = from->layout->desc.dtype[from->kind];

        if (dtype != 0) {
            to = (enum dyti_dtype)(dtype - 1);
            have = from->kind == want->kind ? to : have;
        }
        group.want[i] = base->want[i];
        group.read[i] = dyti_dtype_bytes(have);
        group.write[i] = dyti_dtype_bytes(to);
        group.read_all += group.read[i];
        group.write_all += group.write[i];
    }
    st = DYTI_GROW(atoms->group, atoms->group_cap, atoms->group_count + 1);
    if (st == DYT_OK) {
        atoms->group[atoms->group_count] = group;
        *out_group = (uint32_t)atoms->group_count++;
    }
    return st;
}

/* ---- blocks ------------------------------------------------------------- */

static uint64_t block_hash(const struct dyti_common_block *k)
{
    return dyti_mix64(((uint64_t)k->src_pattern << 32 | k->dst_pattern) +
                      dyti_mix64((uint64_t)k->group + 1));
}

static enum dyt_status grow_slots(struct dyti_common_builder *b)
{
    size_t count = b->slot_count == 0 ? 1024 : b->slot_count * 2;
    uint32_t *slot;

    if (b->atoms->block_count * 2 < b->slot_count) {
        return DYT_OK;
    }
    slot = calloc(count, sizeof(*slot));
    if (slot == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a table of %zu blocks", count);
    }
    for (size_t i = 0; i < b->atoms->block_count; i++) {
        size_t at = (size_t)block_hash(&b->atoms->block[i]) & (count - 1);

        while (slot[at] != 0) {
            at = (at + 1) & (count - 1);
        }
        slot[at] = (uint32_t)i + 1;
    }
    free(b->slot);
    b->slot = slot;
    b->slot_count = count;
    return DYT_OK;
}

static enum dyt_status block_for(struct dyti_common_builder *b,
                                 const struct dyti_common_block *key,
                                 uint32_t *out_block)
{
    struct dyti_common *atoms = b->atoms;
    enum dyt_status st = grow_slots(b);
    size_t at;

    if (st != DYT_OK) {
        return st;
    }
    at = (size_t)block_hash(key) & (b->slot_count - 1);
    for (; b->slot[at] != 0; at = (at + 1) & (b->slot_count - 1)) {
        const struct dyti_common_block *k = &atoms->block[b->slot[at] - 1];

        if (k->group == key->group && k->src_pattern == key->src_pattern &&
            k->dst_pattern == key->dst_pattern) {
            *out_block = b->slot[at] - 1;
            return DYT_OK;
        }
    }
    st = DYTI_GROW(atoms->block, atoms->block_cap, atoms->block_count + 1);
    if (st == DYT_OK) {
        atoms->block[atoms->block_count] = *key;
        b->slot[at] = (uint32_t)atoms->block_count + 1;
        *out_block = (uint32_t)atoms->block_count++;
    }
    return st;
}

enum dyt_status dyti_common_no_source(const struct dyti_common_builder *b,
                                      uint32_t base, uint32_t tensor,
                                      uint32_t rank, uint64_t have,
                                      uint64_t want)
{
    const struct dyti_layout *dst = b->atoms->inputs.dst;
    uint32_t w = b->base[base].want[0];

    return DYTI_FAIL(DYT_ERR_LAYOUT,
                     "%s of %s on rank %u in phase %s: %llu of %llu elements "
                     "have a source",
                     dyti_kind_name(b->atoms->inputs.want[w].kind),
                     dst->model->tensor[tensor].name, rank, dst->desc.phase,
                     (unsigned long long)have, (unsigned long long)want);
}

static enum dyt_status no_pattern(const struct dyti_common_builder *b,
                                  uint32_t base, uint32_t tensor,
                                  uint32_t dst_pattern)
{
    const struct dyti_patterns *dst = b->base[base].dst;
    const struct dyti_holder *h =
        &dst->holder[dst->pattern[dst_pattern].holder_first];

    return dyti_common_no_source(b, base, tensor,
                                 dst->set_rank[dst->set_first[h->set]], 0,
                                 dyti_boxes_elements(&h->box));
}

/* The block of a tensor: its group and both patterns. */
static enum dyt_status place_tensor(struct dyti_common_builder *b,
                                    uint32_t base_at, uint32_t tensor,
                                    uint32_t *out_block)
{
    const struct dyti_common_base *base = &b->base[base_at];
    const struct dyti_plan_inputs *in = &b->atoms->inputs;
    const struct dyti_model *model = in->dst->model;
    struct dyti_common_block key = {.src_pattern = DYTI_NO_PATTERN};
    uint32_t s = 0;
    enum dyt_status st;

    key.dst_pattern =
        base->dst->pattern_of[(size_t)base->dst_geometry * model->tensor_count +
                              tensor];
    *out_block = DYTI_NO_PATTERN;
    if (key.dst_pattern == DYTI_NO_PATTERN) {
        return DYT_OK;
    }
    for (s = 0; s < base->source_count; s++) {
        if (base->src_geometry[s] != DYTI_NO_GEOMETRY) {
            key.src_pattern =
                base->src[s]->pattern_of[(size_t)base->src_geometry[s] *
                                             model->tensor_count +
                                         tensor];
        }
        if (key.src_pattern != DYTI_NO_PATTERN) {
            break;
        }
    }
    if (key.src_pattern == DYTI_NO_PATTERN) {
        return no_pattern(b, base_at, tensor, key.dst_pattern);
    }
    st = group_of(b, base_at, s, own_dtype(&model->tensor[tensor], base, in),
                  &key.group);
    return st != DYT_OK ? st : block_for(b, &key, out_block);
}

enum dyt_status dyti_common_blocks(struct dyti_common_builder *b)
{
    struct dyti_common *atoms = b->atoms;
    uint32_t tensors = atoms->inputs.dst->model->tensor_count, at = 0;
    size_t all = (size_t)b->base_count * tensors;
    enum dyt_status st = DYT_OK;

    b->block_of = calloc(all + 1, sizeof(*b->block_of));
    atoms->tensor = calloc(all + 1, sizeof(*atoms->tensor));
    if (b->block_of == NULL || atoms->tensor == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "blocks of %u tensors", tensors);
    }
    for (size_t i = 0; i < all && st == DYT_OK; i++) {
        st = place_tensor(b, (uint32_t)(i / tensors), (uint32_t)(i % tensors),
                          &b->block_of[i]);
        if (st == DYT_OK && b->block_of[i] != DYTI_NO_PATTERN) {
            atoms->block[b->block_of[i]].tensor_count++;
            atoms->tensor_count++;
        }
    }
    for (size_t k = 0; k < atoms->block_count && st == DYT_OK; k++) {
        atoms->block[k].tensor_first = at;
        at += atoms->block[k].tensor_count;
        atoms->block[k].tensor_count = 0;
    }
    for (size_t i = 0; i < all && st == DYT_OK; i++) {
        if (b->block_of[i] != DYTI_NO_PATTERN) {
            struct dyti_common_block *k = &atoms->block[b->block_of[i]];

            atoms->tensor[k->tensor_first + k->tensor_count++] =
                (uint32_t)(i % tensors);
        }
    }
    return st;
}
