"""Long functions and files.  What is above the aim is printed, what is above
the limit fails."""

import re

import tree

FUNCTION_AIM, FUNCTION_LIMIT = 60, 120
FILE_AIM, FILE_LIMIT = 400, 700
TABLES = re.compile(r"tests/data/")


def functions(code):
    """(name, first line, lines) of each function body that starts with `{` in
    the first column and ends with `}` there."""
    lines = code.splitlines()
    start = None
    for number, line in enumerate(lines, 1):
        if line.startswith("{"):
            start = number
        elif line.startswith("}") and start is not None:
            head = "\n".join(lines[max(0, start - 8):start - 1])
            head = re.split(r"[;}]\s*\n|^#.*\n", head, flags=re.M)[-1]
            name = re.search(r"(\w+)\s*\(", head)
            yield (name[1] if name else "?"), start, number - start + 1
            start = None


def main():
    findings, notes, checked = [], [], 0
    for path in tree.sources():
        if TABLES.match(str(path)):
            continue
        text = tree.read(path)
        checked += 1
        length = text.count("\n")
        if length > FILE_AIM:
            where = findings if length > FILE_LIMIT else notes
            where.append(f"{path}: {length} lines")
        for name, line, count in functions(tree.without_comments(text)):
            if count > FUNCTION_AIM:
                where = findings if count > FUNCTION_LIMIT else notes
                where.append(f"{path}:{line}: {name} has {count} lines")
    if notes:
        print("above the aim, below the limit:")
        print("\n".join(f"  {note}" for note in notes))
    tree.report(findings, checked, "size")


if __name__ == "__main__":
    main()
