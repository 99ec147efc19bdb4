"""Refits of a vLLM server by the plugin, beside vLLM's own ways and a memcpy of
the same bytes in the same run.  usage: plugin_vllm.py MODEL [--json FILE]
[--rounds N] [--only CASE]

The server is vLLM's CPU build in this process, TP 1, paused as it would be; the
trainer is two processes of PyTorch with FSDP2.  Ways alternate, figures are
medians.  Clock of a refit: from the order to update until generation may go on,
the trainer's offer not in it, as it is out before.  vLLM's own ways get whole
tensors that were gathered before their clock starts.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "vllm"))

# case: (dtype of both sides, does the server pack, least gain over vLLM's)
CASES = {"bf16": ("bfloat16", True, 2.0),
         "fp32 unpacked": ("float32", False, 2.0),
         "fp32 packed": ("float32", True, 1.2)}
WAYS = {"mapped": {"memory": "mapped", "commit": "in_place"},
        "staged": {"commit": "staged"},
        "in place": {"commit": "in_place"}}
LEAST_OF_MEMCPY = 0.6


def clocked(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def memcpy_seconds(count):
    """The same bytes by one copy with all threads, pages touched before."""
    import torch
    source = torch.zeros(count, dtype=torch.uint8)
    target = torch.zeros(count, dtype=torch.uint8)
    target.copy_(source)
    return statistics.median(
        clocked(lambda: target.copy_(source)) for _ in range(5))


class Opponents:
    """vLLM's own ways to get new weights, as functions of a set's name."""

    def __init__(self, llm, models, shm):
        from safetensors.torch import load_file
        self.llm, self.models = llm, models
        self.model = (llm.llm_engine.model_executor.driver_worker
                      .model_runner.model)
        self.config = llm.llm_engine.vllm_config.model_config
        self.whole = {name: load_file(str(path / "model.safetensors"))
                      for name, path in models.items()}
        self.shm = shm

    def reload_weights(self, name):
        """From a file in memory, by its loader."""
        self.llm.collective_rpc("reload_weights", kwargs={
            "weights_path": str(self.shm / name)})

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
        """Tensor by tensor, as TRL does in its colocated mode; writes nothing
        that counts where weights are packed."""
        for item in self.whole[name].items():
            self.model.load_weights([item])


def one_case(case, model, rounds):
    """In a process of its own: packing is decided when vLLM is loaded."""
    from servers import PROMPTS, make_weights
    from vllm import LLM, SamplingParams
    dtype, packed, _ = CASES[case]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dynatrain-bench-",
                                           dir="/dev/shm"))
    models = dict(zip("AB", make_weights(model, folder)))
    llm = LLM(str(models["A"]), enforce_eager=True, max_model_len=512,
              dtype=dtype, weight_transfer_config={"backend": "dynatrain"})
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=1)

    def answers():
        return [[(t, p[t].logprob) for t, p in zip(
            o.outputs[0].token_ids, o.outputs[0].logprobs)]
            for o in llm.generate(PROMPTS, sampling, use_tqdm=False)]

    want = {"A": answers()}
    result = {"case": case, "ways": {}, "own": {}, "scratch": {}}
    # One trainer for each of ours: versions of a job only rise.
    for way, options in WAYS.items():
        measure_ours(llm, models, dtype, folder, way, options, rounds,
                     answers, want, result)
    own = Opponents(llm, models, folder)
    for name in ("reload_weights", "layerwise", "load_weights"):
        try:
            call = getattr(own, name)
            call("B")
            times = [clocked(lambda c=call, r=r: c("AB"[r % 2]))
                     for r in range(rounds)]
            result["own"][name] = statistics.median(times)
        except Exception as problem:  # an opponent that cannot is no failure
            result["own"][name] = None
            print(f"vllm {name}: {type(problem).__name__}: {problem}",
                  file=sys.stderr)
    result["memcpy"] = memcpy_seconds(result["bytes"])
    result["packed"] = packed
    print("RESULT " + json.dumps(result), flush=True)
    import shutil
    shutil.rmtree(folder, ignore_errors=True)


def measure_ours(llm, models, dtype, folder, way, options, rounds, answers,
                 want, result):
    from servers import Trainer
    job = {"address": f"unix:{folder}/{way.replace(' ', '-')}.sock",
           "job": "bench"}
    engine = llm.llm_engine.model_executor.driver_worker
    refits, transfers, packs = [], [], []
    with Trainer(folder, models, dtype, **job) as trainer:
        llm.init_weight_transfer_engine({"init_info": {**job, **options}})
        for version in range(1, rounds + 3):
            name = "BA"[version % 2 == 0]
            trainer.offer(version, name)

            def refit(v=version):
                llm.start_weight_update()
                llm.update_weights({"update_info": {"version": v}})
                llm.finish_weight_update()
                llm.reset_prefix_cache()

            took = clocked(refit)
            trainer.done()
            server = next(iter(engine.worker.weight_transfer_engine
                               ._servers.values()))
            report = server.report
            if name not in want:
                want[name] = answers()
            assert answers() == want[name], f"{way}: version {version}"
            if version > 2:  # the first two plan and touch pages
                refits.append(took)
                # By whichever side writes; with its check and its commit.
                transfers.append(report.total - report.wait)
                packs.append(took - report.total)
        engine.worker.weight_transfer_engine.shutdown()
    result["bytes"] = report.written_bytes
    result["scratch"][way] = report.scratch_bytes
    result["ways"][way] = {
        "refit": statistics.median(refits),
        "transfer": statistics.median(transfers),
        "after": statistics.median(packs)}


def bytes_crossed(config, tp):
    """(ours, nccl_m2n's) bytes of one update over all ranks, in elements.
    nccl_m2n delivers a fused parameter, and what has no plain loader, whole to
    every rank; here a rank gets what it holds."""
    h, ffn = config["hidden_size"], config["intermediate_size"]
    d = h // config["num_attention_heads"]
    q, kv = h, config["num_key_value_heads"] * d
    heads = max(1, -(-config["num_key_value_heads"] // tp)) * d * tp
    layers = config["num_hidden_layers"]
    fused = (q + 2 * kv) * h + 2 * ffn * h
    mine = (q + 2 * heads) * h + 2 * ffn * h
    direct = q * h + h * ffn  # o_proj, down_proj: cut on both
    norms = (2 * layers + 1) * h * tp
    vocabulary = config["vocab_size"] * h
    ours = layers * (mine + direct) + norms + vocabulary
    theirs = layers * (fused * tp + direct) + norms + vocabulary * tp
    return ours, theirs


def record(case, ours, opponent, theirs, unit, goal, less=True):
    ratio = None
    if theirs and ours:
        ratio = theirs / ours if less else ours / theirs
    return {"bench": "plugin", "case": case, "ours": ours,
            "opponent": opponent, "theirs": theirs, "ratio": ratio,
            "goal": goal, "unit": unit}


def records(result):
    case = result["case"]
    gain = CASES[case][2]
    own = {name: value for name, value in result["own"].items() if value}
    if result["packed"] and case != "bf16":
        own.pop("load_weights", None)  # it does not reach packed weights
    best = min(own, key=own.get) if own else None
    for way, times in result["ways"].items():
        goal = LEAST_OF_MEMCPY if way == "mapped" and case != "fp32 packed" \
            else None
        yield record(f"{case}, {way}: transfer", times["transfer"], "memcpy",
                     result["memcpy"], "s", goal)
        yield record(f"{case}, {way}: refit", times["refit"],
                     f"vllm {best}" if best else None, own.get(best), "s",
                     gain if way != "mapped" else None)
        yield record(f"{case}, {way}: after the commit (pack, reset)",
                     times["after"], None, None, "s", None)
        yield record(f"{case}, {way}: memory over the server's own",
                     result["scratch"][way] / 1e6, None, None, "MB", None)
    for name, seconds in result["own"].items():
        yield record(f"{case}: vllm {name}", seconds, None, None, "s", None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--inside", choices=list(CASES))
    args = parser.parse_args()
    if args.inside:
        one_case(args.inside, args.model, args.rounds)
        return
    found = []
    config = json.loads((args.model / "config.json").read_text())
    for tp in (1, 3):
        ours, theirs = bytes_crossed(config, tp)
        found.append(record(f"TP {tp}: bytes of an update, bf16",
                            2 * ours / 1e6, "nccl_m2n, counted",
                            2 * theirs / 1e6, "MB", None))
    for case in [args.only] if args.only else CASES:
        environment = {
            **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "DYNATRAIN_VLLM": json.dumps({"pack": CASES[case][1]})}
        done = subprocess.run(
            [sys.executable, __file__, str(args.model), "--inside", case,
             "--rounds", str(args.rounds)], env=environment,
            capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines()
                 if line.startswith("RESULT ")]
        if not lines:
            sys.exit(f"{case}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
        found += records(json.loads(lines[-1][7:]))
    for row in found:
        print(shown(row))
    if args.json:
        with open(args.json, "a", encoding="utf-8") as file:
            for row in found:
                file.write(json.dumps(row) + "\n")


def shown(row):
    if row["ours"] is None:
        return f"{row['case']}: not measured"
    text = f"{row['case']}: {row['ours']:.4g} {row['unit']}"
    if row["theirs"] and row["ratio"]:
        text += (f", {row['opponent']} {row['theirs']:.4g} {row['unit']}, "
                 f"ratio {row['ratio']:.2f}")
    if row["goal"] and row["ratio"]:
        met = "met" if row["ratio"] >= row["goal"] else "MISSED"
        text += f", goal {row['goal']} {met}"
    return text


if __name__ == "__main__":
    main()
