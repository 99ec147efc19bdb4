"""Sources are formatted as .clang-format says (`make format` does it).
usage: check_format.py report|strict"""

import concurrent.futures
import shutil
import subprocess
import sys

import tree


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
    if sys.argv[1] == "report":
        print("\n".join(findings))
        findings = []
    tree.report(findings, len(paths), "format")


if __name__ == "__main__":
    main()
