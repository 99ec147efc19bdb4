"""The records of plugin_vllm.py as the tables of docs/benchmarks.md.
usage: table.py RECORDS [--write PAGE]

Of several records of one case the last one counts.  --write puts the tables
between the two comments that mark their place in the page."""

import argparse
import json
import pathlib

CASES = ("fp32 unpacked", "bf16 unpacked", "fp32 packed", "bf16 packed")
WAYS = ("staged", "in place", "mapped")
OWN = ("reload_weights", "layerwise reload", "load_weights, one by one")
BEGIN = "<!-- refits: made by bench/plugin/table.py -->"
END = "<!-- end of refits -->"


def read(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["case"]: row for row in rows if row["bench"] == "plugin"}


def goal(row):
    if not row["goal"]:
        return ""
    return f"{row['goal']:g} " + (
        "met" if row["ratio"] >= row["goal"] else "**missed**")


def ms(seconds):
    return f"{1000 * seconds:.{0 if seconds >= 0.01 else 1}f}"


def line(cells):
    return f"| {' | '.join(cells)} |"


def head(cells):
    return [line(cells), "|" + "---|" * len(cells)]


def refits(rows):
    yield from head(["case", "way", "transfer, ms", "memcpy, ms",
                     "memcpy / transfer", "goal", "refit, ms",
                     "best of vLLM's, ms", "times", "goal",
                     "packing again, share of the refit",
                     "memory over the server's own, MB"])
    for case in CASES:
        for way in WAYS:
            key = f"{case}, {way}: "
            if key + "refit" not in rows:
                continue
            moved, refit = rows[key + "transfer"], rows[key + "refit"]
            share = rows[key + "that share of the refit"]["ours"]
            yield line([
                case, way, ms(moved["ours"]), ms(moved["theirs"]),
                f"{moved['ratio']:.2f}", goal(moved), ms(refit["ours"]),
                ms(refit["theirs"]), f"{refit['ratio']:.2f}", goal(refit),
                "" if "unpacked" in case else f"{share:.0f} %",
                f"{rows[key + 'memory over the server' + chr(39) + 's own']['ours']:.0f}"])


def own(rows):
    yield from head(["case", *(f"`{name.partition(',')[0]}`" +
                               "".join(name.partition(",")[1:])
                               if "_" in name else name for name in OWN),
                     "gathering whole tensors", "and into a file",
                     "our offer: staged, in place, mapped"])
    for case in CASES:
        offers = [rows.get(f"{case}, {way}: the trainer's part (offer)")
                  for way in WAYS]
        if None in offers:
            continue
        ways = [rows.get(f"{case}: vllm {name}") for name in OWN]
        yield line([
            case, *(ms(row["ours"]) if row else "does not reach them"
                    for row in ways), ms(offers[0]["theirs"]),
            ms(rows[f"{case}: whole tensors into a file"]["ours"]),
            ", ".join(ms(row["ours"]) for row in offers)])


def page(rows):
    return "\n".join([BEGIN, "", *refits(rows), "",
                      "vLLM's own ways, and the trainer's part, in ms:", "",
                      *own(rows), "", END])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("records", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    args = parser.parse_args()
    text = page(read(args.records))
    if not args.write:
        print(text)
        return
    whole = args.write.read_text(encoding="utf-8")
    before, _, rest = whole.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{args.write}: the marks are not there")
    args.write.write_text(before + text + after, encoding="utf-8")


if __name__ == "__main__":
    main()
