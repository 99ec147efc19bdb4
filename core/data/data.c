#include "data/data.h"

#include <stdlib.h>
#include <string.h>

const char *dyti_finish_name(enum dyti_finish finish)
{
    static const char *const name[] = {"stop", "length", "abort"};

    return (size_t)finish < 3 ? name[finish] : "?";
}

void dyti_prompt_fini(struct dyti_prompt *prompt)
{
    free(prompt->ids);
    memset(prompt, 0, sizeof(*prompt));
}

void dyti_sample_fini(struct dyti_sample *sample)
{
    free(sample->ids);
    free(sample->raw);
    free(sample->processed);
    free(sample->span);
    memset(sample, 0, sizeof(*sample));
}

void dyti_batch_fini(struct dyti_batch *batch)
{
    for (uint32_t i = 0; i < batch->prompt_count; i++) {
        dyti_prompt_fini(&batch->prompt[i]);
    }
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        dyti_sample_fini(&batch->sample[i]);
    }
    free(batch->prompt);
    free(batch->sample);
    memset(batch, 0, sizeof(*batch));
}

/* malloc + memcpy; an empty array is NULL.  False: out of memory. */
static bool copy_array(const void *from, size_t count, size_t item_bytes,
                       void *out)
{
    void *copy = NULL;

    if (count > 0) {
        copy = malloc(count * item_bytes);
        if (copy == NULL) {
            return false;
        }
        memcpy(copy, from, count * item_bytes);
    }
    memcpy(out, &copy, sizeof(copy));
    return true;
}

enum dyt_status dyti_prompt_copy(const struct dyti_prompt *from,
                                 struct dyti_prompt *out_to)
{
    struct dyti_prompt to = *from;

    if (!copy_array(from->ids, from->id_count, sizeof(*from->ids), &to.ids)) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a prompt of %u tokens",
                         from->id_count);
    }
    *out_to = to;
    return DYT_OK;
}

enum dyt_status dyti_sample_reserve(struct dyti_sample *sample, uint32_t count)
{
    size_t n = count > 0 ? count : 1;

    sample->ids = calloc(n, sizeof(*sample->ids));
    sample->raw = calloc(n, sizeof(*sample->raw));
    sample->processed = calloc(n, sizeof(*sample->processed));
    if (sample->ids == NULL || sample->raw == NULL ||
        sample->processed == NULL) {
        dyti_sample_fini(sample);
        return DYTI_FAIL(DYT_ERR_NOMEM, "a sample of %u tokens", count);
    }
    return DYT_OK;
}

const struct dyti_prompt *dyti_batch_prompt(const struct dyti_batch *batch,
                                            uint64_t id)
{
    uint32_t lo = 0, hi = batch->prompt_count;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (batch->prompt[mid].id < id) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < batch->prompt_count && batch->prompt[lo].id == id
               ? &batch->prompt[lo]
               : NULL;
}

static int by_prompt_id(const void *a, const void *b)
{
    const struct dyti_prompt *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

static int by_group_and_index(const void *a, const void *b)
{
    const struct dyti_sample *x = a, *y = b;

    if (x->prompt != y->prompt) {
        return x->prompt < y->prompt ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

static enum dyt_status check_unique(const struct dyti_batch *batch)
{
    for (uint32_t i = 1; i < batch->prompt_count; i++) {
        if (batch->prompt[i].id == batch->prompt[i - 1].id) {
            return DYTI_FAIL(DYT_ERR_INVALID, "prompt %llu is there twice",
                             (unsigned long long)batch->prompt[i].id);
        }
    }
    for (uint32_t i = 1; i < batch->sample_count; i++) {
        if (by_group_and_index(&batch->sample[i - 1], &batch->sample[i]) == 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "sample %u of prompt %llu is there twice",
                             batch->sample[i].index,
                             (unsigned long long)batch->sample[i].prompt);
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_batch_order(struct dyti_batch *batch)
{
    if (batch->prompt_count > 1) {
        qsort(batch->prompt, batch->prompt_count, sizeof(*batch->prompt),
              by_prompt_id);
    }
    if (batch->sample_count > 1) {
        qsort(batch->sample, batch->sample_count, sizeof(*batch->sample),
              by_group_and_index);
    }
    return check_unique(batch);
}
