/* Hash, gather, compare. */
#include "exec/verify.h"

#include <stdlib.h>
#include <string.h>

/* Hash a tile as the destination would store it: narrow it into scratch that
 * stays in the cache, and hash that. */
static enum dyt_status hash_tile(struct dyti_verifier *v,
                                 const struct dyti_hash_box *tile, uint8_t as,
                                 uint64_t *sum)
{
    struct dyti_copy copy = {.src = tile->data,
                             .dst = v->narrowed,
                             .src_dtype = tile->dtype,
                             .dst_dtype = as};
    struct dyti_hash_box dense = *tile;
    int64_t stride = (int64_t)dyti_dtype_bytes((enum dyti_dtype)as);
    enum dyt_status st;

    for (uint32_t d = DYTI_VERIFY_DIMS; d-- > 0;) {
        copy.size[d] = tile->size[d];
        copy.src_stride[d] = tile->stride[d];
        copy.dst_stride[d] = stride;
        dense.stride[d] = stride;
        stride *= tile->size[d];
    }
    dense.data = v->narrowed;
    dense.dtype = as;
    st = v->kernels.ops->copy(v->kernels.self, &copy, 1);
    if (st == DYT_OK) {
        st = v->kernels.ops->hash(v->kernels.self, &dense, 1, sum);
    }
    return st;
}

/* Cut a box along its slowest dim until the pieces fit the scratch. */
static enum dyt_status hash_narrowed(struct dyti_verifier *v,
                                     const struct dyti_hash_box *box,
                                     uint8_t as, uint64_t *sum)
{
    int64_t room = DYTI_VERIFY_SCRATCH_BYTES /
                   (int64_t)dyti_dtype_bytes((enum dyti_dtype)as);
    int64_t elements = 1, take;
    enum dyt_status st = DYT_OK;
    uint32_t cut = 0;

    for (uint32_t d = 0; d < DYTI_VERIFY_DIMS; d++) {
        elements *= box->size[d];
    }
    if (elements <= room) {
        return hash_tile(v, box, as, sum);
    }
    while (box->size[cut] == 1) {
        cut++;
    }
    take = room / (elements / box->size[cut]);
    take = take == 0 ? 1 : take;
    for (int64_t at = 0; at < box->size[cut] && st == DYT_OK; at += take) {
        int64_t left = box->size[cut] - at;
        struct dyti_hash_box piece = *box;

        piece.data = (const unsigned char *)box->data + at * box->stride[cut];
        piece.index = box->index + (uint64_t)(at * box->index_stride[cut]);
        piece.size[cut] = left < take ? left : take;
        st = hash_narrowed(v, &piece, as, sum); /* at most a dim deeper */
    }
    return st;
}

static uint64_t box_bytes(const struct dyti_hash_box *box)
{
    uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)box->dtype);

    for (uint32_t d = 0; d < DYTI_VERIFY_DIMS; d++) {
        bytes *= (uint64_t)box->size[d];
    }
    return bytes;
}

/* What this seed draws of a piece; false: nothing. */
static inline bool draw(const struct dyti_verifier *v,
                        const struct dyti_verify_piece *piece, bool full,
                        uint64_t seed, struct dyti_hash_box *out_box)
{
    uint64_t bits = full ? 0 : dyti_sample_bits(seed, piece->tensor);

    if (!dyti_sample_at(&v->form[piece->form[full]], piece->data, bits,
                        out_box)) {
        return false;
    }
    out_box->salt = piece->salt;
    return true;
}

/* The sums of some boxes go where they belong. */
static enum dyt_status hash_batch(struct dyti_verifier *v, size_t count)
{
    uint64_t *own = v->vector + v->first[v->rank];
    enum dyt_status st;

    memset(v->batch.hash, 0, count * sizeof(*v->batch.hash));
    st = v->kernels.ops->hash(v->kernels.self, v->batch.box, count,
                              v->batch.hash);
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        own[v->batch.word[i]] += v->batch.hash[i];
    }
    return st;
}

/* Box by box, by this rank: what a host does, and a device without lists.  A
 * batch stays in the cache from its draw to its hash, and the first lines of
 * its boxes, which lie far from each other, come while the rest is drawn. */
