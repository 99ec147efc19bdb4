"""What a release has promised: its headers as they were, and where each field
of each struct lies.  Run once per release, before it is tagged:
  python3 tests/abi/freeze.py 0.1 CC
Afterwards released/0.1 changes no more."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ROOT / "core/include/dynatrain"


def structs(text):
    """(struct, [fields]) of a header, in order."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for found in re.finditer(r"^struct (dyt_\w+) \{(.*?)^\};", text, re.M | re.S):
        fields = []
        for line in found[2].split(";"):
            pointer = re.search(r"\(\*(\w+)\)\(", line)
            if pointer:
                fields.append(pointer[1])
                continue
            for part in line.split(","):
                name = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", part.strip())
                if name:
                    fields.append(name[1])
        yield found[1], fields


def main():
    release, cc = sys.argv[1:3]
    out = pathlib.Path(__file__).parent / "released" / release
    shutil.rmtree(out / "dynatrain", ignore_errors=True)
    shutil.copytree(HEADERS, out / "dynatrain")
    names = sorted(p.name for p in HEADERS.glob("*.h"))
    rows = []
    for name in names:
        for struct, fields in structs((HEADERS / name).read_text()):
            rows.append(f'printf("SIZE(struct {struct}, %zu)\\n", '
                        f"sizeof(struct {struct}));")
            rows += [f'printf("FIELD(struct {struct}, {field}, %zu)\\n", '
                     f"offsetof(struct {struct}, {field}));"
                     for field in fields]
    program = "".join(f"#include <dynatrain/{n}>\n" for n in names) + (
        "#include <stdio.h>\n#include <stddef.h>\nint main(void)\n{\n"
        + "\n".join(rows) + "\nreturn 0;\n}\n")
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "rows.c"
        source.write_text(program)
        subprocess.run([cc, "-I", str(HEADERS.parent), str(source), "-o",
                        folder + "/rows"], check=True)
        done = subprocess.run([folder + "/rows"], check=True,
                              capture_output=True, text=True)
    (out / "layout.inc").write_text(done.stdout)
    print(f"{release}: {len(names)} headers, {len(rows)} rows")


if __name__ == "__main__":
    main()
