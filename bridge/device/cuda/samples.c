/* Samples of a handle: kept on the device, where a seed draws from them the
 * boxes that are hashed.  A run sends a seed, and fetches the sums. */
#include "device/cuda/handle.h"
#include "device/cuda/kernels.h"

#include "ops/sample.h"

#include <stdlib.h>
#include <string.h>

/* All of it on the device, in one allocation. */
struct dyti_sample_list {
    struct dyti_cuda_hash_box *box;  /* [count], owned: drawn, or fixed */
    struct dyti_cuda_sample *sample; /* [count]; NULL: boxes are fixed */
    uint64_t *first; /* [count + 1] where box i begins, at its largest */
    uint64_t *sum;   /* [count] */
    uint32_t count;
    uint64_t elements; /* at most */
};

/* What goes there, made here. */
struct draft {
    struct dyti_cuda_hash_box *box;
    struct dyti_cuda_sample *sample;
    uint64_t *first;
};

static void draft_fini(struct draft *d)
{
    free(d->box);
    free(d->sample);
    free(d->first);
}

/* Whatever the seed, the same box. */
static bool is_fixed(const struct dyti_sample *sample, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
            if (sample[i].starts[d] != 1) {
                return false;
            }
        }
    }
    return true;
}

/* As it is drawn once and for all: dims are sorted and merged. */
static void make_fixed(const struct dyti_sample *from, uint32_t word,
                       struct draft *d)
{
    struct dyti_hash_box box;

    d->first[word + 1] = d->first[word];
    if (dyti_sample_draw(from, 0, &box)) {
        dyti_cuda_hash_box_make(&box, word, &d->box[word]);
        d->box[word].as = from->as;
        d->first[word + 1] += dyti_sample_most(from);
    }
}

static void make_drawn(const struct dyti_sample *from, uint32_t word,
                       struct draft *d)
{
    struct dyti_cuda_sample *to = &d->sample[word];
    const struct dyti_hash_box *box = &from->box;

    to->box = (struct dyti_cuda_hash_box){
        .data = (uint64_t)(uintptr_t)box->data,
        .index = box->index,
        .salt = box->salt,
        .word = word,
        .bytes = (uint8_t)dyti_dtype_bytes((enum dyti_dtype)box->dtype),
        .dtype = box->dtype,
        .as = from->as};
    to->key = from->key;
    for (int i = 0; i < DYTI_CUDA_DIMS; i++) {
        to->box.size[i] = (uint64_t)box->size[i];
        to->box.stride[i] = box->stride[i];
        to->box.index_stride[i] = box->index_stride[i];
        to->lo[i] = (uint64_t)from->lo[i];
        to->step[i] = (uint64_t)from->step[i];
        to->count[i] = (uint64_t)from->count[i];
        to->starts[i] = (uint64_t)from->starts[i];
    }
    d->box[word] = to->box;
    d->first[word + 1] = d->first[word] + dyti_sample_most(from);
}

static enum dyt_status draft_make(const struct dyti_sample *sample,
                                  size_t count, struct draft *out)
{
    bool fixed = is_fixed(sample, count);

    if (count > UINT32_MAX / 2) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "a list of %zu samples", count);
    }
    out->box = calloc(count + 1, sizeof(*out->box));
    out->first = calloc(count + 1, sizeof(*out->first));
    out->sample = fixed ? NULL : calloc(count, sizeof(*out->sample));
    if (out->box == NULL || out->first == NULL ||
        (out->sample == NULL && !fixed)) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a list of %zu samples", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (fixed) {
            make_fixed(&sample[i], i, out);
        } else {
            make_drawn(&sample[i], i, out);
        }
    }
    return DYT_OK;
}

/* The part of an allocation that begins here; the next one behind it. */
static void *part(unsigned char **at, uint64_t bytes)
{
    void *here = *at;

    *at += bytes;
    return here;
}

