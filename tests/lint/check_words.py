"""Words that must not appear: functions without a safe use, getenv outside its
one file, marks of unfinished work, paths and hosts of somebody's machine."""

import re

import tree

# Calls; looked for with comments and strings blanked.
BANNED = re.compile(
    r"\b(strcpy|strcat|sprintf|vsprintf|strtok|gets|atoi|atol|atof|alloca|"
    r"system|popen|tmpnam|mktemp)\s*\(")
GETENV = re.compile(r"\b(secure_)?getenv\s*\(")
GETENV_HOME = "core/base/env.c"
# A library never ends the program that it is in.
EXIT = re.compile(r"\b(exit|abort|_exit|quick_exit)\s*\(")
EXIT_ALLOWED = {"core/base/error.c": "dyti_require"}
EXIT_SIDES = ("core", "rollout", "score", "trainer", "bridge", "lib")
# _exit in a process that has lost its parent or its exec; with its reason.
EXIT_REASON = re.compile(r"exit:\s*\S+")

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|not implemented|"
                        r"unimplemented|placeholder)\b")
# A path that only one machine has.  /tmp and /dev/shm are everybody's.
FOREIGN = re.compile(r"(?<![\w.])/(work|home/\w|root/|Users/|mnt/)")
HOSTS = re.compile(r"\b(pypi\.org|pythonhosted|files\.python|debian\.org|"
                   r"ubuntu\.com|huggingface\.co|index-url)", re.I)
TEXT_SUFFIXES = tree.C_SUFFIXES | {".py", ".sh", ".md", ".txt", ".toml",
                                   ".cmake", ".yml", ".yaml", ".map", ""}
HERE = "tests/lint/check_words.py"
# Test data and the tests' own examples of paths.
DATA = ("tests/data/", "tests/golden/", "tests/fuzz/corpus")


def lines_with(pattern, text):
    for number, line in enumerate(text.splitlines(), 1):
        for found in pattern.finditer(line):
            yield number, line, found


def code_findings(path, text):
    code = tree.without_comments(text)
    name, raw = str(path), text.splitlines()
    for number, _, found in lines_with(BANNED, code):
        yield f"{name}:{number}: {found[1]}() is banned"
    if name != GETENV_HOME and path.parts[0] not in ("tests", "bench"):
        for number, _, _ in lines_with(GETENV, code):
            yield f"{name}:{number}: getenv outside {GETENV_HOME}"
    if path.parts[0] in EXIT_SIDES and name not in EXIT_ALLOWED:
        for number, _, found in lines_with(EXIT, code):
            near = "\n".join(raw[max(0, number - 4):number])
            if not EXIT_REASON.search(near):
                yield (f"{name}:{number}: {found[1]}() in a library; where it "
                       "must be, a comment `exit: why` stands above it")


def text_findings(path, text):
    name = str(path)
    for pattern, what in ((UNFINISHED, "mark of unfinished work"),
                          (HOSTS, "name of a host")):
        for number, _, found in lines_with(pattern, text):
            yield f"{name}:{number}: {what}: {found[0]!r}"
    if path.parts[0] != "tests":
        for number, _, found in lines_with(FOREIGN, text):
            yield f"{name}:{number}: path of one machine: {found[0]!r}"


def main():
    findings, checked = [], 0
    for path in tree.tracked():
        name = str(path)
        if path.suffix not in TEXT_SUFFIXES or name == HERE or \
                name.startswith(DATA):
            continue
        text = tree.read(path)
        checked += 1
        findings += text_findings(path, text)
        if path.suffix in tree.C_SUFFIXES:
            findings += code_findings(path, text)
    tree.report(findings, checked, "words")


if __name__ == "__main__":
    main()
