"""Writes tiny_refs.json: logits, loss and gradients of tiny models of every
family, as PyTorch and transformers compute them.

usage: make_tiny_refs.py OUT.json        (needs torch, transformers, numpy)

Weights are not stored: both sides make them from the same formula, the
counter-based generator of core/base/rng.h (see `weights` below and
tests/unit/core/nn/test_oracle.c), in the order of our catalogue of tensors.
Made with torch 2.15.0, transformers 5.24.0, in f64 so that the values are
better than what is tested against them.
"""
import json
import sys

import numpy as np
import torch
import transformers
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

U = np.uint64
SIZES = dict(vocab_size=41, hidden_size=24, num_hidden_layers=2,
             num_attention_heads=6, num_key_value_heads=3, head_dim=4,
             intermediate_size=20, max_position_embeddings=64,
             rms_norm_eps=1e-5, attention_dropout=0.0)
LLAMA3 = dict(rope_type="llama3", rope_theta=50.0, factor=8.0,
              low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
CASES = [
    ("llama", LlamaConfig, LlamaForCausalLM, True, dict(rope_type="default", rope_theta=10000.0)),
    ("llama3", LlamaConfig, LlamaForCausalLM, False, LLAMA3),
    ("mistral", MistralConfig, MistralForCausalLM, False, dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
    ("qwen2", Qwen2Config, Qwen2ForCausalLM, True, dict(rope_type="default", rope_theta=1000000.0)),
    ("qwen3", Qwen3Config, Qwen3ForCausalLM, False, dict(rope_type="default", rope_theta=1000000.0)),
]
LAYER = ["input_layernorm.weight", "self_attn.q_proj.weight",
         "self_attn.k_proj.weight", "self_attn.v_proj.weight",
         "self_attn.q_proj.bias", "self_attn.k_proj.bias",
         "self_attn.v_proj.bias", "self_attn.q_norm.weight",
         "self_attn.k_norm.weight", "self_attn.o_proj.weight",
         "post_attention_layernorm.weight", "mlp.gate_proj.weight",
         "mlp.up_proj.weight", "mlp.down_proj.weight"]


def mix64(x):
    x = x ^ (x >> U(30))
    x = x * U(0xbf58476d1ce4e5b9)
    x = x ^ (x >> U(27))
    x = x * U(0x94d049bb133111eb)
    return x ^ (x >> U(31))


def rng_u64(seed, a, b, c):
    with np.errstate(over="ignore"):
        x = mix64(U(seed) + U(0x9e3779b97f4a7c15))
        x = mix64(x ^ mix64(U(a) + U(0x3c6ef372fe94f82b)))
        x = mix64(x ^ mix64(np.asarray(b, dtype=U) + U(0xdaa66d2c7ddf743f)))
        return mix64(x ^ mix64(U(c) + U(0x78dde6e5fd29f053)))


def unit(bits):
    return (bits >> U(11)).astype(np.float64) * 2.0 ** -53


def weights(seed, tensor, name, count):
    """f32 values of tensor number `tensor` of the catalogue."""
    x = 2.0 * unit(rng_u64(seed, tensor, np.arange(count), 0)) - 1.0
    if "norm" in name:
        return (1.0 + 0.4 * x).astype(np.float32)
    return (x * (1.0 if "embed" in name else 0.4)).astype(np.float32)


def catalogue(params):
    layers = SIZES["num_hidden_layers"]
    names = ["model.embed_tokens.weight"]
    names += [f"model.layers.{l}.{n}" for l in range(layers) for n in LAYER]
    names += ["model.norm.weight", "lm_head.weight"]
    return [n for n in names if n in params]


def case(number, name, config_class, model_class, tied, rope):
    config = config_class(**SIZES, tie_word_embeddings=tied,
                          rope_parameters=rope, attn_implementation="eager")
    model = model_class(config).double().eval()
    params = dict(model.named_parameters())
    order = catalogue(params)
    assert len(order) == len(params), sorted(set(params) - set(order))
    with torch.no_grad():
        for t, n in enumerate(order):
            value = weights(100 + number, t, n, params[n].numel())
            params[n].copy_(torch.from_numpy(value.astype(np.float64)).view_as(params[n]))
    # Two sequences, packed one after the other on our side.
    lengths = [13, 4]
    ids = [(rng_u64(100 + number, 1000 + s, np.arange(n), 0) % U(SIZES["vocab_size"])).astype(np.int64).tolist()
           for s, n in enumerate(lengths)]
    logits, logprob, entropy, loss = [], [], [], 0.0
    for seq in ids:
        out = model(torch.tensor([seq])).logits[0]
        lp = torch.log_softmax(out * 0.8, -1)
        ent = -(lp.exp() * lp).sum(-1)
        # Every row has a target: the next token, the last row its own first.
        target = torch.tensor(seq[1:] + seq[:1])
        chosen = lp[torch.arange(len(seq)), target]
        loss = loss - 0.25 * chosen.sum() + 0.1 * ent.sum()
        logits += out.flatten().tolist()
        logprob += chosen.tolist()
        entropy += ent.tolist()
    loss.backward()
    grads = {}
    for n in order:
        g = params[n].grad.flatten()
        at = (rng_u64(7, 0, np.arange(12), 0) % U(g.numel())).astype(np.int64)
        grads[n] = {"l2": float(g.norm()), "at": at.tolist(),
                    "values": [float(g[i]) for i in at]}
    r8 = lambda v: [float("%.8g" % x) for x in v]
    for g in grads.values():
        g["values"] = r8(g["values"])
    return {"name": name, "seed": 100 + number, "tied": tied, "rope": rope,
            "ids": ids, "scale": 0.8, "dlogprob": -0.25, "dentropy": 0.1,
            "logits": r8(logits), "logprob": r8(logprob),
            "entropy": r8(entropy), "loss": float(loss.detach()), "grads": grads}


def main():
    torch.manual_seed(0)
    refs = {"made_by": "make_tiny_refs.py", "torch": torch.__version__,
            "transformers": transformers.__version__, "sizes": SIZES,
            "cases": [case(i, *c) for i, c in enumerate(CASES)]}
    with open(sys.argv[1], "w") as f:
        json.dump(refs, f, separators=(",", ":"))
        f.write("\n")


main()
