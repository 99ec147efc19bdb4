"""Seconds in which torch takes weights and Adam moments of a model from one
sharding to another, as 4 gloo processes, beside a memcpy of the same bytes.

usage: OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 reshard_torch.py --model DIR
"""

import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import arguments, emit
from safetensors import safe_open
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor import zeros as sharded_zeros

RANKS = 4
BUCKET = 512 << 20  # bytes


class Bench:
    def __init__(self, args):
        self.runs = args.runs
        self.rank = dist.get_rank()
        with safe_open(args.model + "/model.safetensors", "pt") as file:
            shapes = {k: tuple(file.get_slice(k).get_shape())
                      for k in file.keys()}
        self.tensors = [(prefix + name, shape)
                        for name, shape in shapes.items() for prefix in
                        ("model.", "optim.exp_avg.", "optim.exp_avg_sq.")]
        self.bytes = sum(4 * torch.Size(s).numel() for _, s in self.tensors)
        self.line = init_device_mesh("cpu", (RANKS,))
        self.square = init_device_mesh("cpu", (2, 2),
                                       mesh_dim_names=("a", "b"))

    def placement(self, kind, shape):
        if kind == "rows":
            return self.line, [Shard(0)]
        if kind == "columns":
            return self.line, [Shard(1) if len(shape) > 1 else Replicate()]
        return self.square, [Shard(0),
                             Shard(1) if len(shape) > 1 else Replicate()]

    def state(self, kind, filled):
        """Every element of tensor i, row r, is i + r / 1000 when filled."""
        made = {}
        for i, (name, shape) in enumerate(self.tensors):
            mesh, where = self.placement(kind, shape)
            tensor = sharded_zeros(*shape, dtype=torch.float32,
                                   device_mesh=mesh, placements=where)
            if filled:
                local, rows = tensor.to_local(), shape[0] // RANKS
                value = torch.arange(rows * self.rank,
                                     rows * self.rank + local.shape[0],
                                     dtype=torch.float32) * 0.001 + i
                local.copy_(value.view(-1, *[1] * (local.dim() - 1))
                            .expand_as(local))
            made[name] = tensor
        return made

    def check(self, state):
        for i, (name, shape) in enumerate(self.tensors):
            if i % 97 == 0:
                want = torch.arange(shape[0], dtype=torch.float32) * 0.001 + i
                whole = state[name].full_tensor()
                assert torch.equal(
                    whole, want.view(-1, *[1] * (len(shape) - 1))
                    .expand_as(whole)), name

    def seconds(self, call):
        """Of each run after the first, all ranks waited for."""
        taken = []
        for _ in range(self.runs + 1):
            dist.barrier()
            start = time.perf_counter()
            result = call()
            dist.barrier()
            taken.append(time.perf_counter() - start)
        return taken[1:], result

    def say(self, case, seconds):
        if self.rank == 0:
            emit("switch", case, "torch", seconds, "s", bytes=self.bytes)

    def memcpy(self):
        """Two processes copy half of the bytes each."""
        source = target = None
        if self.rank < 2:
            source = torch.ones(self.bytes // 8)
            target = torch.zeros(self.bytes // 8)
        self.say("memcpy by 2 processes",
                 self.seconds(lambda: target.copy_(source)
                              if self.rank < 2 else None)[0])

    def checkpoint(self):
        folder = [tempfile.mkdtemp(dir="/dev/shm") if self.rank == 0 else None]
        dist.broadcast_object_list(folder)
        source = self.state("rows", True)
        saved, _ = self.seconds(
            lambda: dcp.save(source, checkpoint_id=folder[0]))
        for kind, case in (("columns", "rows to columns"),
                           ("square", "rows to 2x2")):
            target = self.state(kind, False)
            loaded, _ = self.seconds(
                lambda: dcp.load(target, checkpoint_id=folder[0]))
            self.check(target)
            both = [s + t for s, t in zip(saved, loaded)]
            self.say(f"{case} by checkpoint", both)
            if kind == "columns":
                self.say("reshard by checkpoint", both)
        dist.barrier()
        if self.rank == 0:
            shutil.rmtree(folder[0])

    def redistribute(self):
        source = self.state("rows", True)
        seconds, moved = self.seconds(lambda: {
            n: source[n].redistribute(*self.placement("columns", s))
            for n, s in self.tensors})
        self.check(moved)
        self.say("rows to columns by redistribute", seconds)
        self.say("reshard by redistribute", seconds)
        del moved
        as_square = {
            n: DTensor.from_local(
                source[n].to_local(), self.square, [Shard(0), Shard(0)],
                run_check=False, shape=torch.Size(s),
                stride=torch.empty(s, device="meta").stride())
            for n, s in self.tensors}
        seconds, moved = self.seconds(lambda: {
            n: as_square[n].redistribute(*self.placement("square", s))
            for n, s in self.tensors})
        self.check(moved)
        self.say("within 2x2 by redistribute", seconds)

    def buckets(self):
        """How most RL trainers do it: every tensor is gathered whole, 512 MB
        at a time, and each rank copies its part out of the bucket."""
        source, target = self.state("rows", True), self.state("columns", False)
        bucket = torch.empty(BUCKET // 4)

        def empty(held):
            for name, lo, whole in held:
                mesh, where = self.placement("columns", whole)
                local = target[name].to_local()
                full = bucket[lo:lo + torch.Size(whole).numel()].view(whole)
                if isinstance(where[0], Shard):
                    full = full.chunk(RANKS, where[0].dim)
                    full = full[self.rank] if self.rank < len(full) else None
                if full is not None:
                    local.copy_(full)
            held.clear()

        def sync():
            held, at = [], 0
            for name, shape in self.tensors:
                size = torch.Size(shape).numel()
                if at + size > bucket.numel():
                    empty(held)
                    at = 0
                bucket[at:at + size].copy_(
                    source[name].full_tensor().reshape(-1))
                held.append((name, at, shape))
                at += size
            empty(held)

        seconds, _ = self.seconds(sync)
        self.check(target)
        self.say("reshard by buckets", seconds)


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    bench = Bench(args)
    bench.memcpy()
    bench.redistribute()
    bench.buckets()
    bench.checkpoint()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
