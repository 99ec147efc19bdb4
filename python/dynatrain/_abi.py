"""The C interface as ctypes sees it: structs, prototypes, and where the library
is.  tests/python compares sizes, offsets, constants and prototypes with the
headers.  Nothing is loaded before the first call of lib()."""

import ctypes as c
import os
import pathlib
import threading
from typing import (Any, Callable, Dict, List, Optional, Sequence, Tuple,
                    TypeVar)

from dynatrain import errors

T = TypeVar("T")

MAX_DIMS = 8
Dims = c.c_int64 * MAX_DIMS

# enum dyt_dtype, by the names that torch and numpy use.
DTYPES = {"float32": 0, "bfloat16": 1, "float16": 2, "int32": 3, "int64": 4}
DTYPE_BYTES = {0: 4, 1: 2, 2: 2, 3: 4, 4: 8}
KINDS = {"param": 0, "grad": 1, "master": 2, "exp_avg": 3, "exp_avg_sq": 4,
         "extra": 5}
DEVICES = {"cpu": 0, "cuda": 1}
ROLES = {"trainer": 0, "receiver": 1}
COMMITS = {"staged": 0, "double": 1, "in_place": 2}
VERIFIES = {"sample": 0, "full": 1, "off": 2}
POLICIES = {"all": 0, "rolling": 1, "quorum": 2}
MEMORIES = {"own": 0, "mapped": 1}
CUTS = {"whole": 0, "even": 1, "heads": 2, "vocab": 3, "experts": 4}
TAGS = {"weights": 1, "kv_cache": 2, "optimizer": 4, "grad": 8}
HOSTING = {"auto": 0, "always": 1, "never": 2}
ROW_READ_ONLY, ROW_ALIAS, ROW_STAGED, ROW_OPTIONAL = 1, 2, 4, 8


def _struct(name: str, fields: Sequence[Tuple[str, Any]]) -> Any:
    return type(name, (c.Structure,), {"_fields_": list(fields)})


def _u32(names: str) -> List[Tuple[str, Any]]:
    return [(name, c.c_uint32) for name in names.split()]


def _u64(names: str) -> List[Tuple[str, Any]]:
    return [(name, c.c_uint64) for name in names.split()]


def _text(names: str) -> List[Tuple[str, Any]]:
    return [(name, c.c_char_p) for name in names.split()]


Box = _struct("dyt_box", _u32("ndim") + [("lo", Dims), ("hi", Dims)])
ConfigPair = _struct("dyt_config_pair", _text("key value"))
Tensor = _struct("dyt_tensor", [
    ("struct_size", c.c_uint32), ("name", c.c_char_p), ("ndim", c.c_uint32),
    ("shape", Dims), ("kinds", c.c_uint32), ("layer", c.c_int32),
    ("expert", c.c_int32)])
Device = _struct("dyt_device", _u32("struct_size type") + [
    ("uuid", c.c_uint8 * 16), ("stream", c.c_void_p)])
Piece = _struct("dyt_piece", _u32("struct_size transposed") + [
    ("tensor", c.c_char_p), ("box", Box), ("at", Dims)])
Row = _struct("dyt_row", _u32("struct_size kind dtype flags") + [
    ("name", c.c_char_p), ("ndim", c.c_uint32), ("piece_count", c.c_uint32),
    ("shape", Dims), ("stride", Dims), ("data", c.c_void_p),
    ("fd", c.c_int32), ("piece_struct_size", c.c_uint32),
    ("fd_offset", c.c_uint64), ("piece", c.POINTER(Piece)),
    ("global_shape", Dims), ("device", Device)])
View = _struct("dyt_view", _u32("struct_size row_struct_size") + [
    ("row", c.POINTER(Row)), ("row_count", c.c_uint64)])
RulePart = _struct("dyt_rule_part", _u32("struct_size cut") + [
    ("tensor", c.c_char_p), ("axis", c.c_uint32), ("transposed", c.c_uint32),
    ("unit", c.c_int64), ("unit_attribute", c.c_char_p),
    ("stack_axis", c.c_uint32), ("per_expert", c.c_uint32),
    ("segments", c.c_char_p), ("segment", c.c_uint32),
    ("reserved", c.c_uint32)])
