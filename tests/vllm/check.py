"""vLLM's CPU build gets weights from a trainer that is sharded over two
processes, and answers bit for bit like servers that loaded them from disk.
usage: check.py MODEL [--full] [--program DYNATRAIN --engine ENGINE_HTTP.SO]

A line for each check, and a closing one with how many there were.  The short
form has few updates and combinations; --full, or DYNATRAIN_TEST_FULL=1, all."""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

import engines
import faults
import loop
import served
from servers import KINDS, PROMPTS, make_weights


def library(checks, models, tp, kind, folder, count):
    """The same through vLLM's class LLM, in every way to commit."""
    ways = list(served.WAYS)
    with checks.one(f"TP {tp}, {kind}: vLLM as a library") as notes:
        _, rows = engines.updated(
            tp, kind, models, folder, list(served.WAYS.values()),
            [count] * len(ways), patience=1200)
        wrong = [row for row in rows if row["differs"]]
        assert not wrong and len(rows) == count * len(ways), wrong or rows
        for number, way in enumerate(ways):
            times = sorted(row["seconds"] for row in rows
                           if row["way"] == number)
            notes.append(f"{way} {count} updates of "
                         f"{times[len(times) // 2]:.2f} s")
        checks.updates += len(rows)


def close_to_transformers(checks, site, model):
    """Where the two best tokens are further apart than 0.05, transformers
    chooses the same ones."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging
    logging.disable_progress_bar()
    with checks.one(f"{site.name}: transformers chooses the same tokens"
                    ) as notes:
        tokenizer = AutoTokenizer.from_pretrained(str(model))
        net = AutoModelForCausalLM.from_pretrained(
            str(model), dtype=getattr(torch, KINDS[site.kind][0])).eval()
        compared = 0
        for prompt, (ids, _) in zip(PROMPTS, site.want["B"]):
            tokens = tokenizer(prompt)["input_ids"] + ids
            with torch.no_grad():
                logits = net(torch.tensor([tokens])).logits[0]
            first = len(tokens) - len(ids)
            for place, token in enumerate(ids):
                best = torch.log_softmax(logits[first + place - 1], -1).topk(2)
                if best.values[0] - best.values[1] > 0.05:
                    assert int(best.indices[0]) == token, (prompt, place)
                    compared += 1
        assert compared > len(PROMPTS) * 8, compared
        notes.append(f"{compared} compared")


def over_http(checks, models, tp, kind, folder, counts):
    """A server for each set, and updates of one of them in every way."""
    with checks.one(f"TP {tp}, {kind}: a fresh server for each set") as notes:
        site = served.Site(models, tp, kind, folder)
        notes.append(f"{len(PROMPTS)} answers of each")
    with site, faults.trainer_of(site) as trainer:
        for way, count in zip(served.WAYS, counts):
            if count:
                served.updates(checks, site, trainer, way, count)


def everything(checks, models, folder, counts, options):
    """At TP 1, packed: two servers that stay, for all else that can happen."""
    with checks.one("TP 1, fp32 packed: a fresh server for each set") as notes:
        site = served.Site(models, 1, "fp32 packed", folder, keep_both=True)
        notes.append(f"{len(PROMPTS)} answers of each")
    with site:
        close_to_transformers(checks, site, models["B"])
        trainer = faults.trainer_of(site)
        try:
            served.wrong_dialect(checks, site)
            for way, count in zip(served.WAYS, counts):
                if count:
                    served.updates(checks, site, trainer, way, count)
            served.in_flight(checks, site, trainer, site.client())
            faults.second_trainer(checks, site)
            faults.second_job(checks, site, trainer)
            for way in options.kill_in:
                trainer = faults.trainer_killed(checks, site, trainer, way)
            if options.full:
                faults.server_killed(checks, site, trainer)
        finally:
            trainer.close()
        if options.program:
            loop.grpo(checks, site, options)


def run(checks, models, folder, options):
    counts = [20, 4, 4, 4] if options.full else [4, 2, 2, 2]
    options.kill_in = list(served.WAYS) if options.full else ["staged",
                                                              "in place"]
    everything(checks, models, folder, counts, options)
    library(checks, models, 1, "bf16", folder, 2)
    if not options.full:
        over_http(checks, models, 3, "fp32 packed", folder, [4, 0, 0, 0])
        return
    for tp in (1, 3):
        for kind in KINDS:
            if (tp, kind) != (1, "fp32 packed"):
                over_http(checks, models, tp, kind, folder, counts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--full", action="store_true",
                        default=os.environ.get("DYNATRAIN_TEST_FULL") == "1")
    parser.add_argument("--program", help="dynatrain, for its loop")
    parser.add_argument("--engine", help="the engine of docs/examples/http")
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1",
                      TRANSFORMERS_VERBOSITY="error")
    signal.signal(signal.SIGTERM, lambda *about: sys.exit(143))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dynatrain-vllm-"))
    checks = served.Checks()
    try:
        models = dict(zip("AB", make_weights(options.model, folder)))
        run(checks, models, folder, options)
    except BaseException:
        for log in sorted(folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        print(f"vllm-check: FAILED after {checks.count} checks", flush=True)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"vllm-check: {checks.count} checks passed, {checks.updates} updates "
          "of servers answered bit for bit like those that loaded from disk, "
          f"{time.monotonic() - checks.begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