static enum dyt_status hash_boxes(struct dyti_verifier *v, bool full,
                                  uint64_t seed, size_t from, size_t to,
                                  uint64_t *bytes)
{
    uint64_t *own = v->vector + v->first[v->rank];
    enum dyt_status st = DYT_OK;
    size_t count = 0;

    for (size_t i = from; i < to && st == DYT_OK; i++) {
        const struct dyti_verify_piece *piece = &v->piece[i];
        struct dyti_hash_box *box = &v->batch.box[count];
        uint8_t as;

        if (!draw(v, piece, full, seed, box)) {
            continue;
        }
        *bytes += box_bytes(box);
        as = v->form[piece->form[full]].sample.as;
        if (box->dtype != as) {
            st = hash_narrowed(v, box, as, &own[piece->word]);
            continue;
        }
        __builtin_prefetch(box->data);
        v->batch.word[count++] = piece->word;
        if (count == DYTI_VERIFY_BATCH) {
            st = hash_batch(v, count);
            count = 0;
        }
    }
    return st == DYT_OK ? hash_batch(v, count) : st;
}

/* What of a piece may be drawn, for a device. */
static struct dyti_sample sample_of(const struct dyti_verifier *v,
                                    const struct dyti_verify_piece *piece,
                                    bool full)
{
    struct dyti_sample sample = v->form[piece->form[full]].sample;

    sample.box.data = piece->data;
    sample.box.salt = piece->salt;
    sample.key = piece->tensor;
    return sample;
}

/* The list of some pieces, at its first use. */
static enum dyt_status make_list(struct dyti_verifier *v, bool full,
                                 size_t from, size_t to,
                                 struct dyti_sample_list **out_list)
{
    struct dyti_sample *sample = calloc(to - from, sizeof(*sample));
    enum dyt_status st;

    if (sample == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu samples", to - from);
    }
    for (size_t i = from; i < to; i++) {
        sample[i - from] = sample_of(v, &v->piece[i], full);
    }
    st = v->kernels.ops->sample_make(v->kernels.self, sample, to - from,
                                     out_list);
    free(sample);
    return st;
}

/* Bytes that a list hashes. */
static uint64_t drawn_bytes(const struct dyti_verifier *v, bool full,
                            uint64_t seed, size_t from, size_t to)
{
    uint64_t bytes = 0;

    for (size_t i = from; i < to; i++) {
        struct dyti_hash_box box;

        bytes += draw(v, &v->piece[i], full, seed, &box) ? box_bytes(&box) : 0;
    }
    return bytes;
}

/* All pieces of the destination, or of the sources. */
static enum dyt_status hash_side(struct dyti_verifier *v, bool full,
                                 uint64_t seed, bool sources, uint64_t *bytes)
{
    uint64_t *own = v->vector + v->first[v->rank];
    size_t from = sources ? v->source_first : 0;
    size_t to = sources ? v->piece_count : v->source_first;
    struct dyti_sample_list **list = &v->list[full][sources];
    enum dyt_status st = DYT_OK;

    if (from == to) {
        return DYT_OK;
    }
    if (v->kernels.ops->sample_make != NULL && *list == NULL) {
        st = make_list(v, full, from, to, list);
    }
    if (*list == NULL && (st == DYT_OK || st == DYT_ERR_NOMEM)) {
        /* Also on a device that is full. */
        return hash_boxes(v, full, seed, from, to, bytes);
    }
    memset(v->list_hash, 0, (to - from) * sizeof(*v->list_hash));
    if (st == DYT_OK) {
        st = v->kernels.ops->sample_run(v->kernels.self, *list, seed,
                                        v->list_hash);
    }
    for (size_t i = from; i < to && st == DYT_OK; i++) {
        own[v->piece[i].word] += v->list_hash[i - from];
    }
    if (st == DYT_OK) {
        *bytes += drawn_bytes(v, full, seed, from, to);
    }
    return st;
}

