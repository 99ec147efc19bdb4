/* Groups atoms by who holds them: one class, one decision. */
#include "plan/common.h"

#include "base/array.h"
#include "base/hash.h"

#include <stdlib.h>

struct table {
    uint32_t *slot; /* class + 1 */
    size_t count;
};

static uint64_t hash_of(uint32_t group, uint32_t src, uint32_t dst)
{
    return dyti_mix64(((uint64_t)src << 32 | dst) +
                      dyti_mix64((uint64_t)group + 1));
}

static enum dyt_status grow_table(struct dyti_common *atoms,
                                  struct table *table)
{
    size_t count = table->count == 0 ? 1024 : table->count * 2;
    uint32_t *slot;

    if (atoms->class_count * 2 < table->count) {
        return DYT_OK;
    }
    slot = calloc(count, sizeof(*slot));
    if (slot == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a table of %zu classes", count);
    }
    for (size_t c = 0; c < atoms->class_count; c++) {
        const struct dyti_common_class *k = &atoms->class[c];
        size_t at =
            (size_t)hash_of(k->group, k->src_set, k->dst_set) & (count - 1);

        while (slot[at] != 0) {
            at = (at + 1) & (count - 1);
        }
        slot[at] = (uint32_t)c + 1;
    }
    free(table->slot);
    table->slot = slot;
    table->count = count;
    return DYT_OK;
}

static enum dyt_status class_of(struct dyti_common *atoms, struct table *table,
                                const struct dyti_common_atom *a,
                                uint32_t *out_class)
{
    uint32_t group = atoms->block[a->block].group;
    enum dyt_status st = grow_table(atoms, table);
    size_t at;

    if (st != DYT_OK) {
        return st;
    }
    at = (size_t)hash_of(group, a->src_set, a->dst_set) & (table->count - 1);
    for (; table->slot[at] != 0; at = (at + 1) & (table->count - 1)) {
        const struct dyti_common_class *c = &atoms->class[table->slot[at] - 1];

        if (c->group == group && c->src_set == a->src_set &&
            c->dst_set == a->dst_set) {
            *out_class = table->slot[at] - 1;
            return DYT_OK;
        }
    }
    st = DYTI_GROW(atoms->class, atoms->class_cap, atoms->class_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    atoms->class[atoms->class_count] = (struct dyti_common_class){
        .group = group, .src_set = a->src_set, .dst_set = a->dst_set};
    table->slot[at] = (uint32_t)atoms->class_count + 1;
    *out_class = (uint32_t)atoms->class_count++;
    return DYT_OK;
}

/* Atoms by class, in their order; the places in each stream. */
static void put_in_order(struct dyti_common *atoms,
                         const uint32_t *class_of_atom)
{
    uint32_t at = 0;

    for (size_t c = 0; c < atoms->class_count; c++) {
        atoms->class[c].first = at;
        at += atoms->class[c].count;
        atoms->class[c].count = 0;
    }
    for (size_t a = 0; a < atoms->atom_count; a++) {
        struct dyti_common_class *c = &atoms->class[class_of_atom[a]];
        uint32_t tensors = dyti_common_tensors(atoms, (uint32_t)a);

        atoms->order[c->first + c->count++] = (struct dyti_common_place){
            .atom = (uint32_t)a, .element = c->elements, .box = c->boxes};
        c->elements += atoms->atom[a].elements * tensors;
        c->boxes += tensors;
    }
}

enum dyt_status dyti_classes_build(struct dyti_common *atoms)
{
    struct table table = {0};
    uint32_t *class_of_atom =
        calloc(atoms->atom_count + 1, sizeof(*class_of_atom));
    enum dyt_status st = DYT_OK;

    atoms->order = calloc(atoms->atom_count + 1, sizeof(*atoms->order));
    if (class_of_atom == NULL || atoms->order == NULL) {
        st =
            DYTI_FAIL(DYT_ERR_NOMEM, "classes of %zu atoms", atoms->atom_count);
    }
    for (size_t a = 0; a < atoms->atom_count && st == DYT_OK; a++) {
        st = class_of(atoms, &table, &atoms->atom[a], &class_of_atom[a]);
        if (st == DYT_OK) {
            atoms->class[class_of_atom[a]].count++;
        }
    }
    if (st == DYT_OK) {
        put_in_order(atoms, class_of_atom);
    }
    for (size_t c = 0; c < atoms->class_count && st == DYT_OK; c++) {
        st = dyti_sets_split(&atoms->sets, atoms->class[c].src_set);
        st = st != DYT_OK
                 ? st
                 : dyti_sets_split(&atoms->sets, atoms->class[c].dst_set);
    }
    free(table.slot);
    free(class_of_atom);
    return st;
}

uint32_t dyti_class_find(const struct dyti_common *atoms,
                         const struct dyti_common_class *c, uint64_t at)
{
    uint32_t a = c->first, b = c->first + c->count;

    while (a + 1 < b) {
        uint32_t mid = a + (b - a) / 2;

        if (atoms->order[mid].element <= at) {
            a = mid;
        } else {
            b = mid;
        }
    }
    return a;
}
