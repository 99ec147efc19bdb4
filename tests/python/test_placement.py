"""Boxes of shards: against the vectors of docs and, where torch is there,
against what FSDP2 and DTensor hold on real process groups."""

import os
import random
import subprocess
import sys

import support
from dynatrain import errors, placement


def fsdp2_vectors():
    for rows, ranks, want in ((10, 4, [3, 3, 3, 1]), (5, 4, [2, 2, 1, 0]),
                              (9, 8, [2, 2, 2, 2, 1, 0, 0, 0])):
        have = []
        for rank in range(ranks):
            box = placement.box_of((rows, 3), [("shard", 0)], (ranks,),
                                   (rank,))
            have.append(box[1][0] - box[0][0] if box else 0)
        assert have == want, (rows, ranks, have)


def strided_shards_are_cut_inside():
    """FSDP 2 over TP 4 on the same dimension: TP first, then FSDP inside."""
    for fsdp in range(2):
        for tp in range(4):
            box = placement.box_of(
                (40, 3), [("strided", 0, 4), ("shard", 0)], (2, 4),
                (fsdp, tp))
            assert box == ((tp * 10 + fsdp * 5, 0), (tp * 10 + fsdp * 5 + 5, 3))


def every_element_is_held_once():
    random.seed(2)
    for _ in range(400):
        shape = (random.randint(1, 13), random.randint(1, 9))
        mesh = tuple(random.randint(1, 4) for _ in range(random.randint(1, 3)))
        placements, copies = [], 1
        for axis, parts in enumerate(mesh):
            kind = random.choice(("replicate", "shard", "strided"))
            dim = random.randint(0, 1)
            if kind == "strided":
                inside = 1
                for right in range(axis + 1, len(mesh)):
                    inside *= mesh[right]
                placements.append((kind, dim, inside))
            elif kind == "shard":
                placements.append((kind, dim))
            else:
                placements.append((kind,))
                copies *= parts
        # what lies to the right of a strided shard is cut by the same dim
        for axis, cut in enumerate(placements):
            if cut[0] == "strided":
                for right in range(axis + 1, len(mesh)):
                    if placements[right][0] == "replicate":
                        copies //= mesh[right]
                    placements[right] = ("shard", cut[1])
                break
        held = {}
        for index in range(len_of(mesh)):
            coordinate, rest = [], index
            for parts in reversed(mesh):
                coordinate.insert(0, rest % parts)
                rest //= parts
            box = placement.box_of(shape, placements, mesh, coordinate)
            if box is None:
                continue
            for y in range(box[0][0], box[1][0]):
                for x in range(box[0][1], box[1][1]):
                    held[y, x] = held.get((y, x), 0) + 1
        assert len(held) == shape[0] * shape[1], (shape, mesh, placements)
        assert set(held.values()) == {copies}, (shape, mesh, placements)


def len_of(mesh):
    count = 1
    for parts in mesh:
        count *= parts
    return count


def what_is_no_part_is_refused():
    class Partial:
        pass

    support.raises(errors.UnsupportedError,
                   lambda: placement.of_torch([Partial()], "model.norm"),
                   "model.norm")
    support.raises(errors.UnsupportedError, lambda: placement.box_of(
        (8, 8), [("strided", 0, 3), ("shard", 0)], (2, 4), (0, 0), "w"), "w")


def torch_agrees():
    """Real shards of real process groups, in processes of their own; --alone:
    somebody else runs that program."""
    if "--alone" in sys.argv:
        return
    try:
        import torch  # noqa: F401
    except ImportError:
        print("no torch: real shards are not compared")
        return
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([sys.executable, os.path.join(here, "torch_shards.py")],
                   check=True, timeout=110)


if __name__ == "__main__":
    support.run(fsdp2_vectors, strided_shards_are_cut_inside,
                every_element_is_held_once, what_is_no_part_is_refused,
                torch_agrees)
