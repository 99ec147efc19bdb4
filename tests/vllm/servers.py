"""vLLM servers as processes, what they answer, and trainers that are sharded
over processes of their own."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file

PROMPTS = ["The capital of France is", "Once upon a time there was",
           "2 + 2 =", "The weather in the mountains"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_weights(source, folder):
    """A is the model as it is, B has noise on every matrix."""
    whole = load_file(str(source / "model.safetensors"))
    noise = torch.Generator().manual_seed(5)
    other = {}
    for name, tensor in whole.items():
        other[name] = tensor.clone()
        if tensor.dim() == 2:
            width = 0.02 * tensor.float().std()
            other[name] += (torch.randn(tensor.shape, generator=noise)
                            * width).to(tensor.dtype)
    for name, tensors in (("A", whole), ("B", other)):
        (folder / name).mkdir(parents=True)
        for file in source.iterdir():
            if file.suffix == ".json":
                (folder / name / file.name).write_bytes(file.read_bytes())
        save_file(tensors, str(folder / name / "model.safetensors"),
                  metadata={"format": "pt"})
    return folder / "A", folder / "B"


class Server:
    """`vllm serve` on a port of this machine."""

    def __init__(self, model, tp, dtype, log, backend=True, packed=True):
        self.port, self.log = free_port(), log
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve",
                   str(model), "--port", str(self.port), "--host", "127.0.0.1",
                   "--served-model-name", "m", "--enforce-eager",
                   "--max-model-len", "512", "--dtype", dtype,
                   "--tensor-parallel-size", str(tp),
                   "--enable-prefix-caching"]
        if backend:
            command += ["--weight-transfer-config",
                        '{"backend": "dynatrain"}']
        environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1",
                       "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
                       "OMP_NUM_THREADS": "1" if tp > 1 else "2"}
        if tp > 1:  # more workers than this machine has parts
            environment["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        # A folder of its own: nothing here may be named like the package.
        self.process = subprocess.Popen(
            command, stdout=open(log, "w", encoding="utf-8"),
            stderr=subprocess.STDOUT, env=environment, cwd=str(log.parent),
            start_new_session=True)

    def wait(self, seconds=400):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError("the server ended:\n" + self.tail())
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return self
            time.sleep(0.5)
        raise RuntimeError("the server does not answer:\n" + self.tail())

    def tail(self):
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def post(self, path, **body):
        call = urllib.request.Request(
            self.url + path, data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(call, timeout=600) as reply:
            return json.loads(reply.read())

    def answers(self, prompts=PROMPTS, tokens=16):
        """Token ids and log-probabilities of greedy generation, one prompt
        after the other: sums depend on what else is in the batch."""
        found = []
        for prompt in prompts:
            choice = self.post(
                "/v1/completions", model="m", prompt=prompt, max_tokens=tokens,
                temperature=0, logprobs=1, ignore_eos=True,
                return_token_ids=True)["choices"][0]
            found.append((choice["token_ids"],
                          choice["logprobs"]["token_logprobs"]))
        return found

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, how)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *about):
        self.stop()


def load_shards(module, whole):
    """Write this rank's shards of whole tensors, without gathering any."""
    import dynatrain.torch as dt
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            local, _, box = dt.shard_of(name, parameter)
            if box is not None:
                cut = tuple(slice(a, b) for a, b in zip(*box))
                local.copy_(whole[name][cut])


def trainer_rank(rank, size, store, models, dtype, options, commands, replies):
    """A rank of a trainer: FSDP2 over gloo, weights loaded at each update."""
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM

    import dynatrain.torch as dt
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size,
                            store=dist.FileStore(store, size))
    sets = {name: load_file(str(path / "model.safetensors"))
            for name, path in models.items()}
    module = AutoModelForCausalLM.from_pretrained(
        str(models["A"]), dtype=getattr(torch, dtype))
    for layer in module.model.layers:
        fully_shard(layer)
    fully_shard(module)
    try:
        with dt.Trainer(module, **options) as trainer:
            replies.put((rank, "ready"))
            while True:
                command = commands.get()
                if command is None:
                    break
                version, name = command
                with trainer.writing():
                    load_shards(module, sets[name])
                with trainer.offered(version, timeout=300):
                    replies.put((rank, "offered"))
                replies.put((rank, "done"))
    except BaseException as problem:
        replies.put((rank, f"failed: {type(problem).__name__}: {problem}"))
        raise
    finally:
        dist.destroy_process_group()


class Trainer:
    """The ranks of a trainer, by commands."""

    def __init__(self, folder, models, dtype="float32", size=2, **options):
        context = mp.get_context("spawn")
        self.size = size
        self.replies = context.Queue()
        self.said = []
        self.commands = [context.Queue() for _ in range(size)]
        store = str(pathlib.Path(folder) / f"store-{os.urandom(4).hex()}")
        self.ranks = [context.Process(target=trainer_rank, args=(
            rank, size, store, models, dtype, options, self.commands[rank],
            self.replies)) for rank in range(size)]
        for process in self.ranks:
            process.start()
        self.expect("ready")

    def expect(self, word, seconds=300):
        """Every rank has said so; what others said already is kept."""
        while self.said.count(word) < self.size:
            rank, said = self.replies.get(timeout=seconds)
            if said not in ("ready", "offered", "done"):
                raise RuntimeError(f"trainer rank {rank}: {said}")
            self.said.append(said)
        for _ in range(self.size):
            self.said.remove(word)

    def offer(self, version, name):
        for queue in self.commands:
            queue.put((version, name))
        self.expect("offered")

    def done(self):
        self.expect("done")

    def close(self):
        for queue in self.commands:
            queue.put(None)
        for process in self.ranks:
            process.join(30)
            if process.is_alive():
                process.kill()

    def __enter__(self):
        return self

    def __exit__(self, *about):
        self.close()
