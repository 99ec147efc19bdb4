"""Sources are formatted as .clang-format says (`make format` does it).

Versions of clang-format differ in details; the one of Debian 12 counts.  Others
only report."""

import concurrent.futures
import re
import shutil
import subprocess
import sys

import tree

VERSION = "14"


def is_formatted(path):
    return subprocess.run(
        ["clang-format", "--dry-run", "--Werror", str(path)], cwd=tree.ROOT,
        capture_output=True, check=False).returncode == 0


def main():
    if shutil.which("clang-format") is None:
        print("clang-format is not installed")
        sys.exit(77)
    paths = tree.sources()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        good = list(pool.map(is_formatted, paths))
    findings = [f"{p}: not formatted; type: make format"
                for p, ok in zip(paths, good) if not ok]
    said = subprocess.run(["clang-format", "--version"], check=True,
                          capture_output=True, text=True).stdout
    if re.search(r"version (\d+)", said)[1] != VERSION:
        print("\n".join(findings))
        print(f"not version {VERSION}: {said.strip()}")
        sys.exit(77)
    tree.report(findings, len(paths), "format")


if __name__ == "__main__":
    main()
