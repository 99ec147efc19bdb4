"""What crosses in one update, counted: ours, where every rank gets what it
holds, and that of vLLM's backend nccl_m2n by its own rules: a checkpoint's
tensor that is a parameter of its own with one of the plain loaders goes in
shards, and all else (qkv_proj, gate_up_proj, w13, w2, embeddings, heads) goes
whole to every rank."""

# Shapes as the models' own config.json files have them.
LLAMA_8B = {"hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "vocab_size": 128256, "head_dim": 128,
            "tie_word_embeddings": False}
QWEN3_30B_A3B = {"hidden_size": 2048, "intermediate_size": 6144,
                 "num_hidden_layers": 48, "num_attention_heads": 32,
                 "num_key_value_heads": 4, "vocab_size": 151936,
                 "head_dim": 128, "tie_word_embeddings": False,
                 "num_experts": 128, "moe_intermediate_size": 768,
                 "qk_norm": True}


def tensors(config):
    """(name, elements, elements on all ranks at this TP as a function) rows of
    a checkpoint; kinds: fused, row, whole, vocabulary."""
    h, layers = config["hidden_size"], config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    d = config.get("head_dim") or h // heads
    q, kv = heads * d, config["num_key_value_heads"] * d
    yield "model.embed_tokens", config["vocab_size"] * h, "vocabulary"
    if not config["tie_word_embeddings"]:
        yield "lm_head", config["vocab_size"] * h, "vocabulary"
    yield "model.norm", h, "whole"
    for _ in range(layers):
        yield "q_proj", q * h, "fused"
        yield "k_proj", kv * h, "kv"
        yield "v_proj", kv * h, "kv"
        yield "o_proj", q * h, "row"
        yield "norms", 2 * h, "whole"
        if config.get("qk_norm"):
            yield "qk_norms", 2 * d, "whole"
        experts = config.get("num_experts")
        if experts:
            ffn = config["moe_intermediate_size"]
            yield "gate", experts * h, "whole"
            yield "experts", 3 * experts * ffn * h, "fused"
        else:
            ffn = config["intermediate_size"]
            yield "gate_proj, up_proj", 2 * ffn * h, "fused"
            yield "down_proj", ffn * h, "row"


def crossed(config, tp):
    """(ours, nccl_m2n's), in elements over all ranks of one replica."""
    ours = theirs = 0
    groups = config["num_key_value_heads"]
    for _, count, kind in tensors(config):
        if kind == "whole":
            ours += count * tp
        elif kind == "kv":  # fewer heads than ranks: some hold the same
            ours += count * max(1, tp // groups)
        else:
            ours += count
        theirs += count if kind == "row" else count * tp
    return ours, theirs


def rule(name):
    """Does nccl_m2n write a checkpoint's tensor of this name as shards?"""
    return name.endswith(("o_proj.weight", "down_proj.weight"))
