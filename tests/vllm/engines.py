"""vLLM as a library, in a process of its own: what fresh engines answer that
loaded each set of weights from disk, and what one of them answers that then
gets its weights from a trainer, version after version, in each way to commit,
one that gets them by the worker extension of older versions, and one that has a
speculative draft model beside.
"""

import json
import pathlib
import subprocess
import sys
import time

from servers import (KINDS, KV_BYTES, PROMPTS, Trainer, die_with_parent, end_group,
                     environment, in_group)


BACKEND = {"weight_transfer_config": {"backend": "dynatrain"}}
EXTENSION = {"worker_extension_cls": "dynatrain.vllm.WorkerExtension"}


def engine(path, tp, kind, plug=BACKEND):
    from vllm import LLM
    return LLM(str(path), enforce_eager=True, max_model_len=512,
               dtype=KINDS[kind][0], tensor_parallel_size=tp,
               kv_cache_memory_bytes=KV_BYTES, **plug)


def shut(llm):
    """Another engine may be made in this process."""
    from vllm.distributed import cleanup_dist_env_and_memory
    llm.llm_engine.engine_core.shutdown()
    cleanup_dist_env_and_memory()


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


def differs(have, want):
    """What differs between two lists of answers; "" where nothing does."""
    if [list(ids) for ids, _ in have] != [list(ids) for ids, _ in want]:
        return "token ids differ"
    if [list(p) for _, p in have] != [list(p) for _, p in want]:
        return "log-probabilities differ"
    return ""


def by_backend(llm, version):
    llm.start_weight_update()
    llm.update_weights({"update_info": {"version": version, "timeout": 600}})
    llm.finish_weight_update(weight_version=str(version))


def by_extension(llm, version):
    """As vLLM before 0.29 does it, which has no plug point."""
    have = llm.collective_rpc("dynatrain_update", kwargs={
        "version": version, "timeout": 600})
    assert set(have) == {version}, have


def by_draft(llm, version):
    llm.start_draft_weight_update()
    llm.update_weights({"update_info": {"version": version, "timeout": 600}})
    llm.finish_weight_update()


def guessed(llm):
    """How many tokens of answers the draft model proposed, and how many of
    these the model took."""
    def so_far():
        have = {metric.name: metric.value for metric in llm.get_metrics()
                if hasattr(metric, "value")}
        return [have[f"vllm:spec_decode_num_{what}_tokens"]
                for what in ("draft", "accepted")]
    before = so_far()
    answers(llm)
    return [now - then for now, then in zip(so_far(), before)]


def drafted(models, tp, kind, folder, job, trainer, version):
    """The model is A and its draft B, then both are A, then as before, then
    both B: what was proposed and taken each time."""
    own = {"job": "draft", "address": f"unix:{folder}/draft.sock"}
    plug = {**BACKEND, "disable_log_stats": False, "speculative_config": {
        "method": "draft_model", "model": str(models["B"]),
        "num_speculative_tokens": 3, "draft_tensor_parallel_size": tp}}
    with Trainer(folder, models, KINDS[kind][0], **{**job, **own}) as second:
        llm = engine(models["A"], tp, kind, plug)
        found = {"A, draft B": guessed(llm)}
        llm.init_weight_transfer_engine({"init_info": job})
        try:
            by_draft(llm, 1)
        except Exception as problem:
            found["refused"] = str(problem)
        llm.init_weight_transfer_engine({"init_info": {**job, "draft": own}})
        update(llm, second, 1, "A", by_draft)
        found["both A"] = guessed(llm)
        update(llm, second, 2, "B", by_draft)
        found["A, draft B again"] = guessed(llm)
        update(llm, trainer, version, "B", by_backend)
        found["both B"] = guessed(llm)
        shut(llm)
    say(draft=found)


def update(llm, trainer, version, name, call):
    """One version into the engine; seconds that it took."""
    trainer.offer(version, name)
    begun = time.perf_counter()
    call(llm, version)
    llm.reset_prefix_cache()
    took = time.perf_counter() - begun
    trainer.done()
    return took


def work_of(tp, kind, models, folder, ways, counts):
    """In the process: says each result in a line of its own."""
    models = {name: pathlib.Path(path) for name, path in models.items()}
    want, llm = {}, None
    for name in "BA":
        if llm is not None:
            shut(llm)
        llm = engine(models[name], tp, kind)
        want[name] = answers(llm)
    say(want=want)
    assert want["A"] != want["B"], "the two sets answer alike"
    place = pathlib.Path(folder) / f"engine-{tp}-{kind.replace(' ', '-')}"
    job = {"job": "engine", "address": f"unix:{place}.sock", "timeout": 600.0}
    version = 0

    def updates(number, count, call):
        nonlocal version
        for version in range(version + 1, version + count + 1):
            name = "BA"[version % 2 == 0]
            took = update(llm, trainer, version, name, call)
            say(way=number, version=version, set=name, seconds=took,
                differs=differs(answers(llm), want[name]))

    with Trainer(folder, models, KINDS[kind][0], **job) as trainer:
        trainer.ready()
        for number, (way, count) in enumerate(zip(ways, counts)):
            llm.init_weight_transfer_engine({"init_info": {**job, **way}})
            updates(number, count, by_backend)
        shut(llm)
        llm = engine(models["A"], tp, kind, EXTENSION)
        llm.collective_rpc("dynatrain_init", kwargs=job)
        updates(len(ways), counts[0], by_extension)
        llm.collective_rpc("dynatrain_close")
        shut(llm)
        del llm
        drafted(models, tp, kind, folder, job, trainer, version + 1)


def say(**found):
    print("FOUND " + json.dumps(found), flush=True)


def updated(tp, kind, models, folder, ways, counts, patience):
    """(answers of fresh engines by set, rows of what work_of() says, what
    drafted() says)."""
    work = {"tp": tp, "kind": kind, "folder": str(folder), "ways": ways,
            "counts": counts,
            "models": {name: str(path) for name, path in models.items()}}
    log = pathlib.Path(folder) / f"engine-{tp}-{kind.replace(' ', '-')}.log"
    with open(log, "w", encoding="utf-8") as out:
        child = in_group(
            [sys.executable, __file__, json.dumps(work)], stdout=out,
            stderr=subprocess.STDOUT, cwd=str(folder),
            env=environment(tp, KINDS[kind][1],
                            VLLM_ENABLE_V1_MULTIPROCESSING="0",
                            VLLM_LOGGING_LEVEL="ERROR"))
        try:
            code = child.wait(patience)
        finally:
            end_group(child)
    said = log.read_text(encoding="utf-8", errors="replace")
    rows = [json.loads(line[6:]) for line in said.splitlines()
            if line.startswith("FOUND ")]
    if code != 0 or not rows:
        raise RuntimeError(f"an engine at TP {tp}, {kind}, ended with {code}:\n"
                           + said[-6000:])
    return rows[0]["want"], rows[1:-1], rows[-1]["draft"]


if __name__ == "__main__":
    die_with_parent()
    work_of(**json.loads(sys.argv[1]))
