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
    return bytes([0x90 + len(x)]) + b"".join(map(pack, x))


def ids(*values):
    return struct.pack(f"<{len(values)}i", *values)


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


PROMPTS = [[9, 2**64 - 1, ids(3, 1, 2)], [10, 0, b""]]
SAMPLES = [[9, 0, 0, ids(4, 5), floats(-1, -2), floats(-1, -2), 0.5, False,
            [[7, 0, 2]]],
           [9, 1, 1, b"", b"", b"", 0.0, True, []]]
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
    }
    for name, data in broken.items():
        (folder / f"broken_{name}").write_bytes(data)


if __name__ == "__main__":
    main()
