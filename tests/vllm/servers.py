"""vLLM servers as processes, what they answer, and trainers that are sharded
over processes of their own.  None of them outlives the program that made it."""

import contextlib
import ctypes
import gc
import json
import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors import safe_open
from safetensors.torch import load_file, save_file

# What a server computes in: (dtype, does it pack linear layers?).
KINDS = {"fp32 packed": ("float32", True), "bf16": ("bfloat16", True),
         "fp32 unpacked": ("float32", False)}
KV_BYTES = 256 << 20  # of each worker
PROMPTS = ["The capital of France is", "Once upon a time there was",
           "2 + 2 =", "The weather in the mountains"]


# Reads process groups, "+3" and later "-3", and what they have in /dev/shm,
# "=name"; kills and removes what is left when nobody writes any more.
KEEPER = """
import os, signal, sys
groups, names = set(), set()
for line in sys.stdin:
    if line[0] == "=":
        names.add(line[1:-1])
    else:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
for name in names:
    try:
        os.unlink("/dev/shm/" + name)
    except OSError:
        pass
"""


class Keeper:
    """Ends process groups when this process ends, however it ends."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", KEEPER], stdin=subprocess.PIPE,
            start_new_session=True, text=True)

    def tell(self, sign, what):
        self.process.stdin.write(f"{sign}{what}\n")
        self.process.stdin.flush()


keeper = None


def in_group(command, **options):
    """A child in a process group of its own, which never outlives us."""
    global keeper
    keeper = keeper or Keeper()
    child = subprocess.Popen(command, start_new_session=True, **options)
    keeper.tell("+", child.pid)
    return child


# What Python and vLLM name in /dev/shm: nobody removes it where all are killed
# at once, and vLLM never what the ranks of a server share.
THEIRS = ("psm_", "sem.mp-", "vllm_dist_")


def members(group):
    """Numbers and folders in /proc of a group's processes."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(folder.name)) == group:
                yield int(folder.name), folder


def shared_by(group):
    """Names in /dev/shm that processes of a group map."""
    found = set()
    for _, folder in members(group):
        with contextlib.suppress(OSError):
            found.update(re.findall(r" /dev/shm/(\S+)$",
                                    (folder / "maps").read_text(), re.MULTILINE))
    return found


def kill_workers(group):
    """All of a group but Python's own processes that remove the names of those
    who have died, and then end."""
    for number, folder in members(group):
        with contextlib.suppress(OSError):
            if b"resource_tracker" not in (folder / "cmdline").read_bytes():
                os.kill(number, signal.SIGKILL)


def end_group(child, how=signal.SIGTERM, patience=15, before=()):
    """The whole group is gone afterwards, and what it had in /dev/shm: what it
    maps now, and the names that were seen `before`."""
    shared = shared_by(child.pid).union(before)
    ends = [kill_workers, lambda group: os.killpg(group, signal.SIGKILL)]
    if how != signal.SIGKILL:
        ends.insert(0, lambda group: os.killpg(group, how))
    for end in ends:
        with contextlib.suppress(ProcessLookupError):
            end(child.pid)
            until = time.monotonic() + patience
            while time.monotonic() < until:
                child.poll()
                os.killpg(child.pid, 0)
                time.sleep(0.05)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(patience)
    keeper.tell("-", child.pid)
    left = [pathlib.Path("/dev/shm", name) for name in shared]
    ours = [path for path in left
            if path.exists() and not path.name.startswith(THEIRS)]
    for path in left:
        path.unlink(missing_ok=True)
    assert not ours, f"left in /dev/shm: {ours}"


