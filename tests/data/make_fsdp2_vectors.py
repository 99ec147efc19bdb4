"""Rows that PyTorch gives to each rank under FSDP2: tests/data/fsdp2.json.

Needs torch >= 2.6 (CPU is enough; one process stands for a whole world: the
"fake" process group answers every collective at once).  Run from the
repository's root: python tests/data/make_fsdp2_vectors.py

Two kinds of cases:
  fsdp   fully_shard over 1 to 8 ranks: dimension 0 in chunks, the last ones
         shorter or empty, storage padded to the first
  tp     dimension 0 cut over TP first, then by fully_shard (a strided shard),
         or dimension 1 over TP and dimension 0 by fully_shard
Every element of a tensor is its own index, so that what a rank holds says
which rows and columns they are.
"""

import json
import pathlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

OUT = pathlib.Path(__file__).with_name("fsdp2.json")
COLUMNS = 6
ROWS = [1, 2, 5, 7, 8, 9, 10, 16, 50]
TP_CASES = [  # rows, columns, tp, dp, dimension that TP cuts
    (16, 6, 2, 3, 0), (16, 6, 2, 4, 0), (12, 6, 4, 2, 0), (10, 6, 2, 4, 0), (8, 6, 4, 3, 0),
    (9, 8, 2, 4, 1), (16, 8, 2, 3, 1), (5, 8, 4, 4, 1),
]


class Holder(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)


def counted(rows, columns):
    return torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns)


def local_of(world, rank, make_weight, mesh_shape, names):
    """What one rank keeps of one parameter after fully_shard: values, padded rows, placements."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
        module = Holder(make_weight(mesh))
        fully_shard(module, mesh=mesh["dp"] if "tp" in names else mesh)
        weight = module.weight
        assert isinstance(weight, DTensor)
        state = fully_shard.state(module)
        padded = state._fsdp_param_group.fsdp_params[0].padded_sharded_param_size
        return weight.to_local().detach().clone(), padded, [type(p).__name__ for p in weight.placements]
    finally:
        dist.destroy_process_group()


def box(values, columns):
    """[row, column) ranges of a local tensor whose elements are indices."""
    if values.numel() == 0:
        return {"rows": [0, 0], "columns": [0, 0]}
    row, column = values.long() // columns, values.long() % columns
    found = {"rows": [int(row.min()), int(row.max()) + 1], "columns": [int(column.min()), int(column.max()) + 1]}
    height, width = (found[k][1] - found[k][0] for k in ("rows", "columns"))
    assert values.shape == (height, width), (values.shape, found)
    return found


def shard_case(rows, ranks):
    locals_ = [local_of(ranks, r, lambda mesh: counted(rows, COLUMNS), (ranks,), ("dp",)) for r in range(ranks)]
    return {"rows": rows, "columns": COLUMNS, "tp": 1, "dp": ranks, "tp_dim": -1,
            "placements": locals_[0][2], "padded_rows": int(locals_[0][1][0]),
            "held": [box(values, COLUMNS) for values, _, _ in locals_]}


def tp_case(rows, columns, tp, dp, dim):
    held, padded, names = [], 0, []
    for rank in range(tp * dp):  # TP is the fastest dimension of the mesh
        def make(mesh):
            at = rank % tp
            whole = counted(rows, columns)
            return DTensor.from_local(whole.chunk(tp, dim)[at].contiguous(), mesh["tp"], [Shard(dim)],
                                      run_check=False)
        values, size, names = local_of(tp * dp, rank, make, (dp, tp), ("dp", "tp"))
        held.append(box(values, columns))
        padded = int(size[0])
    return {"rows": rows, "columns": columns, "tp": tp, "dp": dp, "tp_dim": dim,
            "placements": names, "padded_rows": padded, "held": held}


def main():
    cases = [shard_case(rows, ranks) for rows in ROWS for ranks in range(1, 9)]
    cases += [tp_case(*c) for c in TP_CASES]
    lines = ",\n".join(json.dumps(c) for c in cases)
    OUT.write_text('{"torch": "%s",\n"cases": [\n%s\n]}\n' % (torch.__version__.split("+")[0], lines))
    print(f"{OUT}: {len(cases)} cases")


if __name__ == "__main__":
    main()
