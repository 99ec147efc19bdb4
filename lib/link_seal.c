/* Was memory that others read written meanwhile?  Its content hashes, before
 * and after. */
#include "lib/link_internal.h"

#include "base/hash.h"
#include "base/rng.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_STEP 128 /* 1 of so many rows or elements */

struct dyti_seal {
    const struct dyti_model *catalogue;
    const struct dyti_memory_view *own;
    bool full;
    pthread_mutex_t lock;    /* several links look at once */
    struct dyti_guard guard; /* of it, what may be truncated */
    struct dyti_hands hands;
    uint64_t seed;
    /* One for each shard whose memory has an address here. */
    struct dyti_hash_box *box; /* [count], sampled when it is used */
    uint32_t *shard;           /* [count] */
    uint64_t *taken;           /* [count] */
    uint64_t *now;             /* [count] */
    struct dyti_hash_box *use; /* [count] */
    size_t count;
};

/* ---- boxes ----------------------------------------------------------------
 */

/* Extents are in order of kind and offset. */
static const unsigned char *address_of(const struct dyti_memory_view *own,
                                       const struct dyti_shard *shard)
{
    uint32_t a = 0, b = own->extent_count;
    const struct dyti_extent *e;

    while (a < b) { /* the first behind (kind, offset) */
        uint32_t mid = a + (b - a) / 2;

        e = &own->extent[mid];
        if (e->kind < shard->kind ||
            (e->kind == shard->kind && e->offset <= shard->offset)) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    if (a == 0) {
        return NULL;
    }
    e = &own->extent[a - 1];
    return e->kind == shard->kind && e->address != 0 &&
                   shard->offset - e->offset < e->bytes
               ? (const unsigned char *)(uintptr_t)(e->address + shard->offset -
                                                    e->offset)
               : NULL;
}

void dyti_hash_box_of(const struct dyti_model *catalogue,
                      const struct dyti_shard *shard, const unsigned char *data,
                      struct dyti_hash_box *out_box)
{
    const struct dyti_tensor *tensor = &catalogue->tensor[shard->tensor];
    uint32_t shift = DYTI_COPY_DIMS - tensor->ndim;
    int64_t index_stride = 1;

    *out_box = (struct dyti_hash_box){
        .data = data,
        .size = {1, 1, 1, 1},
        .salt = dyti_content_salt(shard->tensor, shard->kind),
        .dtype = shard->dtype};
    for (uint32_t d = tensor->ndim; d-- > 0;) {
        out_box->size[d + shift] = shard->box.hi[d] - shard->box.lo[d];
        out_box->stride[d + shift] = shard->stride[d];
        out_box->index_stride[d + shift] = index_stride;
        out_box->index += (uint64_t)(shard->box.lo[d] * index_stride);
        index_stride *= tensor->shape[d];
    }
}

/* Every 128th along the first dim that is long enough; a box without one is
 * small, and taken whole. */
struct dyti_hash_box dyti_hash_box_sample(const struct dyti_hash_box *box,
                                          uint64_t bits)
{
    struct dyti_hash_box out = *box;

    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        if (box->size[d] >= SAMPLE_STEP) {
            int64_t start = (int64_t)(bits % SAMPLE_STEP);

            out.data =
                (const unsigned char *)box->data + start * box->stride[d];
            out.index += (uint64_t)(start * box->index_stride[d]);
            out.size[d] =
                (box->size[d] - start + SAMPLE_STEP - 1) / SAMPLE_STEP;
            out.stride[d] *= SAMPLE_STEP;
            out.index_stride[d] *= SAMPLE_STEP;
            break;
        }
    }
    return out;
}

/* ---- open, close ----------------------------------------------------------
 */

static void list_boxes(struct dyti_seal *seal, const bool *ours)
{
    const struct dyti_view *view = &seal->own->view;

    for (uint32_t i = 0; i < view->shard_count; i++) {
        const unsigned char *data = address_of(seal->own, &view->shard[i]);

        if (data != NULL && (ours == NULL || !ours[seal->own->shard_row[i]])) {
            dyti_hash_box_of(seal->catalogue, &view->shard[i], data,
                             &seal->box[seal->count]);
            seal->shard[seal->count++] = i;
        }
    }
}

