/* Whether the members of a replica hold all of the catalogue together. */
#include "plugin/resolve.h"

#include "layout/list.h"
#include "plugin/faults.h"
#include "plugin/rules.h"

#include <stdlib.h>
#include <string.h>

struct lists {
    size_t *first;              /* [tensor_count + 1] into box */
    const struct dyt_box **box; /* by tensor */
};

/* Boxes of one kind by tensor, of all members. */
static enum dyt_status list_kind(const struct dyti_model *catalogue,
                                 uint32_t kind,
                                 const struct dyti_view *const *member,
                                 uint32_t member_count, struct lists *out)
{
    uint32_t tensors = catalogue->tensor_count;
    size_t count = 0;

    out->first = calloc((size_t)tensors + 2, sizeof(*out->first));
    for (uint32_t m = 0; m < member_count && out->first != NULL; m++) {
        for (uint32_t i = 0; i < member[m]->shard_count; i++) {
            const struct dyti_shard *s = &member[m]->shard[i];

            if (s->kind == kind && s->tensor < tensors) {
                out->first[s->tensor + 2]++;
                count++;
            }
        }
    }
    out->box = calloc(count + 1, sizeof(*out->box));
    if (out->first == NULL || out->box == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu shards of a replica", count);
    }
    for (uint32_t t = 2; t < tensors + 2; t++) {
        out->first[t] += out->first[t - 1];
    }
    for (uint32_t m = 0; m < member_count; m++) {
        for (uint32_t i = 0; i < member[m]->shard_count; i++) {
            const struct dyti_shard *s = &member[m]->shard[i];

            if (s->kind == kind && s->tensor < tensors) {
                out->box[out->first[s->tensor + 1]++] = &s->box;
            }
        }
    }
    return DYT_OK;
}

/* A policy's tensors, and not a draft model's alone. */
static bool has_policy(const struct dyti_model *catalogue)
{
    for (uint32_t t = 0; t < catalogue->tensor_count; t++) {
        if (!dyti_name_is_draft(catalogue->tensor[t].name)) {
            return true;
        }
    }
    return false;
}

/* `draft`: it is a draft model's, among a policy's. */
static enum dyt_status check_tensor(const struct dyti_tensor *t, bool draft,
                                    uint32_t kind, const char *whose,
                                    const struct dyt_box *const *box,
                                    size_t count, struct dyti_found *found)
{
    struct dyt_box whole = {.ndim = t->ndim};
    int64_t at[DYT_MAX_DIMS];
    bool covered = count > 0;
    enum dyt_status st = DYT_OK;

    if (count == 0) {
        dyti_found_add(
            found, DYT_ERR_LAYOUT,
            "missing: %s of %s, %s, is in no row of the %s%s",
            dyti_kind_name((enum dyti_kind)kind), t->name,
            dyti_shape_words(t->ndim, t->shape).text, whose,
            draft ? ": it belongs to a draft model, " DYTI_DRAFT_REMEDY : "");
        return DYT_OK;
    }
    memcpy(whole.hi, t->shape, t->ndim * sizeof(t->shape[0]));
    st = dyti_find_missing(box, count, &whole, &covered, at);
    if (st == DYT_OK && !covered) {
        dyti_found_add(found, DYT_ERR_LAYOUT,
                       "missing: element %s of %s of %s, %s, is in no row of "
                       "the %s",
                       dyti_shape_words(t->ndim, at).text,
                       dyti_kind_name((enum dyti_kind)kind), t->name,
                       dyti_shape_words(t->ndim, t->shape).text, whose);
    }
    return st;
}

enum dyt_status dyti_replica_check(const struct dyti_model *catalogue,
                                   uint32_t kinds, const char *whose,
                                   const struct dyti_view *const *member,
                                   uint32_t member_count)
{
    struct dyti_found found = {.count = 0};
    bool policy = has_policy(catalogue);
    enum dyt_status st = DYT_OK;

    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
        struct lists lists = {0};

        if ((kinds >> kind & 1u) == 0) {
            continue;
        }
        st = list_kind(catalogue, kind, member, member_count, &lists);
        for (uint32_t t = 0; t < catalogue->tensor_count && st == DYT_OK; t++) {
            const struct dyti_tensor *tensor = &catalogue->tensor[t];

            if ((tensor->kinds >> kind & 1u) != 0) {
                st = check_tensor(tensor,
                                  policy && dyti_name_is_draft(tensor->name),
                                  kind, whose, lists.box + lists.first[t],
                                  lists.first[t + 1] - lists.first[t], &found);
            }
        }
        free(lists.first);
        free(lists.box);
    }
    return st != DYT_OK ? st : dyti_found_finish(&found, NULL);
}
