"""A tree without the folders of the cuda device configures, and everything that
is left can be built: with each of them gone, and with all.  What includes a
header of theirs is built with them only.

usage: check_without.py [--build TARGET]

--build compiles and links TARGET in the tree without all of them (minutes)."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("bridge/device/cuda", "bridge/comm/nccl", "bridge/mover/direct_cuda")
LEFT_OUT = {".git", "build", "__pycache__", ".venv", "node_modules", "models"}


def copy_tree(to):
    for entry in ROOT.iterdir():
        if entry.name in LEFT_OUT:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, to / entry.name, symlinks=True,
                            ignore=shutil.ignore_patterns(*LEFT_OUT))
        elif entry.is_file():
            shutil.copy(entry, to / entry.name)


def said(command):
    done = subprocess.run(command, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def check(tree, build):
    """What is wrong, in words, or None.  Ninja's dry run finds files that are
    not there and that nobody makes."""
    code, text = said(["cmake", "-S", str(tree), "-B", str(build), "-G",
                       "Ninja"])
    if code == 0:
        code, text = said(["ninja", "-C", str(build), "-n", "all"])
    return None if code == 0 else "\n".join(text.splitlines()[-15:])


def headers_left(tree, gone):
    """Includes of a folder that is gone, outside of tests that need it."""
    for folder in ("core", "bridge", "lib", "cli", "rollout", "score",
                   "trainer"):
        for path in sorted((tree / folder).rglob("*.[ch]")):
            text = path.read_text(errors="replace")
            for name in gone:
                if f'#include "{name.removeprefix("bridge/")}/' in text:
                    yield f"{path.relative_to(tree)} includes {name}"


def main():
    there = [f for f in FOLDERS if (ROOT / f).exists()]
    sets = [[f] for f in there] + ([there] if len(there) > 1 else [])
    if not sets:
        print("skipped: none of the folders is here")
        sys.exit(77)
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        tree, aside = pathlib.Path(folder) / "tree", pathlib.Path(folder) / "x"
        tree.mkdir()
        aside.mkdir()
        copy_tree(tree)
        for gone in sets:
            for name in gone:
                shutil.move(tree / name, aside / name.replace("/", "+"))
            wrong = check(tree, pathlib.Path(folder) / "build")
            if wrong is not None:
                findings.append(f"without {', '.join(gone)}:\n{wrong}")
            findings += headers_left(tree, gone)
            if gone == sets[-1] and "--build" in sys.argv:
                code, text = said(["ninja", "-C", f"{folder}/build",
                                   sys.argv[-1]])
                if code != 0:
                    findings.append("\n".join(text.splitlines()[-30:]))
            for name in gone:
                shutil.move(aside / name.replace("/", "+"), tree / name)
    print(*findings, sep="\n")
    print(f"without: {len(sets)} trees, {len(findings)} findings")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
