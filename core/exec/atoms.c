/* Cuts a tensor along every border of every shard of it, and joins along the
 * last axis what has the same holders. */
#include "exec/atoms.h"

#include "base/array.h"

#include <string.h>

/* Shards of one tensor, of all ranks. */
struct pieces {
    struct dyti_atom_holder *holder;
    const struct dyt_box **box;
    size_t count, holder_cap, box_cap;
    int64_t *cut[DYT_MAX_DIMS]; /* borders, ascending, no doubles */
    size_t cut_count[DYT_MAX_DIMS], cut_cap[DYT_MAX_DIMS];
};

static void pieces_fini(struct pieces *pieces)
{
    free(pieces->holder);
    free(pieces->box);
    for (uint32_t d = 0; d < DYT_MAX_DIMS; d++) {
        free(pieces->cut[d]);
    }
}

static bool empty(const struct dyt_box *box)
{
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (box->lo[d] >= box->hi[d]) {
            return true;
        }
    }
    return false;
}

static enum dyt_status add_piece(struct pieces *pieces, uint32_t rank,
                                 uint32_t shard, const struct dyt_box *box)
{
    enum dyt_status st =
        DYTI_GROW(pieces->holder, pieces->holder_cap, pieces->count + 1);

    if (st == DYT_OK) {
        st = DYTI_GROW(pieces->box, pieces->box_cap, pieces->count + 1);
    }
    if (st != DYT_OK) {
        return st;
    }
    pieces->holder[pieces->count] = (struct dyti_atom_holder){rank, shard};
    pieces->box[pieces->count++] = box;
    return DYT_OK;
}

/* cursor[rank]: the next shard of that rank, which moves on past `tensor`. */
static enum dyt_status collect(struct pieces *pieces,
                               const struct dyti_layout *layout,
                               enum dyti_kind kind, uint32_t tensor,
                               uint32_t *cursor)
{
    pieces->count = 0;
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = dyti_layout_view(layout, r);
        uint32_t end = view->kind_first[kind + 1];

        for (; cursor[r] < end && view->shard[cursor[r]].tensor == tensor;
             cursor[r]++) {
            const struct dyt_box *box = &view->shard[cursor[r]].box;
            enum dyt_status st;

            if (empty(box)) {
                continue;
            }
            st = add_piece(pieces, r, cursor[r], box);
            if (st != DYT_OK) {
                return st;
            }
        }
    }
    return DYT_OK;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static enum dyt_status find_cuts(struct pieces *pieces, uint32_t d)
{
    enum dyt_status st =
        DYTI_GROW(pieces->cut[d], pieces->cut_cap[d], 2 * pieces->count);
    size_t kept = 0;

    if (st != DYT_OK) {
        return st;
    }
    for (size_t i = 0; i < pieces->count; i++) {
        pieces->cut[d][2 * i] = pieces->box[i]->lo[d];
        pieces->cut[d][2 * i + 1] = pieces->box[i]->hi[d];
    }
    qsort(pieces->cut[d], 2 * pieces->count, sizeof(int64_t), by_value);
    for (size_t i = 0; i < 2 * pieces->count; i++) {
        if (kept == 0 || pieces->cut[d][i] != pieces->cut[d][kept - 1]) {
            pieces->cut[d][kept++] = pieces->cut[d][i];
        }
    }
    pieces->cut_count[d] = kept;
    return DYT_OK;
}

static bool contains(const struct dyt_box *box, const struct dyt_box *cell)
{
    for (uint32_t d = 0; d < cell->ndim; d++) {
        if (cell->lo[d] < box->lo[d] || cell->hi[d] > box->hi[d]) {
            return false;
        }
    }
    return true;
}

/* Does `cell`, with its holders at `first`, go on where the last atom ends? */
static bool continues(const struct dyti_atoms *atoms, uint32_t tensor,
                      const struct dyt_box *cell, size_t first)
{
    const struct dyti_atom *last;
    uint32_t axis = cell->ndim - 1u;
    size_t count = atoms->holder_count - first;

    if (atoms->atom_count == 0) {
        return false;
    }
    last = &atoms->atom[atoms->atom_count - 1];
    if (last->tensor != tensor || last->holder_count != count ||
        last->box.hi[axis] != cell->lo[axis]) {
        return false;
    }
    for (uint32_t d = 0; d < axis; d++) {
        if (last->box.lo[d] != cell->lo[d] || last->box.hi[d] != cell->hi[d]) {
            return false;
        }
    }
    return memcmp(&atoms->holder[last->holder_first], &atoms->holder[first],
                  count * sizeof(*atoms->holder)) == 0;
}

