"""Refits of a vLLM server by the plugin, beside vLLM's own ways and a memcpy of
the same bytes in the same run.  usage: plugin_vllm.py MODEL [--json FILE]
[--rounds N] [--only CASE] [--weights FOLDER]

The server is vLLM's CPU build in this process, TP 1, paused as it would be; the
trainer is two processes of PyTorch with FSDP2.  Ways take turns, every other
round backwards; figures are medians, the first round does not count.  Clock of
a refit: from the order to update until generation may go on.  What the trainer
does before stands in lines of its own: ours offers, vLLM's ways need whole
tensors, and reload_weights a file of them.  --weights keeps the two sets of
weights for the next call.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import count

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "vllm"))

# case: (dtype of both sides, may the server pack, least gain over vLLM's)
CASES = {"bf16 unpacked": ("bfloat16", False, 2.0),
         "fp32 unpacked": ("float32", False, 2.0),
         "fp32 packed": ("float32", True, 1.2),
         "bf16 packed": ("bfloat16", True, 1.2)}
WAYS = {"staged": {"commit": "staged"},
        "in place": {"commit": "in_place"},
        "mapped": {"memory": "mapped", "commit": "in_place"}}
LEAST_OF_MEMCPY = 0.6
ONE_BY_ONE = "load_weights, one by one"


def clocked(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def job_of(way):
    return way.replace(" ", "-")


class Memcpy:
    """As many bytes by libc's memcpy in as many threads as there are cores, and
    by torch's copy; the faster counts.  Pages were touched before."""

    def __init__(self, size):
        import torch
        self.source = torch.zeros(size, dtype=torch.uint8)
        self.target = torch.ones(size, dtype=torch.uint8)
        self.size, self.copy = size, ctypes.CDLL(None).memcpy
        self.copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p,
                              ctypes.c_size_t]
        self.parts = len(os.sched_getaffinity(0))

    def part(self, index):
        first = self.size * index // self.parts
        last = self.size * (index + 1) // self.parts
        self.copy(self.target.data_ptr() + first,
                  self.source.data_ptr() + first, last - first)

    def threads(self):
        others = [threading.Thread(target=self.part, args=(index,))
                  for index in range(1, self.parts)]
        for thread in others:
            thread.start()
        self.part(0)
        for thread in others:
            thread.join()

    def seconds(self):
        return min(clocked(self.threads),
                   clocked(lambda: self.target.copy_(self.source)))


class Opponents:
    """vLLM's own ways to get new weights, as functions of a set's name."""

    def __init__(self, llm, models, dtype):
        import torch
        from safetensors.torch import load_file
        self.llm, self.models = llm, models
        self.model = (llm.llm_engine.model_executor.driver_worker
                      .model_runner.model)
        self.config = llm.llm_engine.vllm_config.model_config
        self.whole = {
            name: {key: value.to(getattr(torch, dtype)) for key, value in
                   load_file(str(path / "model.safetensors")).items()}
            for name, path in models.items()}
        self.ways = {"reload_weights": self.reload_weights,
                     "layerwise reload": self.layerwise,
                     ONE_BY_ONE: self.load_weights}

    def reload_weights(self, name):
        """From a file in memory, by its loader."""
        self.llm.collective_rpc("reload_weights", kwargs={
            "weights_path": str(self.models[name])})

    def layerwise(self, name):
        """What its nccl and ipc backends do with what they got."""
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload, initialize_layerwise_reload)
        with set_current_vllm_config(self.llm.llm_engine.vllm_config):
            initialize_layerwise_reload(self.model)
            self.model.load_weights(self.whole[name].items())
            finalize_layerwise_reload(self.model, self.config)

    def load_weights(self, name):
        """Tensor by tensor, as TRL does in its colocated mode; does not reach
        the copies that a server packed."""
        for item in self.whole[name].items():
            self.model.load_weights([item])