Rule = _struct("dyt_rule", _u32("struct_size part_struct_size") + [
    ("name", c.c_char_p), ("part", c.POINTER(RulePart)),
    ("part_count", c.c_uint32), ("flags", c.c_uint32)])
Rules = _struct("dyt_rules", _u32("struct_size rule_struct_size") + [
    ("family", c.c_char_p), ("rule", c.POINTER(Rule)),
    ("rule_count", c.c_size_t)])
Shard = _struct("dyt_shard", _u32("struct_size tensor kind dtype") + [
    ("box", Box), ("buffer", c.c_char_p), ("offset", c.c_uint64),
    ("stride", Dims)])
PlanParams = _struct("dyt_plan_params", _u32("struct_size kinds")
                     + _text("hosts"))
PlanTotals = _struct("dyt_plan_figures", _u32("struct_size binds") + _u64(
    "kept_bytes host_bytes network_bytes bound_bytes busiest_bytes "
    "fingerprint"))
ScheduleParams = _struct("dyt_schedule_params", _u32("struct_size reserved") + [
    ("strategy", c.c_char_p), ("chunk_bytes", c.c_uint64)])
ScheduleTotals = _struct("dyt_schedule_figures", _u32("struct_size rounds") + [
    ("messages", c.c_uint64), ("over_load", c.c_double)])
SwitchReport = _struct("dyt_switch_report", _u32("struct_size committed")
                       + _u64("epoch version") + [
    (name, c.c_int64) for name in
    ("wait_ns", "transfer_ns", "verify_ns", "commit_ns", "total_ns")]
    + _u64("moved_bytes written_bytes scratch_bytes rows_changed")
    + _u32("source reserved"))
Attribute = _struct("dyt_attribute", [("name", c.c_char_p),
                                      ("value", c.c_int64)])
SessionParams = _struct("dyt_session_params", _u32("struct_size role")
                        + _text("address job pool key manager_key")
                        + _u32("host_manager rank size replica tp_rank tp_size "
                               "pp_rank pp_size dp_rank dp_size ep_rank ep_size")
                        + [("expert", c.POINTER(c.c_int32)),
                           ("expert_count", c.c_uint32),
                           ("attribute_count", c.c_uint32),
                           ("attribute", c.POINTER(Attribute))]
                        + _u32("commit memory verify policy quorum "
                               "max_version_skew")
                        + [("cap_bytes", c.c_uint64),
                           ("timeout_ns", c.c_int64),
                           ("host", c.c_char_p),
                           ("host_address", c.c_char_p)])
OfferParams = _struct("dyt_offer_params", _u32("struct_size snapshot") + [
    ("version", c.c_uint64), ("event", c.c_void_p)])
ReceiveParams = _struct("dyt_receive_params", _u32("struct_size reserved") + [
    ("version", c.c_uint64), ("deadline_ns", c.c_int64),
    ("event", c.c_void_p)])
Hook = c.CFUNCTYPE(c.c_int, c.c_void_p)
TagHook = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint32)
SessionHooks = _struct("dyt_session_hooks", _u32("struct_size reserved") + [
    ("arg", c.c_void_p), ("pause", Hook), ("resume", Hook),
    ("release", TagHook), ("restore", TagHook)])

STRUCTS = (Box, ConfigPair, Tensor, Device, Piece, Row, View, RulePart, Rule,
           Rules, Shard, PlanParams, PlanTotals, ScheduleParams,
           ScheduleTotals, SwitchReport, Attribute, SessionParams, OfferParams,
           ReceiveParams, SessionHooks)

_P = c.POINTER
_H = c.c_void_p  # an opaque handle
_OUT = c.POINTER(c.c_void_p)
_S = c.c_int  # enum dyt_status

