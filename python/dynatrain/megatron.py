"""Rows of Megatron-Core: from the records of a model's sharded_state_dict(), and
from the ranges of its distributed optimizer.  Boxes are those of Hugging Face's
names, so a server's rules need not know Megatron.  No framework is imported.

    shape = Shape.of(transformer_config, vocabulary)
    rows = module_rows(sharded_state_dict, shape)
    rows += optimizer_rows(ranges, shape)

A record is a ShardedTensor, or anything with its fields: key, data, local_shape,
global_shape, global_offset, prepend_axis_num.  Fused tensors are taken apart:
linear_qkv is cut by query group (its query heads, one key head, one value head),
linear_fc1 into gate and up.
"""

import dataclasses
import re
from typing import (Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple)

from dynatrain import errors, placement, tensors
from dynatrain.session import Piece, Row


@dataclasses.dataclass(frozen=True)
class Shape:
    """What the names of a model's tensors do not say."""

    heads: int
    groups: int  # key and value heads
    head_dim: int
    ffn: int  # width of one of gate and up
    vocabulary: int  # without Megatron's padding
    expert_ffn: int = 0
    gated: bool = True
    layers: int = 0  # with an axis of layers in front: how many there are

    @classmethod
    def of(cls, config: Any, vocabulary: int) -> "Shape":
        """By a TransformerConfig."""
        return cls(
            heads=config.num_attention_heads,
            groups=config.num_query_groups or config.num_attention_heads,
            head_dim=config.kv_channels, ffn=config.ffn_hidden_size,
            vocabulary=vocabulary,
            expert_ffn=getattr(config, "moe_ffn_hidden_size", 0) or 0,
            gated=config.gated_linear_unit, layers=config.num_layers)


class Segment(NamedTuple):
    """Rows [first, first + rows) of Megatron's tensor are rows from `at` of
    the tensor `name`."""

    name: str
    first: int
    rows: int
    at: int


# Megatron's name inside a layer -> Hugging Face's, or a way to take it apart.
IN_LAYER = {
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "input_layernorm.weight": "input_layernorm.weight",
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
    "self_attention.linear_qkv.weight": "qkv:weight",
    "self_attention.linear_qkv.bias": "qkv:bias",
    "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "mlp.linear_fc1.weight": "fc1:mlp",
    "mlp.linear_fc2.weight": "mlp.down_proj.weight",
    "mlp.router.weight": "mlp.gate.weight",
    "mlp.router.expert_bias": "mlp.gate.e_score_correction_bias",
    "mlp.experts.experts.linear_fc1.weight": "fc1:mlp.experts.{expert}",
    "mlp.experts.experts.linear_fc2.weight":
        "mlp.experts.{expert}.down_proj.weight",
    "mlp.shared_experts.linear_fc1.weight": "fc1:mlp.shared_experts",
    "mlp.shared_experts.linear_fc2.weight":
        "mlp.shared_experts.down_proj.weight",
}
OUTSIDE = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": "lm_head.weight",
}
_LAYER = re.compile(r"decoder\.layers\.(?:(\d+)\.)?(.+)$")
_LOCAL_EXPERT = re.compile(r"^(mlp\.experts)\.(?:experts\.|local_experts\.)?"
                           r"(linear_fc[12])\.weight(\d+)$")


def _qkv(shape: Shape, prefix: str, leaf: str) -> Iterator[Segment]:
    queries = shape.heads // shape.groups * shape.head_dim
    d, first = shape.head_dim, 0
    for group in range(shape.groups):
        for name, count in (("q", queries), ("k", d), ("v", d)):
            yield Segment(f"{prefix}self_attn.{name}_proj.{leaf}", first,
                          count, group * count)
            first += count


def _fc1(shape: Shape, prefix: str, expert: bool) -> Iterator[Segment]:
    width = shape.expert_ffn if expert else shape.ffn
    if not shape.gated:
        yield Segment(f"{prefix}.up_proj.weight", 0, width, 0)
        return
    yield Segment(f"{prefix}.gate_proj.weight", 0, width, 0)
    yield Segment(f"{prefix}.up_proj.weight", width, width, 0)


