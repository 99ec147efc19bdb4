"""DynaTrain: switched weights between trainers and servers.

Loads neither a framework nor the library; the first call does the latter.
dynatrain.torch, .megatron, .vllm, .trl, .verl and .sglang are for those
frameworks, dynatrain.reward runs reward functions.
"""

from dynatrain.errors import (AbiError, BusyError, CancelledError,
                              ConfigError, DeadlineError, DeviceError, Error,
                              FormatError, InputOutputError, InvalidError,
                              LayoutError, NoMemoryError, PeerError, Pending,
                              SizeError, StateError, UnsupportedError,
                              VerifyError)
from dynatrain.model import Layout, Model, Plan, Schedule
from dynatrain.rules import Rules
from dynatrain.session import (Piece, Report, Row, Session, Ticket,
                               default_address, job_status)

__version__ = "0.1.0"

__all__ = [
    "AbiError", "BusyError", "CancelledError", "ConfigError", "DeadlineError",
    "DeviceError", "Error", "FormatError", "InputOutputError", "InvalidError",
    "Layout", "LayoutError", "Model", "NoMemoryError", "PeerError", "Pending",
    "Piece", "Plan", "Report", "Row", "Rules", "Schedule", "Session",
    "SizeError", "StateError", "Ticket", "UnsupportedError", "VerifyError",
    "default_address", "job_status",
]