# name: (result, arguments)
FUNCTIONS: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "dyt_version": (c.c_uint32, ()),
    "dyt_version_text": (c.c_char_p, ()),
    "dyt_status_name": (c.c_char_p, (_S,)),
    "dyt_status_text": (c.c_char_p, (_S,)),
    "dyt_status_class": (c.c_int, (_S,)),
    "dyt_error_text": (c.c_char_p, ()),
    "dyt_box_intersect": (_S, (_P(Box), _P(Box), _P(Box))),
    "dyt_box_count": (_S, (_P(Box), _P(c.c_uint64))),
    "dyt_model_from_config": (_S, (_P(ConfigPair), c.c_size_t, _OUT)),
    "dyt_model_create": (_S, (_P(Tensor), c.c_size_t, _OUT)),
    "dyt_model_destroy": (None, (_H,)),
    "dyt_model_tensor_count": (c.c_uint32, (_H,)),
    "dyt_model_elements": (c.c_uint64, (_H,)),
    "dyt_model_tensor": (_S, (_H, c.c_uint32, _P(Tensor))),
    "dyt_model_find": (_S, (_H, c.c_char_p, _P(c.c_uint32))),
    "dyt_layout_build": (_S, (_H, c.c_char_p, c.c_uint32, _OUT)),
    "dyt_layout_from_views": (_S, (_H, _P(View), c.c_uint32, _OUT)),
    "dyt_layout_destroy": (None, (_H,)),
    "dyt_layout_world_size": (c.c_uint32, (_H,)),
    "dyt_layout_fingerprint": (c.c_uint64, (_H,)),
    "dyt_layout_shard_count": (_S, (_H, c.c_uint32, _P(c.c_uint64))),
    "dyt_layout_shard": (_S, (_H, c.c_uint32, c.c_uint64, _P(Shard))),
    "dyt_layout_json": (_S, (_H, _OUT)),
    "dyt_text_free": (None, (c.c_void_p,)),
    "dyt_rules_builtin": (_S, (c.c_char_p, _P(_P(Rules)))),
    "dyt_plan_build": (_S, (_H, _H, _P(PlanParams), _OUT)),
    "dyt_plan_destroy": (None, (_H,)),
    "dyt_plan_totals": (_S, (_H, _P(PlanTotals))),
    "dyt_plan_traffic": (_S, (_H, _P(c.c_uint64), c.c_size_t)),
    "dyt_plan_text": (_S, (_H, _OUT)),
    "dyt_schedule_build": (_S, (_H, _P(ScheduleParams), _OUT)),
    "dyt_schedule_destroy": (None, (_H,)),
    "dyt_schedule_totals": (_S, (_H, _P(ScheduleTotals))),
    "dyt_schedule_text": (_S, (_H, _OUT)),
    "dyt_session_join": (_S, (_P(SessionParams), _OUT)),
    "dyt_session_publish": (_S, (_H, _P(View), _P(Rules))),
    "dyt_session_map": (_S, (_H, _P(Row), c.c_uint64)),
    "dyt_session_row_data": (_S, (_H, c.c_uint64, _OUT)),
    "dyt_session_staged": (_S, (_H, c.c_uint64, _OUT)),
    "dyt_session_offer": (_S, (_H, _P(OfferParams), _OUT)),
    "dyt_ticket_wait": (_S, (_H, c.c_int64)),
    "dyt_ticket_done": (_S, (_H,)),
    "dyt_ticket_cancel": (_S, (_H,)),
    "dyt_ticket_destroy": (None, (_H,)),
    "dyt_session_will_write": (_S, (_H,)),
    "dyt_session_receive": (_S, (_H, c.c_uint64, c.c_int64, _P(SwitchReport))),
    "dyt_session_receive_with": (_S, (_H, _P(ReceiveParams),
                                      _P(SwitchReport))),
    "dyt_session_valid": (_S, (_H, _P(c.c_uint64))),
    "dyt_session_changed": (_S, (_H, _P(c.c_uint64), c.c_size_t,
                                 _P(c.c_size_t))),
    "dyt_session_row_hash": (_S, (_H, c.c_uint64, _P(c.c_uint64))),
    "dyt_session_set_hooks": (_S, (_H, _P(SessionHooks))),
    "dyt_session_release": (_S, (_H, c.c_uint32)),
    "dyt_session_restore": (_S, (_H, c.c_uint32)),
    "dyt_session_interrupt": (None, (_H,)),
    "dyt_session_leave": (None, (_H,)),
    "dyt_job_status": (_S, (c.c_char_p, c.c_char_p, c.c_char_p, c.c_int64,
                            _OUT)),
}

