"""Devices that tensors lie on: their UUIDs, and the order of work on them.
torch is asked where the process has loaded it, else the driver; neither is
imported or opened before a tensor of a device is met."""

import ctypes as c
import re
import sys
from typing import Any, Iterable, Optional

from dynatrain import errors


def _cuda() -> Any:
    """torch.cuda where torch is loaded; None otherwise."""
    return getattr(sys.modules.get("torch"), "cuda", None)


def _uuid_of_text(text: str) -> Optional[bytes]:
    digits = re.sub(r"^(GPU|MIG)-", "", text).replace("-", "")
    return bytes.fromhex(digits) if re.fullmatch(r"[0-9a-fA-F]{32}",
                                                 digits) else None


def _uuid_of_driver(index: int) -> bytes:
    """By the driver: its indices are torch's, as both heed
    CUDA_VISIBLE_DEVICES."""
    device, uuid = c.c_int(), (c.c_uint8 * 16)()
    try:
        driver = c.CDLL("libcuda.so.1")
        failed = (driver.cuInit(0)
                  or driver.cuDeviceGet(c.byref(device), index)
                  or driver.cuDeviceGetUuid(uuid, device))
    except (OSError, AttributeError) as why:
        raise errors.UnsupportedError(
            f"cuda:{index}: its UUID: {why}") from None
    if failed:
        raise errors.UnsupportedError(
            f"cuda:{index}: the driver does not tell its UUID (error {failed})")
    return bytes(uuid)


def uuid_of(index: int) -> bytes:
    """The 16 bytes by which the library knows device `index` of this
    process."""
    cuda = _cuda()
    if cuda is not None:
        about = cuda.get_device_properties(index)
        found = _uuid_of_text(str(getattr(about, "uuid", "")))
        if found is not None:
            return found
    return _uuid_of_driver(index)


def current_stream(index: int) -> Optional[int]:
    """The stream in which torch works on the device now; None: the default
    one."""
    cuda = _cuda()
    return int(cuda.current_stream(index).cuda_stream) or None if cuda else None


def mark(indices: Iterable[int]) -> Any:
    """An event behind all that torch has queued on the only device of these;
    None where there are none or several, or no torch."""
    cuda, wanted = _cuda(), set(indices)
    if cuda is None or len(wanted) != 1:
        return None
    event = cuda.Event()
    event.record(cuda.current_stream(wanted.pop()))
    return event


def event_of(event: Any) -> Optional[int]:
    """The cudaEvent_t of an event of torch, of a number, or of None."""
    handle = getattr(event, "cuda_event", event)
    return None if handle is None else int(handle)
