/* Which boxes this rank hashes, and where the sums of all ranks will lie. */
#include "exec/verify.h"

#include "base/array.h"
#include "base/hash.h"

#include <string.h>

/* Dims right-aligned into DYTI_VERIFY_DIMS, the unused ones of size 1.
 * data: where the shard begins; returned: where the box does. */
static const unsigned char *place_dims(const struct dyti_tensor *tensor,
                                       const struct dyti_shard *shard,
                                       const struct dyt_box *box,
                                       const unsigned char *data,
                                       struct dyti_hash_box *out_box,
                                       int64_t out_lo[DYTI_VERIFY_DIMS])
{
    uint32_t shift = DYTI_VERIFY_DIMS - tensor->ndim;
    int64_t index_stride = 1;

    for (uint32_t d = 0; d < DYTI_VERIFY_DIMS; d++) {
        out_box->size[d] = 1;
    }
    for (uint32_t d = tensor->ndim; d-- > 0;) {
        out_lo[d + shift] = box->lo[d];
        out_box->size[d + shift] = box->hi[d] - box->lo[d];
        out_box->stride[d + shift] = shard->stride[d];
        out_box->index_stride[d + shift] = index_stride;
        data += (box->lo[d] - shard->box.lo[d]) * shard->stride[d];
        index_stride *= tensor->shape[d];
    }
    return data;
}

struct preparing {
    struct dyti_verifier *verifier;
    const struct dyti_plan_inputs *inputs;
    dyti_verify_region_fn region;
    const void *region_arg;
    uint8_t *as; /* [tensor_count] as the destination stores this kind */
};

/* A box of an own shard, whose sum goes to `word`. */
static enum dyt_status add_piece(struct preparing *p,
                                 const struct dyti_layout *layout,
                                 uint32_t slot, uint32_t shard_index,
                                 const struct dyti_atom *atom, uint32_t word,
                                 uint8_t kind)
{
    struct dyti_verifier *v = p->verifier;
    const struct dyti_tensor *tensor = &v->model->tensor[atom->tensor];
    const struct dyti_shard *shard =
        &dyti_layout_view(layout, v->rank)->shard[shard_index];
    struct dyti_verify_piece piece = {.salt =
                                          dyti_content_salt(atom->tensor, kind),
                                      .tensor = atom->tensor,
                                      .word = word};
    struct dyti_hash_box box = {.dtype = shard->dtype};
    int64_t lo[DYTI_VERIFY_DIMS] = {0};
    enum dyt_status st;

    if (tensor->ndim > DYTI_VERIFY_DIMS) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "tensor %s has %u dims, at most %u are available",
                         tensor->name, tensor->ndim, DYTI_VERIFY_DIMS);
    }
    piece.data = place_dims(
        tensor, shard, &atom->box,
        p->region(p->region_arg, slot, shard->kind, shard->offset), &box, lo);
    st = DYTI_GROW(v->piece, v->piece_cap, v->piece_count + 1);
    for (int full = 0; full < 2 && st == DYT_OK; full++) {
        st = dyti_verify_find_form(v, tensor, &box, lo, p->as[atom->tensor],
                                   full != 0, &piece.form[full]);
    }
    if (st != DYT_OK) {
        return st;
    }
    v->piece[v->piece_count++] = piece;
    return DYT_OK;
}

/* All holders of a tensor store it alike. */
static void find_dtypes(struct preparing *p, uint32_t w)
{
    const struct dyti_verify_want *want = &p->verifier->want[w];

    for (size_t a = 0; a < want->atoms.atom_count; a++) {
        const struct dyti_atom *atom = &want->atoms.atom[a];
        const struct dyti_atom_holder *holder =
            &want->atoms.holder[atom->holder_first];

        p->as[atom->tensor] = dyti_layout_view(p->inputs->dst, holder->rank)
                                  ->shard[holder->shard]
                                  .dtype;
    }
}

/* Where the atoms of each tensor end, and the holders of each atom begin. */
static void find_ends(const struct dyti_model *model,
                      struct dyti_verify_want *want)
{
    size_t a = 0;

    for (uint32_t t = 0; t < model->tensor_count; t++) {
        for (; a < want->atoms.atom_count && want->atoms.atom[a].tensor == t;
             a++) {
            want->first[a] = want->atoms.atom[a].holder_first;
        }
        want->end[t] = (uint32_t)a;
    }
    want->first[a] = (uint32_t)want->atoms.holder_count;
}

