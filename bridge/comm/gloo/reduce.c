/* Reductions: parts go to their owners, who sum in member order. */
#include "comm/gloo/gloo_group.h"

#include <stdlib.h>
#include <string.h>

static uint32_t element_bytes(enum dyti_reduce op)
{
    return op == DYTI_SUM_F32 || op == DYTI_MAX_F32 ? 4 : 8;
}

static void reduce_into(void *to, const void *from, uint64_t count,
                        enum dyti_reduce op)
{
    for (uint64_t i = 0; i < count; i++) {
        switch (op) {
        case DYTI_SUM_F32:
            ((float *)to)[i] += ((const float *)from)[i];
            break;
        case DYTI_SUM_F64:
            ((double *)to)[i] += ((const double *)from)[i];
            break;
        case DYTI_MAX_F32:
            if (((const float *)from)[i] > ((float *)to)[i]) {
                ((float *)to)[i] = ((const float *)from)[i];
            }
            break;
        case DYTI_MAX_U64:
            if (((const uint64_t *)from)[i] > ((uint64_t *)to)[i]) {
                ((uint64_t *)to)[i] = ((const uint64_t *)from)[i];
            }
            break;
        }
    }
}

static enum dyt_status grow(struct dyti_gloo_group *group, uint64_t bytes)
{
    void *scratch;

    if (bytes <= group->scratch_bytes) {
        return DYT_OK;
    }
    scratch = realloc(group->scratch, bytes);
    if (scratch == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s: %llu bytes", group->name,
                         (unsigned long long)bytes);
    }
    group->scratch = scratch;
    group->scratch_bytes = bytes;
    return DYT_OK;
}

/* group->parts: bytes of each member's part. */
static enum dyt_status scatter(struct dyti_gloo_group *group, const void *in,
                               void *out, enum dyti_reduce op)
{
    uint64_t mine = group->parts[group->rank], sum = 0;
    int64_t start = dyti_gloo_now_ns();
    enum dyti_gloo_result result = DYTI_GLOO_OK;
    enum dyt_status st = grow(group, mine * group->size + 1);

    for (uint32_t i = 0; i < group->size; i++) {
        group->takes[i] = mine;
        sum += group->parts[i];
    }
    if (st != DYT_OK || sum == 0) {
        return st;
    }
    dyti_gloo_busy(group, true);
    result =
        dyti_gloo_all_to_all(group->gloo, in, group->parts, group->scratch,
                             group->takes, group->text, sizeof(group->text));
    dyti_gloo_busy(group, false);
    if (result != DYTI_GLOO_OK) {
        return dyti_gloo_why(group, result, start);
    }
    group->traffic.sent_bytes += sum - mine;
    group->traffic.received_bytes += mine * (group->size - 1);
    for (uint32_t i = 1; i < group->size; i++) {
        reduce_into(group->scratch, group->scratch + i * mine,
                    mine / element_bytes(op), op);
    }
    if (mine > 0) {
        memcpy(out, group->scratch, mine);
    }
    return DYT_OK;
}

enum dyt_status dyti_gloo_group_reduce_scatter(void *self, const void *in,
                                               void *out,
                                               const uint64_t *counts,
                                               enum dyti_reduce op)
{
    struct dyti_gloo_group *group = self;
    uint64_t sum = 0;
    enum dyt_status st;

    for (uint32_t i = 0; i < group->size; i++) {
        group->parts[i] = counts[i] * element_bytes(op);
        sum += counts[i];
    }
    st = dyti_gloo_begin(group,
                         dyti_gloo_tag(DYTI_GLOO_REDUCE_SCATTER, op, sum));
    if (st == DYT_OK && group->size == 1) {
        if (sum > 0 && in != out) {
            memmove(out, in, group->parts[0]);
        }
        return DYT_OK;
    }
    return st == DYT_OK ? scatter(group, in, out, op) : st;
}

enum dyt_status dyti_gloo_group_all_reduce(void *self, void *buf,
                                           uint64_t count, enum dyti_reduce op)
{
    struct dyti_gloo_group *group = self;
    uint64_t each = count / group->size, before = 0;
    enum dyt_status st =
        dyti_gloo_begin(group, dyti_gloo_tag(DYTI_GLOO_ALL_REDUCE, op, count));

    if (st != DYT_OK || group->size == 1 || count == 0) {
        return st;
    }
    for (uint32_t i = 0; i < group->size; i++) {
        uint64_t part = each + (i < count % group->size);

        group->parts[i] = part * element_bytes(op);
        before += i < group->rank ? group->parts[i] : 0;
    }
    st = scatter(group, buf, (unsigned char *)buf + before, op);
    return st == DYT_OK ? dyti_gloo_gather(group, (unsigned char *)buf + before,
                                           buf, group->parts)
                        : st;
}
