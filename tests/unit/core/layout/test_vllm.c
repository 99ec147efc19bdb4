/* vLLM: fused QKV with replicated KV heads, gate over up, padded vocabulary,
 * grouped experts. */
#include "dialect_world.h"

#define QKV "model.layers.0.self_attn.qkv_proj.weight"
#define Q   "model.layers.0.self_attn.q_proj.weight"
#define K   "model.layers.0.self_attn.k_proj.weight"
#define V   "model.layers.0.self_attn.v_proj.weight"
#define W13 "model.layers.0.mlp.experts.w13_weight"
#define W2  "model.layers.0.mlp.experts.w2_weight"

static struct dyti_layout *serve(const struct dyti_model *m,
                                 struct dyti_layout_desc d)
{
    d.dialect = DYTI_DIALECT_VLLM;
    return dyt_layout(m, d);
}

/* Rule: with T ranks and K KV heads, T >= K: one KV head per rank, T / K copies
 * of each; q starts at rank r's heads, k and v at r / copies.
 * H=32, K=4, d=128, T=8: 768 rows, K from 0,0,128,128,256,256,384,384. */
static void kv_heads_are_replicated(void **state)
{
    struct dyti_arch arch =
        DYT_ARCH(DYTI_LLAMA, 64, 8, 1, 32, 4, 128, 8, .tied = true);
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = serve(m, (struct dyti_layout_desc){.tp = 8});
    static const int64_t start[] = {0, 0, 128, 128, 256, 256, 384, 384};

    (void)state;
    for (uint32_t r = 0; r < 8; r++) {
        assert_int_equal(dyt_buffer(l, r, DYTI_PARAM, QKV)->shape[0], 768);
        dyt_assert_rows(l, r, QKV, 0, 512, Q, r * 512);
        dyt_assert_rows(l, r, QKV, 512, 128, K, start[r]);
        dyt_assert_rows(l, r, QKV, 640, 128, V, start[r]);
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* T < K: K / T heads each; biases likewise.  case 33: H=8, K=2, T=4 and 8. */
static void kv_heads_are_cut_or_copied(void **state)
{
    struct dyti_arch arch = DYT_ARCH(DYTI_QWEN2, 64, 16, 1, 8, 2, 2, 24,
                                     .tied = true, .qkv_bias = true);
    struct dyti_model *m = dyt_model(arch);
    static const char bias[] = "model.layers.0.self_attn.qkv_proj.bias";

    (void)state;
    for (uint32_t tp = 1; tp <= 8; tp *= 2) {
        struct dyti_layout *l = serve(m, (struct dyti_layout_desc){.tp = tp});
        int64_t q = 16 / tp, kv = tp >= 2 ? 2 : 4;

        for (uint32_t r = 0; r < tp; r++) {
            int64_t from = tp >= 2 ? r / (tp / 2) * 2 : 0;

            dyt_assert_rows(l, r, QKV, 0, q, Q, r * q);
            dyt_assert_rows(l, r, QKV, q, kv, K, from);
            dyt_assert_rows(l, r, QKV, q + kv, kv, V, from);
            dyt_assert_rows(l, r, bias, 0, q,
                            "model.layers.0.self_attn.q_proj.bias", r * q);
            dyt_assert_rows(l, r, bias, q, kv,
                            "model.layers.0.self_attn.k_proj.bias", from);
            dyt_assert_rows(l, r, bias, q + kv, kv,
                            "model.layers.0.self_attn.v_proj.bias", from);
        }
        dyti_layout_destroy(l);
    }
    dyti_model_destroy(m);
}

/* Rule: gate_up [gate_r; up_r] on dimension 0; down and o on dimension 1. */
static void gate_lies_over_up_and_down_is_cut_across(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = serve(m, (struct dyti_layout_desc){.tp = 2});
    static const char fused[] = "model.layers.1.mlp.gate_up_proj.weight";
    static const char down[] = "model.layers.1.mlp.down_proj.weight";

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t t = dyti_model_find_name(m, down);

        dyt_assert_rows(l, r, fused, 0, 12,
                        "model.layers.1.mlp.gate_proj.weight", r * 12);
        dyt_assert_rows(l, r, fused, 12, 12,
                        "model.layers.1.mlp.up_proj.weight", r * 12);
        assert_int_equal(dyt_buffer(l, r, DYTI_PARAM, down)->shape[1], 12);
        for (int64_t i = 0; i < 16 * 12; i++) {
            struct dyt_cell c = dyt_at(l, r, down, i);

            assert_int_equal(c.tensor, t);
            assert_int_equal(c.index, i / 12 * 24 + r * 12 + i % 12);
        }
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* Rule: rows padded to 64, cut evenly; base rows first, then padding.
 * 50257 -> 50304, 151936 -> 151936; case 45: 50 -> 64. */
static void the_vocabulary_is_padded(void **state)
{
    static const struct {
        int64_t vocab, padded;
    } row[] = {{50257, 50304}, {151936, 151936}, {50, 64}, {64, 64}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_arch arch =
            DYT_ARCH(DYTI_LLAMA, row[i].vocab, 1, 1, 2, 2, 1, 2, .tied = true);
        struct dyti_model *m = dyt_model(arch);
        struct dyti_layout *l = serve(m, (struct dyti_layout_desc){.tp = 2});
        static const char name[] = "model.embed_tokens.weight";
        int64_t rows = row[i].padded / 2, left = row[i].vocab - rows;

        assert_int_equal(dyt_buffer(l, 0, DYTI_PARAM, name)->shape[0], rows);
        dyt_assert_rows(l, 0, name, 0, rows, name, 0);
        dyt_assert_rows(l, 1, name, 0, left, name, rows);
        dyt_assert_rows(l, 1, name, left, rows - left, NULL, -1);
        /* case 46: tied: one buffer, and no head */
        assert_null(dyt_buffer(l, 1, DYTI_PARAM, "lm_head.weight"));
        dyti_layout_destroy(l);
        dyti_model_destroy(m);
    }
}

/* ---- experts ------------------------------------------------------------- */

/* Which expert lies in each place of w13 on an ep rank. */
static void assert_places(const struct dyti_model *m,
                          const struct dyti_layout *l, uint32_t rank,
                          const int32_t *expert, uint32_t places)
{
    const struct dyti_view_buffer *b = dyt_buffer(l, rank, DYTI_PARAM, W13);
    int64_t rows = b->shape[1], h = b->shape[2], half = rows / 2;

    assert_int_equal(b->ndim, 3);
    assert_int_equal(b->shape[0], places);
    for (uint32_t p = 0; p < places; p++) {
        struct dyt_cell gate = dyt_at(l, rank, W13, p * rows * h);
        struct dyt_cell up = dyt_at(l, rank, W13, (p * rows + half) * h);
        struct dyt_cell down = dyt_at(l, rank, W2, p * half * h);

        if (expert[p] < 0) {
            assert_int_equal(gate.tensor, -1);
            assert_int_equal(down.tensor, -1);
            continue;
        }
        assert_int_equal(
            gate.tensor,
            dyti_model_find_expert(m, 0, expert[p], DYTI_SLOT_EXPERT_GATE));
        assert_int_equal(up.tensor, dyti_model_find_expert(
                                        m, 0, expert[p], DYTI_SLOT_EXPERT_UP));
        assert_int_equal(
            down.tensor,
            dyti_model_find_expert(m, 0, expert[p], DYTI_SLOT_EXPERT_DOWN));
        assert_int_equal(gate.index, 0);
        assert_int_equal(up.index, 0);
        assert_int_equal(down.index, 0);
    }
}

static struct dyti_model *experts(int64_t count)
{
    struct dyti_arch arch =
        DYT_ARCH(DYTI_QWEN3_MOE, 64, 8, 1, 4, 4, 2, 8, .tied = false,
                 .qk_norm = true, .moe = {count, 2, 4, 0, 0, 1, false});

    return dyt_model(arch);
}

/* Rule, E=10 over P=4: linear {0-2} {3-5} {6,7} {8,9}; round robin {0,4,8}
 * {1,5,9} {2,6} {3,7}. */
static void experts_are_placed_by_map(void **state)
{
    static const int32_t linear[4][3] = {
        {0, 1, 2}, {3, 4, 5}, {6, 7, 0}, {8, 9, 0}};
    static const int32_t robin[4][3] = {
        {0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 0}};
    struct dyti_model *m = experts(10);

    (void)state;
    for (int how = 0; how < 2; how++) {
        struct dyti_layout *l =
            serve(m, (struct dyti_layout_desc){
                         .tp = 4,
                         .ep = 4,
                         .experts = how == 0 ? DYTI_EXPERTS_LINEAR
                                             : DYTI_EXPERTS_ROUND_ROBIN});

        for (uint32_t r = 0; r < 4; r++) {
            assert_places(m, l, r, how == 0 ? linear[r] : robin[r],
                          r < 2 ? 3 : 2);
        }
        dyti_layout_destroy(l);
    }
    dyti_model_destroy(m);
}

/* case 38: a permuted map with a redundant copy: every place has its expert,
 * and both copies hold all of it. */
static void experts_may_have_copies(void **state)
{
    static const int32_t slot[] = {4, 0, 2, 1, 3, 0};
    struct dyti_model *m = experts(5);
    struct dyti_layout *l =
        serve(m, (struct dyti_layout_desc){.tp = 2,
                                           .ep = 2,
                                           .experts = DYTI_EXPERTS_EXPLICIT,
                                           .expert_slot = slot,
                                           .expert_slots = 3});
    uint32_t gate = dyti_model_find_expert(m, 0, 0, DYTI_SLOT_EXPERT_GATE);
    static const int32_t holes[] = {4, 0, -1, 1, 3, 2};

    (void)state;
    assert_places(m, l, 0, slot, 3);
    assert_places(m, l, 1, slot + 3, 3);
    for (uint32_t r = 0; r < 2; r++) {
        const struct dyti_shard *s =
            dyti_view_find(&l->view[r], DYTI_PARAM, gate);

        assert_non_null(s);
        assert_int_equal(s->box.hi[0] - s->box.lo[0], 4);
    }
    dyti_layout_destroy(l);
    l = serve(m, (struct dyti_layout_desc){.tp = 2,
                                           .ep = 2,
                                           .experts = DYTI_EXPERTS_EXPLICIT,
                                           .expert_slot = holes,
                                           .expert_slots = 3});
    assert_places(m, l, 0, holes, 3);
    assert_places(m, l, 1, holes + 3, 3);
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* Without expert parallelism each expert is cut: gate and up on dimension 0,
 * down on dimension 1. */
static void experts_may_be_cut(void **state)
{
    struct dyti_model *m = experts(3);
    struct dyti_layout *l =
        serve(m, (struct dyti_layout_desc){.tp = 2, .etp = 2});

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        struct dyt_cell c;

        assert_int_equal(dyt_buffer(l, r, DYTI_PARAM, W13)->shape[1], 4);
        assert_int_equal(dyt_buffer(l, r, DYTI_PARAM, W2)->shape[2], 2);
        c = dyt_at(l, r, W13, (1 * 4 + 2) * 8); /* place 1, first row of up */
        assert_int_equal(c.tensor,
                         dyti_model_find_expert(m, 0, 1, DYTI_SLOT_EXPERT_UP));
        assert_int_equal(c.index, r * 2 * 8);
        c = dyt_at(l, r, W2, (2 * 8 + 3) * 2 + 1); /* place 2, row 3 */
        assert_int_equal(
            c.tensor, dyti_model_find_expert(m, 0, 2, DYTI_SLOT_EXPERT_DOWN));
        assert_int_equal(c.index, 3 * 4 + r * 2 + 1);
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* ---- names, types, refusals ---------------------------------------------- */

static void buffers_have_their_names(void **state)
{
    struct dyti_arch mixtral = DYT_ARCH_TINY_MIXTRAL;
    struct dyti_arch mla = DYT_ARCH_TINY_MLA;
    struct dyti_arch gpt2 = DYT_ARCH_TINY_GPT2;
    const struct {
        const struct dyti_arch *arch;
        const char *name[7];
    } row[] = {
        {&mixtral,
         {"model.layers.2.block_sparse_moe.gate.weight",
          "model.layers.2.block_sparse_moe.experts.w13_weight",
          "model.layers.2.block_sparse_moe.experts.w2_weight",
          "model.layers.2.input_layernorm.weight", "model.norm.weight",
          "lm_head.weight", "model.embed_tokens.weight"}},
        {&mla,
         {"model.layers.0.self_attn.fused_qkv_a_proj.weight",
          "model.layers.0.self_attn.q_a_layernorm.weight",
          "model.layers.0.self_attn.kv_b_proj.weight",
          "model.layers.1.mlp.gate.e_score_correction_bias",
          "model.layers.1.mlp.shared_experts.gate_up_proj.weight",
          "model.layers.0.mlp.gate_up_proj.weight",
          "model.layers.1.mlp.experts.w13_weight"}},
        {&gpt2,
         {"transformer.wte.weight", "transformer.wpe.weight",
          "transformer.h.1.attn.c_attn.weight",
          "transformer.h.1.attn.c_attn.bias", "transformer.h.1.ln_2.bias",
          "transformer.h.1.mlp.c_proj.weight", "transformer.ln_f.bias"}},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_model *m = dyt_model(*row[i].arch);
        struct dyti_layout *l = serve(m, (struct dyti_layout_desc){.tp = 2});

        for (int n = 0; n < 7; n++) {
            if (dyt_buffer(l, 1, DYTI_PARAM, row[i].name[n]) == NULL) {
                fail_msg("no buffer %s", row[i].name[n]);
            }
        }
        dyti_layout_destroy(l);
        dyti_model_destroy(m);
    }
}

/* Fused on disk, [in, out]: q, k and v are thirds of the columns, and lie as
 * rows here. */
static void gpt2_lies_transposed(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_GPT2; /* h 16, 4 heads of 4 */
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = serve(m, (struct dyti_layout_desc){.tp = 2});
    static const char name[] = "transformer.h.0.attn.c_attn.weight";
    uint32_t t = dyti_model_find_name(m, name);

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        const struct dyti_view_buffer *b = dyt_buffer(l, r, DYTI_PARAM, name);

        assert_int_equal(b->shape[0], 24);
        assert_int_equal(b->shape[1], 16);
        for (int64_t i = 0; i < 24; i++) {
            struct dyt_cell c = dyt_at(l, r, name, i * 16 + 5);
            int64_t column = i / 8 * 16 + r * 8 + i % 8;

            assert_int_equal(c.tensor, t);
            assert_int_equal(c.index, 5 * 48 + column);
        }
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* case 42: the bias of a router stays f32. */
static void routers_keep_their_type(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_MLA;
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l =
        serve(m, (struct dyti_layout_desc){.tp = 2, .dtype = {DYTI_BF16}});

    (void)state;
    assert_int_equal(
        dyt_buffer(l, 0, DYTI_PARAM,
                   "model.layers.1.mlp.gate.e_score_correction_bias")
            ->dtype,
        DYTI_F32);
    assert_int_equal(
        dyt_buffer(l, 0, DYTI_PARAM, "model.layers.1.mlp.experts.w13_weight")
            ->dtype,
        DYTI_BF16);
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* Scales of blocks go where their weights go, offsets divided by the block with
 * ceiling; where a border lies inside of a block, both sides hold its scale. */
static void scales_follow_their_blocks(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2; /* q: 16 x 16 */
    static const struct {
        int64_t block, rows;
        int64_t lo[2], hi[2]; /* of ranks 0 and 1 */
    } row[] = {{8, 2, {0, 1}, {1, 2}},
               {4, 4, {0, 2}, {2, 4}},
               {6, 3, {0, 1}, {2, 3}},
               {16, 1, {0, 0}, {1, 1}}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        const struct dyti_extra_desc scale = {.name = "scale",
                                              .rule = DYTI_EXTRA_SHARDED,
                                              .dtype = DYTI_F32,
                                              .ndim = 2,
                                              .shape = {row[i].rows, 1},
                                              .of = Q,
                                              .block = {row[i].block, 16}};
        struct dyti_model *m = NULL;
        struct dyti_layout *l;

        assert_ok(dyti_model_build_with(&arch, &scale, 1, &m));
        l = serve(m, (struct dyti_layout_desc){.tp = 2});
        for (uint32_t r = 0; r < 2; r++) {
            const struct dyti_shard *s = dyti_view_find(
                &l->view[r], DYTI_EXTRA, dyti_model_find_name(m, "scale"));

            assert_non_null(s);
            assert_int_equal(s->box.lo[0], row[i].lo[r]);
            assert_int_equal(s->box.hi[0], row[i].hi[r]);
        }
        dyti_layout_destroy(l);
        dyti_model_destroy(m);
    }
}

static void what_vllm_has_not_is_refused(void **state)
{
    struct dyti_arch arch =
        DYT_ARCH(DYTI_LLAMA, 64, 8, 2, 12, 4, 2, 48, .tied = true);
    struct dyti_model *m = dyt_model(arch), *moe = experts(4);
    const struct dyti_layout_desc d = {.dialect = DYTI_DIALECT_VLLM};
    struct dyti_layout_desc x;

    (void)state;
    x = d;
    x.tp = 5; /* H % T */
    dyt_refused(m, x, "nearest degree that works is tp 4");
    x.tp = 6; /* T % K */
    dyt_refused(m, x, "nearest degree that works is tp 4");
    x = d;
    x.zero = 1;
    dyt_refused(m, x, "nearest that works is zero 0");
    x = d;
    x.vpp = 2;
    dyt_refused(m, x, "nearest degree that works is vpp 1");
    x = d;
    x.tp = 4;
    x.ep = x.etp = 2;
    dyt_refused(moe, x, "nearest degree that works is etp 1");
    x = d;
    x.dp = x.etp = 3;
    dyt_refused(moe, x, "etp 3 does not divide");
    dyti_model_destroy(m);
    dyti_model_destroy(moe);
}

/* q and its gate stay together, head by head, in front of K and V. */
static void gates_of_attention_stay_with_their_head(void **state)
{
    struct dyti_arch arch = DYT_ARCH(
        DYTI_QWEN3_MOE, 50, 16, 1, 4, 2, 2, 24, .tied = false, .qk_norm = true,
        .attn_gate = true, .moe = {4, 2, 8, 0, 0, 1, false});
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = dyt_layout(
        m, (struct dyti_layout_desc){.dialect = DYTI_DIALECT_VLLM, .tp = 2});
    static const char qkv[] = "model.layers.0.self_attn.qkv_proj.weight";

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(dyt_buffer(l, r, DYTI_PARAM, qkv)->shape[0], 12);
        dyt_assert_rows(l, r, qkv, 0, 8,
                        "model.layers.0.self_attn.q_proj.weight", r * 8);
        dyt_assert_rows(l, r, qkv, 8, 2,
                        "model.layers.0.self_attn.k_proj.weight", r * 2);
        dyt_assert_rows(l, r, qkv, 10, 2,
                        "model.layers.0.self_attn.v_proj.weight", r * 2);
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gates_of_attention_stay_with_their_head),
    cmocka_unit_test(kv_heads_are_replicated),
    cmocka_unit_test(kv_heads_are_cut_or_copied),
    cmocka_unit_test(gate_lies_over_up_and_down_is_cut_across),
    cmocka_unit_test(the_vocabulary_is_padded),
    cmocka_unit_test(experts_are_placed_by_map),
    cmocka_unit_test(experts_may_have_copies),
    cmocka_unit_test(experts_may_be_cut),
    cmocka_unit_test(buffers_have_their_names),
    cmocka_unit_test(gpt2_lies_transposed),
    cmocka_unit_test(routers_keep_their_type),
    cmocka_unit_test(scales_follow_their_blocks),
    cmocka_unit_test(what_vllm_has_not_is_refused),
};

DYT_TEST_MAIN(tests)
