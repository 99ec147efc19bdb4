/* Rows to pieces by the tables that come with the library: the pieces are the
 * shards of the engine's own vllm dialect, for any model and place. */
#include "plugin_cases.h"

#include "arch_cases.h"
#include "plugin/rows.h"

#include "base/hash.h"

static const struct {
    struct dyti_arch arch;
    const char *table;
} families[] = {
    {DYT_ARCH_TINY_9_3, "vllm/llama"},
    {DYT_ARCH_TINY_8_2, "sglang/llama"},
    {DYT_ARCH(DYTI_QWEN2, 130, 16, 4, 6, 2, 4, 24, .tied = true,
              .qkv_bias = true),
     "vllm/qwen2"},
    {DYT_ARCH(DYTI_QWEN3, 37, 8, 2, 4, 1, 4, 16, .qk_norm = true),
     "vllm/qwen3"},
    {DYT_ARCH_TINY_MOE, "vllm/qwen3_moe"},
    {DYT_ARCH_TINY_MIXTRAL, "vllm/mixtral"},
    {DYT_ARCH_TINY_MLA, "vllm/deepseek_v3"},
    {DYT_ARCH_TINY_MLA_DIRECT, "vllm/deepseek_v2"},
    {DYT_ARCH_TINY_GPT2, "vllm/gpt2"},
};

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state += 0x9e3779b97f4a7c15u;
    return dyti_mix64(*state) % below;
}

/* Position of the buffer that holds a shard. */
static uint32_t buffer_of(const struct dyti_view *view, uint32_t shard)
{
    uint32_t row = 0;

    for (uint32_t i = 0; i < view->buffer_count; i++) {
        const struct dyti_view_buffer *b = &view->buffer[i];

        if (b->kind != DYTI_PARAM) {
            continue;
        }
        if (view->shard[shard].offset >= b->offset &&
            view->shard[shard].offset < b->offset + b->bytes) {
            return row;
        }
        row++;
    }
    return UINT32_MAX;
}

static const struct dyti_view_buffer *row_buffer(const struct dyti_view *view,
                                                 uint32_t row)
{
    for (uint32_t i = 0; i < view->buffer_count; i++) {
        if (view->buffer[i].kind == DYTI_PARAM && row-- == 0) {
            return &view->buffer[i];
        }
    }
    return NULL;
}

/* The piece that is a shard: same tensor, box and place. */
static bool is_shard(const struct dyti_view *view, uint32_t at,
                     const struct dyti_row_piece *p)
{
    const struct dyti_shard *s = &view->shard[at];
    const struct dyti_view_buffer *b = row_buffer(view, p->row);

    if (s->tensor != p->tensor || buffer_of(view, at) != p->row ||
        s->offset != b->offset + p->offset || s->box.ndim != p->box.ndim) {
        return false;
    }
    for (uint32_t d = 0; d < s->box.ndim; d++) {
        if (s->box.lo[d] != p->box.lo[d] || s->box.hi[d] != p->box.hi[d] ||
            (s->box.hi[d] - s->box.lo[d] > 1 && s->stride[d] != p->stride[d])) {
            return false;
        }
    }
    return true;
}

static bool is_empty(const struct dyti_shard *s)
{
    for (uint32_t d = 0; d < s->box.ndim; d++) {
        if (s->box.lo[d] == s->box.hi[d]) {
            return true;
        }
    }
    return false;
}

static void compare(uint64_t seed, const struct dyti_view *view,
                    const struct dyti_row_pieces *pieces)
{
    uint32_t shards = 0;

    for (uint32_t i = 0; i < view->shard_count; i++) {
        bool found = false;

        if (view->shard[i].kind != DYTI_PARAM || is_empty(&view->shard[i])) {
            continue;
        }
        shards++;
        for (size_t p = 0; p < pieces->count && !found; p++) {
            found = is_shard(view, i, &pieces->piece[p]);
        }
        if (!found) {
            fail_msg("seed %" PRIu64 ": no piece is shard %u (tensor %u)", seed,
                     i, view->shard[i].tensor);
        }
    }
    if (shards != pieces->count) {
        fail_msg("seed %" PRIu64 ": %zu pieces, %u shards", seed, pieces->count,
                 shards);
    }
}

