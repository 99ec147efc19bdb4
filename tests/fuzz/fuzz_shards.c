/* Any bytes as the shards of two ranks: a layout whose every element has a
 * holder, or an error of one line.  corpus/make_shards.py writes the form. */
#include "fuzz.h"

#include "layout/pattern.h"

#include "arch_cases.h"

#define RECORD 16u
#define RANKS  2u

/* A signed number of two bytes. */
static int64_t number(const uint8_t *at)
{
    return (int16_t)(uint16_t)(at[0] | (unsigned)at[1] << 8);
}

static struct dyti_shard shard_of(const uint8_t *at)
{
    struct dyti_shard s = {.tensor = at[1],
                           .kind = at[2],
                           .dtype = at[3] & 1,
                           .box = {.ndim = at[3] >> 1 & 3}};

    for (uint32_t d = 0; d < 2; d++) {
        s.box.lo[d] = (int8_t)at[4 + 2 * d];
        s.box.hi[d] = (int8_t)at[5 + 2 * d];
        s.stride[d] = number(at + 10 + 2 * d);
    }
    s.offset = (uint64_t)number(at + 8);
    if ((at[0] & 128) != 0) {
        s.stride[0] *= INT64_C(1) << 48;
    }
    return s;
}

static void check(const struct dyti_layout *layout)
{
    struct dyti_patterns *p = NULL;

    if (dyti_patterns_build(layout, &p) != DYT_OK) {
        abort();
    }
    for (uint32_t t = 0; t < layout->model->tensor_count; t++) {
        if (p->pattern_of[t] == DYTI_NO_PATTERN) {
            abort(); /* somebody holds each */
        }
    }
    dyti_patterns_destroy(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct dyti_arch arch =
        DYT_ARCH(DYTI_LLAMA, 6, 4, 1, 2, 1, 2, 4, .tied = true);
    struct dyti_layout_desc desc = {.phase = "f", .world_size = RANKS};
    struct dyti_view view[RANKS];
    struct dyti_layout *layout = NULL;
    struct dyti_model *model = NULL;

    memset(view, 0, sizeof(view));
    if (dyti_model_build(&arch, &model) != DYT_OK) {
        abort();
    }
    for (int kind = DYTI_GRAD; kind < DYTI_KIND_COUNT; kind++) {
        desc.residency[kind] = DYTI_DROPPED;
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        view[r].region_bytes[DYTI_PARAM] = 4096;
        view[r].shard = calloc(size / RECORD + 1, sizeof(*view[r].shard));
        if (view[r].shard == NULL) {
            abort();
        }
    }
    for (size_t i = 0; i + RECORD <= size; i += RECORD) {
        struct dyti_view *v = &view[data[i] & 1];

        v->shard[v->shard_count++] = shard_of(data + i);
    }
    if (dyti_layout_from_views(model, &desc, view, &layout) == DYT_OK) {
        check(layout);
    } else if (strchr(dyti_error_text(), '\n') != NULL) {
        abort();
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        dyti_view_fini(&view[r]);
    }
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
    return 0;
}
