"""What the opponents' programs share.  Alone each prints one JSON line per
figure: bench, case, opponent, value, unit (bigger is better unless the unit is
s), and what else is worth knowing.  With --turns it stays loaded and takes
turns with ours (see bench/support/rival.h): {"ready": …} once it has loaded;
then a case on stdin, one call, one figure.

Only these lines go to stdout; what libraries print there goes to stderr."""

import argparse
import json
import os
import resource
import statistics
import sys
import time
from importlib import metadata

THREADS = len(os.sched_getaffinity(0))  # as many as ours has
SEED = 1
RECORDS = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def arguments(description, **extra):
    """--model, --runs, --turns, plus NAME=default of `extra`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", help="Hugging Face directory")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--turns", action="store_true",
                        help="stay loaded: a case in, a figure out")
    for name, default in extra.items():
        parser.add_argument("--" + name.replace("_", "-"),
                            type=type(default), default=default)
    return parser.parse_args()


def prompts(count):
    """14 tokens each for SmolLM2: what every rollout benchmark is given."""
    return ["Tell me about the number %d and its properties, in short."
            % (i % 10) for i in range(count)]


def versions(*packages):
    return ", ".join(f"{p} {metadata.version(p)}" for p in packages)


def ready(*packages):
    """Says that it has loaded, and who is playing."""
    print(json.dumps({"ready": versions(*packages)}), file=RECORDS, flush=True)


def emit(bench, case, opponent, values, unit, **more):
    """One figure: the median of `values`."""
    record = {
        "bench": bench, "case": case, "opponent": opponent,
        "value": statistics.median(values), "unit": unit,
        "low": min(values), "high": max(values),
        "peak_rss_mb":
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps({**record, **more}), file=RECORDS, flush=True)


def play(args, bench, opponent, unit, cases, packages, figure):
    """All turns of a program: figure(case) is one call of it."""
    if args.turns:
        ready(*packages)
        for line in sys.stdin:
            case = line.strip()
            emit(bench, case, opponent, [figure(case)], unit)
        return
    for case in cases:
        figure(case)  # warms up
        emit(bench, case, opponent, [figure(case) for _ in range(args.runs)],
             unit)


def rate(tokens, call):
    """Tokens a second of one call."""
    start = time.perf_counter()
    call()
    return tokens / (time.perf_counter() - start)


def rollout_cases(args):
    """fp32/1,… of --dtype and --sequences."""
    short = {"float32": "fp32", "bfloat16": "bf16"}[args.dtype]
    return [f"{short}/{count}" for count in args.sequences.split(",")]


def sequences_of(case):
    return int(case.split("/")[1])
