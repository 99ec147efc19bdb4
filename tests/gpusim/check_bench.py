"""bench/gpu over the simulator: it runs, and each record is whole.  Its figures
mean nothing here.
usage: check_bench.py PROGRAM"""

import json
import pathlib
import subprocess
import sys
import tempfile

KEYS = {"bench", "case", "ours", "opponent", "theirs", "ratio", "goal", "unit"}
WANTED = ("switch tiny 4 ranks f32", "switch tiny 4 ranks bf16",
          "pack one run", "unpack one run", "pack rows of 64 B",
          "unpack rows of 64 KiB", "pack turned, f32", "pack tiny pieces",
          "unpack tiny pieces", "pack f32 to bf16, one run")


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "gpu.json"
        done = subprocess.run([sys.argv[1], "--quick", "--json", str(path)],
                              check=False, capture_output=True, text=True)
        lines = path.read_text().splitlines() if path.exists() else []
    findings = []
    if done.returncode != 0:
        findings.append(f"exit {done.returncode}")
    if "gpusim:" in done.stderr:
        findings.append("the simulator found a fault")
    rows = [json.loads(line) for line in lines]
    for row in rows:
        if not KEYS <= row.keys():
            findings.append(f"keys are missing: {row}")
        elif row["bench"] != "gpu" or row["opponent"] != "device memcpy":
            findings.append(f"not of this bench: {row}")
        elif not (row["ours"] > 0 and row["theirs"] > 0):
            findings.append(f"no figures: {row}")
        elif "rows of 512 B" in row["case"] and row["goal"] != 0.9:
            findings.append(f"another goal: {row}")
    cases = [row["case"] for row in rows]
    findings += [f"no case '{case}'" for case in WANTED if case not in cases]
    if len(set(cases)) != len(cases):
        findings.append("a case twice")
    print(done.stderr if findings else "", *findings, sep="\n")
    print(f"bench: {len(rows)} records, {len(findings)} findings")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