/* Degrees that the family can have; a map of experts now and then. */
static struct dyti_layout_desc draw_desc(uint64_t *state,
                                         const struct dyti_arch *a,
                                         int32_t slot[64])
{
    static const uint32_t degree[] = {1, 2, 3, 4, 6, 8};
    struct dyti_layout_desc d = {.phase = "rollout",
                                 .dialect = DYTI_DIALECT_VLLM,
                                 .dp = 1,
                                 .pp = 1 + (uint32_t)draw(state, 2)};
    bool spread = a->moe.count > 0 && draw(state, 2) == 0;

    d.tp = degree[draw(state, sizeof(degree) / sizeof(degree[0]))];
    d.dp = spread ? 1 + (uint32_t)draw(state, 2) : 1;
    d.ep = spread ? d.tp * d.dp : 1;
    d.etp = spread ? 1 : d.tp;
    if (a->moe.count == 0) {
        d.etp = 1;
    }
    d.world_size = d.tp * d.dp * d.pp;
    d.residency[DYTI_PARAM] = DYTI_HELD;
    for (int k = DYTI_PARAM + 1; k < DYTI_KIND_COUNT; k++) {
        d.residency[k] = DYTI_DROPPED;
    }
    d.dtype[DYTI_PARAM] = DYTI_BF16;
    if (spread && draw(state, 2) == 0) {
        uint32_t slots = ((uint32_t)a->moe.count + d.ep - 1) / d.ep + 1;

        for (uint32_t i = 0; i < d.ep * slots && i < 64; i++) {
            /* permuted, and a redundant copy of the first ones */
            slot[i] = (int32_t)((i * 3 + 1) % (uint32_t)(a->moe.count));
        }
        d.experts = DYTI_EXPERTS_EXPLICIT;
        d.expert_slot = slot;
        d.expert_slots = slots;
        if (d.ep * slots > 64) {
            d.experts = DYTI_EXPERTS_LINEAR;
        }
    }
    return d;
}

static void check_member(uint64_t seed, const struct dyti_model *listed,
                         const struct dyti_layout *layout, uint32_t rank,
                         const struct dyt_rules *rules)
{
    const struct dyti_view *view = &layout->view[rank];
    const struct dyti_part *part = &view->part;
    const struct dyt_attribute attribute = {"head_dim",
                                            layout->model->arch.head_dim};
    struct dyti_place place = {.tp_rank = part->tp_rank,
                               .tp_size = part->tp_size,
                               .ep_rank = part->ep_rank,
                               .ep_size = part->ep_size,
                               .attribute = &attribute,
                               .attribute_count = 1};
    struct dyti_row_pieces pieces = {0};
    struct case_view rows = {0};
    enum dyt_status st;

    if (layout->desc.experts == DYTI_EXPERTS_EXPLICIT) {
        place.expert_count = layout->desc.expert_slots;
        place.expert =
            layout->desc.expert_slot + part->ep_rank * place.expert_count;
    }
    case_rows_of(&rows, view);
    if (rows.count > 0) {
        assert_ok(dyti_view_check(case_view(&rows)));
        st = dyti_rules_apply(listed, case_view(&rows), rules, &place, &pieces);
        if (st != DYT_OK) {
            fail_msg("seed %" PRIu64 ": %s", seed, dyti_error_text());
        }
        compare(seed, view, &pieces);
    }
    dyti_row_pieces_fini(&pieces);
    case_view_free(&rows);
}

static void rules_are_the_dialect(void **state)
{
    uint64_t rounds = dyt_test_rounds(600, 20000), built = 0;

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        size_t f = seed % DYT_TEST_COUNT(families);
        uint64_t random = seed;
        int32_t slot[64];
        struct dyti_layout_desc desc =
            draw_desc(&random, &families[f].arch, slot);
        struct dyti_model *model = NULL, *listed;
        struct dyti_layout *layout = NULL;
        const struct dyt_rules *rules = NULL;

        assert_ok(dyti_model_build(&families[f].arch, &model));
        assert_ok(dyt_rules_builtin(families[f].table, &rules));
        if (dyti_layout_build(model, &desc, &layout) == DYT_OK) {
            listed = case_listed(model);
            for (uint32_t r = 0; r < desc.world_size; r++) {
                check_member(seed, listed, layout, r, rules);
            }
            built++;
            dyti_model_destroy(listed);
        }
        dyti_layout_destroy(layout);
        dyti_model_destroy(model);
    }
    /* the others have degrees that the dialect refuses */
    assert_true(built * 4 > rounds);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rules_are_the_dialect),
};
DYT_TEST_MAIN(tests)
