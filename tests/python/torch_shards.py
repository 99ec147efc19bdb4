"""Rows of FSDP2 modules and DTensors on real gloo groups, against the whole
tensors that full_tensor() gathers (which the rows themselves never do)."""

import os
import pathlib
import sys
import tempfile

import support  # noqa: F401  (finds the package)
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import dynatrain.torch as dt


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layer = nn.Linear(16, 9)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(5))

    def forward(self, ids):
        hidden = self.embed(ids)
        return self.head(hidden).sum() + self.layer(hidden).sum() * \
            self.scale.sum()


def same_as_whole(tensor, row):
    """The row's memory is that box of the whole tensor, at the shard's own
    address."""
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    local, shape, box = dt.shard_of(row.name if row else "?", tensor)
    assert shape == tuple(whole.shape)
    if box is None:
        assert row is None and local.numel() == 0, (shape, local.shape)
        return 0
    piece = row.pieces[0]
    cut = whole[tuple(slice(a, b) for a, b in zip(piece.lo, piece.hi))]
    assert torch.equal(cut, row.tensor), (row.name, piece)
    assert row.tensor.data_ptr() == local.data_ptr()
    return cut.numel()


def fsdp_rows(rank, size):
    torch.manual_seed(3)
    module = Tied()
    fully_shard(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    module(torch.arange(50)).backward()
    optimizer.step()
    rows = {(r.name, r.kind): r
            for r in dt.module_rows(module, optimizer=optimizer)}
    named = dict(module.named_parameters())
    assert "head.weight" not in named, "tied tensors are named once"
    for name, parameter in named.items():
        same_as_whole(parameter, rows.pop((name, "param"), None))
        for kind in ("exp_avg", "exp_avg_sq"):
            same_as_whole(optimizer.state[parameter][kind],
                          rows.pop((name, kind), None))
    assert not rows, rows.keys()
    assert size < 6 or rank < 5 or dt.row_of("scale", named["scale"]) is None


def fsdp_rows_after_a_look(rank, size):
    """A forward pass that no backward one follows leaves the root's parameters
    whole: what lasts are its shards."""
    module = Tied()
    fully_shard(module)
    shards = {name: dt.shard_of(name, parameter)[0].data_ptr()
              for name, parameter in module.named_parameters()}
    with torch.no_grad():
        module(torch.arange(50))
    rows = dt.module_rows(module)
    assert rows and all(row.tensor.data_ptr() == shards[row.name]
                        for row in rows), rank
    places = dt._Places(module, rows)
    with torch.no_grad():
        module(torch.arange(50))
    places.check()
    module(torch.arange(50)).backward()
    places.check()


def dtensor_rows(rank, size):
    mesh = init_device_mesh("cpu", (2, size // 2))
    for shape in ((7, 5), (10, 4), (3, 9)):
        whole = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        for places in ([Shard(0), Shard(1)], [Replicate(), Shard(0)],
                       [Shard(1), Replicate()], [Shard(0), Shard(0)]):
            tensor = distribute_tensor(whole.clone(), mesh, places)
            same_as_whole(tensor, dt.row_of("t", tensor))


def fsdp_over_tp_rows(rank, size):
    """Two-dimensional: _StridedShard on the same dimension."""
    from torch.distributed.tensor.parallel import (ColwiseParallel,
                                                   RowwiseParallel,
                                                   parallelize_module)
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(4)
    module = nn.Sequential(nn.Linear(8, 24, bias=False),
                           nn.Linear(24, 8, bias=False))
    want = [p.detach().clone() for p in module.parameters()]
    parallelize_module(module, mesh["tp"],
                       {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(module, mesh=mesh["dp"])
    for whole, (name, parameter) in zip(want, module.named_parameters()):
        row = dt.row_of(name, parameter)
        piece = row.pieces[0]
        cut = whole[tuple(slice(a, b) for a, b in zip(piece.lo, piece.hi))]
        assert torch.equal(cut, row.tensor), (name, piece,
                                              parameter.placements)


def worker(rank, size, store):
    dist.init_process_group("gloo", rank=rank, world_size=size,
                            store=dist.FileStore(store, size))
    fsdp_rows(rank, size)
    fsdp_rows_after_a_look(rank, size)
    if size % 2 == 0:
        dtensor_rows(rank, size)
        fsdp_over_tp_rows(rank, size)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # threads of torch may abort the interpreter's own end


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    for size in (3, 4):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(worker, (size, str(pathlib.Path(folder) / "store")), size)
    print("ok FSDP2 and DTensor shards of 3 and 4 ranks")
