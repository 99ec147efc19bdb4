"""Where tensors lie, and rows as the library takes them.  No library needed."""

import array
import ctypes
import gc
import random
import sys
import types
import weakref

import support
from dynatrain import _abi, devices, errors, rules, session, tensors


class Array:
    """An array of three strided rows by the array interface alone."""

    def __init__(self, typestr="<f4", read_only=False, strides=(16, 4)):
        self.memory = (ctypes.c_float * 12)(*range(12))
        self.__array_interface__ = {
            "version": 3, "typestr": typestr, "shape": (3, 2),
            "strides": strides,
            "data": (ctypes.addressof(self.memory), read_only)}


class Torch:
    """What torch tensors have and the binding looks at."""

    class Device:
        type, index = "cpu", None

    dtype, shape, device = "torch.bfloat16", (4, 3), Device()

    def data_ptr(self):
        return 4096

    def stride(self):
        return (3, 1)


def array_interface_is_read():
    source = Array()
    memory = tensors.memory_of(source)
    assert memory.address == ctypes.addressof(source.memory)
    assert memory.shape == (3, 2) and memory.stride == (4, 1)
    assert memory.dtype == "float32" and memory.keep is source
    assert tensors.memory_of(Array(read_only=True)).read_only


def torch_tensors_are_read_by_duck():
    memory = tensors.memory_of(Torch())
    assert memory[:5] == (4096, (4, 3), (3, 1), "bfloat16", "cpu"), memory


class Cuda(Torch):
    """A tensor of a device, and what torch.cuda says of that."""

    class Device:
        type, index = "cuda", 1

    device = Device()


class Event:
    def record(self, stream):
        self.cuda_event = 1000 + stream.cuda_stream


def torch_double(uuid="00112233-4455-6677-8899-aabbccddeeff"):
    return types.SimpleNamespace(cuda=types.SimpleNamespace(
        get_device_properties=lambda index: types.SimpleNamespace(
            uuid=uuid if index == 1 else "another"),
        current_stream=lambda index: types.SimpleNamespace(
            cuda_stream=70 + index),
        Event=Event))


def rows_of_a_device_say_which():
    before = sys.modules.get("torch")
    sys.modules["torch"] = torch_double()
    try:
        view = session.ViewBuffer([
            session.Row("ours", Cuda()), session.Row("here", Torch()),
            session.Row("own", Cuda(), stream=5)])
        row = view.array[0].device
        assert row.type == _abi.DEVICES["cuda"] and row.stream == 71
        assert bytes(row.uuid).hex() == "00112233445566778899aabbccddeeff"
        assert view.array[1].device.type == _abi.DEVICES["cpu"]
        assert not any(view.array[1].device.uuid)
        assert view.array[2].device.stream == 5
        event = devices.mark(view.uuids)
        assert devices.event_of(event) == 1071
        assert devices.event_of(7) == 7 and devices.event_of(None) is None
        assert devices.mark([0, 1]) is None and devices.mark([]) is None
    finally:
        sys.modules.pop("torch")
        if before is not None:
            sys.modules["torch"] = before


def a_device_without_a_name_is_refused():
    before = sys.modules.get("torch")
    sys.modules["torch"] = torch_double("no UUID")
    try:
        devices.uuid_of(0)
        raise AssertionError("a UUID of nowhere")
    except errors.UnsupportedError as why:
        assert "cuda:0" in str(why), why
    finally:
        sys.modules.pop("torch")
        if before is not None:
            sys.modules["torch"] = before
    assert devices.current_stream(0) is None and devices.mark([0]) is None


def buffers_are_read():
    numbers = array.array("f", [1.0, 2.0, 3.0])
    memory = tensors.memory_of(numbers)
    assert memory.address == numbers.buffer_info()[0]
    assert memory.shape == (3,) and memory.dtype == "float32"
    for kind, name in ((ctypes.c_float, "float32"), (ctypes.c_int32, "int32"),
                       (ctypes.c_int64, "int64")):
        table = ((kind * 4) * 3)()
        memory = tensors.memory_of(table)
        assert memory[:4] == (ctypes.addressof(table), (3, 4), (4, 1), name)
    support.raises(
        errors.UnsupportedError, lambda: tensors.memory_of(
            (ctypes.c_float.__ctype_be__ * 2)()), "big-endian")


