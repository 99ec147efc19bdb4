"""Every .cu file of ours compiles for every architecture that the toolkit
knows, without a warning and without a spill, and each kernel takes the
registers and the memory that the committed table says.

usage: check_kernels.py NVCC [--write]

The figures are those of ptxas, which alone says spills.  The table is keyed by
the toolkit's version: another version is checked for warnings and spills only,
and --write adds it.  No nvcc: exit 77."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("resources.json")
FOLDERS = ("bridge/device/cuda", "bridge/comm/nccl", "bridge/mover/direct_cuda")
# Oldest and newest that are promised; the toolkit may know fewer.
OLDEST, NEWEST = 70, 120
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


def architectures(nvcc):
    known = re.findall(r"compute_(\d+)\b", said([nvcc, "--list-gpu-arch"]))
    return [a for a in sorted({int(a) for a in known})
            if OLDEST <= a <= NEWEST]


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


def compile_all(nvcc, source, archs):
    """What nvcc says; PTX of the newest goes along, for those to come."""
    command = [nvcc, "-std=c++17", "-O3", "-Werror", "all-warnings", "-Xptxas",
               "-v", "--threads", "2", "-c", "-o", "/dev/null",
               *(f"-I{ROOT / d}" for d in
                 ("core", "core/include", ".", "bridge"))]
    for arch in archs:
        command += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    command += ["-gencode",
                f"arch=compute_{archs[-1]},code=compute_{archs[-1]}",
                str(source)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def compare(want, got):
    for name in sorted(want.keys() | got.keys()):
        for arch in sorted(want.get(name, {}).keys() | got.get(name, {}).keys(),
                           key=int):
            a, b = want.get(name, {}).get(arch), got.get(name, {}).get(arch)
            if a != b:
                yield f"{name} for sm_{arch}: {b}, the table says {a}"


def main():
    nvcc = shutil.which(sys.argv[1]) if len(sys.argv) > 1 else None
    if nvcc is None:
        print("skipped: no nvcc")
        sys.exit(77)
    version, archs = version_of(nvcc), architectures(nvcc)
    findings, got = [], {}
    sources = [p for folder in FOLDERS
               for p in sorted((ROOT / folder).glob("*.cu"))]
    for source in sources:
        done = compile_all(nvcc, source, archs)
        if done.returncode != 0:
            findings.append(f"{source.name} does not compile:\n{done.stderr}")
            continue
        kernels, spills = parse(done.stdout + done.stderr,
                                KERNEL.findall(source.read_text()))
        got.update(kernels)
        findings += spills
        if not kernels:
            findings.append(f"{source.name}: ptxas names no kernel")
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    if "--write" in sys.argv:
        table[version] = got
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    elif version in table:
        findings += compare(table[version], got)
    else:
        print(f"the table has no row for toolkit {version}: spills only")
    for finding in findings:
        print(finding)
    print(f"nvcc {version}, sm_{', sm_'.join(map(str, archs))}: "
          f"{len(sources)} files, {len(got)} kernels, {len(findings)} findings")
    sys.exit(bool(findings) or not sources)


if __name__ == "__main__":
    main()
