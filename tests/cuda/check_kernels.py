"""Every .cu file of ours was compiled for every architecture that the toolkit
knows (cmake/nvcc.cmake; warnings are errors there), without a spill, and each
kernel takes the registers and the memory that the committed table says.

usage: check_kernels.py NVCC [--write] [SOURCE LOG]...

LOG is what ptxas said when the build compiled SOURCE; it alone says spills.
The table is keyed by the toolkit's version: another version is checked for
spills only, and --write adds it.  A build for fewer architectures is compared
with their part of the table.  No nvcc: exit 77."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("resources.json")
FOLDERS = ("bridge/device/cuda", "bridge/comm/nccl", "bridge/mover/direct_cuda")
FIELDS = ("registers", "stack", "shared")

KERNEL = re.compile(r"__global__[^;{(]*?(?:__launch_bounds__\([^)]*\)\s*)?"
                    r"(\w+)\s*\(")
ENTRY = re.compile(r"Compiling entry function '(\S+)' for 'sm_(\d+)\w?'")
SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                   r"(\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def said(command):
    return subprocess.run(command, check=True, capture_output=True,
                          text=True).stdout


def version_of(nvcc):
    return re.search(r"release (\d+\.\d+)", said([nvcc, "--version"]))[1]


def parse(text, names):
    """{kernel: {arch: figures}} and the spills, from what ptxas says."""
    found, spills, now = {}, [], None
    for line in text.splitlines():
        entry = ENTRY.search(line)
        if entry:
            name = max((n for n in names if n in entry[1]), key=len,
                       default=entry[1])
            now = found.setdefault(name, {}).setdefault(
                entry[2], dict.fromkeys(FIELDS, 0))
            where = f"{name} for sm_{entry[2]}"
            continue
        if now is None:
            continue
        spill, used = SPILL.search(line), USED.search(line)
        if spill:
            now["stack"] = int(spill[1])
            if int(spill[2]) or int(spill[3]):
                spills.append(f"{where} spills {spill[2]} bytes and reads "
                              f"{spill[3]} back")
        if used:
            shared = SHARED.search(line)
            now["registers"] = int(used[1])
            now["shared"] = int(shared[1]) if shared else 0
    return found, spills


def compare(want, got):
    """What differs, of the architectures that were compiled."""
    archs = {a for figures in got.values() for a in figures}
    for name in sorted(want.keys() | got.keys()):
        for arch in sorted(archs, key=int):
            a, b = want.get(name, {}).get(arch), got.get(name, {}).get(arch)
            if a != b:
                yield f"{name} for sm_{arch}: {b}, the table says {a}"


def read_logs(pairs):
    """What ptxas said of all files, and what is wrong with it."""
    findings, got = [], {}
    for source, log in pairs:
        if not log.exists():
            findings.append(f"{source.name} was not built: no {log}")
            continue
        kernels, spills = parse(log.read_text(),
                                KERNEL.findall(source.read_text()))
        got.update(kernels)
        findings += spills
        if not kernels:
            findings.append(f"{source.name}: ptxas names no kernel")
    built = {source for source, _ in pairs}
    for folder in FOLDERS:
        findings += [f"{p.relative_to(ROOT)} is built by nobody"
                     for p in sorted((ROOT / folder).glob("*.cu"))
                     if p not in built]
    return findings, got


def main():
    words = [w for w in sys.argv[1:] if w != "--write"]
    nvcc = shutil.which(words[0]) if words else None
    if nvcc is None:
        print("skipped: no nvcc")
        sys.exit(77)
    paths = [pathlib.Path(w) for w in words[1:]]
    pairs = list(zip(paths[::2], paths[1::2]))
    version = version_of(nvcc)
    findings, got = read_logs(pairs)
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    if "--write" in sys.argv:
        table[version] = got
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    elif version in table:
        findings += compare(table[version], got)
    else:
        print(f"the table has no row for toolkit {version}: spills only")
    archs = sorted({int(a) for f in got.values() for a in f})
    for finding in findings:
        print(finding)
    print(f"nvcc {version}, sm_{', sm_'.join(map(str, archs))}: "
          f"{len(pairs)} files, {len(got)} kernels, {len(findings)} findings")
    sys.exit(bool(findings) or not pairs)


if __name__ == "__main__":
    main()