def dlpack_capsules_are_read():
    shape = (ctypes.c_int64 * 2)(2, 3)
    about = tensors._DlTensor(data=8192, device_type=1, ndim=2, code=4,
                              bits=16, lanes=1, shape=shape, offset=64)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

    class Foreign:
        def __dlpack__(self):
            return new(ctypes.addressof(about), b"dltensor", None)

    memory = tensors.memory_of(Foreign())
    assert memory[:5] == (8256, (2, 3), (3, 1), "bfloat16", "cpu"), memory


class ByDlpack:
    """A tensor of which nothing but its DLPack is shown."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self):
        return self.tensor.__dlpack__()


def frameworks_are_read_where_they_are():
    """numpy and torch themselves, strided, of all dtypes that they share."""
    try:
        import numpy
    except ImportError:
        return print("no numpy: not compared")
    for dtype in ("float32", "float16", "int32", "int64"):
        source = numpy.zeros((6, 5), dtype)[::2, 1:4]
        for given in (source, ByDlpack(source)):
            memory = tensors.memory_of(given)
            assert memory.address == source.ctypes.data, dtype
            assert memory.shape == (3, 3) and memory.stride == (10, 1)
            assert memory.dtype == dtype and memory.device == "cpu"
    frozen = numpy.zeros(3, "float32")
    frozen.setflags(write=False)
    assert tensors.memory_of(frozen).read_only
    try:
        import torch
    except ImportError:
        return print("no torch: not compared")
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        source = torch.zeros((6, 5), dtype=dtype)[::2, 1:4]
        name = str(dtype).rpartition(".")[2]
        for given in (source, ByDlpack(source)):
            memory = tensors.memory_of(given)
            assert memory[:5] == (source.data_ptr(), (3, 3), (10, 1), name,
                                  "cpu"), memory


def what_cannot_be_read_is_named():
    support.raises(errors.InvalidError, lambda: tensors.memory_of(object()),
                   "object has no data_ptr")
    support.raises(errors.UnsupportedError,
                   lambda: tensors.memory_of(Array(typestr="<f8")),
                   "<f8", "bfloat16")
    support.raises(errors.UnsupportedError,
                   lambda: tensors.memory_of(Array(typestr=">f4")),
                   "big-endian")
    support.raises(errors.InvalidError, lambda: tensors.memory_of(b"abc"))
    support.raises(errors.UnsupportedError,
                   lambda: tensors.memory_of(Array(typestr="|O")), "objects")
    support.raises(errors.UnsupportedError,  # of a field among others
                   lambda: tensors.memory_of(Array(strides=(12, 6))), "(12, 6)")


def what_ctypes_would_bend_is_refused():
    """Numbers that wrap, texts that end at a NUL, boxes that are cut off."""
    piece = session.Piece
    for row, words in [
            (("w", [piece("w", (0,), (2, 3))]), ("lo has 1, hi 2",)),
            (("w", [piece("w", (0, 0), (2, 3), (1,))]), ("at 1",)),
            (("w", [piece("w", (0, 0), (2, 1 << 70))]), ("too large",)),
            (("w", [piece("a\0b", (0, 0), (2, 3))]), ("row w", "NUL")),
            (("w", [("w", (0, 0), (2, 3))]), ("row w", "no Piece")),
            (("a\0b", ()), ("NUL",)), ((3, ()), ("3",))]:
        support.raises(errors.InvalidError, lambda r=row: session.ViewBuffer(
            [session.Row(r[0], Array(), pieces=r[1])]), *words)
    for rows in ({"w": Array()}, [Array()]):
        support.raises(errors.InvalidError,
                       lambda given=rows: session.ViewBuffer(given), "no row")
    support.raises(errors.InvalidError, lambda: session.ViewBuffer(
        [session.Row("w")]), "row w", "staged")
    for name, value in (("version", -1), ("version", 1 << 64),
                        ("version", "1")):
        support.raises(errors.InvalidError, lambda n=name, v=value: _abi.sized(
            _abi.OfferParams, **{n: v}), name, str(value))
    for seconds in (-1, float("nan"), "3"):
        support.raises(errors.InvalidError,
                       lambda s=seconds: session._nanoseconds(s), "timeout")
    assert session._nanoseconds(None) == session._nanoseconds(1e300) == -1
    assert session._nanoseconds(1.5) == 1500000000


def flat_ranges_are_few_boxes():
    random.seed(1)
    for _ in range(300):
        shape = tuple(random.randint(1, 5) for _ in range(random.randint(1, 4)))
        total = tensors.elements(shape)
        first = random.randint(0, total)
        last = random.randint(first, total)
        boxes = tensors.flat_boxes(shape, first, last)
        assert len(boxes) <= 2 * len(shape) - 1, (shape, first, last)
        seen = []
        for lo, hi in boxes:
            indices = [()]
            for a, b in zip(lo, hi):
                indices = [i + (x,) for i in indices for x in range(a, b)]
            seen += [tensors.flat_offset(shape, i) for i in indices]
        assert seen == list(range(first, last)), (shape, first, last, boxes)


def rows_become_structs():
    source = Array()
    view = session.ViewBuffer([
        session.Row("a", source, kind="exp_avg", pieces=[
            session.Piece("t", (5, 0), (8, 2), at=(0, 0))],
            global_shape=(9, 2), optional=True),
        session.Row("b", dtype="bfloat16", shape=(7,), staged=True)])
    first, second = view.array[0], view.array[1]
    assert first.struct_size == ctypes.sizeof(_abi.Row) and first.kind == 3
    assert list(first.shape[:2]) == [3, 2] and list(first.stride[:2]) == [4, 1]
    assert first.data == ctypes.addressof(source.memory) and first.fd == -1
    assert first.flags == _abi.ROW_OPTIONAL and first.piece_count == 1
    assert list(first.piece[0].box.lo[:2]) == [5, 0]
    assert first.piece[0].tensor == b"t" and first.piece_struct_size == \
        ctypes.sizeof(_abi.Piece)
    assert second.data is None and second.flags == _abi.ROW_STAGED
    assert second.dtype == 1 and not second.piece
    assert view.view.row_count == 2
    support.raises(errors.InvalidError, lambda: session.ViewBuffer(
        [session.Row("c", source, kind="velocity")]), "velocity", "exp_avg_sq")
    support.raises(errors.InvalidError, lambda: session.ViewBuffer(
        [session.Row("d", source, shape=(2, 3))]), "row d", "its own dtype")


def rows_keep_their_tensors_alive():
    source = Array()
    there = weakref.ref(source)
    view = session.ViewBuffer([session.Row("a", source)])
    del source
    gc.collect()
    assert there() is not None
    del view
    gc.collect()
    assert there() is None


def tables_become_rules():
    made = rules.from_table({"family": "mine", "rule": [
        {"name": "h.{layer}.qkv", "part": [
            {"tensor": "l.{layer}.q", "cut": "heads", "unit": "head_dim"},
            {"tensor": "l.{layer}.k", "cut": "heads", "unit": 16}]},
        {"name": "rotary.{*}", "flags": ["optional"]}]})
    assert made.family == "mine" and len(made) == 2
    rule = made.struct.rule[0]
    assert rule.part[0].unit_attribute == b"head_dim"
    assert rule.part[1].unit == 16 and rule.part[1].unit_attribute is None
    assert rule.part[1].cut == 2 and made.struct.rule[1].part_count == 0
    assert made.struct.rule[1].flags == _abi.ROW_OPTIONAL
    for wrong, says in (({"rule": [{"nam": "x"}]}, "nam"),
                        ({"rule": [{"name": "x", "part": [{}]}]}, "tensor"),
                        ({"rule": [{"name": "x", "part": [
                            {"tensor": "t", "cut": "half"}]}]}, "half")):
        support.raises(errors.Error, lambda w=wrong: rules.from_table(w), says)


def statuses_are_classes():
    problem = errors.error(-14, "nobody listens")
    assert isinstance(problem, TimeoutError) and str(problem) == \
        "nobody listens" and problem.name == "DYT_ERR_TIMEOUT"
    assert errors.error(-99, "").status == -99


if __name__ == "__main__":
    support.run(array_interface_is_read, torch_tensors_are_read_by_duck,
                rows_of_a_device_say_which, a_device_without_a_name_is_refused,
                buffers_are_read, dlpack_capsules_are_read,
                frameworks_are_read_where_they_are,
                what_cannot_be_read_is_named,
                what_ctypes_would_bend_is_refused, flat_ranges_are_few_boxes,
                rows_become_structs, rows_keep_their_tensors_alive,
                tables_become_rules, statuses_are_classes)