class Bench:
    """One case, in a process of its own: packing is decided when vLLM is
    loaded."""

    def __init__(self, case, models, rounds, folder):
        from servers import PROMPTS
        from trainer import Trainer
        from vllm import LLM, SamplingParams
        self.dtype, self.packed, _ = CASES[case]
        self.models, self.rounds, self.folder = models, rounds, folder
        self.jobs = {job_of(way): f"unix:{folder}/{number}.sock"
                     for number, way in enumerate(WAYS)}
        self.trainer = Trainer(folder, models, self.dtype, self.jobs)
        self.llm = LLM(str(models["A"]), enforce_eager=True, max_model_len=512,
                       dtype=self.dtype,
                       weight_transfer_config={"backend": "dynatrain"})
        self.trainer.expect("ready")
        worker = self.llm.llm_engine.model_executor.driver_worker.worker
        self.engine = worker.weight_transfer_engine
        self.prompts = PROMPTS
        self.sampling = SamplingParams(temperature=0, max_tokens=6, logprobs=1)
        self.versions = dict.fromkeys(WAYS, 0)
        self.servers, self.times = {}, {}
        self.want = {"A": self.answers()}
        self.result = {"case": case, "scratch": {}}
        self.memcpy = None

    def answers(self):
        found = self.llm.generate(self.prompts, self.sampling, use_tqdm=False)
        return [[(t, p[t].logprob) for t, p in zip(
            o.outputs[0].token_ids, o.outputs[0].logprobs)] for o in found]

    def note(self, figure, seconds):
        self.times.setdefault(figure, []).append(seconds)

    def join(self, way):
        """The engine's own server for each way; they take turns in it."""
        from dynatrain.vllm import Server
        self.servers[way] = Server(
            self.engine.model, self.engine.vllm_config,
            address=self.jobs[job_of(way)], job=job_of(way), **WAYS[way])

    def refit(self, version):
        self.llm.start_weight_update()
        self.llm.update_weights({"update_info": {"version": version}})
        self.llm.finish_weight_update()
        self.llm.reset_prefix_cache()

    def ours(self, way, name):
        self.versions[way] += 1
        version = self.versions[way]
        offer = self.trainer.offer(job_of(way), version, name)
        if way not in self.servers:
            self.join(way)
        server = self.servers[way]
        self.engine._servers = {id(self.engine.model): server}
        took = clocked(lambda: self.refit(version))
        self.trainer.done()
        self.note(("offer", way), offer)
        self.note(("refit", way), took)
        # By whichever side writes; with its check and its commit.
        self.note(("transfer", way), server.report.total - server.report.wait)
        self.note(("verify", way), server.report.verify)
        self.note(("after", way), took - server.report.total)
        self.result["bytes"] = server.report.written_bytes
        self.result["scratch"][way] = server.report.scratch_bytes
        have = self.answers()
        assert have == self.want.setdefault(name, have), (
            f"{way}: version {version} ({name}) answers otherwise")

    def own(self, opponents, way, name):
        try:
            self.note(("own", way),
                      clocked(lambda: opponents.ways[way](name)))
        except Exception as problem:  # an opponent that cannot is no failure
            opponents.ways.pop(way)
            print(f"vllm {way}: {type(problem).__name__}: {problem}",
                  file=sys.stderr)

    def turns(self, ways, opponents, rounds):
        """Everybody once a round; every other one backwards."""
        for turn in range(rounds):
            order = list(ways) + list(opponents.ways) + ["memcpy"]
            for who in order if turn % 2 == 0 else order[::-1]:
                name = "BA"[turn % 2]
                if who in WAYS:
                    self.ours(who, name)
                elif who in opponents.ways:
                    self.own(opponents, who, name)
                elif self.memcpy is not None:
                    self.note(("memcpy",), self.memcpy.seconds())
            if self.memcpy is None:
                self.memcpy = Memcpy(self.result["bytes"])
                self.note(("memcpy",), self.memcpy.seconds())

    def run(self):
        opponents = Opponents(self.llm, self.models, self.dtype)
        if self.packed:  # it does not reach the packed copies
            opponents.ways.pop(ONE_BY_ONE)
        else:
            self.check_rules(opponents)
        self.turns(("staged", "in place"), opponents, self.rounds + 1)
        first, self.times = self.times, {}
        # From here on the server's parameters lie in segments of ours.
        for way in ("staged", "in place"):
            self.servers[way].close()
        best = min(opponents.ways,
                   key=lambda way: statistics.median(first["own", way][1:]))
        opponents.ways = {best: opponents.ways[best]}
        self.turns(("mapped",), opponents, self.rounds + 1)
        second, self.times = self.times, {}
        for turn in range(3):
            self.note(("gather",), self.trainer.gather())
            self.note(("file",), self.trainer.gather(
                self.folder / "whole.safetensors"))
        self.servers["mapped"].close()
        self.trainer.close()
        self.result["figures"] = [
            ["/".join(figure), statistics.median(times[1:])]
            for found in (first, second, self.times)
            for figure, times in found.items() if len(times) > 1]
        # The parts of the second half are told apart from the first's.
        self.result["memcpy mapped"] = statistics.median(second["memcpy",][1:])
        self.result["memcpy"] = statistics.median(first["memcpy",][1:])
        self.result["own mapped"] = statistics.median(second["own", best][1:])
        self.result["own"] = {way: statistics.median(first["own", way][1:])
                              for way in ("reload_weights", "layerwise reload",
                                          ONE_BY_ONE)
                              if ("own", way) in first}

    def check_rules(self, opponents):
        """count.rule() says what vLLM itself would say of this model."""
        from vllm.distributed.weight_transfer import m2n_layout
        whole = opponents.whole["A"]
        plan = m2n_layout.resolve_parameter_destinations(
            opponents.model, list(whole), [t.dtype for t in whole.values()],
            [t.shape for t in whole.values()], num_workers=1,
            shard_axis_size=1, allow_direct=True)
        for row in plan:
            assert row.direct == count.rule(row.name), row.name


