"""Writes docs/performance.md from the benchmarks' records.

usage: performance.py RECORDS.jsonl... [--page docs/performance.md]
                      [--note "when and how they were measured"]

Records are those that programs under bench/ write with --json: transitions
(simulated), schedule, simulator, plan, placement and switch.  Simulated and
measured figures stand in different tables, never in one column; what others
published stands in a table of its own, with its setting.
"""

import argparse
import json
import pathlib

STRATEGIES = ("xor", "funnel", "per-tensor")

# Who, setting, what they say.  Facts from their papers, code and notes.
PUBLISHED = (
    ("the paper (arXiv 2605.18815)",
     "16 hosts of 8 A800-80GB, 8 NICs of 200 Gb/s; transition and number of "
     "GPUs not given", "70B dense: under 2 s; 235B: 4.36 s"),
    ("NeMo-RL, NCCL reshard, first description (May 2026)",
     "30B, EP4 TP2 PP2 to TP4 DP4", "0.48-0.52 s"),
    ("the same", "30B: EP4 TP2 DP2 to TP4 DP4; EP8 PP2 to TP2 DP8; EP8 PP2 to "
     "TP8 DP2", "0.54-0.67; 0.51-0.55; 0.50-0.51 s"),
    ("NeMo-RL, as merged (June 2026): projections of MLPs shard to shard, the "
     "rest broadcast", "DGX H100; 30B, the same four mappings",
     "0.74-1.17; 1.13-1.53; 1.21-1.52; 0.74-1.00 s"),
    ("NeMo-RL, NCCL reshard", "235B, TP4 PP8 EP16 to TP8 DP16", "4.56-4.85 s"),
    ("NeMo-RL, NCCL reshard", "DeepSeek-V3, PP16 EP16 to TP32 DP8",
     "7.65-9.94 s"),
    ("Megatron refit in NeMo-RL", "30B-A3B, per step",
     "NCCL 16-19 s, NVSHMEM 95 s and more"),
    ("checkpoint-engine", "Qwen3-235B bf16, 8 H800", "6.2 s"),
    ("checkpoint-engine", "Kimi-K2 FP8, 16 and 256 H20, broadcast",
     "14.4 and 16.0 s"),
    ("Miles", "Kimi-K2 1T FP8, 512 H100; GLM5 744B bf16", "7.2 s; 8.5 s"),
    ("Perplexity", "Kimi-K2 1T, 256 GPUs bf16 to 128 GPUs FP8", "1.3 s"),
    ("Tenplex", "GPT-3 6.7B, 8 to 16 GPUs: DP, TP, PP", "24.2, 20.2, 10.8 s"),
    ("LlamaRL, DDMA", "405B, weights to the generators", "about 2 s"),
)


def lines(path):
    for line in path.read_text().splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def seconds(value):
    if value is None:
        return ""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def number(value):
    return "" if value is None else (
        f"{value:.3g}" if isinstance(value, float) else str(value))


def markdown(columns, rows):
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def transitions(records):
    """One line a transition: the bound and every strategy's seconds."""
    cases = {}
    for r in records:
        if r["bench"] == "transitions":
            row = cases.setdefault(r["case"], {"optimal": r["ours"]})
            row[r["opponent"]] = r["theirs"]
    if not cases:
        return
    yield "## Kinds of transitions, simulated"
    yield ""
    yield ("`build/rel/bench/transitions` on the paper's cluster "
           "([configs/clusters/a800.toml](../configs/clusters/a800.toml)): "
           "model / what changes / ranks. Everything in this table comes from "
           "the discrete-event model; the bound is what no plan can be faster "
           "than ([bounds](bounds.md)). All kinds of state move, but for "
           "rollouts, where `param` does. `funnel` gathers each tensor to the "
           "first of the replicas that hold parts of it, sends it to the first "
           "that wants it, and scatters it from there.")
    yield ""
    columns = ("transition", "bound", "optimal", "over the bound") + STRATEGIES
    yield from markdown(columns, [
        [case, seconds(row.get("bound")), seconds(row["optimal"]),
         number(row["optimal"] / row["bound"]) if row.get("bound") else "",
         *(seconds(row.get(s)) for s in STRATEGIES)]
        for case, row in cases.items()])
    yield ""