def give_back():
    """What was freed goes back to the system: memory is short here."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def die_with_parent():
    """In a child: end when the thread that made it has ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def environment(tp, packed=True, **more):
    """Of vLLM, small enough for a machine with two cores."""
    found = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_SERVER_DEV_MODE": "1",
             "VLLM_NO_USAGE_STATS": "1",
             # Of a step of the model, on a machine with much else to do.
             "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "900",
             "VLLM_ENGINE_READY_TIMEOUT_S": "900",
             "DYNATRAIN_VLLM": json.dumps({"pack": packed}),
             "OMP_NUM_THREADS": "1" if tp > 1 else "2",
             "OMP_WAIT_POLICY": "passive", **more}
    found.pop("VLLM_CPU_KVCACHE_SPACE", None)  # KV_BYTES is asked for
    if tp > 1:  # more workers than this machine has parts
        found["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    return found


def held_port():
    """A socket that holds a port for a server: nobody is given it by chance,
    and who asks for it may still listen on it."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


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
    del whole, other, tensors
    give_back()
    return folder / "A", folder / "B"


class Point:
    """Somebody stops at a named point of an update: the library of a test build
    looks for an order at a path (lib/session_fault.c)."""

    def __init__(self, library, path):
        self.library, self.path = str(library), pathlib.Path(path)

    def environment(self):
        return {"DYNATRAIN_LIBRARY": self.library,
                "DYNATRAIN_FAULT_FILE": str(self.path)}

    def order(self, where):
        """The first process that gets there stops."""
        for old in self.path.parent.glob(f"{self.path.name}.taken.*"):
            old.unlink()
        new = self.path.with_suffix(".new")
        new.write_text(f"{where} stop\n", encoding="utf-8")
        new.rename(self.path)

    def reached(self, call, seconds=600):
        """Wait until a process has stopped there, in what `call` does; its
        number."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not call.done():
            for taken in self.path.parent.glob(f"{self.path.name}.taken.*"):
                pid = int(taken.name.rpartition(".")[2])
                stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
                if stat.rpartition(")")[2].split()[0] == "T":
                    return pid
            time.sleep(0.01)
        raise RuntimeError(f"nobody got to the point of {self.path.name}: "
                           f"{call.exception() if call.done() else 'waiting'}")


class Server:
    """`vllm serve` on a port of this machine."""

    def __init__(self, model, tp, kind, log, point=None):
        self.model, self.tp, self.kind, self.log = model, tp, kind, log
        self.point, self.held = point, held_port()
        self.shared = set()  # names in /dev/shm
        self.url = "http://127.0.0.1:%d" % self.held.getsockname()[1]
        self.start()

    def start(self):
        dtype, packed = KINDS[self.kind]
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve",
                   str(self.model), "--host", "127.0.0.1",
                   "--port", self.url.rpartition(":")[2], "--served-model-name", "m",
                   "--max-model-len", "512", "--dtype", dtype,
                   "--tensor-parallel-size", str(self.tp),
                   "--enforce-eager", "--enable-prefix-caching",
                   "--kv-cache-memory-bytes", str(KV_BYTES),
                   "--disable-uvicorn-access-log",
                   "--enable-scale-out",  # tokens that say their version
                   "--weight-transfer-config", '{"backend": "dynatrain"}']
        # A folder of its own: nothing here may be named like the package.
        with open(self.log, "w", encoding="utf-8") as out:
            self.process = in_group(
                command, stdout=out, stderr=subprocess.STDOUT,
                env=environment(self.tp, packed, **(
                    self.point.environment() if self.point else {})),
                cwd=str(self.log.parent))

    def answers_health(self):
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self.url + "/health", timeout=5):
                return True
        return False

    def wait(self, seconds=900):
        """Until it answers; as long as it says something it comes along."""
        until, tries, said = time.monotonic() + seconds, 3, 0
        while not self.answers_health():
            if self.log.stat().st_size != said:
                said = self.log.stat().st_size
                until = time.monotonic() + seconds
            if self.process.poll() is not None:
                tries -= 1
                self.stop()
                if tries == 0 or "ddress already in use" not in self.said():
                    raise RuntimeError("the server ended:\n" + self.tail())
                self.start()  # vLLM finds ports for its ranks by chance
            if time.monotonic() > until:
                raise RuntimeError("the server does not answer:\n"
                                   + self.tail())
            time.sleep(0.2)
        self.shared = shared_by(self.process.pid)
        for name in self.shared:
            keeper.tell("=", name)
        return self

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self):
        return self.said()[-3000:]

    def post(self, path, **body):
        call = urllib.request.Request(
            self.url + path, data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(call, timeout=900) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as problem:
            said = problem.read().decode("utf-8", "replace")
            raise RuntimeError(f"{call.full_url}: {problem.code}: {said}") \
                from None

    def answers(self, prompts, tokens):
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

    def generate(self, ids, tokens, **sampling):
        """One completion of token ids, which says what versions made it."""
        return self.post("/inference/v1/generate", model="m", token_ids=ids,
                         sampling_params={"temperature": 0, "logprobs": 1,
                                          "max_tokens": tokens,
                                          "ignore_eos": True, **sampling})[
                                              "choices"][0]

    def running(self):
        """Requests that it works on now."""
        with urllib.request.urlopen(self.url + "/metrics",
                                    timeout=300) as reply:
            for line in reply.read().decode().splitlines():
                if line.startswith("vllm:num_requests_running"):
                    return float(line.rsplit(" ", 1)[1])
        return 0

    def ended(self, seconds=900):
        """It ends by itself, and answers nothing any more."""
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            if time.monotonic() > until:
                raise RuntimeError("it has not ended:\n" + self.tail())
            try:
                self.answers(PROMPTS[:1], 1)
            except (OSError, RuntimeError):
                time.sleep(0.05)
                continue
            raise AssertionError("a server that has lost a rank answers")

    def stop(self, how=signal.SIGTERM):
        end_group(self.process, how, before=self.shared)

    def __enter__(self):
        return self

    def __exit__(self, *about):
        self.stop()


def load_shards(module, path):
    """Write this rank's shards, of which only these bytes are read."""
    import dynatrain.torch as dt
    with torch.no_grad(), safe_open(
            str(path / "model.safetensors"), framework="pt") as whole:
        for name, parameter in module.named_parameters():
            local, _, box = dt.shard_of(name, parameter)
            if box is not None:
                cut = tuple(slice(a, b) for a, b in zip(*box))
                local.copy_(whole.get_slice(name)[cut])


def trainer_rank(rank, size, store, models, dtype, variables, options, commands,
                 replies):
    """A rank of a trainer: FSDP2 over gloo, weights loaded at each update."""
    os.environ.update(variables)
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    import dynatrain.torch as dt
    die_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size,
                            store=dist.FileStore(store, size))
    logging.disable_progress_bar()
    module = AutoModelForCausalLM.from_pretrained(
        str(models["A"]), dtype=getattr(torch, dtype))
    for layer in module.model.layers:
        fully_shard(layer)
    fully_shard(module)
    give_back()
    try:
        with dt.Trainer(module, **options) as trainer:
            replies.put((rank, "ready"))
            while True:
                command = commands.get()
                if command is None:
                    break
                version, name = command
                with trainer.writing():
                    load_shards(module, models[name])
                with trainer.offered(version, timeout=600):
                    replies.put((rank, "offered"))
                replies.put((rank, "done"))
    except BaseException as problem:
        replies.put((rank, f"failed: {type(problem).__name__}: {problem}"))
        raise
    finally:
        dist.destroy_process_group()


