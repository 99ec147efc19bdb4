"""The `dynatrain` command that the wheel brings."""

import os
import pathlib
import sys


def main() -> None:
    path = pathlib.Path(__file__).parent / "bin" / "dynatrain"
    if not path.exists():
        sys.exit(f"dynatrain: {path} is not there: this is no installed wheel")
    os.execv(path, ["dynatrain", *sys.argv[1:]])
