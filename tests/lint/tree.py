"""What the lint checks share: our sources, and how findings are reported."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE_DIRS = ("bench", "bridge", "cli", "core", "lib", "rollout", "score",
               "tests", "trainer")
C_SUFFIXES = {".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh"}


def tracked():
    """Paths of all files of the repository, relative to ROOT: what git knows,
    or all but build products where this is no clone."""
    try:
        out = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "--cached", "--others",
             "--exclude-standard"], check=True, capture_output=True, text=True)
        names = out.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")
                 if not {"build", "runs", ".git"} & set(p.parts)]
    return sorted(pathlib.Path(n) for n in names if (ROOT / n).is_file())


def sources(*dirs):
    """C and C++ files below `dirs` (default: all of ours)."""
    wanted = dirs or SOURCE_DIRS
    return [p for p in tracked()
            if p.suffix in C_SUFFIXES and p.parts[0] in wanted]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="surrogateescape")


def without_comments(text):
    """Comments and the contents of strings and characters become blanks; line
    numbers and columns stay."""
    def blank(found):
        token = found[0]
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        return token[0] + " " * (len(token) - 2) + token[-1]

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'
                  r"'(?:\\.|[^'\\\n])*'", blank, text, flags=re.S)


def report(findings, checked, what):
    """Print findings; exit status 1 if there are any.  A check that looked at
    nothing has failed as well."""
    for finding in findings:
        print(finding)
    print(f"{what}: {checked} files, {len(findings)} findings")
    sys.exit(bool(findings) or checked == 0)
