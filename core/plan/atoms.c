/* Intersects the patterns of source and destination, each pair once. */
#include "plan/atoms.h"

#include "base/array.h"
#include "base/hash.h"
#include "plan/boxes.h"

#include <stdlib.h>
#include <string.h>

/* A base group: wants whose holders are the same at both ends. */
struct base {
    uint32_t want[DYTI_KIND_COUNT], want_count;
    const struct dyti_patterns *dst, *src[DYTI_PLAN_MAX_SOURCES];
    uint32_t dst_geometry, src_geometry[DYTI_PLAN_MAX_SOURCES];
    uint32_t source_count;
};

struct builder {
    struct dyti_atoms *atoms;
    const struct dyti_patterns *const *patterns;
    uint32_t pattern_count;
    uint32_t *set_of[DYTI_MAX_PATTERNS]; /* a pattern's set → ours */
    struct base base[DYTI_KIND_COUNT];
    uint32_t base_count;
    uint32_t *block_of; /* [base_count][tensor_count], NO_PATTERN: not wanted */
    uint32_t *slot;     /* block + 1, by hash */
    size_t slot_count;
    struct dyti_held_list src, dst;
};

/* ---- groups ------------------------------------------------------------- */

static const struct dyti_patterns *patterns_of(const struct builder *b,
                                               const struct dyti_layout *layout)
{
    for (uint32_t i = 0; i < b->pattern_count; i++) {
        if (b->patterns[i]->layout == layout) {
            return b->patterns[i];
        }
    }
    return NULL;
}

static enum dyt_status make_base(const struct builder *b, uint32_t w,
                                 struct base *out)
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

static bool is_same_base(const struct base *a, const struct base *b)
{
    bool same = a->dst_geometry == b->dst_geometry &&
                a->source_count == b->source_count;

    for (uint32_t s = 0; same && s < a->source_count; s++) {
        same =
            a->src[s] == b->src[s] && a->src_geometry[s] == b->src_geometry[s];
    }
    return same;
}

static enum dyt_status find_bases(struct builder *b)
{
    const struct dyti_plan_inputs *in = &b->atoms->inputs;

