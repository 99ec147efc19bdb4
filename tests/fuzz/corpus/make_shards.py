#!/usr/bin/env python3
"""Writes the corpus of fuzz_shards: records of 16 bytes, one per shard: rank, tensor, kind, dtype | ndim << 1,
lo and hi of two dimensions, offset and two strides of two bytes, two unused."""
import pathlib
import struct

# (rows, columns) of the model that the harness describes, in catalogue order; columns 0: one dimension
TENSORS = [(6, 4), (4, 0), (4, 4), (2, 4), (2, 4), (4, 4), (4, 0), (4, 4), (4, 4), (4, 4), (4, 0)]
here = pathlib.Path(__file__).parent / "shards"


def record(rank, tensor, rows, offset, stride):
    columns = TENSORS[tensor][1]
    ndim = 2 if columns else 1
    return struct.pack("<BBBBbbbbhhh2x", rank, tensor, 0, ndim << 1, rows[0], rows[1], 0, columns, offset,
                       *(stride if columns else (stride[1], 0)))


def dense(rank):
    """All tensors whole, one behind the other."""
    at, out = 0, b""
    for tensor, (rows, columns) in enumerate(TENSORS):
        out += record(rank, tensor, (0, rows), at, (4 * columns, 4))
        at += 4 * rows * max(columns, 1)
    return out


def halves():
    """Rows of matrices cut between both, columns of two tensors interleaved."""
    out = b""
    for rank in range(2):
        at = 0
        for tensor, (rows, columns) in enumerate(TENSORS):
            if columns:
                cut = (0, rows // 2) if rank == 0 else (rows // 2, rows)
                out += record(rank, tensor, cut, at, (64, 4))
                at += 64 * rows
            else:
                out += record(rank, tensor, (0, rows), at, (0, 4))
                at += 4 * rows
    return out


here.mkdir(exist_ok=True)
(here / "dense").write_bytes(dense(0))
(here / "twice").write_bytes(dense(0) + dense(1))
(here / "halves").write_bytes(halves())
(here / "missing").write_bytes(dense(1)[16:])
(here / "empty").write_bytes(b"")
