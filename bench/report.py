"""Joins our figures with the opponents' of the same bench and case.

usage: report.py OURS.jsonl OPPONENTS_DIR RESULTS.jsonl

A record of ours that names its opponent is taken as it is; one that does not
gets a line for each opponent that was measured, and stays alone where none was.
"""

import json
import pathlib
import sys

LESS_IS_BETTER = {"s", "ms", "us", "ns"}
# Aims where the benchmark leaves them to this table.
GOALS = {("rollout", None): 1.0, ("train", None): 1.0,
         ("grpo_step", "trl"): 1.5, ("learn_sort", None): 3.0,
         ("learn_sum", None): 1.0}


def lines(path):
    if path.is_file():
        for line in path.read_text().splitlines():
            if line.startswith("{"):
                yield json.loads(line)


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
            goal = record["goal"] or GOALS.get(
                (record["bench"], rival["opponent"]),
                GOALS.get((record["bench"], None)))
            yield {**record, "opponent": rival["opponent"], "theirs": b,
                   "ratio": ratio, "goal": goal}


def cell(value):
    return "" if value is None else f"{value:.4g}" \
        if isinstance(value, float) else str(value)


def main():
    ours = list(lines(pathlib.Path(sys.argv[1])))
    theirs = [r for p in sorted(pathlib.Path(sys.argv[2]).glob("*.jsonl"))
              for r in lines(p)]
    records = list(joined(ours, theirs))
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
    columns = ("bench", "case", "ours", "opponent", "theirs", "unit", "ratio",
               "goal")
    rows = [columns] + [tuple(cell(r[c]) for c in columns) for r in records]
    widths = [max(len(r[i]) for r in rows) for i in range(len(columns))]
    print()
    for row in rows:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip())
    print("\nratio > 1: ours is better")


if __name__ == "__main__":
    main()