    for (uint32_t w = 0; w < in->want_count; w++) {
        struct base base;
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
static uint32_t own_dtype(const struct dyti_tensor *t, const struct base *base,
                          const struct dyti_plan_inputs *in)
{
    enum dyti_kind kind = in->want[base->want[0]].kind;

    return kind == DYTI_EXTRA || (kind == DYTI_PARAM && t->fixed_dtype)
               ? 1u + (uint32_t)t->dtype
               : 0u;
}

static enum dyt_status group_of(struct builder *b, uint32_t base_at,
                                uint32_t source, uint32_t dtype,
                                uint32_t *out_group)
{
    struct dyti_atoms *atoms = b->atoms;
    const struct dyti_plan_inputs *in = &atoms->inputs;
    const struct base *base = &b->base[base_at];
    struct dyti_group group = {.base = base_at,
                               .source = source,
                               .dtype = dtype,
                               .want_count = base->want_count};
    enum dyt_status st;

    for (size_t g = 0; g < atoms->group_count; g++) {
        const struct dyti_group *have = &atoms->group[g];

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

static uint64_t block_hash(const struct dyti_block *k)
{
    return dyti_mix64(((uint64_t)k->src_pattern << 32 | k->dst_pattern) +
                      dyti_mix64((uint64_t)k->group + 1));
}

static enum dyt_status grow_slots(struct builder *b)
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

static enum dyt_status block_for(struct builder *b,
                                 const struct dyti_block *key,
                                 uint32_t *out_block)
{
    struct dyti_atoms *atoms = b->atoms;
    enum dyt_status st = grow_slots(b);
    size_t at;

    if (st != DYT_OK) {
        return st;
    }
    at = (size_t)block_hash(key) & (b->slot_count - 1);
    for (; b->slot[at] != 0; at = (at + 1) & (b->slot_count - 1)) {
        const struct dyti_block *k = &atoms->block[b->slot[at] - 1];

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

static enum dyt_status fail_source(const struct builder *b, uint32_t base,
                                   uint32_t tensor, uint32_t rank,
                                   uint64_t have, uint64_t want)
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

static enum dyt_status no_pattern(const struct builder *b, uint32_t base,
                                  uint32_t tensor, uint32_t dst_pattern)
{
    const struct dyti_patterns *dst = b->base[base].dst;
    const struct dyti_holder *h =
        &dst->holder[dst->pattern[dst_pattern].holder_first];

    return fail_source(b, base, tensor, dst->set_rank[dst->set_first[h->set]],
                       0, dyti_boxes_elements(&h->box));
}

/* The block of a tensor: its group and both patterns. */
static enum dyt_status place_tensor(struct builder *b, uint32_t base_at,
                                    uint32_t tensor, uint32_t *out_block)
{
    const struct base *base = &b->base[base_at];
    const struct dyti_plan_inputs *in = &b->atoms->inputs;
    const struct dyti_model *model = in->dst->model;
    struct dyti_block key = {.src_pattern = DYTI_NO_PATTERN};
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

static enum dyt_status find_blocks(struct builder *b)
{
    struct dyti_atoms *atoms = b->atoms;
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
            struct dyti_block *k = &atoms->block[b->block_of[i]];

            atoms->tensor[k->tensor_first + k->tensor_count++] =
                (uint32_t)(i % tensors);
        }
    }
    return st;
}

/* ---- atoms -------------------------------------------------------------- */

static enum dyt_status our_set(struct builder *b, const struct dyti_patterns *p,
                               uint32_t set, uint32_t *out_set)
{
    uint32_t which = 0, *known;
    enum dyt_status st = DYT_OK;

    while (b->patterns[which] != p) {
        which++;
    }
    known = &b->set_of[which][set];
    if (*known == DYTI_NO_SET) {
        st = dyti_sets_intern(&b->atoms->sets, p->set_rank + p->set_first[set],
                              p->set_first[set + 1] - p->set_first[set], known);
    }
    *out_set = *known;
    return st;
}

static enum dyt_status list_holders(struct builder *b,
                                    const struct dyti_patterns *p,
                                    uint32_t pattern,
                                    struct dyti_held_list *list)
{
    const struct dyti_pattern *k = &p->pattern[pattern];
    enum dyt_status st = DYTI_GROW(list->held, list->cap, k->holder_count + 1u);

    list->count = 0;
    for (uint32_t i = 0; st == DYT_OK && i < k->holder_count; i++) {
        const struct dyti_holder *h = &p->holder[k->holder_first + i];
        struct dyti_held *held = &list->held[list->count];

        held->box = h->box;
        st = our_set(b, p, h->set, &held->set);
        list->count += dyti_boxes_elements(&h->box) > 0;
    }
    return st != DYT_OK ? st : dyti_refine(&b->atoms->sets, list);
}

static enum dyt_status add_atom(struct dyti_atoms *atoms, uint32_t block,
                                const struct dyt_box *box, uint32_t src_set,
                                uint32_t dst_set, uint64_t elements)
{
    enum dyt_status st =
        DYTI_GROW(atoms->atom, atoms->atom_cap, atoms->atom_count + 1);

    st = st != DYT_OK ? st
                      : DYTI_GROW(atoms->edge, atoms->edge_cap,
                                  atoms->edge_count + 2 * (size_t)box->ndim);
    if (st != DYT_OK) {
        return st;
    }
    atoms->atom[atoms->atom_count++] =
        (struct dyti_atom){.block = block,
                           .src_set = src_set,
                           .dst_set = dst_set,
                           .ndim = box->ndim,
                           .at = atoms->edge_count,
                           .elements = elements};
    for (uint32_t d = 0; d < box->ndim; d++) {
        atoms->edge[atoms->edge_count + d] = box->lo[d];
        atoms->edge[atoms->edge_count + box->ndim + d] = box->hi[d];
    }
    atoms->edge_count += 2 * (size_t)box->ndim;
    atoms->block[block].atom_count++;
    return DYT_OK;
}

/* Which shard of the destination has a hole, and how large. */
static enum dyt_status name_hole(const struct builder *b, uint32_t block,
                                 const struct dyt_box *box)
{
    const struct dyti_block *k = &b->atoms->block[block];
    uint32_t base = b->atoms->group[k->group].base;
    const struct dyti_patterns *p = b->base[base].dst;
    const struct dyti_pattern *pattern = &p->pattern[k->dst_pattern];
    const struct dyti_holder *h = &p->holder[pattern->holder_first];
    struct dyt_box both;
    uint64_t have = 0;

    while (!dyti_boxes_overlap(&h->box, box, &both)) {
        h++;
    }
    for (size_t i = 0; i < b->src.count; i++) {
        if (dyti_boxes_overlap(&h->box, &b->src.held[i].box, &both)) {
            have += dyti_boxes_elements(&both);
        }
    }
    return fail_source(b, base, b->atoms->tensor[k->tensor_first],
                       p->set_rank[p->set_first[h->set]], have,
                       dyti_boxes_elements(&h->box));
}

/* All sources of one destination box. */
static enum dyt_status cross(struct builder *b, uint32_t block,
                             const struct dyti_held *dst)
{
    uint32_t axis = b->src.axis;
    uint64_t found = 0;

    for (size_t i = dyti_held_from(&b->src, dst->box.lo[axis]);
         i < b->src.count && b->src.held[i].box.lo[axis] < dst->box.hi[axis];
         i++) {
        struct dyt_box both;
        uint64_t elements;
        enum dyt_status st;

        if (!dyti_boxes_overlap(&dst->box, &b->src.held[i].box, &both)) {
            continue;
        }
        elements = dyti_boxes_elements(&both);
        found += elements;
        st = add_atom(b->atoms, block, &both, b->src.held[i].set, dst->set,
                      elements);
        if (st != DYT_OK) {
            return st;
        }
    }
    return found == dyti_boxes_elements(&dst->box)
               ? DYT_OK
               : name_hole(b, block, &dst->box);
}

static enum dyt_status find_atoms(struct builder *b)
{
    struct dyti_atoms *atoms = b->atoms;
    enum dyt_status st = DYT_OK;

    for (uint32_t k = 0; k < atoms->block_count && st == DYT_OK; k++) {
        const struct dyti_group *g = &atoms->group[atoms->block[k].group];
        const struct base *base = &b->base[g->base];

        atoms->block[k].atom_first = (uint32_t)atoms->atom_count;
        st = list_holders(b, base->src[g->source], atoms->block[k].src_pattern,
                          &b->src);
        st = st != DYT_OK ? st
                          : list_holders(b, base->dst,
                                         atoms->block[k].dst_pattern, &b->dst);
        for (size_t i = 0; i < b->dst.count && st == DYT_OK; i++) {
            st = cross(b, k, &b->dst.held[i]);
        }
        if (st == DYT_OK && atoms->atom_count > UINT32_MAX / 2) {
            st = DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu atoms in a plan",
                           atoms->atom_count);
        }
    }
    return st;
}

/* ---- the whole ---------------------------------------------------------- */

static enum dyt_status open(struct builder *b, const uint32_t *host)
{
    struct dyti_atoms *atoms = b->atoms;

    atoms->world_size = atoms->inputs.dst->desc.world_size;
    atoms->host = calloc(atoms->world_size, sizeof(*atoms->host));
    if (atoms->host == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "hosts of %u ranks", atoms->world_size);
    }
    for (uint32_t r = 0; r < atoms->world_size; r++) {
        atoms->host[r] = host == NULL ? 0 : host[r];
        if (atoms->host[r] >= atoms->world_size) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "rank %u is on host %u: hosts are numbered from "
                             "0, and %u ranks are on no more hosts than that",
                             r, atoms->host[r], atoms->world_size);
        }
        if (atoms->host[r] >= atoms->host_count) {
            atoms->host_count = atoms->host[r] + 1;
        }
    }
    for (uint32_t i = 0; i < b->pattern_count; i++) {
        size_t bytes =
            (b->patterns[i]->set_count + (size_t)1) * sizeof(*b->set_of[i]);

        b->set_of[i] = malloc(bytes);
        if (b->set_of[i] == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "sets of %u patterns",
                             b->patterns[i]->pattern_count);
        }
        memset(b->set_of[i], 0xff, bytes); /* DYTI_NO_SET */
    }
    return dyti_sets_init(&atoms->sets, atoms->host, atoms->world_size);
}