class Trainer:
    """The ranks of a trainer, by commands."""

    def __init__(self, folder, models, dtype="float32", size=2, point=None,
                 **options):
        context = mp.get_context("spawn")
        variables = point.environment() if point else {}
        self.size = size
        self.replies = context.Queue()
        self.said = []
        self.commands = [context.Queue() for _ in range(size)]
        store = str(pathlib.Path(folder) / f"store-{os.urandom(4).hex()}")
        self.ranks = [context.Process(target=trainer_rank, daemon=True, args=(
            rank, size, store, models, dtype, variables, options,
            self.commands[rank], self.replies)) for rank in range(size)]
        for process in self.ranks:
            process.start()
        self.is_ready = False

    def ready(self):
        """They start while others do other things."""
        if not self.is_ready:
            self.expect("ready")
            self.is_ready = True

    def expect(self, word, seconds=600):
        """Every rank has said so; what others said already is kept."""
        until = time.monotonic() + seconds
        while self.said.count(word) < self.size:
            try:
                rank, said = self.replies.get(timeout=1)
            except queue.Empty:
                if time.monotonic() > until or not all(
                        process.is_alive() for process in self.ranks):
                    raise RuntimeError(f"no trainer's rank says {word}")
                continue
            if said not in ("ready", "offered", "done"):
                raise RuntimeError(f"trainer rank {rank}: {said}")
            self.said.append(said)
        for _ in range(self.size):
            self.said.remove(word)

    def offer(self, version, name):
        self.ready()
        for one in self.commands:
            one.put((version, name))
        self.expect("offered")

    def done(self):
        self.expect("done")

    def kill(self):
        """All ranks at once, as a node that fails."""
        for process in self.ranks:
            process.kill()
        for process in self.ranks:
            process.join(60)

    def close(self):
        for one in self.commands:
            one.put(None)
        for process in self.ranks:
            process.join(60)
            if process.is_alive():
                process.kill()
                process.join(60)

    def __enter__(self):
        return self

    def __exit__(self, *about):
        self.close()
