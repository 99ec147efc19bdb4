/* Atoms: the pieces into which all shards of a layout cut a tensor, each with
 * one set of holders.  Pure. */
#ifndef DYTI_EXEC_ATOMS_H
#define DYTI_EXEC_ATOMS_H

#include "layout/layout.h"

struct dyti_atom_holder {
    uint32_t rank, shard; /* shard: index in that rank's view */
};

struct dyti_atom {
    uint32_t tensor;
    struct dyt_box box;
    uint32_t holder_first, holder_count; /* by rank, in atoms->holder */
};

struct dyti_atoms {
    struct dyti_atom *atom; /* [atom_count], by tensor, then row-major; owned */
    size_t atom_count, atom_cap;
    struct dyti_atom_holder *holder; /* [holder_count], owned */
    size_t holder_count, holder_cap;
};

/* All atoms of one kind.  Elements that nobody holds are in none. */
enum dyt_status dyti_atoms_init(struct dyti_atoms *atoms,
                                const struct dyti_layout *layout,
                                enum dyti_kind kind);
void dyti_atoms_fini(struct dyti_atoms *atoms);

#endif /* DYTI_EXEC_ATOMS_H */
