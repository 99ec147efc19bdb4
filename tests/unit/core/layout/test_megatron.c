/* Megatron-LM: rows per query group, gate over up, padded vocabulary, local
 * numbers.  The distributed optimizer: test_megatron_optimizer.c. */
#include "dialect_world.h"

#include "layout/megatron.h"

#define QKV "decoder.layers.0.self_attention.linear_qkv.weight"
#define Q   "model.layers.0.self_attn.q_proj.weight"
#define K   "model.layers.0.self_attn.k_proj.weight"
#define V   "model.layers.0.self_attn.v_proj.weight"

static struct dyti_layout *train(const struct dyti_model *m,
                                 struct dyti_layout_desc d)
{
    d.dialect = DYTI_DIALECT_MEGATRON;
    return dyt_layout(m, d);
}

/* Rule: rows are, per query group, its query heads, one K head, one V head; TP
 * cuts the raw rows.  H=64, g=2, d=128, T=8: 1088 rows a rank; ranks 0-2 only
 * queries of group 0, rank 3 832 more and its K and V, ranks 4-7 likewise of
 * group 1.  case 33: ranks that own q rows only. */
static void raw_rows_are_cut(void **state)
{
    struct dyti_arch arch =
        DYT_ARCH(DYTI_LLAMA, 64, 2, 1, 64, 2, 128, 8, .tied = true);
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = train(m, (struct dyti_layout_desc){.tp = 8});

    (void)state;
    for (uint32_t r = 0; r < 8; r++) {
        int64_t g = r / 4, part = r % 4;

        assert_int_equal(dyt_buffer(l, r, DYTI_PARAM, QKV)->shape[0], 1088);
        dyt_assert_rows(l, r, QKV, 0, part < 3 ? 1088 : 832, Q,
                        g * 32 * 128 + part * 1088);
        if (part == 3) {
            dyt_assert_rows(l, r, QKV, 832, 128, K, g * 128);
            dyt_assert_rows(l, r, QKV, 960, 128, V, g * 128);
        } else {
            assert_null(dyti_view_find(&l->view[r], DYTI_PARAM,
                                       dyti_model_find_name(m, K)));
        }
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* T <= g: whole groups. */
static void whole_groups_interleave(void **state)
{
    struct dyti_arch arch = DYT_ARCH(DYTI_QWEN2, 50, 16, 1, 8, 4, 2, 24,
                                     .tied = true, .qkv_bias = true);
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = train(m, (struct dyti_layout_desc){.tp = 2});
    static const char bias[] =
        "decoder.layers.0.self_attention.linear_qkv.bias";

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        for (int64_t g = 0; g < 2; g++) {
            int64_t group = r * 2 + g, at = g * 8;

            dyt_assert_rows(l, r, QKV, at, 4, Q, group * 4);
            dyt_assert_rows(l, r, QKV, at + 4, 2, K, group * 2);
            dyt_assert_rows(l, r, QKV, at + 6, 2, V, group * 2);
            dyt_assert_rows(l, r, bias, at + 4, 2,
                            "model.layers.0.self_attn.k_proj.bias", group * 2);
        }
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* Rule: with a gate of the attention's output a group's rows are its query
 * heads, their gates, K, V; the files have q and gate of each head together.
 * H=4, g=2, d=2: 12 rows a group; TP 4 cuts the raw rows into 6. */
static void gates_of_attention_follow_their_queries(void **state)
{
    struct dyti_arch arch = DYT_ARCH(
        DYTI_QWEN3_MOE, 50, 16, 1, 4, 2, 2, 24, .tied = false, .qk_norm = true,
        .attn_gate = true, .moe = {4, 2, 8, 0, 0, 1, false});
    static const struct {
        const char *tensor;
        int64_t row;
    } want[2][12] = {{{Q, 0},
                      {Q, 1},
                      {Q, 4},
                      {Q, 5},
                      {Q, 2},
                      {Q, 3},
                      {Q, 6},
                      {Q, 7},
                      {K, 0},
                      {K, 1},
                      {V, 0},
                      {V, 1}},
                     {{Q, 8},
                      {Q, 9},
                      {Q, 12},
                      {Q, 13},
                      {Q, 10},
                      {Q, 11},
                      {Q, 14},
                      {Q, 15},
                      {K, 2},
                      {K, 3},
                      {V, 2},
                      {V, 3}}};
    struct dyti_model *m = dyt_model(arch);

    (void)state;
    for (uint32_t tp = 1; tp <= 4; tp *= 2) {
        struct dyti_layout *l =
            train(m, (struct dyti_layout_desc){.tp = tp, .etp = 1});
        int64_t each = 24 / tp;

        for (int64_t row = 0; row < 24; row++) {
            dyt_assert_rows(l, (uint32_t)(row / each), QKV, row % each, 1,
                            want[row / 12][row % 12].tensor,
                            want[row / 12][row % 12].row);
        }
        dyti_layout_destroy(l);
    }
    assert_status(DYT_ERR_UNSUPPORTED, dyti_arch_check_runs(&arch));
    dyti_model_destroy(m);
}

/* Rule: each rank stores [gate_r; up_r]; norms live in the linear behind them.
 */
static void fc1_is_gate_over_up(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = train(m, (struct dyti_layout_desc){.tp = 2});
    static const char fc1[] = "decoder.layers.2.mlp.linear_fc1.weight";

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        dyt_assert_rows(l, r, fc1, 0, 12, "model.layers.2.mlp.gate_proj.weight",
                        r * 12);
        dyt_assert_rows(l, r, fc1, 12, 12, "model.layers.2.mlp.up_proj.weight",
                        r * 12);
        dyt_assert_rows(
            l, r, "decoder.layers.2.mlp.linear_fc1.layer_norm_weight", 0, 16,
            "model.layers.2.post_attention_layernorm.weight", 0);
        dyt_assert_rows(
            l, r,
            "decoder.layers.2.self_attention.linear_qkv.layer_norm_weight", 0,
            16, "model.layers.2.input_layernorm.weight", 0);
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* Rule: padded to 128 * TP: 50257 -> 50304 at TP1, 51200 at TP8; 151936 ->
 * 152576 at TP8.  case 45: 50 -> 64 at a multiple of 32 and TP2: not twice. */
static void the_vocabulary_depends_on_tp(void **state)
{
    static const struct {
        int64_t vocab;
        uint32_t tp, multiple;
        int64_t padded;
    } row[] = {{50257, 1, 0, 50304},
               {50257, 8, 0, 51200},
               {151936, 8, 0, 152576},
               {50, 2, 32, 64}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_arch arch =
            DYT_ARCH(DYTI_LLAMA, row[i].vocab, 1, 1, 8, 8, 1, 8, .tied = true);
        struct dyti_model *m = dyt_model(arch);
        struct dyti_layout *l =
            train(m, (struct dyti_layout_desc){
                         .tp = row[i].tp, .vocab_multiple = row[i].multiple});
        static const char name[] = "embedding.word_embeddings.weight";
        static const char source[] = "model.embed_tokens.weight";
        int64_t each = row[i].padded / row[i].tp;

        assert_int_equal(dyti_megatron_vocab(l), row[i].padded);
        for (uint32_t r = 0; r < row[i].tp; r++) {
            int64_t lo = r * each;
            int64_t real = row[i].vocab - lo < each ? row[i].vocab - lo : each;

            assert_int_equal(dyt_buffer(l, r, DYTI_PARAM, name)->shape[0],
                             each);
            dyt_assert_rows(l, r, name, 0, real, source, lo);
            dyt_assert_rows(l, r, name, real, each - real, NULL, -1);
        }
        dyti_layout_destroy(l);
        dyti_model_destroy(m);
    }
}

/* case 61: layers are counted from 0 on each stage, and on each virtual one. */
static void layers_have_local_numbers(void **state)
{
    struct dyti_arch arch =
        DYT_ARCH(DYTI_LLAMA, 50, 16, 6, 8, 2, 2, 24, .tied = false);
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = train(
        m, (struct dyti_layout_desc){
               .pp = 2, .vpp = 2, .pp_layers = (const uint32_t[]){2, 1, 1, 2}});
    static const struct {
        uint32_t rank;
        const char *buffer, *tensor;
    } row[] = {
        {0, "model0.decoder.layers.1.mlp.linear_fc2.weight",
         "model.layers.1.mlp.down_proj.weight"},
        {1, "model0.decoder.layers.0.mlp.linear_fc2.weight",
         "model.layers.2.mlp.down_proj.weight"},
        {0, "model1.decoder.layers.0.mlp.linear_fc2.weight",
         "model.layers.3.mlp.down_proj.weight"},
        {1, "model1.decoder.layers.1.mlp.linear_fc2.weight",
         "model.layers.5.mlp.down_proj.weight"},
        {0, "model0.embedding.word_embeddings.weight",
         "model.embed_tokens.weight"},
        {1, "model1.output_layer.weight", "lm_head.weight"},
        {1, "model1.decoder.final_layernorm.weight", "model.norm.weight"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyt_cell c = dyt_at(l, row[i].rank, row[i].buffer, 0);

        assert_int_equal(c.tensor, dyti_model_find_name(m, row[i].tensor));
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* ---- experts ------------------------------------------------------------- */

/* Rule: weight{i} with local i, global = i + ep_rank * E / EP; fc2 is cut on
 * dimension 1; expert_bias is an f32 buffer, not a parameter. */
static void experts_are_counted_locally(void **state)
{
    struct dyti_arch arch =
        DYT_ARCH(DYTI_DEEPSEEK_V3, 50, 16, 2, 4, 4, 6, 24, .tied = false,
                 .moe = {6, 2, 12, 24, 1, 1, true}, .mla = {10, 8, 2, 4, 5});
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l =
        train(m, (struct dyti_layout_desc){.tp = 2,
                                           .dp = 3,
                                           .ep = 3,
                                           .etp = 2,
                                           .zero = 1,
                                           .dtype = {DYTI_BF16}});
    static const char bias[] = "decoder.layers.1.mlp.router.expert_bias";

    (void)state;
    for (uint32_t r = 0; r < 6; r++) {
        for (int32_t i = 0; i < 2; i++) {
            char name[96];
            int32_t expert = (int32_t)(r / 2) * 2 + i;
            struct dyt_cell c;

            snprintf(name, sizeof(name),
                     "decoder.layers.1.mlp.experts.linear_fc1.weight%d", i);
            c = dyt_at(l, r, name, 0);
            assert_int_equal(
                c.tensor,
                dyti_model_find_expert(m, 1, expert, DYTI_SLOT_EXPERT_GATE));
            assert_int_equal(c.index, r % 2 * 6 * 16);
            snprintf(name, sizeof(name),
                     "decoder.layers.1.mlp.experts.linear_fc2.weight%d", i);
            assert_int_equal(dyt_buffer(l, r, DYTI_PARAM, name)->shape[1], 6);
            c = dyt_at(l, r, name, 7); /* row 1, column 1 */
            assert_int_equal(
                c.tensor,
                dyti_model_find_expert(m, 1, expert, DYTI_SLOT_EXPERT_DOWN));
            assert_int_equal(c.index, 12 + r % 2 * 6 + 1);
        }
        assert_int_equal(dyt_buffer(l, r, DYTI_PARAM, bias)->dtype, DYTI_F32);
        assert_null(dyt_buffer(l, r, DYTI_GRAD, bias));
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

/* Rule: moe_mlp_glu_interleave_size s: s rows of gate and s of up take turns in
 * an expert's fc1; shared experts and dense layers keep gate over up. */
static void gate_and_up_of_experts_may_take_turns(void **state)
{
    struct dyti_arch arch =
        DYT_ARCH(DYTI_DEEPSEEK_V3, 50, 16, 2, 4, 4, 6, 24, .tied = false,
                 .moe = {6, 2, 12, 24, 1, 1, true}, .mla = {10, 8, 2, 4, 5});
    struct dyti_model *m = dyt_model(arch);
    struct dyti_layout *l = train(
        m, (struct dyti_layout_desc){.tp = 2, .etp = 2, .glu_interleave = 3});
    static const char fc1[] = "decoder.layers.1.mlp.experts.linear_fc1.weight4";
    static const char gate[] = "model.layers.1.mlp.experts.4.gate_proj.weight";
    static const char up[] = "model.layers.1.mlp.experts.4.up_proj.weight";

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        for (int64_t turn = 0; turn < 2; turn++) {
            dyt_assert_rows(l, r, fc1, 6 * turn, 3, gate, r * 6 + turn * 3);
            dyt_assert_rows(l, r, fc1, 6 * turn + 3, 3, up, r * 6 + turn * 3);
        }
        dyt_assert_rows(
            l, r, "decoder.layers.1.mlp.shared_experts.linear_fc1.weight", 12,
            12, "model.layers.1.mlp.shared_experts.up_proj.weight", r * 12);
        dyt_assert_rows(l, r, "decoder.layers.0.mlp.linear_fc1.weight", 0, 12,
                        "model.layers.0.mlp.gate_proj.weight", r * 12);
    }
    dyti_layout_destroy(l);
    dyti_model_destroy(m);
}

static void what_megatron_has_not_is_refused(void **state)
{
    struct dyti_arch arch =
        DYT_ARCH(DYTI_LLAMA, 50, 8, 2, 12, 4, 2, 48, .tied = true);
    struct dyti_arch mixtral = DYT_ARCH_TINY_MIXTRAL;
    struct dyti_model *m = dyt_model(arch), *moe = dyt_model(mixtral);
    const struct dyti_layout_desc d = {.dialect = DYTI_DIALECT_MEGATRON};
    struct dyti_layout_desc x;

    (void)state;
    x = d;
    x.tp = 5;
    dyt_refused(m, x, "nearest degree that works is tp 4");
    x = d;
    x.zero = 2;
    dyt_refused(m, x, "nearest that works is zero 1");
    x = d;
    x.dp = x.ep = 3;
    dyt_refused(moe, x, "nearest degree that works is ep 2");
    x = d;
    x.dp = x.ep = 2;
    x.experts = DYTI_EXPERTS_ROUND_ROBIN;
    dyt_refused(moe, x, "only linear is available");
    x = d;
    x.glu_interleave = 2;
    dyt_refused(m, x, "only available for the routed experts of megatron");
    x.tp = x.etp = 2;
    x.glu_interleave = 5;
    dyt_refused(moe, x, "nearest that works is 4");
    x = d;
    x.bucket_multiple = 65536;
    dyt_refused(m, x, "with zero 1");
    x = d;
    x.round_robin = true;
    dyt_refused(m, x, "flat tensors of zero12");
    dyti_model_destroy(m);
    dyti_model_destroy(moe);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(raw_rows_are_cut),
    cmocka_unit_test(whole_groups_interleave),
    cmocka_unit_test(gates_of_attention_follow_their_queries),
    cmocka_unit_test(fc1_is_gate_over_up),
    cmocka_unit_test(the_vocabulary_depends_on_tp),
    cmocka_unit_test(layers_have_local_numbers),
    cmocka_unit_test(experts_are_counted_locally),
    cmocka_unit_test(gate_and_up_of_experts_may_take_turns),
    cmocka_unit_test(what_megatron_has_not_is_refused),
};

DYT_TEST_MAIN(tests)
