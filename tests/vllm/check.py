"""vLLM's CPU build gets weights from a trainer that is sharded over two
processes, and answers bit for bit like servers that loaded them from disk.
usage: check.py MODEL [--full] [--part PART...] [--hooks LIBDYNATRAIN.SO]
                [--program DYNATRAIN --engine ENGINE_HTTP.SO]

A line for each check, and a closing one with how many there were.  The short
form has few updates and combinations; --full, or DYNATRAIN_TEST_FULL=1, all.
PART is main (all that can happen, at TP 1, fp32 packed), library, or a
combination such as "3:bf16".  Without the library of a test build nobody is
killed."""

import argparse
import contextlib
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
from servers import KINDS, PROMPTS, give_back, make_weights

WAYS = list(served.WAYS)
SHORT = ["main", "3:fp32 packed"]
ALL = ["3:fp32 unpacked", "3:bf16", "3:fp32 packed", "main", "library",
       "1:fp32 unpacked", "1:bf16"]
# Of these every way gets more updates.
LONG = ["main", "3:fp32 packed"]
# The way in which a server dies there at its end; at TP 3 both of them, the
# first one by one of its ranks, the other one as a whole.
KILLED_IN = {(1, "fp32 unpacked"): "mapped, double", (1, "bf16"): "mapped",
             (3, "fp32 unpacked"): "mapped, double", (3, "bf16"): "mapped",
             (3, "fp32 packed"): "in place"}
# All else that can happen to one of several ranks.
RANKS = (3, "fp32 packed")


def library(checks, models, tp, kind, folder, count):
    """The same through vLLM's class LLM, in every way to commit, and by the
    worker extension."""
    ways = [*WAYS, "worker extension"]
    with checks.one(f"TP {tp}, {kind}: vLLM as a library") as notes:
        _, rows, draft = engines.updated(
            tp, kind, models, folder, list(served.WAYS.values()),
            [count] * len(WAYS), patience=1200)
        wrong = [row for row in rows if row["differs"]]
        assert not wrong and len(rows) == count * len(ways), wrong or rows
        for number, way in enumerate(ways):
            times = sorted(row["seconds"] for row in rows
                           if row["way"] == number)
            notes.append(f"{way} {count} updates of "
                         f"{times[len(times) // 2]:.2f} s")
        checks.updates += len(rows)
    with_draft(checks, tp, kind, draft)


def with_draft(checks, tp, kind, draft):
    """A draft model gets its own weights from its own job, and the model beside
    it keeps its own: where both are the same nearly all is taken that the draft
    proposes, and a draft that has got its weights from disk or from us proposes
    the same."""
    with checks.one(f"TP {tp}, {kind}: a speculative draft model") as notes:
        assert "another job" in draft.pop("refused", ""), draft
        notes.append("refused by name without a job of its own")
        assert draft["A, draft B again"] == draft["A, draft B"], draft
        share = {what: taken / proposed
                 for what, (proposed, taken) in draft.items()}
        for both in ("both A", "both B"):
            assert share[both] > 0.97 > share["A, draft B"], draft
        notes.append(", ".join(f"{what}: {taken:.0f} of {proposed:.0f} taken"
                               for what, (proposed, taken) in draft.items()))


