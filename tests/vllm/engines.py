"""vLLM as a library, in processes that begin afresh: what engines that loaded a
set of weights from disk answer, and one engine that gets its weights from a
trainer, version after version."""

import json
import os
import subprocess
import sys
import time

from servers import PROMPTS, Trainer


def engine(path, tp, dtype, **more):
    from vllm import LLM
    return LLM(str(path), enforce_eager=True, max_model_len=512, dtype=dtype,
               tensor_parallel_size=tp, **more)


def answers(llm):
    """As Server.answers(): one prompt after the other."""
    from vllm import SamplingParams
    sampling = SamplingParams(temperature=0, max_tokens=16, logprobs=1,
                              ignore_eos=True)
    found = []
    for prompt in PROMPTS:
        out = llm.generate([prompt], sampling, use_tqdm=False)[0].outputs[0]
        found.append((list(out.token_ids),
                      [row[token].logprob for token, row in
                       zip(out.token_ids, out.logprobs)]))
    return found


def in_process(role, tp, **work):
    """This file again, in a process of its own; what it found."""
    environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                   "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
                   "VLLM_LOGGING_LEVEL": "ERROR",
                   "OMP_NUM_THREADS": "1" if tp > 1 else "2"}
    if tp > 1:  # more workers than this machine has parts
        environment["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    done = subprocess.run(
        [sys.executable, __file__, json.dumps({"role": role, "tp": tp, **work})],
        env=environment, capture_output=True, text=True)
    found = [line[6:] for line in done.stdout.splitlines()
             if line.startswith("FOUND ")]
    if done.returncode != 0 or not found:
        raise RuntimeError(f"{role}, TP {tp}: {done.stdout[-2000:]}"
                           f"{done.stderr[-6000:]}")
    return json.loads(found[-1])


def reference(path, tp, dtype):
    """Of a fresh engine that loaded the weights from disk."""
    return [tuple(row) for row in in_process("reference", tp, path=str(path),
                                             dtype=dtype)]


def updated(models, want, tp, dtype, folder, options, count):
    """An engine that gets B, A, B, …: rows of (version, set, seconds, what
    differs)."""
    return in_process("updated", tp, dtype=dtype, folder=str(folder),
                      models={name: str(path) for name, path in models.items()},
                      want=want, options=options, count=count)


def compare(have, want):
    if [ids for ids, _ in have] != [list(ids) for ids, _ in want]:
        return "token ids"
    if [list(p) for _, p in have] != [list(p) for _, p in want]:
        return "log-probabilities"
    return ""


def run_updates(work):
    import pathlib
    models = {name: pathlib.Path(path)
              for name, path in work["models"].items()}
    llm = engine(models["A"], work["tp"], work["dtype"],
                 weight_transfer_config={"backend": "dynatrain"})
    rows = []
    version = 0
    for number, extra in enumerate(work["options"]):
        # Versions of a job only rise, so each way is a job of its own.
        job = {"job": f"engine-{number}",
               "address": f"unix:{work['folder']}/engine-{work['tp']}-"
                          f"{number}.sock"}
        with Trainer(work["folder"], models, work["dtype"], **job) as trainer:
            llm.init_weight_transfer_engine({"init_info": {**job, **extra}})
            for version in range(1, work["count"][number] + 1):
                name = "BA"[version % 2 == 0]
                trainer.offer(version, name)
                begun = time.perf_counter()
                llm.start_weight_update()
                llm.update_weights({"update_info": {"version": version,
                                                    "timeout": 120}})
                llm.finish_weight_update(weight_version=str(version))
                llm.reset_prefix_cache()
                took = time.perf_counter() - begun
                trainer.done()
                rows.append((number, version, name, took,
                             compare(answers(llm), work["want"][name])))
    return rows


def main():
    work = json.loads(sys.argv[1])
    if work["role"] == "reference":
        found = answers(engine(work["path"], work["tp"], work["dtype"]))
    else:
        found = run_updates(work)
    print("FOUND " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