enum dyt_status dyti_seal_open(const struct dyti_model *catalogue,
                               const struct dyti_memory_view *own,
                               const bool *ours, bool full, uint32_t threads,
                               struct dyti_seal **out_seal)
{
    size_t room = own->view.shard_count + 1u;
    struct dyti_seal *seal = calloc(1, sizeof(*seal));
    enum dyt_status st;

    if (seal == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "hashes of an offer");
    }
    pthread_mutex_init(&seal->lock, NULL);
    seal->catalogue = catalogue;
    seal->own = own;
    seal->full = full;
    seal->guard.catalogue = catalogue;
    seal->box = calloc(room, sizeof(*seal->box));
    seal->use = calloc(room, sizeof(*seal->use));
    seal->shard = calloc(room, sizeof(*seal->shard));
    seal->taken = calloc(room, sizeof(*seal->taken));
    seal->now = calloc(room, sizeof(*seal->now));
    st = seal->box == NULL || seal->use == NULL || seal->shard == NULL ||
                 seal->taken == NULL || seal->now == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "hashes of %zu shards", room)
             : dyti_guard_add_own(&seal->guard, own);
    st = st != DYT_OK
             ? st
             : dyti_hands_open(&seal->hands, full ? threads : 1, &seal->guard);
    if (st != DYT_OK) {
        dyti_seal_close(seal);
        return st;
    }
    list_boxes(seal, ours);
    *out_seal = seal;
    return DYT_OK;
}

void dyti_seal_close(struct dyti_seal *seal)
{
    if (seal == NULL) {
        return;
    }
    dyti_hands_close(&seal->hands);
    dyti_guard_fini(&seal->guard);
    pthread_mutex_destroy(&seal->lock);
    free(seal->box);
    free(seal->use);
    free(seal->shard);
    free(seal->taken);
    free(seal->now);
    free(seal);
}

/* ---- take, check ----------------------------------------------------------
 */

/* Under the lock: of all shards of these kinds. */
static enum dyt_status hash_all(struct dyti_seal *seal, uint32_t kinds,
                                uint64_t *hash)
{
    const struct dyti_shard *shard = seal->own->view.shard;
    size_t used = 0;

    for (size_t i = 0; i < seal->count; i++) {
        uint32_t at = seal->shard[i];

        hash[i] = 0;
        seal->use[i] =
            seal->full ? seal->box[i]
                       : dyti_hash_box_sample(
                             &seal->box[i], dyti_rng_u64(seal->seed, at, 0, 0));
        if ((kinds >> shard[at].kind & 1u) == 0) {
            seal->use[i].size[0] = 0; /* empty: nothing is read */
        }
        used = i + 1;
    }
    return seal->hands.kernels.ops->hash(seal->hands.kernels.self, seal->use,
                                         used, hash);
}

enum dyt_status dyti_seal_take(struct dyti_seal *seal, uint64_t seed)
{
    enum dyt_status st;

    pthread_mutex_lock(&seal->lock);
    seal->seed = seed;
    st = hash_all(seal, DYTI_LINK_KINDS_ALL, seal->taken);
    pthread_mutex_unlock(&seal->lock);
    return st;
}

enum dyt_status dyti_seal_check(struct dyti_seal *seal, uint32_t kinds)
{
    const struct dyti_shard *shard = seal->own->view.shard;
    enum dyt_status st;

    pthread_mutex_lock(&seal->lock);
    st = hash_all(seal, kinds, seal->now);
    for (size_t i = 0; i < seal->count && st == DYT_OK; i++) {
        const struct dyti_shard *s = &shard[seal->shard[i]];

        if ((kinds >> s->kind & 1u) != 0 && seal->now[i] != seal->taken[i]) {
            st = DYTI_FAIL(DYT_ERR_VERIFY, "%s of tensor %s was written",
                           dyti_kind_name((enum dyti_kind)s->kind),
                           seal->catalogue->tensor[s->tensor].name);
        }
    }
    pthread_mutex_unlock(&seal->lock);
    return st;
}
