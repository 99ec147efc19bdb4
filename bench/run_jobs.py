"""Times whole jobs of the release binary: the GRPO step beside TRL's, and the
two runs that learn beside the same written out in torch.

usage: run_jobs.py BINARY OURS.jsonl [--quick]
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# (name, settings) of the worlds that a step is timed in: the best one of a
# small machine, and the one with a switch between different layouts.
WORLDS = [
    ("2 ranks", {"ranks": 2, "phase.rollout.layout.tp": 2,
                 "phase.train.layout.pp": 1, "phase.train.layout.dp": 2}),
    ("4 ranks", {}),
]


def run(binary, job, settings, runs):
    """metrics and summary of a finished run."""
    command = [binary, "run", str(ROOT / job), "--set", f"runs={runs}"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    folder = next(pathlib.Path(runs).iterdir())
    steps = [json.loads(line) for line in
             (folder / "metrics.jsonl").read_text().splitlines()]
    return steps, json.loads((folder / "summary.json").read_text())


def record(out, bench, case, world, ours, unit, goal, **more):
    line = {"bench": bench, "case": case, "ours": ours, "opponent": None,
            "theirs": None, "ratio": None, "goal": goal, "unit": unit,
            "world": world, **more}
    print(f"{bench:10} {case:34} {ours:10.4g} {unit}   {world}", flush=True)
    with open(out, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def grpo_step(binary, out, quick):
    for kl in (0, 0.04):
        for world, settings in WORLDS:
            with tempfile.TemporaryDirectory() as runs:
                steps, _ = run(binary, "bench/jobs/grpo_step/job.toml",
                               {**settings, "algorithm.kl.coef": float(kl),
                                "steps": 2 if quick else 3}, runs)
            seconds = [s["time/step"] for s in steps if "time/step" in s][1:]
            record(out, "grpo_step", f"fp32/4x8x64/kl={kl:g}", world,
                   statistics.median(seconds), "s", 1.5)


def learn(binary, out, bench, job, case, goal):
    with tempfile.TemporaryDirectory() as runs:
        _, summary = run(binary, job, {}, runs)
    record(out, bench, case, "4 ranks", summary["seconds"], "s", goal,
           exact_match=summary["exact_match"], steps=summary["steps"])


def main():
    binary, out = sys.argv[1:3]
    quick = "--quick" in sys.argv
    grpo_step(binary, out, quick)
    if not quick:
        learn(binary, out, "learn_sort", "configs/quickstart/job.toml",
              "500 steps", 3.0)
        learn(binary, out, "learn_sum", "configs/smollm2/job.toml",
              "20 steps", 1.0)


if __name__ == "__main__":
    main()