/* Words of a rank's part become words of the vector. */
static void place_words(struct dyti_verifier *v)
{
    for (uint32_t w = 0; w < v->want_count; w++) {
        struct dyti_verify_want *want = &v->want[w];

        for (size_t h = 0; h < want->atoms.holder_count; h++) {
            want->word[h] += v->first[want->atoms.holder[h].rank];
        }
    }
}

/* Destination: every holder hashes its copy of every atom. */
static enum dyt_status prepare_want(struct preparing *p, uint32_t w,
                                    uint64_t *held)
{
    struct dyti_verifier *v = p->verifier;
    struct dyti_verify_want *want = &v->want[w];
    const struct dyti_layout *dst = p->inputs->dst;
    enum dyti_kind kind = p->inputs->want[w].kind;
    enum dyt_status st = dyti_atoms_init(&want->atoms, dst, kind);

    if (st != DYT_OK) {
        return st;
    }
    find_dtypes(p, w);
    want->kind = (uint8_t)kind;
    want->word = calloc(want->atoms.holder_count + 1, sizeof(*want->word));
    want->first = calloc(want->atoms.atom_count + 1, sizeof(*want->first));
    want->end = calloc(v->model->tensor_count + 1u, sizeof(*want->end));
    if (want->word == NULL || want->first == NULL || want->end == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu hashes", want->atoms.holder_count);
    }
    find_ends(v->model, want);
    for (size_t a = 0; a < want->atoms.atom_count; a++) {
        const struct dyti_atom *atom = &want->atoms.atom[a];

        for (uint32_t h = 0; h < atom->holder_count; h++) {
            size_t at = atom->holder_first + h;
            const struct dyti_atom_holder *holder = &want->atoms.holder[at];

            want->word[at] = 1 + held[holder->rank]++;
            if (holder->rank == v->rank) {
                st = add_piece(p, dst, p->inputs->dst_slot, holder->shard, atom,
                               (uint32_t)want->word[at], (uint8_t)kind);
            }
            if (st != DYT_OK) {
                return st;
            }
        }
    }
    return DYT_OK;
}

/* A tensor comes from the first source that has it. */
static bool comes_from(const struct dyti_plan_want *want, uint32_t source,
                       const struct dyti_tensor *tensor)
{
    for (uint32_t s = 0; s < source; s++) {
        if ((tensor->kinds >> want->source[s].kind & 1u) != 0) {
            return false;
        }
    }
    return true;
}

/* Source: one holder answers for each atom, the holders in turn. */
static enum dyt_status prepare_source(struct preparing *p, uint32_t w,
                                      uint32_t which, uint64_t sums_at)
{
    const struct dyti_plan_want *want = &p->inputs->want[w];
    const struct dyti_plan_source *source = &want->source[which];
    struct dyti_atoms atoms = {0};
    enum dyt_status st = dyti_atoms_init(&atoms, source->layout, source->kind);

    for (size_t a = 0; a < atoms.atom_count && st == DYT_OK; a++) {
        const struct dyti_atom *atom = &atoms.atom[a];
        size_t turn = (a + atom->tensor) % atom->holder_count;
        const struct dyti_atom_holder *holder =
            &atoms.holder[atom->holder_first + turn];

        if (holder->rank == p->verifier->rank &&
            comes_from(want, which,
                       &p->verifier->model->tensor[atom->tensor])) {
            uint64_t word =
                sums_at + w * p->verifier->model->tensor_count + atom->tensor;

            st = add_piece(p, source->layout, source->slot, holder->shard, atom,
                           (uint32_t)word, (uint8_t)want->kind);
        }
    }
    dyti_atoms_fini(&atoms);
    return st;
}