def clear_choices(model, dtype, asked):
    """How often transformers has a clear favourite among the tokens that a
    server chose for `asked`, (prompt, token ids) rows: it must be that one."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    net = AutoModelForCausalLM.from_pretrained(
        str(model), dtype=getattr(torch, dtype)).eval()
    clear = 0
    for prompt, ids in asked:
        tokens = tokenizer(prompt)["input_ids"] + ids
        with torch.no_grad():
            logits = net(torch.tensor([tokens])).logits[0]
        first = len(tokens) - len(ids)
        for place, token in enumerate(ids):
            best = torch.log_softmax(logits[first + place - 1], -1).topk(2)
            if best.values[0] - best.values[1] > 0.05:
                assert int(best.indices[0]) == token, (prompt, place)
                clear += 1
    return clear


def close_to_transformers(checks, site):
    """Where the two best tokens are further apart than 0.05, transformers
    chooses the same ones, of either set."""
    from transformers.utils import logging
    logging.disable_progress_bar()
    with checks.one(f"{site.name}: transformers chooses the same tokens"
                    ) as notes:
        for name in "AB":
            asked = [(prompt, ids) for prompt, (ids, _) in
                     zip(PROMPTS, site.want[name])]
            clear = clear_choices(site.models[name], KINDS[site.kind][0], asked)
            assert clear > len(PROMPTS) * 8, clear
            notes.append(f"{clear} of {name} compared")
            give_back()


def updated(checks, site, trainer, counts, servers=None):
    for way, count in zip(WAYS, counts):
        if count:
            served.updates(checks, site, trainer, way, count, servers)


def over_http(checks, models, tp, kind, folder, counts, options):
    """A server for each set, and updates of one of them in every way."""
    dies_in = KILLED_IN.get((tp, kind)) if (options.hooks
                                            and options.full) else None
    with served.Site(models, tp, kind, folder,
                     options.hooks if dies_in else None,
                     stay=dies_in is not None and tp == 1,
                     alone=not options.full) as site, \
            contextlib.ExitStack() as ranks:
        trainer = faults.trainer_of(site, point=site.trainer_point)
        ranks.callback(lambda: trainer.close())  # whoever is the last one
        alone = dies_in is not None and tp > 1
        of_the_dead = site.answer(checks, alone and (
            lambda: faults.alone_killed(checks, site, trainer, dies_in,
                                        "one of its ranks killed")))
        if alone:
            faults.has_it(checks, site, trainer, of_the_dead)
        updated(checks, site, trainer, counts, site.servers[:1])
        if options.full and (tp, kind) == RANKS:
            served.in_flight(checks, site, trainer, site.client())
            if dies_in:
                trainer = faults.killed_alone(checks, site, trainer)
        if alone:
            faults.alone_killed(checks, site, trainer, dies_in, "server killed")
            trainer.kill()  # who would wait for the next server
        elif dies_in:
            faults.server_killed(checks, site, trainer, dies_in)


def everything(checks, models, folder, counts, options):
    """At TP 1, packed: two servers that stay, for all else that can happen."""
    with served.Site(models, 1, "fp32 packed", folder, options.hooks,
                     stay=True) as site:
        with faults.trainer_of(site) as trainer:
            site.answer(checks)
            close_to_transformers(checks, site)
            trainer.ready()
            served.wrong_dialect(checks, site)
            updated(checks, site, trainer, counts)
            served.in_flight(checks, site, trainer, site.client())
            faults.second_trainer(checks, site)
            faults.second_job(checks, site, trainer)
        if options.hooks:
            faults.killed(checks, site, options.full)
        if options.program:
            loop.grpo(checks, site, options)


def run(checks, models, folder, options):
    parts = options.part or (ALL if options.full else SHORT)
    for part in parts:
        counts = [2, 1, 1, 1]
        if options.full:
            counts = [20, 4, 4, 4] if part in LONG else [4, 2, 2, 2]
        if part == "main":
            everything(checks, models, folder, counts, options)
        elif part == "library":
            library(checks, models, 1, "bf16", folder, 2)
        else:
            tp, kind = part.split(":")
            over_http(checks, models, int(tp), kind, folder,
                      counts if options.full else [2, 0, 0, 0], options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--full", action="store_true",
                        default=os.environ.get("DYNATRAIN_TEST_FULL") == "1")
    parser.add_argument("--part", nargs="+")
    parser.add_argument("--hooks", type=pathlib.Path)
    parser.add_argument("--program", help="dynatrain, for its loop")
    parser.add_argument("--engine", help="the engine of docs/examples/http")
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1",
                      TRANSFORMERS_VERBOSITY="error")
    # Whatever who started us does with them.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
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
    answers = "".join(f", {count} answers at TP {tp}" for tp, count in
                      sorted(served.Site.compared.items()))
    print(f"vllm-check: {checks.count} checks passed, {checks.updates} updates "
          "of servers answered bit for bit like those that loaded from disk"
          f"{answers}, {time.monotonic() - checks.begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
