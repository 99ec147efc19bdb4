"""The build puts base/banned.h in front of every C source of ours, and with it
each banned function fails to compile.  usage: check_banned.py BUILD_DIR CC"""

import json
import pathlib
import re
import subprocess
import sys

import tree

# Programs of users, who have only the public headers.
USERS = re.compile(r"^(tests/abi|docs/examples)/")

BANNED = tree.ROOT / "core/base/banned.h"
USE = {
    "strcpy": "strcpy(a, b)", "strcat": "strcat(a, b)",
    "sprintf": "sprintf(a, b)", "vsprintf": "vsprintf(a, b, 0)",
    "strtok": "strtok(a, b)", "gets": "gets(a)", "atoi": "atoi(b)",
    "atol": "atol(b)", "atof": "atof(b)", "alloca": "alloca(3)",
}


def compiles(cc, body):
    source = f"void *f(char *a, const char *b) {{ (void)a; (void)b; {body}; return a; }}\n"
    return subprocess.run(
        [cc, "-std=c17", "-include", str(BANNED), "-w", "-fsyntax-only", "-x",
         "c", "-"], input=source, text=True, capture_output=True,
        check=False).returncode == 0


def main():
    build, cc = pathlib.Path(sys.argv[1]), sys.argv[2]
    findings = []
    commands = json.loads((build / "compile_commands.json").read_text())
    ours = [c for c in commands if c["file"].endswith(".c")
            and pathlib.Path(c["file"]).is_relative_to(tree.ROOT)
            and not USERS.match(str(
                pathlib.Path(c["file"]).relative_to(tree.ROOT)))]
    for entry in ours:
        if f"-include {BANNED}" not in entry["command"]:
            findings.append(f"{entry['file']}: compiled without banned.h")
    listed = set(re.findall(r"\w+", " ".join(
        re.findall(r"#pragma GCC poison (.*)", BANNED.read_text()))))
    for name in sorted(listed | USE.keys()):
        if name not in USE or name not in listed:
            findings.append(f"{name}: in only one of banned.h and this check")
        elif compiles(cc, USE[name]):
            findings.append(f"{USE[name]} compiles")
    if not compiles(cc, "memcpy(a, b, 1)"):
        findings.append("harmless code does not compile")
    tree.report(findings, len(ours), "banned")


if __name__ == "__main__":
    main()
