"""Rows of Megatron-Core from records like those of its sharded_state_dict: an
array of unique numbers is cut as Megatron cuts it, and every element must come
to lie where Hugging Face has it.  No framework needed."""

import ctypes
import json
import pathlib

import support
from dynatrain import errors, megatron, tensors

HERE = pathlib.Path(__file__).parent
SHAPE = megatron.Shape(heads=8, groups=2, head_dim=2, ffn=12, vocabulary=50,
                       expert_ffn=6, layers=3)
HIDDEN = 16


class Record:
    """The fields of a ShardedTensor."""

    def __init__(self, key, numbers, local_shape, global_shape, global_offset,
                 prepend_axis_num=0):
        self.key = key
        self.data = Numbers(numbers, local_shape)
        self.local_shape = tuple(local_shape)
        self.global_shape = tuple(global_shape)
        self.global_offset = tuple(global_offset)
        self.prepend_axis_num = prepend_axis_num


class Numbers:
    """A dense array of int32 by the array interface."""

    def __init__(self, numbers, shape):
        self.memory = (ctypes.c_int32 * len(numbers))(*numbers)
        self.__array_interface__ = {
            "version": 3, "typestr": "<i4", "shape": tuple(shape),
            "strides": None, "data": (ctypes.addressof(self.memory), False)}


def whole(names):
    """tensor -> [rows][columns] of numbers that occur nowhere else."""
    made, number = {}, 1
    for name, shape in names.items():
        rows = []
        for _ in range(shape[0]):
            rows.append(list(range(number, number + shape[1])))
            number += shape[1]
        made[name] = rows
    return made


def read(row):
    """(tensor, y, x) -> number of what a row's pieces say that it holds."""
    memory = tensors.memory_of(row.tensor)
    flat = ctypes.cast(memory.address, ctypes.POINTER(ctypes.c_int32))
    found = {}
    for piece in row.pieces:
        for y in range(piece.lo[0], piece.hi[0]):
            for x in range(piece.lo[1], piece.hi[1]):
                ry = y - piece.lo[0] + piece.at[0]
                rx = x - piece.lo[1] + piece.at[1]
                at = ry * memory.stride[0] + rx * memory.stride[1]
                found[piece.tensor, y, x] = flat[at]
    return found


def covers(rows, want):
    """Rows of all ranks hold exactly these tensors, right everywhere."""
    found = {}
    for row in rows:
        for place, number in read(row).items():
            assert found.setdefault(place, number) == number, place
    assert found == {(name, y, x): number for name, lines in want.items()
                     for y, line in enumerate(lines)
                     for x, number in enumerate(line)}


def layer_tensors(layer):
    h, d, k = SHAPE.heads, SHAPE.head_dim, SHAPE.groups
    prefix = f"model.layers.{layer}."
    return {prefix + "self_attn.q_proj.weight": (h * d, HIDDEN),
            prefix + "self_attn.k_proj.weight": (k * d, HIDDEN),
            prefix + "self_attn.v_proj.weight": (k * d, HIDDEN)}


def fused_qkv(want, layer):
    """As Megatron stacks it: for each group its queries, its key, its value."""
    prefix = f"model.layers.{layer}.self_attn."
    d, queries = SHAPE.head_dim, SHAPE.heads // SHAPE.groups * SHAPE.head_dim
    lines = []
    for group in range(SHAPE.groups):
        lines += want[prefix + "q_proj.weight"][group * queries:
                                                (group + 1) * queries]
        lines += want[prefix + "k_proj.weight"][group * d:(group + 1) * d]
        lines += want[prefix + "v_proj.weight"][group * d:(group + 1) * d]
    return lines


def cut_rows(lines, parts, rank):
    count = len(lines) // parts
    return sum(lines[rank * count:(rank + 1) * count], []), count


def qkv_rows_are_cut_by_group():
    """Also with more ranks than groups, where some own query rows only."""
    for tp in (1, 2, 4, 8):
        for layer in (0, 2):
            want = whole(layer_tensors(layer))
            lines = fused_qkv(want, layer)
            rows = []
            for rank in range(tp):
                numbers, count = cut_rows(lines, tp, rank)
                rows.append(megatron.record_row(Record(
                    "decoder.layers.self_attention.linear_qkv.weight", numbers,
                    (count, HIDDEN), (3, len(lines), HIDDEN),
                    (layer, rank * count, 0), prepend_axis_num=1), SHAPE))
            covers(rows, want)
            if tp == 4:
                names = {p.tensor.split(".")[-2] for p in rows[0].pieces}
                assert names == {"q_proj"}, names


def documented_vector():
    """H=64, 2 groups, d=128, T=8: 1088 rows a rank; rank 3 has 832 of group
    0's queries, its key and its value."""
    shape = megatron.Shape(heads=64, groups=2, head_dim=128, ffn=1,
                           vocabulary=1)
    for rank, want in ((0, [("q", 0, 1088)]), (2, [("q", 2176, 3264)]),
                       (3, [("q", 3264, 4096), ("k", 0, 128), ("v", 0, 128)]),
                       (7, [("q", 7360, 8192), ("k", 128, 256),
                            ("v", 128, 256)])):
        parts = megatron.segments(
            "decoder.layers.0.self_attention.linear_qkv.weight", None, None,
            8704, shape)
        pieces = megatron._box_pieces(parts, (rank * 1088, 0),
                                      ((rank + 1) * 1088, 1))
        have = [(p.tensor.split(".")[-2][0], p.lo[0], p.hi[0])
                for p in pieces]
        assert have == want, (rank, have)