static enum dyt_status keep(struct dyti_cuda *k, const struct draft *d,
                            struct dyti_sample_list *list)
{
    uint64_t boxes = list->count * sizeof(*d->box);
    uint64_t samples = d->sample == NULL ? 0 : list->count * sizeof(*d->sample);
    uint64_t places = (list->count + 1ull) * sizeof(*d->first);
    unsigned char *at;
    void *there = NULL;
    enum dyt_status st = dyti_cuda_alloc(
        k, boxes + samples + places + list->count * sizeof(*list->sum),
        "a list of samples", &there);

    if (st != DYT_OK) {
        return st;
    }
    at = there;
    list->box = part(&at, boxes);
    list->sample = samples == 0 ? NULL : part(&at, samples);
    list->first = part(&at, places);
    list->sum = part(&at, 0);
    st = dyti_cuda_upload(k, list->box, d->box, boxes);
    if (st == DYT_OK && samples > 0) {
        st = dyti_cuda_upload(k, list->sample, d->sample, samples);
    }
    return st == DYT_OK ? dyti_cuda_upload(k, list->first, d->first, places)
                        : st;
}

enum dyt_status dyti_cuda_sample_make(void *self,
                                      const struct dyti_sample *sample,
                                      size_t count,
                                      struct dyti_sample_list **out_list)
{
    struct dyti_cuda *k = self;
    struct dyti_sample_list *list = calloc(1, sizeof(*list));
    struct draft draft = {0};
    enum dyt_status st;

    if (list == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a list of samples");
    }
    st = dyti_cuda_begin(k);
    if (st == DYT_OK) {
        st = draft_make(sample, count, &draft);
    }
    if (st == DYT_OK) {
        list->count = (uint32_t)count;
        list->elements = draft.first[count];
    }
    if (st == DYT_OK && list->elements > 0) {
        st = keep(k, &draft, list);
    }
    draft_fini(&draft);
    if (st != DYT_OK) {
        dyti_cuda_sample_free(k, list);
        return st;
    }
    *out_list = list;
    return DYT_OK;
}

static enum dyt_status queue(struct dyti_cuda *k,
                             const struct dyti_sample_list *list, uint64_t seed)
{
    enum dyt_status st = dyti_cuda_check(
        k,
        (int)cudaMemsetAsync(list->sum, 0, list->count * sizeof(*list->sum),
                             k->stream),
        "clearing sums");

    if (st == DYT_OK && list->sample != NULL) {
        st =
            dyti_cuda_check(k,
                            dyti_cuda_sample_launch(list->sample, list->count,
                                                    seed, list->box, k->stream),
                            "launching a draw");
        if (st == DYT_OK) {
            dyti_cuda_queued(k, "draw of samples,", list->count);
        }
    }
    if (st == DYT_OK) {
        st = dyti_cuda_check(k,
                             dyti_cuda_hash_launch(list->box, list->first,
                                                   list->count, list->elements,
                                                   list->sum, 0, k->stream),
                             "launching a hash");
    }
    if (st == DYT_OK) {
        dyti_cuda_queued(k, "hash of samples,", list->count);
    }
    return st;
}

enum dyt_status dyti_cuda_sample_run(void *self, struct dyti_sample_list *list,
                                     uint64_t seed, uint64_t *out_hash)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = dyti_cuda_begin(k);

    if (st == DYT_OK && list->elements > 0) {
        st = queue(k, list, seed);
    }
    for (uint32_t at = 0;
         list->elements > 0 && at < list->count && st == DYT_OK;) {
        uint32_t left = list->count - at;
        uint32_t now = left < DYTI_CUDA_RESULTS ? left : DYTI_CUDA_RESULTS;

        st = dyti_cuda_check(k,
                             (int)cudaMemcpyAsync(k->result, list->sum + at,
                                                  now * sizeof(*list->sum),
                                                  cudaMemcpyDeviceToHost,
                                                  k->stream),
                             "fetching sums");
        st = st == DYT_OK ? dyti_cuda_wait(k) : st;
        for (uint32_t i = 0; i < now && st == DYT_OK; i++) {
            out_hash[at + i] += k->result[i];
        }
        at += now;
    }
    return st;
}

void dyti_cuda_sample_free(void *self, struct dyti_sample_list *list)
{
    if (list != NULL) {
        dyti_cuda_free(self, list->box);
        free(list);
    }
}
