"""Runs the benchmarks with tiny settings and checks their records: every
line is one JSON object with exactly the eight keys, and the numbers agree.

usage: test_bench_records.py BUILD_FOLDER
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEYS = ["bench", "case", "ours", "opponent", "theirs", "ratio", "goal", "unit"]
LESS_IS_BETTER = {"s", "ms", "us", "ns", "MB"}
# Programs that --quick makes short, and whether they read a model.
PROGRAMS = {"gemm": False, "kernels": False, "switch": False,
            "switch_messages": False, "rollout": False, "train": False,
            "grpo_step": True}


def run(*command):
    return subprocess.run([str(c) for c in command], cwd=ROOT, text=True,
                          capture_output=True, check=False)


def positive(value):
    return isinstance(value, (int, float)) and math.isfinite(value) and \
        value > 0


def check_record(record, bench):
    assert list(record) == KEYS, record
    assert record["bench"] == bench, record
    assert record["case"] and isinstance(record["case"], str), record
    assert record["unit"] and isinstance(record["unit"], str), record
    assert positive(record["ours"]), record
    assert record["goal"] is None or positive(record["goal"]), record
    if record["opponent"] is None:
        assert record["theirs"] is None and record["ratio"] is None, record
        return
    assert record["opponent"] and positive(record["theirs"]), record
    ratio = record["ours"] / record["theirs"]
    if record["unit"] in LESS_IS_BETTER:
        ratio = 1 / ratio
    assert math.isclose(record["ratio"], ratio, rel_tol=1e-6), record


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def measure(bench, name, model, folder, *more):
    """The records that a program adds to an empty file."""
    out = folder / f"{name}.jsonl"
    out.unlink(missing_ok=True)
    options = ["--quick", "--json", out, *more]
    if PROGRAMS[name]:
        options += ["--model", model]
    done = run(bench / name, *options)
    assert done.returncode == 0, (name, done.returncode, done.stderr)
    found = records(out)
    assert found, f"{name} made no record"
    for record in found:
        check_record(record, name)
        assert record["case"] in done.stdout, (record, done.stdout)
    return found


def check_opponents(bench, name, model, folder):
    """Figures in the folder --opponents stand beside ours, a line each; a case
    that nobody has is compared with what it is a variant of."""
    figures = folder / "figures"
    figures.mkdir()
    (figures / "a.jsonl").write_text(
        '{"bench": "train", "case": "tiny", "opponent": "one", "value": 1e9, '
        '"unit": "ms"}\n'
        "a line that is no JSON\n"
        '{"bench": "train", "case": "other", "opponent": "no", "value": 1, '
        '"unit": "ms"}\n')
    (figures / "b.jsonl").write_text(
        '{"bench": "train", "case": "tiny", "opponent": "two", "value": 1e-9, '
        '"unit": "ms"}\n'
        '{"bench": "train", "case": "tiny", "opponent": "no", "value": 1, '
        '"unit": "tokens/s"}\n')
    found = measure(bench, name, model, folder, "--opponents", figures)
    assert [r["opponent"] for r in found] == ["one", "two"], found
    assert found[0]["ratio"] > 1 > found[1]["ratio"], found
    return figures


FAKE_TRL = """
import json, sys
words = sys.argv[1:]
assert "--turns" in words, words
words.remove("--turns")
args = dict(zip(words[::2], words[1::2]))
assert args["--prompts"] == "2" and args["--samples"] == "2", args
assert args["--tokens"] == "4", args
print("a line that is no record")
print(json.dumps({"ready": "a fake"}), flush=True)
for turn, case in enumerate(sys.stdin):
    assert case == f"fp32/2x2x4/kl={args['--beta']}\\n", case
    if turn == 1 and args["--beta"] != "0":
        sys.exit("no step today")
    print(json.dumps({"value": 100.0 + 900 * (turn == 0),
                      "peak_rss_mb": 1000000}), flush=True)
"""


def check_trl(bench, model, folder):
    """grpo_step runs TRL's program itself, and its first turn does not count;
    one that fails is left out, and no fault of ours."""
    programs, cache = folder / "programs", folder / "cache"
    python = cache / "venv/bench-torch/bin/python"
    programs.mkdir()
    (programs / "grpo_trl.py").write_text(FAKE_TRL)
    os.environ["DYNATRAIN_CACHE"] = str(cache)
    found = measure(bench, "grpo_step", model, folder, "--opponents", programs)
    assert {r["opponent"] for r in found} == {None}, found
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nexec {sys.executable} \"$@\"\n")
    python.chmod(0o755)
    found = measure(bench, "grpo_step", model, folder, "--opponents", programs,
                    "--against", "other", "--case", "fp32/2x2x4/kl=0$")
    assert len(found) == 5, found
    assert {r["opponent"] for r in found} == {None}, found
    found = measure(bench, "grpo_step", model, folder, "--opponents", programs,
                    "--against", "other,trl")
    without = [r for r in found if "/kl=0.04" in r["case"]]
    beside = [r for r in found if r not in without]
    assert len(without) == len(beside) == 5, found
    assert {r["opponent"] for r in without} == {None}, found
    assert {r["opponent"] for r in beside} == {"trl"}, found
    assert {r["theirs"] for r in beside} == {100, 1000000}, found
    assert {r["unit"] for r in beside if r["theirs"] > 100} == {"MB"}, found


def check_report(folder, figures, count):
    """The joined file keeps every record."""
    every, joined = folder / "all.jsonl", folder / "joined.jsonl"
    every.write_text("".join((folder / f"{n}.jsonl").read_text()
                             for n in PROGRAMS))
    done = run(sys.executable, ROOT / "bench/report.py", every, figures, joined)
    assert done.returncode == 0, done.stderr
    assert len(records(joined)) == count, done.stdout
    for record in records(joined):
        check_record(record, record["bench"])
        assert record["case"] in done.stdout, record


def check_refusals(bench, folder):
    for options, code, words in [
            (["--steps", "none"], 2, "--steps is a number"),
            (["--json", folder / "not" / "there"], 2, "cannot write"),
            (["--model", folder / "nothing"], 1, "there is no")]:
        done = run(bench / "grpo_step", "--quick", *options)
        assert done.returncode == code, (options, done)
        assert words in done.stderr, (options, done.stderr)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    bench = build / "bench"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = folder / "tiny"
        made = run(build / "bin/dynatrain", "model", "init", "--preset",
                   "tiny", "--out", model)
        assert made.returncode == 0, made.stderr
        count = {n: len(measure(bench, n, model, folder)) for n in PROGRAMS}
        assert count["grpo_step"] == 10, count  # (3 worlds + 2) x 2 KL weights
        figures = check_opponents(bench, "train", model, folder)
        check_trl(bench, model, folder)
        check_report(folder, figures, sum(count.values()) + 1)
        check_refusals(bench, folder)
    print(f"records: {count}")


if __name__ == "__main__":
    main()