static enum dyt_status allocate(struct dyti_verifier *v)
{
    v->vector = calloc(v->first[v->world_size] + 1, sizeof(*v->vector));
    v->batch.box = calloc(DYTI_VERIFY_BATCH, sizeof(*v->batch.box));
    v->batch.hash = calloc(DYTI_VERIFY_BATCH, sizeof(*v->batch.hash));
    v->batch.word = calloc(DYTI_VERIFY_BATCH, sizeof(*v->batch.word));
    v->list_hash = calloc(v->piece_count + 1, sizeof(*v->list_hash));
    if (v->memory != NULL) { /* its kernels write and read it */
        enum dyt_status st = v->memory->host_alloc(DYTI_VERIFY_SCRATCH_BYTES,
                                                   (void **)&v->narrowed);

        if (st != DYT_OK) {
            return st;
        }
    } else {
        v->narrowed = malloc(DYTI_VERIFY_SCRATCH_BYTES);
    }
    if (v->vector == NULL || v->batch.box == NULL || v->batch.hash == NULL ||
        v->batch.word == NULL || v->list_hash == NULL || v->narrowed == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "verifying %zu pieces", v->piece_count);
    }
    return DYT_OK;
}

static enum dyt_status prepare(struct preparing *p)
{
    struct dyti_verifier *v = p->verifier;
    uint64_t *held = v->counts_bytes; /* first: atoms of each rank */
    uint64_t sums = (uint64_t)v->want_count * v->model->tensor_count;
    enum dyt_status st = DYT_OK;

    for (uint32_t w = 0; w < v->want_count && st == DYT_OK; w++) {
        st = prepare_want(p, w, held);
    }
    v->source_first = v->piece_count;
    for (uint32_t w = 0; w < v->want_count && st == DYT_OK; w++) {
        find_dtypes(p, w);
        for (uint32_t s = 0;
             s < p->inputs->want[w].source_count && st == DYT_OK; s++) {
            st = prepare_source(p, w, s, 1 + held[v->rank]);
        }
    }
    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t r = 0; r < v->world_size; r++) {
        uint64_t words = 1 + held[r] + sums;

        v->first[r + 1] = v->first[r] + words;
        v->counts_bytes[r] = words * sizeof(uint64_t);
    }
    place_words(v);
    return allocate(v);
}

enum dyt_status dyti_verifier_init(struct dyti_verifier *verifier,
                                   const struct dyti_plan_inputs *inputs,
                                   uint32_t rank,
                                   const struct dyti_kernels *kernels,
                                   const struct dyti_memory_ops *memory,
                                   dyti_verify_region_fn region,
                                   const void *region_arg)
{
    struct preparing p = {.verifier = verifier,
                          .inputs = inputs,
                          .region = region,
                          .region_arg = region_arg};
    enum dyt_status st;

    *verifier =
        (struct dyti_verifier){.model = inputs->dst->model,
                               .rank = rank,
                               .world_size = inputs->dst->desc.world_size,
                               .kernels = *kernels,
                               .memory = memory,
                               .want_count = inputs->want_count};
    verifier->want = calloc(inputs->want_count + 1, sizeof(*verifier->want));
    verifier->first =
        calloc(verifier->world_size + 1, sizeof(*verifier->first));
    verifier->counts_bytes =
        calloc(verifier->world_size, sizeof(*verifier->counts_bytes));
    p.as = calloc(verifier->model->tensor_count + 1u, sizeof(*p.as));
    if (verifier->want == NULL || verifier->first == NULL ||
        verifier->counts_bytes == NULL || p.as == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "the verifier of rank %u", rank);
    } else {
        st = prepare(&p);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("preparing to verify on rank %u", rank);
        dyti_verifier_fini(verifier);
    }
    free(p.as);
    return st;
}

void dyti_verifier_fini(struct dyti_verifier *verifier)
{
    for (uint32_t w = 0; verifier->want != NULL && w < verifier->want_count;
         w++) {
        dyti_atoms_fini(&verifier->want[w].atoms);
        free(verifier->want[w].word);
        free(verifier->want[w].first);
        free(verifier->want[w].end);
    }
    for (int i = 0; i < 4; i++) {
        struct dyti_sample_list *list = verifier->list[i / 2][i % 2];

        if (list != NULL) {
            verifier->kernels.ops->sample_free(verifier->kernels.self, list);
        }
    }
    free(verifier->want);
    free(verifier->piece);
    free(verifier->form);
    free(verifier->first);
    free(verifier->counts_bytes);
    free(verifier->vector);
    free(verifier->batch.box);
    free(verifier->batch.hash);
    free(verifier->batch.word);
    free(verifier->list_hash);
    if (verifier->memory != NULL) {
        verifier->memory->host_free(verifier->narrowed);
    } else {
        free(verifier->narrowed);
    }
    *verifier = (struct dyti_verifier){0};
}
