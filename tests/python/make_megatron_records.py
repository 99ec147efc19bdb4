"""Writes megatron_records.json: the records that Megatron-Core's
sharded_state_dict() gives for a small dense model with TP 2 x PP 2 (axis of
layers in front, gate and up as halves, vocabulary padded to 128 * TP, head
apart), by its published rules.  usage: make_megatron_records.py"""

import json
import pathlib

TP, PP, LAYERS, HIDDEN = 2, 2, 4, 16
SHAPE = {"heads": 8, "groups": 2, "head_dim": 2, "ffn": 24, "vocabulary": 50,
         "layers": LAYERS}
QKV = (SHAPE["heads"] + 2 * SHAPE["groups"]) * SHAPE["head_dim"]
PADDED = 256


def record(key, shape, axis, rank, layer=None, halves=1, half=0):
    """A cut of `shape` along `axis` over TP; axis None: whole on each rank."""
    local, offset = list(shape), [0] * len(shape)
    if axis is not None:
        local[axis] //= TP * halves
        offset[axis] = (half * TP + rank) * local[axis]
    front = [] if layer is None else [layer]
    return {"key": key, "local_shape": local, "global_offset": front + offset,
            "global_shape": [LAYERS] * len(front) + list(shape),
            "prepend_axis_num": len(front)}


def rank_records(tp, pp):
    found = []
    if pp == 0:
        found.append(record("embedding.word_embeddings.weight",
                            (PADDED, HIDDEN), 0, tp))
    for layer in range(pp * LAYERS // PP, (pp + 1) * LAYERS // PP):
        prefix, ffn = "decoder.layers.", SHAPE["ffn"]
        rows = (("self_attention.linear_qkv.layer_norm_weight", (HIDDEN,),
                 None), ("self_attention.linear_qkv.weight", (QKV, HIDDEN), 0),
                ("self_attention.linear_proj.weight",
                 (HIDDEN, SHAPE["heads"] * SHAPE["head_dim"]), 1),
                ("mlp.linear_fc1.layer_norm_weight", (HIDDEN,), None),
                ("mlp.linear_fc2.weight", (HIDDEN, ffn), 1))
        found += [record(prefix + key, shape, axis, tp, layer)
                  for key, shape, axis in rows]
        found += [record(prefix + "mlp.linear_fc1.weight", (2 * ffn, HIDDEN),
                         0, tp, layer, halves=2, half=half)
                  for half in range(2)]
    if pp == PP - 1:
        found.append(record("decoder.final_layernorm.weight", (HIDDEN,), None,
                            tp))
        found.append(record("output_layer.weight", (PADDED, HIDDEN), 0, tp))
    return found


def elements():
    heads = SHAPE["heads"] * SHAPE["head_dim"]
    keys = SHAPE["groups"] * SHAPE["head_dim"]
    found = {"model.embed_tokens.weight": 50 * HIDDEN,
             "lm_head.weight": 50 * HIDDEN, "model.norm.weight": HIDDEN}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        found.update({
            prefix + "input_layernorm.weight": HIDDEN,
            prefix + "post_attention_layernorm.weight": HIDDEN,
            prefix + "self_attn.q_proj.weight": heads * HIDDEN,
            prefix + "self_attn.k_proj.weight": keys * HIDDEN,
            prefix + "self_attn.v_proj.weight": keys * HIDDEN,
            prefix + "self_attn.o_proj.weight": heads * HIDDEN,
            prefix + "mlp.gate_proj.weight": SHAPE["ffn"] * HIDDEN,
            prefix + "mlp.up_proj.weight": SHAPE["ffn"] * HIDDEN,
            prefix + "mlp.down_proj.weight": SHAPE["ffn"] * HIDDEN})
    return found


if __name__ == "__main__":
    ranks = [rank_records(tp, pp) for pp in range(PP) for tp in range(TP)]
    pathlib.Path(__file__).with_name("megatron_records.json").write_text(
        json.dumps({"shape": SHAPE, "elements": elements(), "ranks": ranks})
        + "\n", encoding="utf-8")
