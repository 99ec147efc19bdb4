/* Checks of an architecture: what no model can have, and what core/nn does not
 * run. */
#include "base/error.h"
#include "vps/catalogue.h"

const char *dyti_family_name(enum dyti_family family)
{
    static const char *const name[DYTI_FAMILY_COUNT] = {
        "llama",   "mistral",     "qwen2",       "qwen3", "qwen3_moe",
        "mixtral", "deepseek_v2", "deepseek_v3", "gpt2"};

    if (family == DYTI_FAMILY_LISTED) {
        return "listed";
    }
    return family < DYTI_FAMILY_COUNT ? name[family] : "?";
}

enum dyt_status dyti_arch_check_runs(const struct dyti_arch *arch)
{
    if (arch->attn_gate) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "a gate of the attention's output (attn_output_gate) "
                         "can be laid out, planned and converted, but not run");
    }
    if (arch->family <= DYTI_QWEN3) {
        return DYT_OK;
    }
    if (arch->family == DYTI_FAMILY_LISTED) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "a list of tensors can be switched, but not run: "
                         "describe the model by its config.json");
    }
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "a %s model can be laid out, planned and converted, but "
                     "not run: llama, mistral, qwen2 and qwen3 can",
                     dyti_family_name(arch->family));
}

struct size_row {
    const char *name;
    int64_t value, least;
};

static enum dyt_status check_sizes(const struct size_row *row, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (row[i].value < row[i].least) {
            return DYTI_FAIL(
                DYT_ERR_INVALID, "%s is %lld: it must be at least %lld",
                row[i].name, (long long)row[i].value, (long long)row[i].least);
        }
        if (row[i].value > INT32_MAX / 2) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW, "%s is %lld: at most %d",
                             row[i].name, (long long)row[i].value,
                             INT32_MAX / 2);
        }
    }
    return DYT_OK;
}

static enum dyt_status check_heads(const struct dyti_arch *a)
{
    const struct dyti_mla *mla = &a->mla;
    const int64_t width[] = {a->head_dim, mla->nope_dim + mla->rope_dim,
                             mla->nope_dim + mla->v_dim};

    if (a->q_heads % a->kv_heads != 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "num_key_value_heads %lld does not divide "
                         "num_attention_heads %lld",
                         (long long)a->kv_heads, (long long)a->q_heads);
    }
    for (size_t i = 0; i < sizeof(width) / sizeof(width[0]); i++) {
        /* three times: a fused QKV has all of them in one dimension */
        if (a->q_heads * width[i] > INT32_MAX / 6) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW,
                             "%lld heads of %lld elements: at most %d together",
                             (long long)a->q_heads, (long long)width[i],
                             INT32_MAX / 6);
        }
    }
    return DYT_OK;
}

static enum dyt_status check_moe(const struct dyti_arch *a)
{
    const struct size_row size[] = {
        {"moe_intermediate_size", a->moe.ffn, 1},
        {"number of experts", a->moe.count, 0},
        {"width of the shared experts", a->moe.shared_ffn, 0},
        {"first MoE layer", a->moe.first_layer, 0},
        {"step between MoE layers", a->moe.layer_step, 1},
    };

    return a->moe.count == 0
               ? DYT_OK
               : check_sizes(size, sizeof(size) / sizeof(size[0]));
}

static enum dyt_status check_mla(const struct dyti_arch *a)
{
    const struct size_row size[] = {
        {"q_lora_rank", a->mla.q_lora, 0},
        {"kv_lora_rank", a->mla.kv_lora, 0},
        {"qk_rope_head_dim", a->mla.rope_dim, 1},
        {"qk_nope_head_dim", a->mla.nope_dim, 1},
        {"v_head_dim", a->mla.v_dim, 1},
    };

    return a->mla.kv_lora == 0
               ? DYT_OK
               : check_sizes(size, sizeof(size) / sizeof(size[0]));
}

/* Every size far below 2^31, so that products of two never overflow; sums over
 * the catalogue are checked once, where it is built. */
enum dyt_status dyti_arch_check(const struct dyti_arch *a)
{
    const struct size_row size[] = {
        {"vocab_size", a->vocab, 1},
        {"hidden_size", a->hidden, 1},
        {"num_hidden_layers", a->layers, 1},
        {"num_attention_heads", a->q_heads, 1},
        {"num_key_value_heads", a->kv_heads, 1},
        {"head_dim", a->head_dim, 1},
        {"intermediate_size", a->ffn, 1},
        {"max_position_embeddings", a->max_positions, 0},
    };
    enum dyt_status st = check_sizes(size, sizeof(size) / sizeof(size[0]));

    st = st != DYT_OK ? st : check_moe(a);
    st = st != DYT_OK ? st : check_mla(a);
    return st != DYT_OK ? st : check_heads(a);
}