def gate_and_up_are_two():
    """sharded_state_dict's factory gives gate and up as halves of one axis."""
    want = whole({"model.layers.1.mlp.gate_proj.weight": (12, HIDDEN),
                  "model.layers.1.mlp.up_proj.weight": (12, HIDDEN)})
    rows = []
    for rank in range(3):
        for half, name in enumerate(("gate", "up")):
            numbers, count = cut_rows(
                want[f"model.layers.1.mlp.{name}_proj.weight"], 3, rank)
            rows.append(megatron.record_row(Record(
                "decoder.layers.1.mlp.linear_fc1.weight", numbers,
                (count, HIDDEN), (24, HIDDEN), (half * 12 + rank * count, 0)),
                SHAPE))
    covers(rows, want)
    assert len({row.name for row in rows}) == len(rows)


def padding_of_the_vocabulary_is_left_out():
    want = whole({"model.embed_tokens.weight": (50, HIDDEN)})
    lines = want["model.embed_tokens.weight"] + [[-1] * HIDDEN] * 14
    rows = []
    for rank in range(4):
        numbers, count = cut_rows(lines, 4, rank)
        rows.append(megatron.record_row(Record(
            "embedding.word_embeddings.weight", numbers, (count, HIDDEN),
            (64, HIDDEN), (rank * count, 0)), SHAPE))
    covers(rows, want)
    assert rows[3].pieces[0].hi[0] == 50
    assert megatron.record_row(Record(
        "embedding.word_embeddings.weight", [0] * HIDDEN, (1, HIDDEN),
        (64, HIDDEN), (60, 0)), SHAPE) is None


def experts_have_global_numbers():
    """weight{i} counts on the rank; the global number is the map's."""
    want = whole({f"model.layers.0.mlp.experts.{e}.{n}_proj.weight":
                  (6, HIDDEN) for e in (2, 3) for n in ("gate", "up")})
    rows = []
    for local, expert in enumerate((2, 3)):
        prefix = f"model.layers.0.mlp.experts.{expert}."
        lines = want[prefix + "gate_proj.weight"] + \
            want[prefix + "up_proj.weight"]
        rows.append(megatron.record_row(Record(
            f"decoder.layers.0.mlp.experts.linear_fc1.weight{local}",
            sum(lines, []), (12, HIDDEN), (12, HIDDEN), (0, 0)), SHAPE,
            local_experts=(2, 3)))
    covers(rows, want)
    stacked = megatron.record_row(Record(
        "decoder.layers.mlp.experts.experts.linear_fc1.weight",
        list(range(12 * HIDDEN)), (12, HIDDEN), (3, 4, 12, HIDDEN),
        (1, 3, 0, 0), prepend_axis_num=2), SHAPE)
    assert stacked.pieces[0].tensor == \
        "model.layers.1.mlp.experts.3.gate_proj.weight"


def optimizer_ranges_cut_anywhere():
    """The documented bucket (A=100, B=70, C=10 over 4 ranks), and a fused
    tensor whose ranges end inside of rows."""
    owned = megatron.bucket_ranges([("A", 100), ("B", 70), ("C", 10)], 4)
    assert owned == {0: [("C", 0, 10), ("B", 0, 32)], 1: [("B", 32, 70)],
                     2: [("A", 0, 96)], 3: [("A", 96, 100)]}, owned
    want = whole(layer_tensors(0))
    lines = fused_qkv(want, 0)
    flat = sum(lines, [])
    for ranks in (1, 3, 5):
        rows = []
        for part in megatron.bucket_ranges(
                [("qkv", len(flat))], ranks, pad=1).values():
            for _, first, last in part:
                state = Numbers(flat[first:last], (last - first,))
                rows += megatron.optimizer_rows([megatron.Range(
                    "decoder.layers.self_attention.linear_qkv.weight",
                    (len(lines), HIDDEN), (len(lines), HIDDEN), (0, 0), first,
                    last, {"exp_avg": state}, layer=0)], SHAPE)
        assert all(row.kind == "exp_avg" for row in rows)
        covers(rows, want)


def recorded_records():
    """A tensor- and pipeline-parallel rank's state dict, as recorded: names,
    shapes and offsets of every record."""
    recorded = json.loads((HERE / "megatron_records.json").read_text())
    shape = megatron.Shape(**recorded["shape"])
    pieces = {}
    for rank in recorded["ranks"]:
        tree = {str(i): Record(numbers=[0] * tensors.elements(
            tuple(r["local_shape"])), **r) for i, r in enumerate(rank)}
        for row in megatron.module_rows({"model": [tree]}, shape):
            for piece in row.pieces:
                count = tensors.elements(tensors.extent(piece.lo, piece.hi))
                held = pieces.setdefault(piece.tensor, {})
                held[tuple(piece.lo), tuple(piece.hi)] = count
    counts = {name: sum(parts.values()) for name, parts in pieces.items()}
    assert counts == recorded["elements"], counts


def what_is_not_known_is_named():
    support.raises(errors.LayoutError, lambda: megatron.record_row(Record(
        "decoder.layers.0.mlp.linear_fc9.weight", [0], (1, 1), (1, 1),
        (0, 0)), SHAPE), "linear_fc9")
    support.raises(errors.LayoutError, lambda: megatron.optimizer_rows(
        [megatron.Range("output_layer.weight", (2, 2), (2, 2), (0, 0), 1, 3,
                        {"master": Numbers([1], (1,))})], SHAPE), "master")


if __name__ == "__main__":
    support.run(qkv_rows_are_cut_by_group, documented_vector,
                gate_and_up_are_two, padding_of_the_vocabulary_is_left_out,
                experts_have_global_numbers, optimizer_ranges_cut_anywhere,
                recorded_records, what_is_not_known_is_named)