_loaded: Optional[Any] = None


def library_path() -> str:
    """The library that a process loads: DYNATRAIN_LIBRARY, else the one in the
    package, else what the system's loader finds."""
    given = os.environ.get("DYNATRAIN_LIBRARY")
    if given:
        return given
    inside = sorted((pathlib.Path(__file__).parent / "lib").glob(
        "libdynatrain.so*"))
    return str(inside[0]) if inside else "libdynatrain.so"


def lib() -> Any:
    """The library, loaded at the first call.  ctypes gives up the interpreter
    lock for as long as a call of it lasts."""
    global _loaded
    if _loaded is None:
        path = library_path()
        try:
            loaded = c.CDLL(path)
        except OSError as problem:
            raise ImportError(
                f"libdynatrain.so cannot be loaded ({problem}): install the "
                "dynatrain wheel, or set DYNATRAIN_LIBRARY to the file"
            ) from None
        for name, (result, arguments) in FUNCTIONS.items():
            try:
                function = getattr(loaded, name)
            except AttributeError:
                continue  # an older library: its caller sees an AttributeError
            function.restype, function.argtypes = result, arguments
        _loaded = loaded
    return _loaded


def check(status: int) -> None:
    """Raise what a status means, with the text of this thread's failure."""
    if status != 0:
        text = lib().dyt_error_text().decode("utf-8", "replace")
        if status == 1:  # not a failure: nobody wrote a text
            text = lib().dyt_status_text(status).decode()
        raise errors.error(status, text)


def sized(struct: Any, **fields: Any) -> Any:
    """A struct with its size filled in.  Numbers that do not fit, which ctypes
    would wrap, are refused."""
    made = struct()
    for name, value in fields.items():
        try:
            setattr(made, name, value)
        except TypeError as problem:
            raise errors.InvalidError(f"{name} {value!r}: {problem}") from None
        if isinstance(value, int):
            fitting(getattr(made, name), value, name)
    made.struct_size = c.sizeof(struct)
    return made


def fitting(kept: Any, value: int, what: str) -> None:
    """Has ctypes kept this number as it was?"""
    if isinstance(kept, int) and kept != value:
        raise errors.InvalidError(f"{what} {value} is "
                                  + ("negative" if value < 0 else "too large"))


def take_text(function: Any, *arguments: Any) -> str:
    """A text that the library made and that is given back to it."""
    out = c.c_void_p()
    check(function(*arguments, c.byref(out)))
    try:
        return c.string_at(out.value or 0).decode("utf-8")
    finally:
        lib().dyt_text_free(out)


def text_of(text: Any, what: str = "a name") -> bytes:
    """A text for the library, to which it ends at the first NUL."""
    if not isinstance(text, str) or "\0" in text:
        raise errors.InvalidError(f"{what}: {text!r} is no text without NUL")
    return text.encode("utf-8", "surrogateescape")


def encoded(text: Optional[str], what: str = "a name") -> Optional[bytes]:
    return None if text is None else text_of(text, what)


def patient(call: Callable[[], T], late: Callable[[T], None]) -> T:
    """Make a call that waits, and that nothing of the library's ends early.  In
    the main thread it is made by another one, which an interrupt from the
    keyboard leaves alone: late() gets what it answers then."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    lock = threading.Lock()
    answer: List[T] = []
    failure: List[BaseException] = []
    left: List[bool] = []

    def run() -> None:
        try:
            made = call()
        except BaseException as problem:
            failure.append(problem)
            return
        with lock:
            answer.append(made)
            alone = bool(left)
        if alone:
            late(made)

    thread = threading.Thread(target=run, name="dynatrain", daemon=True)
    try:
        thread.start()
        thread.join()
    except BaseException:
        with lock:
            left.append(True)
            known = bool(answer)
        if known:
            late(answer[0])
        raise
    if failure:
        raise failure[0]
    return answer[0]


def choice(table: Dict[Any, int], value: Any, what: str) -> int:
    """The number of a name; names that are not in the table are refused."""
    if value not in table:
        raise errors.InvalidError(
            f"{what} {value!r} is unknown: {', '.join(map(str, table))}")
    return table[value]
