/* Intersects the patterns of source and destination, each pair once. */
#include "plan/common.h"

#include "base/array.h"
#include "plan/boxes.h"
#include "plan/common_build.h"

#include <stdlib.h>
#include <string.h>

/* ---- atoms -------------------------------------------------------------- */

static enum dyt_status our_set(struct dyti_common_builder *b,
                               const struct dyti_patterns *p, uint32_t set,
                               uint32_t *out_set)
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

static enum dyt_status list_holders(struct dyti_common_builder *b,
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

static enum dyt_status add_atom(struct dyti_common *atoms, uint32_t block,
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
        (struct dyti_common_atom){.block = block,
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
static enum dyt_status name_hole(const struct dyti_common_builder *b,
                                 uint32_t block, const struct dyt_box *box)
{
    const struct dyti_common_block *k = &b->atoms->block[block];
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
    return dyti_common_no_source(b, base, b->atoms->tensor[k->tensor_first],
                                 p->set_rank[p->set_first[h->set]], have,
                                 dyti_boxes_elements(&h->box));
}

/* All sources of one destination box. */
static enum dyt_status cross(struct dyti_common_builder *b, uint32_t block,
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

static enum dyt_status find_atoms(struct dyti_common_builder *b)
{
    struct dyti_common *atoms = b->atoms;
    enum dyt_status st = DYT_OK;

    for (uint32_t k = 0; k < atoms->block_count && st == DYT_OK; k++) {
        const struct dyti_want_group *g = &atoms->group[atoms->block[k].group];
        const struct dyti_common_base *base = &b->base[g->base];

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

static enum dyt_status open(struct dyti_common_builder *b, const uint32_t *host)
{
    struct dyti_common *atoms = b->atoms;

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

enum dyt_status dyti_common_build(const struct dyti_plan_inputs *inputs,
                                  const uint32_t *host,
                                  const struct dyti_patterns *const *patterns,
                                  uint32_t pattern_count,
                                  struct dyti_common *out_atoms)
{
    struct dyti_common atoms = {.inputs = *inputs};
    struct dyti_common_builder b = {
        .atoms = &atoms, .patterns = patterns, .pattern_count = pattern_count};
    enum dyt_status st;

    if (pattern_count > DYTI_MAX_PATTERNS) {
        return DYTI_FAIL(DYT_ERR_INVALID, "patterns of %u layouts",
                         pattern_count);
    }
    st = open(&b, host);
    st = st != DYT_OK ? st : dyti_common_bases(&b);
    st = st != DYT_OK ? st : dyti_common_blocks(&b);
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
        dyti_common_fini(&atoms);
        return st;
    }
    *out_atoms = atoms;
    return DYT_OK;
}

void dyti_common_fini(struct dyti_common *atoms)
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
    *atoms = (struct dyti_common){0};
}

void dyti_common_box(const struct dyti_common *atoms, uint32_t atom,
                     struct dyt_box *out_box)
{
    const struct dyti_common_atom *a = &atoms->atom[atom];

    *out_box = (struct dyt_box){.ndim = a->ndim};
    for (uint32_t d = 0; d < a->ndim; d++) {
        out_box->lo[d] = atoms->edge[a->at + d];
        out_box->hi[d] = atoms->edge[a->at + a->ndim + d];
    }
}
