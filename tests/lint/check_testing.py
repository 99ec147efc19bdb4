"""Tests that docs/testing.md names are there: programs in a CMakeLists.txt, what
is behind their names as a function."""

import re

import tree

PAGE = "docs/testing.md"
# `dist.session`: one or more_functions_of_it
PROGRAM = re.compile(r"`([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+)`")
FUNCTION = re.compile(r"\b[a-z0-9]+(?:_[a-z0-9]+){2,}\b")


def known(name, lists):
    """Is a test of that name in the text of the CMakeLists.txt?  In a loop it
    is `fault.${name}`, and its last word stands in the list."""
    room, _, last = name.rpartition(".")
    return (re.search(rf"\b{re.escape(name)}\b", lists) is not None or
            (f"{room}.${{" in lists and
             re.search(rf"\b{last}\b", lists) is not None))


def check(page, lists, sources):
    """(line, what is not there) of a page's text."""
    missing = []
    for number, line in enumerate(page.splitlines(), 1):
        if not line.startswith("|"):
            continue
        tests = line.rstrip("|").rpartition("|")[2]
        for name in PROGRAM.findall(tests):
            if not known(name, lists):
                missing.append((number, name))
        for name in FUNCTION.findall(re.sub(r"`[^`]*`", "", tests)):
            if name not in sources:
                missing.append((number, name))
    return missing


def main():
    tests = [p for p in tree.tracked() if p.parts[0] == "tests"]
    lists = [tree.read(p) for p in tests if p.name == "CMakeLists.txt"]
    sources = [tree.read(p) for p in tests
               if p.suffix in tree.C_SUFFIXES | {".py"}]
    missing = check(tree.read(PAGE), "\n".join(lists), "\n".join(sources))
    tree.report([f"{PAGE}:{number}: there is no test {name}"
                 for number, name in missing], len(sources), "testing")


if __name__ == "__main__":
    main()