enum dyt_status dyti_atoms_build(const struct dyti_plan_inputs *inputs,
                                 const uint32_t *host,
                                 const struct dyti_patterns *const *patterns,
                                 uint32_t pattern_count,
                                 struct dyti_atoms *out_atoms)
{
    struct dyti_atoms atoms = {.inputs = *inputs};
    struct builder b = {
        .atoms = &atoms, .patterns = patterns, .pattern_count = pattern_count};
    enum dyt_status st;

    if (pattern_count > DYTI_MAX_PATTERNS) {
        return DYTI_FAIL(DYT_ERR_INVALID, "patterns of %u layouts",
                         pattern_count);
    }
    st = open(&b, host);
    st = st != DYT_OK ? st : find_bases(&b);
    st = st != DYT_OK ? st : find_blocks(&b);
    st = st != DYT_OK ? st : find_atoms(&b);
    st = st != DYT_OK ? st : dyti_classes_build(&atoms);
    for (uint32_t i = 0; i < pattern_count; i++) {
        free(b.set_of[i]);
    }
    free(b.block_of);
    free(b.slot);
    free(b.src.held);
    free(b.dst.held);
    if (st != DYT_OK) {
        dyti_atoms_fini(&atoms);
        return st;
    }
    *out_atoms = atoms;
    return DYT_OK;
}

void dyti_atoms_fini(struct dyti_atoms *atoms)
{
    dyti_sets_fini(&atoms->sets);
    free(atoms->host);
    free(atoms->group);
    free(atoms->block);
    free(atoms->tensor);
    free(atoms->atom);
    free(atoms->edge);
    free(atoms->class);
    free(atoms->order);
    *atoms = (struct dyti_atoms){0};
}

void dyti_atom_box(const struct dyti_atoms *atoms, uint32_t atom,
                   struct dyt_box *out_box)
{
    const struct dyti_atom *a = &atoms->atom[atom];

    *out_box = (struct dyt_box){.ndim = a->ndim};
    for (uint32_t d = 0; d < a->ndim; d++) {
        out_box->lo[d] = atoms->edge[a->at + d];
        out_box->hi[d] = atoms->edge[a->at + a->ndim + d];
    }
}
