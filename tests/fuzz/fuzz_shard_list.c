/* Any bytes as the shards that ranks hand in: a layout whose every element is
 * held and whose shards lie inside their regions, or a refusal. */
#include "fuzz.h"

#include "layout/layout.h"

#include <stdlib.h>
#include <string.h>

#define RANKS 2u
#define MOST  24u /* shards of a rank */

struct bytes {
    const uint8_t *at;
    size_t left;
};

static uint8_t byte(struct bytes *b)
{
    if (b->left == 0) {
        return 0;
    }
    b->left--;
    return *b->at++;
}

/* Mostly small, sometimes absurd. */
static int64_t number(struct bytes *b)
{
    uint8_t kind = byte(b);

    if (kind < 240) {
        return kind % 64;
    }
    return kind < 248 ? INT64_MAX - byte(b) : -(int64_t)byte(b);
}

static void fill_shard(struct bytes *b, const struct dyti_model *model,
                       struct dyti_shard *s)
{
    const struct dyti_tensor *t;

    s->tensor = byte(b) % (model->tensor_count + 1);
    t = &model->tensor[s->tensor % model->tensor_count];
    s->kind = DYTI_PARAM;
    s->dtype = byte(b) % 16 == 0 ? byte(b) : DYTI_F32;
    s->box.ndim = byte(b) % 16 == 0 ? byte(b) % (DYT_MAX_DIMS + 2) : t->ndim;
    for (uint32_t d = 0; d < DYT_MAX_DIMS && d < s->box.ndim; d++) {
        bool whole = byte(b) % 2 == 0;

        s->box.lo[d] = whole ? 0 : number(b);
        s->box.hi[d] = whole ? t->shape[d % t->ndim] : number(b);
        s->stride[d] = (int64_t)((uint64_t)number(b) * 4u);
    }
    s->offset = (uint64_t)number(b) * 4;
}

static int fill_view(struct bytes *b, const struct dyti_model *model,
                     struct dyti_view *view)
{
    view->shard_count = byte(b) % MOST;
    view->shard = calloc(MOST, sizeof(*view->shard));
    if (view->shard == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < view->shard_count; i++) {
        fill_shard(b, model, &view->shard[i]);
    }
    for (int k = DYTI_PARAM + 1; k <= DYTI_KIND_COUNT; k++) {
        view->kind_first[k] = view->shard_count;
    }
    view->region_bytes[DYTI_PARAM] = (uint64_t)number(b) * 64;
    return 0;
}

static void check(const struct dyti_layout *layout)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct dyti_view *view = dyti_layout_view(layout, r);

        for (uint32_t i = 0; i < view->shard_count; i++) {
            if (view->shard[i].offset >= view->region_bytes[DYTI_PARAM]) {
                abort();
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct dyti_arch arch = {.family = DYTI_LLAMA,
                                   .vocab = 8,
                                   .hidden = 4,
                                   .layers = 1,
                                   .q_heads = 2,
                                   .kv_heads = 1,
                                   .head_dim = 2,
                                   .ffn = 6,
                                   .max_positions = 8,
                                   .tied = true};
    struct dyti_layout_desc desc = {.phase = "list",
                                    .world_size = RANKS,
                                    .tp = 1,
                                    .pp = 1,
                                    .dp = 1,
                                    .dialect = DYTI_DIALECT_LIST};
    struct bytes b = {data, size};
    struct dyti_view view[RANKS] = {0};
    struct dyti_layout *layout = NULL;
    struct dyti_model *model = NULL;
    int bad = 0;

    for (int k = DYTI_PARAM + 1; k < DYTI_KIND_COUNT; k++) {
        desc.residency[k] = DYTI_DROPPED;
    }
    if (dyti_model_build(&arch, &model) != DYT_OK) {
        abort();
    }
    for (uint32_t r = 0; r < RANKS && bad == 0; r++) {
        bad = fill_view(&b, model, &view[r]);
    }
    if (bad == 0 &&
        dyti_layout_from_views(model, &desc, view, &layout) == DYT_OK) {
        check(layout);
        dyti_layout_destroy(layout);
    } else {
        for (uint32_t r = 0; r < RANKS; r++) {
            dyti_view_fini(&view[r]);
        }
    }
    dyti_model_destroy(model);
    return 0;
}
