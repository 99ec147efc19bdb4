"""Where a tensor lies: of torch (data_ptr), numpy and friends
(__array_interface__), anything with DLPack, or a plain buffer.  No framework is
imported here."""

import ctypes as c
from typing import Any, List, NamedTuple, Optional, Tuple

from dynatrain import _abi, errors


class Memory(NamedTuple):
    """One tensor's memory.  `keep` must live as long as the address is used."""

    address: int
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]  # elements
    dtype: str  # a name of _abi.DTYPES
    device: str  # "cpu" or "cuda"
    device_index: int
    read_only: bool
    keep: Any


def dense(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """Strides of a row-major tensor, in elements."""
    strides: List[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


_TYPESTR = {"f4": "float32", "f2": "float16", "i4": "int32", "i8": "int64",
            "l8": "int64"}
# (code, bits) of DLPack
_DLPACK = {(2, 32): "float32", (2, 16): "float16", (4, 16): "bfloat16",
           (0, 32): "int32", (0, 64): "int64"}
# (letter, bytes) of a buffer: `l` has four or eight
_FORMATS = {("f", 4): "float32", ("e", 2): "float16", ("i", 4): "int32",
            ("l", 4): "int32", ("l", 8): "int64", ("q", 8): "int64"}


class _DlTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32),
                ("device_id", c.c_int32), ("ndim", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8),
                ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("offset", c.c_uint64)]


def _from_torch(tensor: Any) -> Memory:
    name = str(tensor.dtype).rpartition(".")[2]
    kind, device = type(tensor).__name__, tensor.device.type
    if getattr(tensor, "is_neg", bool)():
        raise errors.UnsupportedError(
            "a view with its sign still to be changed: resolve_neg() it")
    if hasattr(tensor, "device_mesh"):
        raise errors.UnsupportedError(
            "a DTensor: dynatrain.torch.row_of() makes a row of its shard")
    try:
        address, stride = tensor.data_ptr(), tuple(tensor.stride())
        shape = tuple(tensor.shape)
    except RuntimeError as problem:  # sparse, nested, of another library
        raise errors.UnsupportedError(
            f"a {kind} of layout {getattr(tensor, 'layout', 'unknown')}: "
            f"{problem}") from None
    if not address and elements(shape) and device in _abi.DEVICES:
        raise errors.UnsupportedError(
            f"a {kind} has no memory of its own: quantised and fake tensors are "
            "not offered or received as they are")
    return Memory(address, shape, stride, name, device,
                  tensor.device.index or 0, False, tensor)


