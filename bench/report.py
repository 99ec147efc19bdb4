"""Writes all records into one file and prints them as a table.

usage: report.py OURS.jsonl OPPONENTS_DIR RESULTS.jsonl

A record of ours that names its opponent is taken as it is; one that does not
(those of whole jobs) gets a line for each opponent that was measured, and stays
alone where none was.  Figures of opponents that no case of ours is compared
with stand below the table.
"""

import json
import pathlib
import sys

LESS_IS_BETTER = {"s", "ms", "us", "ns", "MB"}
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
            yield {**record, "opponent": rival["opponent"], "theirs": b,
                   "ratio": ratio}


def cell(value):
    return "" if value is None else f"{value:.4g}" \
        if isinstance(value, float) else str(value)


def table(columns, rows):
    rows = [columns] + rows
    widths = [max(len(r[i]) for r in rows) for i in range(len(columns))]
    print()
    for row in rows:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip())


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
    table(columns, [[cell(r[c]) for c in columns] for r in records])
    print("\nratio > 1: ours is better")
    used = {(r["bench"], r["opponent"]) for r in records}
    alone = [t for t in theirs if (t["bench"], t["opponent"]) not in used]
    if alone:
        print("\nopponents that no case is compared with:")
        columns = ("bench", "case", "opponent", "value", "unit")
        table(columns, [[cell(r[c]) for c in columns] for r in alone])


if __name__ == "__main__":
    main()
