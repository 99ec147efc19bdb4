"""A trainer of two processes (FSDP2) and a server of one: weights go from shards
into the server's own module after every step.  Needs torch and this package;
CPU only.  usage: example.py"""

import os
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except ImportError:
    print("skipped: no torch")
    sys.exit(77)

import dynatrain.torch

STEPS = 3


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 33), torch.nn.ReLU(),
                               torch.nn.Linear(33, 5))


def trainer(rank, folder, sums):
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("gloo", rank=rank, world_size=2,
                            store=dist.FileStore(f"{folder}/store", 2))
    model = net()
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    with dynatrain.torch.Trainer(
            model, optimizer, address=f"unix:{folder}/job.sock") as sync:
        for version in range(1, STEPS + 1):
            model(torch.ones(4, 8)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            whole = [p.full_tensor() for p in model.parameters()]  # to compare
            if rank == 0:
                sums.put([float(p.detach().double().sum()) for p in whole])
            with sync.offered(version, timeout=60):
                pass  # read as you like; optimizer.step() would raise
    dist.destroy_process_group()


def server(folder, sums):
    model = net()
    with dynatrain.torch.Receiver(
            model, address=f"unix:{folder}/job.sock") as sync:
        for version in range(1, STEPS + 1):
            report = sync.receive(version, timeout=60)
            have = [float(p.detach().double().sum())
                    for p in model.parameters()]
            assert have == sums.get(timeout=60)
            print(f"version {report.version}: {report.written_bytes} bytes in "
                  f"{report.total * 1e3:.1f} ms, as the trainer has them")


def main():
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        sums = context.Queue()
        ranks = [context.Process(target=trainer, args=(rank, folder, sums))
                 for rank in range(2)]
        for process in ranks:
            process.start()
        while not os.path.exists(f"{folder}/job.sock"):
            if not all(process.is_alive() for process in ranks):
                sys.exit("the trainer ended")
            ranks[0].join(0.05)
        server(folder, sums)
        for process in ranks:
            process.join()
            assert process.exitcode == 0


if __name__ == "__main__":
    main()
