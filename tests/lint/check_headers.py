"""Every header compiles alone: ours as C17, the public ones as pedantic C11
and as C++17 too.  usage: check_headers.py CC CXX"""

import concurrent.futures
import re
import subprocess
import sys

import tree

INCLUDES = ["-Icore", "-Icore/include", "-I.", "-Ibridge", "-Itests/support",
            "-Ibench/support"]
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
# Kernel bodies are templates over vec_*.h, included once per instruction set;
# a vec_*.h needs that set's flags.
TEMPLATES = re.compile(
    r"bridge/device/host/simd/(\w+_body|bodies|vec_\w+)\.h")
# Not C: the thin shims' own C++ headers.
CXX_SUFFIXES = {".hpp"}


def modes(path, cc, cxx):
    """Name and command of each way in which this header must compile."""
    public = path.parts[:2] == ("core", "include")
    if path.suffix in CXX_SUFFIXES:
        yield "C++17", [cxx, "-std=c++17", "-x", "c++"]
        return
    yield "C17", [cc, "-std=c17", "-D_GNU_SOURCE", "-x", "c"]
    if public:
        yield "C11", [cc, "-std=c11", "-pedantic-errors", "-x", "c"]
        yield "C++17", [cxx, "-std=c++17", "-pedantic-errors", "-x", "c++"]


def check(path, cc, cxx):
    findings = []
    for name, command in modes(path, cc, cxx):
        done = subprocess.run(
            command + ["-fsyntax-only", *WARNINGS, *INCLUDES, "-include",
                       str(path), "/dev/null"],
            cwd=tree.ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            first = done.stderr.strip().splitlines()
            findings.append(f"{path}: does not compile alone as {name}:\n    "
                            + "\n    ".join(first[:6]))
    return findings


def main():
    cc, cxx = sys.argv[1:3]
    headers = [p for p in tree.sources() if p.suffix in (".h", ".hpp")
               and not TEMPLATES.fullmatch(str(p))]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda p: check(p, cc, cxx), headers)
    tree.report([f for per in found for f in per], len(headers), "headers")


if __name__ == "__main__":
    main()
