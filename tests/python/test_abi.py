"""The binding against the headers: sizes and offsets of every struct, values of
every constant, and each function's result and number of arguments.
usage: test_abi.py C-COMPILER"""

import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from dynatrain import _abi, errors  # noqa: E402

HEADERS = ROOT / "core" / "include"
# Tables that others implement, and that the binding does not.
OTHERS = re.compile(r"dyt_engine_\w+$")


def header_text():
    parts = [path.read_text(encoding="utf-8")
             for path in sorted((HEADERS / "dynatrain").glob("*.h"))]
    text = re.sub(r"/\*.*?\*/", "", "\n".join(parts), flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def split_arguments(text):
    depth, part, parts = 0, "", []
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    parts.append(part)
    return [p.strip() for p in parts if p.strip() not in ("", "void")]


def functions(text):
    """name -> (result, arguments) of what the headers export."""
    found = {}
    for result, name, arguments in re.findall(
            r"DYT_API\s+([\w\s\*]+?)\s*\**\s*\b(dyt_\w+)\(([^;]*)\)\s*;", text):
        found[name] = (result, split_arguments(arguments))
    return found


def check_functions(text):
    exported = functions(text)
    assert len(exported) > 50, f"only {len(exported)} functions found"
    assert set(exported) == set(_abi.FUNCTIONS), (
        f"not bound: {sorted(set(exported) - set(_abi.FUNCTIONS))}, "
        f"not exported: {sorted(set(_abi.FUNCTIONS) - set(exported))}")
    for name, (result, arguments) in exported.items():
        bound_result, bound = _abi.FUNCTIONS[name]
        assert len(bound) == len(arguments), (name, arguments)
        assert (bound_result is None) == (result == "void"), (name, result)
        for argument, kind in zip(arguments, bound):
            pointer = "*" in argument
            is_pointer = kind in (ctypes.c_void_p, ctypes.c_char_p) or \
                issubclass(kind, ctypes._Pointer)
            assert pointer == is_pointer, (name, argument, kind)
            for word, width in (("uint64_t", 8), ("int64_t", 8),
                                ("uint32_t", 4), ("size_t", 8)):
                if not pointer and word in argument.split():
                    assert ctypes.sizeof(kind) == width, (name, argument)


def check_structs(text, compiler):
    declared = {name for name in re.findall(r"struct (dyt_\w+) \{", text)
                if not OTHERS.match(name)}
    bound = {kind.__name__: kind for kind in _abi.STRUCTS}
    assert declared == set(bound), declared ^ set(bound)
    lines = []
    for name, kind in bound.items():
        lines.append(f'    printf("{name} %zu", sizeof(struct {name}));')
        for field, _ in kind._fields_:
            lines.append(f'    printf(" {field}:%zu:%zu", offsetof(struct '
                         f"{name}, {field}), sizeof(((struct {name} *)0)->"
                         f"{field}));")
        lines.append('    printf("\\n");')
    constants = constant_table()
    for name in constants:
        lines.append(f'    printf("={name} %ld\\n", (long)({name}));')
    program = ("#include <dynatrain/session.h>\n#include <dynatrain/engine.h>\n"
               "#include <dynatrain/schedule.h>\n#include <stdio.h>\n"
               "int main(void)\n{\n" + "\n".join(lines) + "\n}\n")
    told = run_program(program, compiler)
    seen = 0
    for line in told.splitlines():
        name, *rest = line.split()
        if name.startswith("="):
            assert int(rest[0]) == constants[name[1:]], line
            seen += 1
            continue
        kind = bound[name]
        assert ctypes.sizeof(kind) == int(rest[0]), line
        assert len(rest) - 1 == field_count(text, name), (
            name, len(rest) - 1, field_count(text, name))
        for entry in rest[1:]:
            field, offset, size = entry.split(":")
            about = getattr(kind, field)
            assert (about.offset, about.size) == (int(offset), int(size)), (
                name, entry)
        seen += 1
    assert seen == len(bound) + len(constants)
    return seen


def field_count(text, name):
    body = re.search(r"struct %s \{(.*?)\n\};" % name, text, re.S)[1]
    body = re.sub(r"\([^()]*\)\s*\([^()]*\)", "", body)  # function pointers
    return sum(len(line.split(",")) for line in body.split(";")
               if line.strip())


def constant_table():
    """Every constant of the binding under its name in C."""
    table = {"DYT_MAX_DIMS": _abi.MAX_DIMS}
    short = {"float32": "F32", "bfloat16": "BF16", "float16": "F16",
             "int32": "I32", "int64": "I64"}
    groups = (("DYT_", {short[k]: v for k, v in _abi.DTYPES.items()}),
              ("DYT_", _abi.KINDS), ("DYT_ROLE_", _abi.ROLES),
              ("DYT_COMMIT_", _abi.COMMITS), ("DYT_VERIFY_", _abi.VERIFIES),
              ("DYT_POLICY_", _abi.POLICIES), ("DYT_MEMORY_", _abi.MEMORIES),
              ("DYT_RULE_", _abi.CUTS), ("DYT_TAG_", _abi.TAGS),
              ("DYT_DEVICE_", {"HOST": _abi.DEVICES["cpu"],
                               "CUDA": _abi.DEVICES["cuda"]}))
    for prefix, names in groups:
        table.update({prefix + k.upper(): v for k, v in names.items()})
    for flag in ("READ_ONLY", "ALIAS", "STAGED", "OPTIONAL"):
        table["DYT_ROW_" + flag] = getattr(_abi, "ROW_" + flag)
    table.update({kind.name: kind.status
                  for kind in errors.BY_STATUS.values()})
    return table


def check_statuses(text):
    rows = re.findall(r"X\((DYT_\w+),\s*(-?\d+),", header_raw("status.h"))
    want = {int(value): name for name, value in rows if int(value) != 0}
    have = {status: kind.name for status, kind in errors.BY_STATUS.items()}
    assert want == have, (want, have)


def header_raw(name):
    return (HEADERS / "dynatrain" / name).read_text(encoding="utf-8")


def run_program(program, compiler):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "abi.c"
        source.write_text(program, encoding="utf-8")
        binary = pathlib.Path(folder) / "abi"
        subprocess.run([compiler, "-std=c11", "-I", str(HEADERS), "-o",
                        str(binary), str(source)], check=True)
        return subprocess.run([str(binary)], check=True, capture_output=True,
                              text=True).stdout


def main():
    assert not [m for m in sys.modules if m.split(".")[0] in
                ("torch", "numpy", "vllm")], "a framework was imported"
    assert _abi._loaded is None, "the library was loaded by the import"
    text = header_text()
    check_functions(text)
    check_statuses(text)
    seen = check_structs(text, sys.argv[1] if len(sys.argv) > 1 else "cc")
    print(f"{seen} structs and constants, {len(_abi.FUNCTIONS)} functions")


if __name__ == "__main__":
    main()
