"""Who may include whom.  Every file of every room is checked; a room that is
not in the tables below is a finding, so that a new one gets its place."""

import re

import tree

CORE = {
    "base": "",
    "ops": "base",
    "data": "base",
    "vps": "base",
    "layout": "vps base",
    "plan": "layout vps base",
    "sched": "plan layout vps base",
    "exec": "sched plan layout vps base ops",
    "edm": "exec sched plan layout vps base ops",
    "phase": "edm exec sched plan layout vps base ops",
    "explain": "sched plan layout vps base",
    "nn": "ops data layout vps base",
}
ROLES = ("rollout", "score", "trainer")
# bridge/<family>/<name>, and bridge/<name> that have no families.
FAMILIES = ("device", "comm", "mover")
FLAT = ("wire", "control", "format", "reward", "plugin")
# lib/ assembles the shared library: no model, no roles, no files.
LIB_MUST_NOT = {"nn", "rollout", "score", "trainer", "format"}

# What core may include with angle brackets: libc, libm, pthread, and ours.
CORE_SYSTEM = re.compile(
    r"dynatrain/\w+\.h|(alloca|assert|ctype|errno|fcntl|float|inttypes|limits|locale|"
    r"math|poll|pthread|sched|signal|stdarg|stdatomic|stdbool|stddef|stdint|"
    r"stdio|stdlib|string|time|unistd)\.h|sys/(mman|stat|syscall|time|types|"
    r"wait|uio)\.h")
# Descriptors travel on sockets that backends and lib/ open: nothing else in core
# knows of any.
CORE_ELSEWHERE = {"core/base/descriptors.c": {"sys/socket.h"}}
# Headers of vendors and libraries: only bridge/, and what a line says.
VENDOR = re.compile(
    r"(dnnl|oneapi/|zmq|msgpack|jansson|toml|pcre2|utf8proc|xxhash|cuda|cublas|"
    r"nccl|gloo|microhttpd|mpi)")
VENDOR_ELSEWHERE = {
    # bench measures opponents and reads their figures; tests read what we write.
    "bench": re.compile(r"dnnl|jansson"),
    "tests": re.compile(r"."),
}

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def room_of(path):
    """("core", "plan"), ("bridge", "comm/shm"), ("trainer", "")."""
    parts = path.parts
    if parts[0] == "core":
        return "core", parts[1]
    if parts[0] == "bridge":
        if parts[1] in FAMILIES:
            return "bridge", "/".join(parts[1:3])
        return "bridge", parts[1]
    return parts[0], ""


def owner_of(target):
    """The room that an include path in quotes belongs to; None: a neighbour in
    the same folder."""
    parts = target.split("/")
    if len(parts) == 1:
        return None
    if parts[0] == "bridge":
        parts = parts[1:]
    if parts[0] in CORE:
        return "core", parts[0]
    if parts[0] in FAMILIES:
        return "bridge", "/".join(parts[:2])
    if parts[0] in FLAT:
        return "bridge", parts[0]
    return parts[0], ""


def allowed(side, room, to_side, to_room):
    if (side, room) == (to_side, to_room):
        return True
    if side == "core":
        return to_side == "core" and to_room in CORE[room].split()
    if side in ROLES or side == "bridge":
        return to_side == "core"
    if side == "lib":
        return not LIB_MUST_NOT & {to_side, to_room}
    return True  # cli, bench and tests see everything


def check_include(path, side, room, bracket, target):
    """What is wrong with one include, or None."""
    if VENDOR.match(target) and bracket == "<" and side != "bridge":
        elsewhere = VENDOR_ELSEWHERE.get(side)
        if elsewhere is None or not elsewhere.match(target):
            return f"vendor header <{target}> outside bridge/"
    if bracket == "<":
        if side == "core" and not CORE_SYSTEM.fullmatch(target) and \
                target not in CORE_ELSEWHERE.get(path.as_posix(), ()):
            return f"core/ includes <{target}>, which is not libc or pthread"
        if side == "core" and room == "include" and \
                not re.fullmatch(r"dynatrain/\w+\.h|std\w+\.h", target):
            return f"a public header includes <{target}>"
        return None
    if "../" in target:
        return f'"{target}" climbs out of its folder'
    if side == "core" and room == "include":
        return f'a public header includes "{target}", which is not installed'
    owner = owner_of(target)
    if owner is None:
        near = (tree.ROOT / path).parent / target
        if near.is_file() or side in ("tests", "bench"):
            return None
        return f'"{target}" has no room in front of it'
    if not allowed(side, room, *owner):
        return f'must not include "{target}"'
    return None


def known_room(side, room):
    if side == "core":
        return room in CORE or room == "include"
    if side == "bridge":
        return room in FLAT or room.split("/")[0] in FAMILIES
    return side in ROLES + ("cli", "lib", "bench", "tests")


def main():
    findings, checked = [], 0
    for path in tree.sources():
        side, room = room_of(path)
        checked += 1
        if not known_room(side, room):
            findings.append(f"{path}: {side}/{room} is in no table of "
                            "check_layers.py")
            continue
        for found in INCLUDE.finditer(tree.read(path)):
            wrong = check_include(path, side, room, *found.groups())
            if wrong:
                line = tree.read(path)[:found.start()].count("\n") + 1
                findings.append(f"{path}:{line}: {wrong}")
    tree.report(findings, checked, "layers")


if __name__ == "__main__":
    main()
