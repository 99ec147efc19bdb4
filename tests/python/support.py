"""What the tests of the binding share."""

import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
sys.path.insert(0, str(ROOT / "python"))
# Paths of sockets are short.
if len(tempfile.gettempdir()) > 40:
    tempfile.tempdir = "/tmp"
# Who is talked to is on this machine, whatever proxy others are behind.
os.environ["no_proxy"] = "*"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def use_library(path):
    """The library of this build, and nothing else."""
    os.environ["DYNATRAIN_LIBRARY"] = str(path)


def raises(kind, call, *texts):
    """The error that a call must end with, and what its text must have."""
    try:
        call()
    except kind as problem:
        for text in texts:
            assert text in str(problem), (text, str(problem))
        return problem
    raise AssertionError(f"no {kind.__name__}")


def run(*tests):
    for test in tests:
        test()
        print(f"ok {test.__name__}")
