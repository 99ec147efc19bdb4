"""Runs the two jobs that learn, as the release binary runs them, in turn with
the same written out in torch, and prints both and their ratio.

usage: run_jobs.py [options] BINARY OURS.jsonl JOB...
  JOB  learn_sort: the quickstart, all of its 500 steps
       learn_sum:  configs/smollm2, which needs the real model

Both sides have the cores of this machine.  The clock of ours runs from the
command to its end, torch's from its loaded model.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORES = len(os.sched_getaffinity(0))
CALIBRATION = 20  # steps that tell how many threads suit torch


class Job:
    """One job: what ours and torch are told, and what is compared."""

    def __init__(self, name, file, script, goal, steps, **more):
        self.name, self.goal, self.full = name, goal, steps
        self.file, self.script = file, script
        self.settings = more["settings"]  # of ours
        self.few = more["few"]            # those of a run with --steps
        self.threads = more["threads"]    # how many torch may try
        self.rivals = more["rivals"]      # names and arguments of torch


# The quickstart may stop when it is good enough, and evaluates every 25 steps;
# torch's goes to its end and evaluates there, and so does ours here.
JOBS = {
    "learn_sort": Job(
        "learn_sort", "configs/quickstart/job.toml", "learn_sort_torch.py",
        3.0, 500, threads=sorted({1, CORES}), rivals=[("torch", [])],
        settings={"stop.reward_mean": "inf", "stop.seconds": "inf",
                  "eval.every": "500"},
        few={"eval.every": "1000"}),
    "learn_sum": Job(
        "learn_sum", "configs/smollm2/job.toml", "learn_sum_torch.py", 1.0, 20,
        threads=[CORES], settings={},
        few={"eval.every": "1000", "eval.before_training": "false"},
        rivals=[("torch, fp32", []),
                ("torch, autocast to bf16", ["--autocast", "1"])]),
}


def run_ours(binary, job, steps):
    """Seconds (of a step, in a short run) and the summary."""
    settings = {**job.settings, **({} if steps is None else job.few)}
    if steps is not None:
        settings["steps"] = steps
    with tempfile.TemporaryDirectory() as runs:
        command = [binary, "run", str(ROOT / job.file), "--set",
                   f"runs={runs}"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        done = subprocess.run(command, cwd=ROOT, check=False,
                              stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(done.returncode)  # it has said why on stderr
        folder = next(pathlib.Path(runs).iterdir())
        summary = json.loads((folder / "summary.json").read_text())
        if steps is None:
            return summary["seconds"], summary
        times = [json.loads(line).get("time/step") for line in
                 (folder / "metrics.jsonl").read_text().splitlines()]
        return statistics.median([t for t in times if t][1:]), summary


def run_torch(args, job, threads, steps, more):
    """The record of its program; None where it fails."""
    command = [args.python, str(ROOT / "bench/opponents" / job.script),
               "--threads", str(threads), "--steps", str(steps), *more]
    if args.model:
        command += ["--model", args.model]
    done = subprocess.run(command, cwd=ROOT, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing on its stderr"]
        print(f"{job.name}: torch is left out, it failed: {said[-1]}",
              flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def best_threads(args, job):
    """How many threads torch is fastest with; None where it cannot run."""
    if len(job.threads) == 1:
        return job.threads[0]
    tries = {}
    for n in job.threads:
        record = run_torch(args, job, n, CALIBRATION, ["--evaluate", "0"])
        if record is None:
            return None
        tries[n] = record["step_s"]
        print(f"  torch, {n} threads: {tries[n]:.4g} s a step", flush=True)
    return min(tries, key=tries.get)


class Player:
    """Ours, or one of torch's ways: its figures so far."""

    def __init__(self, name, turn):
        self.name, self.turn = name, turn  # turn(): (seconds, exact match)
        self.seconds, self.exact_match = [], None

    def play(self):
        done = self.turn()
        if done is None:
            return
        self.seconds.append(done[0])
        self.exact_match = done[1]
        said = "" if done[1] is None else f", exact match {done[1]:.3f}"
        print(f"  {self.name}: {done[0]:.4g} s{said}", flush=True)


def players(args, job):
    steps = args.steps

    def ours():
        seconds, summary = run_ours(args.binary, job, steps)
        return seconds, summary["exact_match"] if steps is None else None

    def torch(more):
        few = [] if steps is None else ["--evaluate", "0"]
        record = run_torch(args, job, threads, steps or job.full, more + few)
        return record and (record["value" if steps is None else "step_s"],
                           record.get("exact_match"))

    everybody = [Player("ours", ours)]
    threads = best_threads(args, job) if args.python else None
    for name, more in job.rivals if threads else []:
        label = f"{name}, {threads} thread" + "s" * (threads > 1)
        everybody.append(Player(label, lambda more=more: torch(more)))
    return everybody


def measure(args, job):
    """Records of rounds in alternating order, one for each opponent."""
    everybody = players(args, job)
    for r in range(args.rounds):
        backwards = (r + args.first) % 2
        for player in everybody[::-1] if backwards else everybody:
            player.play()
    ours, *theirs = everybody
    theirs = [p for p in theirs if p.seconds]
    case = f"{job.full} steps" if args.steps is None else \
        f"a step of {args.steps}"
    record = {"bench": job.name, "case": case,
              "ours": statistics.median(ours.seconds), "opponent": None,
              "theirs": None, "ratio": None, "goal": job.goal, "unit": "s"}
    ends = {} if ours.exact_match is None else \
        {"exact_match": ours.exact_match}
    for p in theirs:
        their = statistics.median(p.seconds)
        goal = job.goal if p is theirs[0] else None
        more = {} if p.exact_match is None else \
            {"exact_match_theirs": p.exact_match}
        yield {**record, "opponent": p.name, "theirs": their, "goal": goal,
               "ratio": their / record["ours"], **ends, **more}
    if not theirs:
        yield {**record, **ends}


def show(record):
    line = f"{record['bench']:10} {record['case']:34} {record['ours']:10.4g} s"
    if record["opponent"]:
        line += f"   {record['opponent']} {record['theirs']:.4g}   ratio " \
            f"{record['ratio']:.3f}"
        if record["goal"]:
            met = "met" if record["ratio"] >= record["goal"] else "missed"
            line += f" (aim {record['goal']:.2f}: {met})"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", help="of torch's environment; without it "
                        "ours runs alone")
    parser.add_argument("--model", help="Hugging Face directory, for torch")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, choices=(0, 1),
                        help="1: torch begins")
    parser.add_argument("--steps", type=int, help="fewer steps, without "
                        "evaluation: seconds of a step are compared")
    parser.add_argument("binary")
    parser.add_argument("out")
    parser.add_argument("job", nargs="+", choices=sorted(JOBS))
    args = parser.parse_args()
    for name in args.job:
        for record in measure(args, JOBS[name]):
            show(record)
            with open(args.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