def _from_array(array: Any) -> Memory:
    about = array.__array_interface__
    text = about["typestr"]
    name = _TYPESTR.get(text[1:], str(getattr(array, "dtype", text)))
    if text[1:] == "V2" and "bfloat16" in name:
        name = "bfloat16"
    if "O" in text[1:]:
        raise errors.UnsupportedError("an array of objects")
    if text[0] == ">":
        raise errors.UnsupportedError("an array of big-endian numbers")
    shape = tuple(about["shape"])
    item = int(text[2:])
    steps = about.get("strides")
    if name in _abi.DTYPES and any(step % item for step in steps or ()):
        raise errors.UnsupportedError(
            f"an array whose strides, {tuple(steps)} bytes, are no multiples of "
            f"its {item}-byte elements, as of a field among others: copy() it")
    stride = dense(shape) if steps is None else tuple(s // item for s in steps)
    address, read_only = about["data"]
    return Memory(address, shape, stride, name, "cpu", 0, read_only, array)


def _from_dlpack(tensor: Any) -> Memory:
    capsule = tensor.__dlpack__()
    get = c.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c.c_void_p, (c.py_object, c.c_char_p)
    about = _DlTensor.from_address(get(capsule, b"dltensor"))
    shape = tuple(about.shape[i] for i in range(about.ndim))
    stride = (tuple(about.strides[i] for i in range(about.ndim))
              if about.strides else dense(shape))
    name = _DLPACK.get((about.code, about.bits),
                       f"DLPack type {about.code} of {about.bits} bits")
    device = {1: "cpu", 3: "cpu", 2: "cuda", 13: "cuda"}.get(
        about.device_type, f"DLPack device {about.device_type}")
    return Memory((about.data or 0) + about.offset, shape, stride, name,
                  device, about.device_id, False, (capsule, tensor))


def _from_buffer(buffer: Any) -> Memory:
    view = memoryview(buffer)
    text = view.format or "B"
    if text[0] in ">!":
        raise errors.UnsupportedError("a buffer of big-endian numbers")
    name = _FORMATS.get((text.lstrip("@=<"), view.itemsize),
                        f"format {text!r}")
    if not view.c_contiguous:
        raise errors.UnsupportedError("a buffer that is not contiguous")
    if view.readonly:
        raise errors.InvalidError(
            "a read-only buffer has no address that may be shared")
    address = c.addressof((c.c_char * view.nbytes).from_buffer(view)
                          ) if view.nbytes else 0
    shape = tuple(view.shape or ())
    return Memory(address, shape, dense(shape), name, "cpu", 0, False, view)


def memory_of(tensor: Any) -> Memory:
    """The memory of a tensor of any of the four kinds."""
    if isinstance(tensor, Memory):
        return tensor
    if hasattr(tensor, "data_ptr"):
        found = _from_torch(tensor)
    elif hasattr(tensor, "__array_interface__"):
        found = _from_array(tensor)
    elif hasattr(tensor, "__dlpack__"):
        found = _from_dlpack(tensor)
    else:
        try:
            found = _from_buffer(tensor)
        except TypeError:
            raise errors.InvalidError(
                f"{type(tensor).__name__} has no data_ptr, "
                "__array_interface__, __dlpack__ or buffer") from None
    if found.dtype not in _abi.DTYPES:
        raise errors.UnsupportedError(
            f"dtype {found.dtype}: known are {', '.join(_abi.DTYPES)}")
    if found.device not in _abi.DEVICES:
        raise errors.UnsupportedError(
            f"device {found.device}: known are {', '.join(_abi.DEVICES)}")
    return found


def bytes_at(address: int, count: int) -> Any:
    """A writable buffer over memory of the library; it owns nothing, so
    whoever lends the memory must live longer."""
    return (c.c_ubyte * count).from_address(address)


def elements(shape: Tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def flat_boxes(shape: Tuple[int, ...], first: int, last: int
               ) -> List[Tuple[Tuple[int, ...], Tuple[int, ...]]]:
    """The flat range [first, last) of a row-major tensor as at most
    2 * ndim - 1 boxes (lo, hi), in the order of the range."""
    if first >= last or not shape:
        return []
    if len(shape) == 1:
        return [((first,), (last,))]
    inner = elements(shape[1:])
    low, high = first // inner, last // inner
    boxes = []

    def part(row: int, begin: int, end: int) -> None:
        for lo, hi in flat_boxes(shape[1:], begin, end):
            boxes.append(((row,) + lo, (row + 1,) + hi))

    if low == high:
        part(low, first - low * inner, last - low * inner)
        return boxes
    if first % inner:
        part(low, first - low * inner, inner)
        low += 1
    if low < high:
        zeros = (0,) * (len(shape) - 1)
        boxes.append(((low,) + zeros, (high,) + tuple(shape[1:])))
    if last % inner:
        part(high, 0, last - high * inner)
    return boxes


def flat_offset(shape: Tuple[int, ...], lo: Tuple[int, ...]) -> int:
    """Flat index of an element."""
    return sum(x * step for x, step in zip(lo, dense(shape)))


def extent(lo: Tuple[int, ...], hi: Tuple[int, ...]) -> Tuple[int, ...]:
    return tuple(b - a for a, b in zip(lo, hi))


def at_offset(memory: Memory, offset: int, shape: Tuple[int, ...],
              stride: Optional[Tuple[int, ...]] = None) -> Memory:
    """Part of a dense tensor's memory, `offset` elements from its start."""
    width = _abi.DTYPE_BYTES[_abi.DTYPES[memory.dtype]]
    return memory._replace(address=memory.address + offset * width,
                           shape=shape, stride=stride or dense(shape))
