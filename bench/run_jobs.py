"""Times the two jobs that learn, as the release binary runs them, for the table
beside the same written out in torch.

usage: run_jobs.py BINARY OURS.jsonl JOB...
  JOB  learn_sort: the quickstart, all of its 500 steps
       learn_sum:  configs/smollm2, which needs the real model
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# name: job file, case, settings, goal.  The quickstart may stop when it is good
# enough; torch's goes to its end, and so does ours here.
JOBS = {
    "learn_sort": ("configs/quickstart/job.toml", "500 steps",
                   {"stop.reward_mean": "inf", "stop.seconds": "inf"}, 3.0),
    "learn_sum": ("configs/smollm2/job.toml", "20 steps", {}, 1.0),
}


def run(binary, job, settings, runs):
    """The summary of a finished run."""
    command = [binary, "run", str(ROOT / job), "--set", f"runs={runs}"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, cwd=ROOT, check=False,
                          stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(done.returncode)  # it has said why on stderr
    folder = next(pathlib.Path(runs).iterdir())
    return json.loads((folder / "summary.json").read_text())


def main():
    binary, out, *names = sys.argv[1:]
    for name in names:
        job, case, settings, goal = JOBS[name]
        with tempfile.TemporaryDirectory() as runs:
            summary = run(binary, job, settings, runs)
        line = {"bench": name, "case": case, "ours": summary["seconds"],
                "opponent": None, "theirs": None, "ratio": None, "goal": goal,
                "unit": "s", "exact_match": summary["exact_match"]}
        print(f"{name:10} {case:34} {line['ours']:10.4g} s   exact match "
              f"{summary['exact_match']:.3f}", flush=True)
        with open(out, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