def one_case(case, models, rounds):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dynatrain-bench-",
                                           dir="/dev/shm"))
    try:
        bench = Bench(case, models, rounds, folder)
        bench.run()
        print("RESULT " + json.dumps(bench.result), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- records ------------------------------------------------------------------

def record(case, ours, opponent, theirs, unit, goal=None):
    return {"bench": "plugin", "case": case, "ours": ours,
            "opponent": opponent, "theirs": theirs,
            "ratio": theirs / ours if theirs and ours else None,
            "goal": goal, "unit": unit}


def records(result):
    case, figures = result["case"], dict(result["figures"])
    _, packed, gain = CASES[case]
    own = result["own"]
    best = min(own, key=own.get)
    for way in WAYS:
        mapped = way == "mapped"
        memcpy = result["memcpy mapped" if mapped else "memcpy"]
        yield record(f"{case}, {way}: transfer", figures[f"transfer/{way}"],
                     "memcpy", memcpy, "s",
                     LEAST_OF_MEMCPY if mapped and not packed else None)
        yield record(f"{case}, {way}: refit", figures[f"refit/{way}"],
                     f"vllm {best}",
                     result["own mapped"] if mapped else own[best], "s",
                     None if mapped else gain)
        what = "packing again, reset" if packed else "reset"
        yield record(f"{case}, {way}: {what}", figures[f"after/{way}"], None,
                     None, "s")
        yield record(
            f"{case}, {way}: that share of the refit",
            100 * figures[f"after/{way}"] / figures[f"refit/{way}"], None,
            None, "%")
        yield record(f"{case}, {way}: memory over the server's own",
                     result["scratch"][way] / 1e6, None, None, "MB")
        yield record(f"{case}, {way}: the trainer's part (offer)",
                     figures[f"offer/{way}"], "gathering whole tensors",
                     figures["gather"], "s")
    for name, seconds in result["own"].items():
        yield record(f"{case}: vllm {name}", seconds, None, None, "s")
    yield record(f"{case}: whole tensors into a file", figures["file"], None,
                 None, "s")


def counted(config):
    named = json.loads(config.read_text())
    for what, config, degrees in (
            ("SmolLM2-135M", named, (1, 3)),
            ("Llama 8B", count.LLAMA_8B, (1, 2, 4, 8)),
            ("Qwen3 30B-A3B", count.QWEN3_30B_A3B, (1, 4, 8))):
        for tp in degrees:
            ours, theirs = count.crossed(config, tp)
            yield record(f"{what}, TP {tp}: bytes of an update, bf16",
                         2 * ours / 1e6, "nccl_m2n, by its rules",
                         2 * theirs / 1e6, "MB")


def shown(row):
    text = f"{row['case']}: {row['ours']:.4g} {row['unit']}"
    if row["ratio"]:
        text += (f", {row['opponent']} {row['theirs']:.4g} {row['unit']}, "
                 f"ratio {row['ratio']:.2f}")
    if row["goal"] and row["ratio"]:
        met = "met" if row["ratio"] >= row["goal"] else "MISSED"
        text += f", goal {row['goal']} {met}"
    return text


def in_process(case, args, models):
    environment = {
        **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "DYNATRAIN_VLLM": json.dumps({"pack": CASES[case][1]})}
    done = subprocess.run(
        [sys.executable, __file__, str(args.model), "--inside", case,
         "--rounds", str(args.rounds), "--weights", str(models)],
        env=environment, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            sys.stderr.write("".join(
                f"{text}\n" for text in done.stderr.splitlines()
                if text.startswith("vllm ")))
            return json.loads(line[7:])
    sys.exit(f"{case}: {done.stdout[-2000:]}{done.stderr[-4000:]}")


@contextlib.contextmanager
def weights(args):
    """Folder of the sets A and B, on /dev/shm unless it is named."""
    from servers import make_weights
    if args.weights and (args.weights / "B" / "model.safetensors").exists():
        yield args.weights
        return
    folder = args.weights or pathlib.Path(tempfile.mkdtemp(
        prefix="dynatrain-weights-", dir="/dev/shm"))
    make_weights(args.model, folder)
    yield folder
    if not args.weights:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=[*CASES, "counts"])
    parser.add_argument("--weights", type=pathlib.Path)
    parser.add_argument("--inside", choices=list(CASES))
    args = parser.parse_args()
    if args.inside:
        models = {name: args.weights / name for name in "AB"}
        one_case(args.inside, models, args.rounds)
        return
    found = list(counted(args.model / "config.json"))
    if args.only != "counts":
        with weights(args) as folder:
            for case in [args.only] if args.only else CASES:
                found += records(in_process(case, args, folder))
    for row in found:
        print(shown(row))
    if args.json:
        with open(args.json, "a", encoding="utf-8") as file:
            for row in found:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
