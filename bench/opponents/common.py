"""What the opponents' programs share.  Each prints one JSON line per figure:
bench, case, opponent, value, unit (bigger is better unless the unit is s), and
what else is worth knowing."""

import argparse
import json
import os
import resource
import statistics
import time

THREADS = len(os.sched_getaffinity(0))  # as many as ours has
SEED = 1


def arguments(description, **extra):
    """--model and --runs, plus NAME=default of `extra`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", help="Hugging Face directory")
    parser.add_argument("--runs", type=int, default=3)
    for name, default in extra.items():
        parser.add_argument("--" + name.replace("_", "-"),
                            type=type(default), default=default)
    return parser.parse_args()


def prompts(count):
    """14 tokens each for SmolLM2: what every rollout benchmark is given."""
    return ["Tell me about the number %d and its properties, in short."
            % (i % 10) for i in range(count)]


def timed(call, runs):
    """Seconds of each of `runs` calls, after one that warms up."""
    call()
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def emit(bench, case, opponent, values, unit, **more):
    """One figure: the median of `values`."""
    record = {
        "bench": bench, "case": case, "opponent": opponent,
        "value": statistics.median(values), "unit": unit,
        "low": min(values), "high": max(values),
        "peak_rss_mb":
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps({**record, **more}), flush=True)