static enum dyt_status differ(const struct dyti_verifier *v,
                              const struct dyti_verify_want *want,
                              const struct dyti_atom *atom, uint32_t a,
                              uint32_t b)
{
    return DYTI_FAIL(DYT_ERR_VERIFY,
                     "tensor %s, %s: ranks %u and %u hold different values of "
                     "[%lld, %lld) of its first dimension",
                     v->model->tensor[atom->tensor].name,
                     dyti_kind_name((enum dyti_kind)want->kind), a, b,
                     (long long)atom->box.lo[0], (long long)atom->box.hi[0]);
}

/* What the sources of a tensor sum to. */
static uint64_t expected_of(const struct dyti_verifier *v, uint32_t w,
                            uint32_t tensor)
{
    uint64_t tensors = v->model->tensor_count, sum = 0;
    uint64_t back = (v->want_count - w) * tensors - tensor;

    for (uint32_t r = 0; r < v->world_size; r++) {
        sum += v->vector[v->first[r + 1] - back];
    }
    return sum;
}

/* One kind: holders agree, and atoms sum to the sources. */
static enum dyt_status compare_want(const struct dyti_verifier *v, uint32_t w)
{
    const struct dyti_verify_want *want = &v->want[w];
    uint32_t a = 0;

    for (uint32_t t = 0; t < v->model->tensor_count; t++) {
        uint64_t have = 0, expected = expected_of(v, w, t);

        for (; a < want->end[t]; a++) {
            uint32_t first = want->first[a];
            uint64_t value = v->vector[want->word[first]];

            for (uint32_t h = first + 1; h < want->first[a + 1]; h++) {
                if (v->vector[want->word[h]] != value) {
                    return differ(v, want, &want->atoms.atom[a],
                                  want->atoms.holder[first].rank,
                                  want->atoms.holder[h].rank);
                }
            }
            have += value;
        }
        if (have != expected) {
            return DYTI_FAIL(DYT_ERR_VERIFY,
                             "tensor %s, %s: the destination hashes to "
                             "%016llx, its sources to %016llx",
                             v->model->tensor[t].name,
                             dyti_kind_name((enum dyti_kind)want->kind),
                             (unsigned long long)have,
                             (unsigned long long)expected);
        }
    }
    return DYT_OK;
}

static enum dyt_status compare(const struct dyti_verifier *v)
{
    for (uint32_t r = 0; r < v->world_size; r++) {
        uint64_t status = v->vector[v->first[r]];

        if (status != 0 && r != v->rank) {
            return DYTI_FAIL(
                DYT_ERR_PEER, "rank %u could not transfer: %s", r,
                dyt_status_text((enum dyt_status)(-(int)(uint32_t)status)));
        }
    }
    for (uint32_t w = 0; w < v->want_count; w++) {
        enum dyt_status st = compare_want(v, w);

        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_verifier_sources(struct dyti_verifier *verifier, bool full,
                                      uint64_t seed)
{
    struct dyti_verifier *v = verifier;
    uint64_t bytes = 0;

    memset(v->vector + v->first[v->rank], 0, v->counts_bytes[v->rank]);
    v->has_sources = true;
    return hash_side(v, full, seed, true, &bytes);
}

enum dyt_status dyti_verifier_run(struct dyti_verifier *verifier,
                                  const struct dyti_group *all, bool full,
                                  uint64_t seed, enum dyt_status mine,
                                  uint64_t *out_bytes)
{
    struct dyti_verifier *v = verifier;
    uint64_t *own = v->vector + v->first[v->rank], bytes = 0;
    enum dyt_status st = mine, gathered;

    if (!v->has_sources) {
        memset(own, 0, v->counts_bytes[v->rank]);
    }
    if (st == DYT_OK) {
        st = hash_side(v, full, seed, false, &bytes);
    }
    if (st == DYT_OK && !v->has_sources) {
        st = hash_side(v, full, seed, true, &bytes);
    }
    v->has_sources = false;
    own[0] = st == DYT_OK ? 0 : (uint64_t)(uint32_t)(-(int)st);
    if (v->world_size > 1) {
        gathered =
            all->ops->all_gather(all->self, own, v->vector, v->counts_bytes);
        if (gathered != DYT_OK) {
            return st != DYT_OK ? st : gathered;
        }
    }
    if (st == DYT_OK) {
        st = compare(v);
    }
    if (st == DYT_OK) {
        *out_bytes = bytes;
    }
    return st;
}