static enum dyt_status add_cell(struct dyti_atoms *atoms, uint32_t tensor,
                                const struct pieces *pieces,
                                const struct dyt_box *cell)
{
    size_t first = atoms->holder_count;
    enum dyt_status st;

    for (size_t i = 0; i < pieces->count; i++) {
        if (contains(pieces->box[i], cell)) {
            st = DYTI_GROW(atoms->holder, atoms->holder_cap,
                           atoms->holder_count + 1);
            if (st != DYT_OK) {
                return st;
            }
            atoms->holder[atoms->holder_count++] = pieces->holder[i];
        }
    }
    if (atoms->holder_count == first) {
        return DYT_OK;
    }
    if (continues(atoms, tensor, cell, first)) {
        uint32_t axis = cell->ndim - 1u;

        atoms->atom[atoms->atom_count - 1].box.hi[axis] = cell->hi[axis];
        atoms->holder_count = first;
        return DYT_OK;
    }
    st = DYTI_GROW(atoms->atom, atoms->atom_cap, atoms->atom_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    atoms->atom[atoms->atom_count++] = (struct dyti_atom){
        .tensor = tensor,
        .box = *cell,
        .holder_first = (uint32_t)first,
        .holder_count = (uint32_t)(atoms->holder_count - first)};
    return DYT_OK;
}

/* Every cell of the grid of cuts, row-major. */
static enum dyt_status add_cells(struct dyti_atoms *atoms, uint32_t tensor,
                                 const struct pieces *pieces, uint32_t ndim)
{
    size_t at[DYT_MAX_DIMS] = {0};
    struct dyt_box cell = {.ndim = ndim};

    for (;;) {
        uint32_t d = ndim;
        enum dyt_status st;

        for (uint32_t i = 0; i < ndim; i++) {
            cell.lo[i] = pieces->cut[i][at[i]];
            cell.hi[i] = pieces->cut[i][at[i] + 1];
        }
        st = add_cell(atoms, tensor, pieces, &cell);
        if (st != DYT_OK) {
            return st;
        }
        while (d > 0 && ++at[d - 1] + 1 >= pieces->cut_count[d - 1]) {
            at[--d] = 0;
        }
        if (d == 0) {
            return DYT_OK;
        }
    }
}

enum dyt_status dyti_atoms_init(struct dyti_atoms *atoms,
                                const struct dyti_layout *layout,
                                enum dyti_kind kind)
{
    uint32_t *cursor = calloc(layout->desc.world_size, sizeof(*cursor));
    struct pieces pieces = {0};
    struct dyti_atoms found = {0};
    enum dyt_status st = DYT_OK;

    if (cursor == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "atoms of %s", dyti_kind_name(kind));
        goto out;
    }
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        cursor[r] = dyti_layout_view(layout, r)->kind_first[kind];
    }
    for (uint32_t t = 0; t < layout->model->tensor_count; t++) {
        uint32_t ndim = layout->model->tensor[t].ndim;

        st = collect(&pieces, layout, kind, t, cursor);
        if (st != DYT_OK) {
            goto out;
        }
        if (pieces.count == 0) {
            continue;
        }
        for (uint32_t d = 0; d < ndim && st == DYT_OK; d++) {
            st = find_cuts(&pieces, d);
        }
        if (st == DYT_OK) {
            st = add_cells(&found, t, &pieces, ndim);
        }
        if (st != DYT_OK) {
            goto out;
        }
    }
    *atoms = found;
    found = (struct dyti_atoms){0};
out:
    dyti_atoms_fini(&found);
    pieces_fini(&pieces);
    free(cursor);
    return st;
}

void dyti_atoms_fini(struct dyti_atoms *atoms)
{
    free(atoms->atom);
    free(atoms->holder);
    *atoms = (struct dyti_atoms){0};
}
