"""libdynatrain.so shows what exported.txt and the public headers say, nothing
more and nothing less, and needs no library but libc's.
usage: check_exported.py LIBRARY   (with DYT_BLESS=1: rewrite exported.txt)"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("exported.txt")
# What it may load.
NEEDED = re.compile(r"lib(c|pthread)\.so\.\d+|ld-linux.*\.so\.\d+")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True,
                          text=True).stdout


def exported(library):
    """Names of defined dynamic symbols, versions cut off, the version's own
    name left out."""
    names = set()
    for line in output("nm", "-D", "--defined-only", library).splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":
            names.add(name.split("@")[0])
    return names


def declared():
    """Functions with DYT_API in the public headers."""
    names = set()
    for header in (ROOT / "core/include/dynatrain").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        for found in re.finditer(r"^DYT_API\b([^;{]*?)(\w+)\(", text, re.M):
            names.add(found[2])
    return names


def main():
    library = sys.argv[1]
    shown = exported(library)
    if os.environ.get("DYT_BLESS"):
        LIST.write_text("\n".join(sorted(shown)) + "\n")
    listed = set(LIST.read_text().split())
    bad = []
    for name in sorted(shown ^ listed):
        bad.append(f"{name}: only in " +
                   ("the library" if name in shown else "exported.txt"))
    for name in sorted(shown ^ declared()):
        bad.append(f"{name}: only in " +
                   ("the library" if name in shown else "the headers"))
    for name in re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d",
                                                        library)):
        if not NEEDED.fullmatch(name):
            bad.append(f"needs {name}")
    print("\n".join(bad))
    print(f"abi: {len(shown)} functions, {len(bad)} findings")
    sys.exit(bool(bad) or not shown)


if __name__ == "__main__":
    main()
