"""Writes corpus/wire: one message of every kind, and some that are broken.
Standard library only: a msgpack writer of the dozen lines that it takes."""

import pathlib
import struct


def pack(x):
    if x is None:
        return b"\xc0"
    if x is True or x is False:
        return b"\xc3" if x else b"\xc2"
    if isinstance(x, int):
        if 0 <= x < 128:
            return bytes([x])
        return b"\xcf" + struct.pack(">Q", x) if x > 0 \
            else b"\xd3" + struct.pack(">q", x)
    if isinstance(x, float):
        return b"\xcb" + struct.pack(">d", x)
    if isinstance(x, str):
        return b"\xd9" + bytes([len(x.encode())]) + x.encode()
    if isinstance(x, bytes):
        return b"\xc4" + bytes([len(x)]) + x
    head = bytes([0x90 + len(x)]) if len(x) < 16 \
        else b"\xdc" + struct.pack(">H", len(x))
    return head + b"".join(map(pack, x))


def ids(*values):
    return struct.pack(f"<{len(values)}i", *values)


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


PROMPTS = [[9, 2**64 - 1, ids(3, 1, 2)], [10, 0, b""]]
SAMPLES = [[9, 0, 0, ids(4, 5), floats(-1, -2), floats(-1, -2), 0.5, False,
            [[7, 0, 2]]],
           [9, 1, 1, b"", b"", b"", 0.0, True, []]]
PIECES = [["gate_proj", 1, 2, 0, 4, 8, 8, 1, 0, 7], ["scalar", 0, 0, 1, 0, 7]]
ROWS = [["w13", 0, 1, 4, 3, 8, 4, 2, 32, 8, 1, 8, 4, 2, PIECES],
        ["", 1, 0, 0, 0, []]]
EXTENTS = [0, 4096, 0x7f0000000000, -1, 0, 0, 0, 0,
           4096, 64, 1, 3, 0, 8, 9, 10]
SHARDS = [2, 0, 0, 1, 64, 2, 0, 8, 64, 0, 4, 2, 1, 0, 0, 0, 0]
PARTS = [[12, 34] + [1, 2, 0, 0, 0, 0] + [EXTENTS, SHARDS],
         [13, 35] + [0] * 6 + [[], [0]]]
PAYLOADS = {
    "hello": (1, [4242]),
    "assign": (2, ["name = \"a\"", "model", "", 2]),
    "ready": (3, ["avx2", "4 KiB", 1 << 30, 1000, 0.5, 1e10]),
    "heartbeat": (4, [3, 9]),
    "switch": (7, [5, 1]),
    "switch_done": (9, [5, True, 1, 2, 3, 4, 5, 6, -7, 8, 9, 10]),
    "generate": (10, [1, False, 16, PROMPTS]),
    "samples": (11, [1, SAMPLES, 1, 2, 3, 4, 5]),
    "train": (12, [1, PROMPTS, SAMPLES]),
    "metrics": (13, [1, ["kl", 0.25, "lr", 1e-3]]),
    "checkpoint": (14, ["runs/a", 8]),
    "error": (16, [-5, -1, "it broke"]),
    "bye": (17, []),
    "join": (18, ["job", "rollout", "host", 1, 2, 0, 1] + [0, 1] * 4 +
             [0, 0, 0, 0, 0, 0, 77, 12, 34, 60000000000, True]),
    "joined": (19, [5, 77, 12, 34]),
    "rows": (20, [ROWS]),
    "catalogue": (21, [2**64 - 1, [["norm", 31, -1, -1, True, 0, 1, 576],
                                   ["", 0, 0, 0, False, 1, 0]]]),
    "memory": (22, [0, "", 2**32 - 1, PARTS]),
    "readers": (23, [3, b"\x00\x01\xff"]),
    "link": (24, [1, 1, 1, 2, 1, 0, 1, 0, 5, -1, 10**10, 1, PARTS, 2**32 - 1,
                  True, [0, 1]]),
    "meet": (30, [1, 2, 0, b"\x07\x00\x00\xff"]),
    "order": (25, [1, 2, 3, 4, 1]),
    "report": (26, [7, 8, -5, "a peer", True, True, 1, 9]),
    "request": (27, [4, 9, True, False, 0, ""]),
    "answer": (28, [3, 9, -3, "no"]),
    "status": (29, ["{}"]),
}


def main():
    folder = pathlib.Path(__file__).parent / "wire"
    folder.mkdir(exist_ok=True)
    for name, (kind, payload) in PAYLOADS.items():
        envelope = pack([1, kind, 77, -1, 2, 3, 4])
        (folder / name).write_bytes(envelope + pack(payload))
    head = pack([1, 12, 77, 0, 2, 3, 4])
    broken = {
        "array_of_everything": head + b"\x91\xdd\xff\xff\xff\xff",
        "binary_of_everything": head + b"\x91\xc6\xff\xff\xff\xff",
        "arrays_without_end": head + b"\x91" * 64,
        "map": head + b"\x81\xc0\xc0",
        "envelope_alone": head,
        "short_logprobs": head + pack([1, PROMPTS, [
            [9, 0, 0, ids(4, 5), floats(-1), floats(-1, -2), 0.5, False, []]]]),
        "empty": b"",
        "rows_of_nothing": head + b"\x91\xdd\x00\x00\x00\x40" + b"\x00" * 64,
        "shards_of_nothing": head + pack([0, "", 1, [
            [12, 34] + [0] * 6 + [[], [40] + [0] * 200]]]),
        "half_an_extent": head + pack([0, "", 1, [
            [12, 34] + [0] * 6 + [EXTENTS[:11], [0]]]]),
    }
    for name, data in broken.items():
        (folder / f"broken_{name}").write_bytes(data)


if __name__ == "__main__":
    main()