def paper(records):
    """The paper's two figures: a range over 64 and 128 GPUs, simulated."""
    cases = {}
    for r in records:
        if r["bench"] == "simulator" and r["case"].startswith("paper "):
            row = cases.setdefault(r["case"], {"optimal": r["ours"]})
            row[r["opponent"]] = r["theirs"]
    if not cases:
        return
    yield "## The paper's two figures"
    yield ""
    yield ("70B in under 2 s and 235B in 4.36 s are published without the "
           "transition and the number of GPUs. What the simulator says of one "
           "change of each on its cluster, master and both moments, over 64 "
           "and 128 GPUs: 70B from TP 8 to TP 4, 235B to half the pipeline "
           "stages and twice the expert parallelism. It gates nothing.")
    yield ""
    yield from markdown(("case", "bound", "optimal", "per-tensor"), [
        [case[len("paper "):], seconds(row.get("bound")),
         seconds(row["optimal"]), seconds(row.get("per-tensor"))]
        for case, row in cases.items()])
    yield ""


def others():
    yield "## What others publish"
    yield ""
    yield ("Their figures, on their machines, with the setting as far as it is "
           "known. They are not comparable line by line with the table above.")
    yield ""
    yield from markdown(("who", "setting", "time"), PUBLISHED)
    yield ""


def rest(records, bench, title, text):
    """Every record of one benchmark."""
    found = [r for r in records
             if r["bench"] == bench and not r["case"].startswith("paper ")]
    if not found:
        return
    yield f"## {title}"
    yield ""
    yield text
    yield ""
    columns = ("case", "ours", "opponent", "theirs", "unit", "ratio", "goal")
    yield from markdown(columns, [
        [number(r[c]) + (" **missed**" if c == "ratio" and r["goal"]
                         and r["ratio"] and r["ratio"] < r["goal"] else "")
         for c in columns] for r in found])
    yield ""


def page(records, note):
    yield "# How fast switches are"
    yield ""
    yield ("Written by `bench/performance.py` from the records of the programs "
           "under `bench/`; [benchmarks](benchmarks.md) says how they measure. "
           "Simulated and measured figures never share a column.")
    yield ""
    if note:
        yield note
        yield ""
    yield from transitions(records)
    yield from paper(records)
    yield from others()
    yield from rest(records, "simulator", "How far the simulator can be trusted",
                    "`build/rel/bench/simulator`: the model beside real "
                    "switches on this machine, calibrated in the same run, and "
                    "beside published times that it was not fitted to: 1 minus "
                    "how far the simulated seconds are from the published "
                    "range, 0.7 being needed. The assumed cluster is "
                    "[configs/clusters/dgx-h100.toml]"
                    "(../configs/clusters/dgx-h100.toml): NeMo-RL's second "
                    "description names DGX H100 and the first, of the same "
                    "authors, none; bandwidths are the data sheet's, 8 us a "
                    "message and 12 us of latency are ours, and nothing is "
                    "fitted. What is simulated is the first description's way; "
                    "`as merged` is the second one's time beside it. Misses "
                    "are misses: their 30B takes half a second whatever the "
                    "mapping, a cost per entry that the model does not have.")
    yield from rest(records, "schedule", "Schedules",
                    "`build/rel/bench/schedule`: makespan over the load of the "
                    "busiest rank or link of the same traffic (simulated); "
                    "`ordering` is measured, in seconds of its one core.")
    yield from rest(records, "placement", "Placement",
                    "`build/rel/bench/placement`: share of the bytes that stay "
                    "on their rank, and that cross hosts.")
    yield from rest(records, "plan", "Planning, measured",
                    "`build/rel/bench/plan`, in milliseconds of its one core. "
                    "`price/...` is all that `dynatrain plan` does: plan, "
                    "placement, four strategies, their simulation. Where ZeRO "
                    "cuts through tensors each receiver hears from nearly all "
                    "ranks: a million messages, of which each is ordered and "
                    "played.")
    yield from rest(records, "switch", "Switches, measured on one host",
                    "`build/rel/bench/switch`.")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("records", nargs="+", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path,
                        default=pathlib.Path("docs/performance.md"))
    parser.add_argument("--note", default="")
    args = parser.parse_args()
    records = [r for path in args.records for r in lines(path)]
    args.page.write_text("\n".join(page(records, args.note)).rstrip() + "\n")
    print(f"{args.page}: {len(records)} records")


if __name__ == "__main__":
    main()