def segments(key: str, layer: Optional[int], expert: Optional[int],
             rows: int, shape: Shape) -> List[Segment]:
    """Where the rows of a Megatron tensor (global, padding included) come to
    lie; rows that no segment has are padding."""
    if key in OUTSIDE:
        count = rows if "layernorm" in key else min(rows, shape.vocabulary)
        return [Segment(OUTSIDE[key], 0, count, 0)]
    found = _LAYER.match(key)
    inner = found[2] if found else ""
    if inner not in IN_LAYER:
        raise errors.LayoutError(f"{key}: no tensor of a known model")
    number = int(found[1]) if found and found[1] else layer
    if number is None:
        raise errors.LayoutError(f"{key}: of which layer?")
    prefix = f"model.layers.{number}."
    way = IN_LAYER[inner]
    if "{expert}" in way:
        if expert is None:
            raise errors.LayoutError(f"{key}: of which expert?")
        way = way.replace("{expert}", str(expert))
    if way.startswith("qkv:"):
        return list(_qkv(shape, prefix, way[4:]))
    if way.startswith("fc1:"):
        return list(_fc1(shape, prefix + way[4:], expert is not None))
    return [Segment(prefix + way, 0, rows, 0)]


def _box_pieces(parts: Sequence[Segment], lo: Tuple[int, ...],
                hi: Tuple[int, ...]) -> List[Piece]:
    """The box [lo, hi) of Megatron's tensor, taken apart."""
    pieces = []
    for part in parts:
        first = max(lo[0], part.first)
        last = min(hi[0], part.first + part.rows)
        if first >= last:
            continue
        move = part.at - part.first
        pieces.append(Piece(
            part.name, (first + move,) + lo[1:], (last + move,) + hi[1:],
            at=(first - lo[0],) + (0,) * (len(lo) - 1)))
    return pieces


def _coordinates(record: Any, key: str) -> Tuple[Optional[int], Optional[int]]:
    """Layer and expert of a record by the axes in front of its shape."""
    axes = int(getattr(record, "prepend_axis_num", 0) or 0)
    front = [int(x) for x in record.global_offset[:axes]]
    counts = [int(x) for x in record.global_shape[:axes]]
    experts = ".experts.experts." in key
    layered = _LAYER.match(key)
    named = bool(layered and layered[1])
    layer = None if named or not front else front.pop(0)
    if layer is not None and counts:
        counts.pop(0)
    expert = front.pop(0) if experts and front else None
    return layer, expert


def _key_of(key: str, local_experts: Sequence[int]
            ) -> Tuple[str, Optional[int]]:
    """A key without the local number of its expert, and its global one."""
    layered = _LAYER.match(key)
    found = _LOCAL_EXPERT.match(layered[2]) if layered else None
    if not found or not layered:
        return key, None
    local = int(found[3])
    if local >= len(local_experts):
        raise errors.LayoutError(
            f"{key}: this rank has {len(local_experts)} experts")
    middle = f"{layered[1]}." if layered[1] else ""
    return (f"decoder.layers.{middle}{found[1]}.experts.{found[2]}.weight",
            local_experts[local])


def record_row(record: Any, shape: Shape, kind: str = "param",
               local_experts: Sequence[int] = ()) -> Optional[Row]:
    """One record as a row; None where all of it is padding."""
    key, expert = _key_of(record.key, local_experts)
    axes = int(getattr(record, "prepend_axis_num", 0) or 0)
    layer, found = _coordinates(record, key)
    lo = tuple(int(x) for x in record.global_offset[axes:])
    local = tuple(int(x) for x in record.local_shape)
    whole = tuple(int(x) for x in record.global_shape[axes:])
    hi = tuple(a + b for a, b in zip(lo, local))
    parts = segments(key, layer, expert if expert is not None else found,
                     whole[0], shape)
    pieces = _box_pieces(parts, lo, hi)
    if not pieces:
        return None
    front = "" if layer is None else f"{layer}:"
    name = f"{front}{record.key}" + "".join(f"@{x}" for x in lo if any(lo))
    return Row(name, record.data, kind=kind, pieces=pieces)


def records_of(tree: Any) -> Iterator[Any]:
    """Records of a nested state dict, factories built."""
    if isinstance(tree, Mapping):
        for inner in tree.values():
            yield from records_of(inner)
    elif isinstance(tree, (list, tuple)):
        for inner in tree:
            yield from records_of(inner)
    elif hasattr(tree, "build") and hasattr(tree, "build_fn"):
        yield from records_of(tree.build())
    elif hasattr(tree, "global_offset") and hasattr(tree, "key"):
        yield tree


def module_rows(sharded_state_dict: Any, shape: Shape,
                local_experts: Sequence[int] = ()) -> List[Row]:
    """Rows of a model's parameters.  The copy of a tied embedding on the last
    pipeline stage is the same tensor: one of equal pieces is kept a rank."""
    rows: List[Row] = []
    seen = set()
    for record in records_of(sharded_state_dict):
        if "_extra_state" in record.key or "rotary" in record.key:
            continue
        row = record_row(record, shape, local_experts=local_experts)
        if row is None:
            continue
        name = repr([(p.tensor, tuple(p.lo), tuple(p.hi)) for p in row.pieces])
        if name not in seen:
            seen.add(name)
            rows.append(row)
    return rows


