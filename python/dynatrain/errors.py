"""What a call of the library can answer: one class for each status, with the
library's own text.  Values and names are those of dynatrain/status.h."""


class Error(Exception):
    """The base of all: `status` is the number, `name` the C name."""

    status = 0
    name = "DYT_UNKNOWN"


class Pending(Error):
    """Not finished yet; the same call may be made again."""

    status, name = 1, "DYT_PENDING"


class InvalidError(Error, ValueError):
    status, name = -1, "DYT_ERR_INVALID"


class SizeError(Error, OverflowError):
    status, name = -2, "DYT_ERR_OVERFLOW"


class LayoutError(Error):
    """A layout cannot be built or met; the text lists every mismatch."""

    status, name = -3, "DYT_ERR_LAYOUT"


class NoMemoryError(Error, MemoryError):
    status, name = -4, "DYT_ERR_NOMEM"


class PeerError(Error, ConnectionError):
    status, name = -5, "DYT_ERR_PEER"


class AbiError(Error):
    status, name = -6, "DYT_ERR_ABI"


class DeviceError(Error):
    status, name = -7, "DYT_ERR_DEVICE"


class FormatError(Error):
    status, name = -8, "DYT_ERR_FORMAT"


class ConfigError(Error):
    status, name = -9, "DYT_ERR_CONFIG"


class UnsupportedError(Error):
    status, name = -10, "DYT_ERR_UNSUPPORTED"


class InputOutputError(Error, OSError):
    status, name = -11, "DYT_ERR_IO"


class StateError(Error):
    """Not allowed now: memory that an offer pins, weights that are not whole."""

    status, name = -12, "DYT_ERR_STATE"


class BusyError(Error):
    status, name = -13, "DYT_ERR_BUSY"


class DeadlineError(Error, TimeoutError):
    status, name = -14, "DYT_ERR_TIMEOUT"


class VerifyError(Error):
    status, name = -15, "DYT_ERR_VERIFY"


class CancelledError(Error):
    status, name = -16, "DYT_ERR_CANCELLED"


BY_STATUS = {
    kind.status: kind
    for kind in (
        Pending, InvalidError, SizeError, LayoutError, NoMemoryError,
        PeerError, AbiError, DeviceError, FormatError, ConfigError,
        UnsupportedError, InputOutputError, StateError, BusyError,
        DeadlineError, VerifyError, CancelledError,
    )
}


def error(status: int, text: str) -> Error:
    """The exception for a status."""
    made = BY_STATUS.get(status, Error)(text or f"status {status}")
    made.status = status
    return made
