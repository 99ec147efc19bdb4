"""Writes the seeds of corpus/safetensors, corpus/hf_config, corpus/tokenizer.
usage: make_model_files.py"""
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))


def put(folder, name, data):
    with open(os.path.join(HERE, folder, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def st(header, data=b"", length=None):
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text) if length is None else length) + \
        text.encode() + data


def tensor(dtype, shape, lo, hi):
    return {"dtype": dtype, "shape": shape, "data_offsets": [lo, hi]}


put("safetensors", "two", st({"__metadata__": {"format": "pt"},
                              "a": tensor("F32", [2, 2], 0, 16),
                              "b": tensor("BF16", [3], 16, 22)}, bytes(22)))
put("safetensors", "scalar", st({"s": tensor("I64", [], 0, 8),
                                 "e": tensor("F16", [0, 5], 8, 8)}, bytes(8)))
put("safetensors", "other_types", st({"u": tensor("U8", [4], 0, 4),
                                      "d": tensor("F64", [1], 4, 12)},
                                     bytes(12)))
put("safetensors", "overlap", st({"a": tensor("F32", [2], 0, 8),
                                  "b": tensor("F32", [2], 4, 12)}, bytes(12)))
put("safetensors", "hole", st({"a": tensor("F32", [1], 4, 8)}, bytes(8)))
put("safetensors", "huge", st({"a": tensor("F32", [2**40, 2**40], 0, 4)},
                              bytes(4)))
put("safetensors", "long", st("{}", length=2**63))
put("safetensors", "twice", st('{"a":{},"a":{}}'))
put("safetensors", "empty", st("{}"))

BASE = {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
        "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 64}
put("hf_config", "llama", json.dumps(BASE))
put("hf_config", "llama3", json.dumps({
    **BASE, "num_key_value_heads": 2, "rope_theta": 5e5, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}))
put("hf_config", "new_rope", json.dumps({
    **BASE, "rope_parameters": {"rope_type": "linear", "factor": 2,
                                "rope_theta": 1e4}, "dtype": "bfloat16"}))
put("hf_config", "qwen3", json.dumps({
    **BASE, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
    "num_key_value_heads": 2, "head_dim": 16, "layer_types":
    ["full_attention"] * 2, "use_sliding_window": False}))
put("hf_config", "mistral", json.dumps({
    **BASE, "model_type": "mistral", "architectures": ["MistralForCausalLM"],
    "num_key_value_heads": 1, "sliding_window": 128,
    "max_position_embeddings": 128}))
put("hf_config", "refused", json.dumps({
    **BASE, "quantization_config": {"bits": 4}, "mlp_bias": True}))

BYTES = {"type": "ByteLevel", "add_prefix_space": False}
VOCAB = {c: i for i, c in enumerate("ab12<>/s|xe\u0120\u010a\u00c3\u00a9\u00cc\u0123")}


def tok(merges=("a b", "ab b"), **parts):
    vocab = dict(VOCAB)
    for m in merges:
        vocab.setdefault(m.replace(" ", ""), len(vocab))
    return json.dumps({"model": {"type": "BPE", "vocab": vocab,
                                 "merges": list(merges)},
                       "pre_tokenizer": BYTES, "decoder": BYTES, **parts})


def added(i, text, **kw):
    return {"id": 40 + i, "content": text, "special": True, **kw}


put("tokenizer", "plain", tok())
put("tokenizer", "split", tok(pre_tokenizer={
    "type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+(?!\\S)|[^\\s]"},
         "behavior": "Isolated", "invert": False},
        {"type": "Digits", "individual_digits": True},
        {**BYTES, "use_regex": False}]}))
put("tokenizer", "added", tok(normalizer={"type": "NFC"}, added_tokens=[
    added(0, "<s>", lstrip=True), added(1, "</s>", rstrip=True),
    added(2, "x", special=False, normalized=True, single_word=True)]))
put("tokenizer", "template", tok(added_tokens=[added(0, "<s>")],
                                 post_processor={
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
               {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [40], "tokens": ["<s>"]}}}))
put("tokenizer", "literal", tok(pre_tokenizer={
    "type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"String": "b"},
         "behavior": "MergedWithNext", "invert": False}, BYTES]}))
put("tokenizer", "refused", tok(normalizer={"type": "Lowercase"}))