class Range(NamedTuple):
    """What a rank of the distributed optimizer owns of one parameter: the flat
    elements [first, last) of its local tensor, and the state for them."""

    key: str
    local_shape: Tuple[int, ...]
    global_shape: Tuple[int, ...]
    global_offset: Tuple[int, ...]
    first: int
    last: int
    state: Mapping[str, Any]  # master, exp_avg, exp_avg_sq: flat tensors
    layer: Optional[int] = None
    expert: Optional[int] = None


def optimizer_ranges(param_range_map: Mapping[Any, Mapping[str, Any]],
                     records: Mapping[Any, Any],
                     state: Mapping[Any, Mapping[str, Any]]) -> List[Range]:
    """Ranges from one bucket's map of DistributedOptimizer
    (_build_model_gbuf_range()["param_map"]), the records of its parameters, and
    their state on this rank."""
    found = []
    for parameter, about in param_range_map.items():
        record = records[parameter]
        axes = int(getattr(record, "prepend_axis_num", 0) or 0)
        layer, expert = _coordinates(record, record.key)
        found.append(Range(
            record.key, tuple(record.local_shape),
            tuple(record.global_shape[axes:]),
            tuple(record.global_offset[axes:]), int(about["param"].start),
            int(about["param"].end), state[parameter], layer, expert))
    return found


def flat_rows(name: str, memory: tensors.Memory, kind: str,
              local: Tuple[int, ...], box: placement.Box, first: int,
              parts: Sequence[Segment]) -> Iterator[Row]:
    """Rows of a flat buffer that begins at element `first` of a local tensor
    which is `box` of the whole one."""
    last = first + tensors.elements(memory.shape)
    for number, (lo, hi) in enumerate(tensors.flat_boxes(local, first, last)):
        offset = tensors.flat_offset(local, lo) - first
        view = tensors.at_offset(memory, offset, tensors.extent(lo, hi))
        low = tuple(a + b for a, b in zip(lo, box[0]))
        high = tuple(a + b for a, b in zip(hi, box[0]))
        pieces = _box_pieces(parts, low, high)
        if pieces:
            yield Row(f"{name}[{number}]", view, kind=kind, pieces=pieces)


def optimizer_rows(ranges: Iterable[Range], shape: Shape,
                   local_experts: Sequence[int] = ()) -> List[Row]:
    """Rows of the optimizer's state: each flat range is at most
    2 * ndim - 1 boxes of its parameter."""
    rows: List[Row] = []
    for part in ranges:
        key, expert = _key_of(part.key, local_experts)
        if expert is None:
            expert = part.expert
        parts = segments(key, part.layer, expert, part.global_shape[0], shape)
        hi = tuple(a + b for a, b in zip(part.global_offset, part.local_shape))
        front = "" if part.layer is None else f"{part.layer}:"
        for kind, tensor in part.state.items():
            memory = tensors.memory_of(tensor)
            if tensors.elements(memory.shape) != part.last - part.first:
                raise errors.LayoutError(
                    f"{part.key}: {kind} has {tensors.elements(memory.shape)} "
                    f"elements for [{part.first}, {part.last})")
            rows += flat_rows(f"{front}{part.key}", memory, kind,
                              part.local_shape, (part.global_offset, hi),
                              part.first, parts)
    return rows


def bucket_ranges(sizes: Sequence[Tuple[str, int]], ranks: int,
                  align: int = 64, pad: int = 128
                  ) -> Dict[int, List[Tuple[str, int, int]]]:
    """Which flat elements of which parameter each rank owns of one bucket:
    parameters in reverse order, each start aligned, the end padded to a
    multiple of lcm(ranks, pad), cut evenly whatever lies at the cuts.  What the
    tests compare recorded ranges with."""
    start, places = 0, []
    for name, count in reversed(list(sizes)):
        start = -(-start // align) * align
        places.append((name, start, start + count))
        start += count
    step = ranks * pad // _gcd(ranks, pad)
    width = -(-start // step) * step // ranks
    owned: Dict[int, List[Tuple[str, int, int]]] = {}
    for rank in range(ranks):
        owned[rank] = []
        for name, first, last in places:
            low = max(first, rank * width)
            high = min(last, (rank + 1) * width)
            if low < high:
                owned[rank].append((name, low - first, high - first))
    return owned


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a
