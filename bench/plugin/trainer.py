"""Two processes of PyTorch with FSDP2 that offer their shards to several jobs,
and gather whole tensors for those who need them; each says how long it took."""

import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file
from servers import load_shards

RANKS = 2


def shard(path, dtype):
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM
    module = AutoModelForCausalLM.from_pretrained(
        str(path), dtype=getattr(torch, dtype))
    for layer in module.model.layers:
        fully_shard(layer)
    return fully_shard(module)


def gather(module):
    """Every parameter whole, on every rank: what a loader by names wants."""
    return {name: parameter.full_tensor().detach()
            for name, parameter in module.named_parameters()}


def rank_of(rank, store, models, dtype, jobs, commands, replies):
    import dynatrain.torch as dt
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS,
                            store=dist.FileStore(store, RANKS))
    module = shard(models["A"], dtype)
    sync = {}
    for job, address in jobs.items():
        sync[job] = dt.Trainer(module, address=address, job=job)
    replies.put((rank, "ready", 0.0))
    while (command := commands.get()) is not None:
        what, argument, version, name = command
        if what == "offer":
            load_shards(module, models[name])
            dist.barrier()
            begun = time.perf_counter()
            with sync[argument].offered(version, timeout=120):
                replies.put((rank, "offered", time.perf_counter() - begun))
        elif what == "gather":
            dist.barrier()
            begun = time.perf_counter()
            whole = gather(module)
            if argument and rank == 0:
                save_file(whole, argument, metadata={"format": "pt"})
        replies.put((rank, "done", time.perf_counter() - begun))
    for one in sync.values():
        one.close()
    dist.destroy_process_group()


def guarded(rank, *arguments):
    try:
        rank_of(rank, *arguments)
    except BaseException as problem:
        arguments[-1].put((rank, f"failed: {problem}", 0.0))
        raise


class Trainer:
    """The ranks, by commands."""

    def __init__(self, folder, models, dtype, jobs):
        context = mp.get_context("spawn")
        self.replies, self.said = context.Queue(), []
        self.commands = [context.Queue() for _ in range(RANKS)]
        store = str(pathlib.Path(folder) / f"store-{os.urandom(4).hex()}")
        self.ranks = [context.Process(target=guarded, args=(
            rank, store, models, dtype, jobs, self.commands[rank],
            self.replies)) for rank in range(RANKS)]
        for process in self.ranks:
            process.start()

    def expect(self, word):
        """The longest that a rank took for it."""
        while sum(said == word for said, _ in self.said) < RANKS:
            rank, said, seconds = self.replies.get(timeout=200)
            if said.startswith("failed"):
                raise RuntimeError(f"trainer rank {rank}: {said}")
            self.said.append((said, seconds))
        took = max(seconds for said, seconds in self.said if said == word)
        self.said = [row for row in self.said if row[0] != word]
        return took

    def tell(self, *command):
        for queue in self.commands:
            queue.put(command)

    def offer(self, job, version, name):
        self.tell("offer", job, version, name)
        return self.expect("offered")

    def done(self):
        return self.expect("done")

    def gather(self, path=""):
        self.tell("gather", str(path), 0, "")
        return self.expect("done")

    def close(self):
        for queue in self.commands:
            queue.put(None)
        for process in self.ranks:
            process.join(20)
            if process.is_alive():
                process.kill()
