"""Join a job, publish tensors, offer a version of them or receive one."""

import ctypes as c
import dataclasses
import json
import numbers
import os
import pathlib
import threading
import weakref
from typing import (Any, Callable, Dict, Iterable, List, Mapping, Optional,
                    Sequence, Tuple)

from dynatrain import _abi, devices, errors, tensors
from dynatrain.model import Handle
from dynatrain.rules import Rules


def default_address(job: str = "default") -> str:
    """Where a job's manager listens when nobody says otherwise: a socket in a
    folder of this user."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/dynatrain-{os.getuid()}"
    return f"unix:{folder}/dynatrain-{job}.sock"


@dataclasses.dataclass
class Piece:
    """A box [lo, hi) of a tensor inside a row, which begins at `at` there."""

    tensor: str
    lo: Sequence[int]
    hi: Sequence[int]
    at: Sequence[int] = ()
    transposed: bool = False


@dataclasses.dataclass
class Row:
    """One allocation, or view of one, that holds boxes of tensors.  `tensor` is
    anything that tensors.memory_of() takes; None with `staged`, or for memory
    that the library is to map from `fd`."""

    name: str
    tensor: Any = None
    kind: str = "param"
    pieces: Sequence[Piece] = ()
    global_shape: Sequence[int] = ()
    read_only: bool = False
    alias: bool = False
    staged: bool = False
    optional: bool = False
    dtype: str = ""  # these two: where there is no tensor
    shape: Sequence[int] = ()
    fd: int = -1
    fd_offset: int = 0
    stream: Optional[int] = None  # cudaStream_t; None: torch's current one

    def memory(self) -> tensors.Memory:
        if self.tensor is None and not self.dtype:
            raise errors.InvalidError(
                f"row {self.name}: give a tensor, or dtype and shape of memory "
                "that the library lends (staged) or maps (fd)")
        if self.tensor is not None:
            if self.dtype or self.shape:
                raise errors.InvalidError(
                    f"row {self.name}: a tensor says its own dtype and shape: "
                    "give them only where there is none")
            try:
                return tensors.memory_of(self.tensor)
            except errors.Error as problem:
                raise type(problem)(f"row {self.name}: {problem}") from None
        shape = tuple(self.shape)
        return tensors.Memory(0, shape, tensors.dense(shape), self.dtype,
                              "cpu", 0, False, None)


def _dims(values: Iterable[int], name: str) -> Any:
    row = tuple(int(value) for value in values)
    if len(row) > _abi.MAX_DIMS:
        raise errors.InvalidError(f"row {name}: {len(row)} dimensions, at most "
                                  f"{_abi.MAX_DIMS}")
    made = _abi.Dims(*row)
    for kept, value in zip(made, row):
        _abi.fitting(kept, value, f"row {name}: an extent of")
    return made


def _piece(piece: Any, row: str, ndim: int) -> Any:
    if not isinstance(piece, Piece):
        raise errors.InvalidError(f"row {row}: {piece!r} is no Piece")
    if len(piece.lo) != len(piece.hi) or len(piece.at) not in (0, ndim):
        raise errors.InvalidError(
            f"row {row} of {ndim} dimensions, piece of {piece.tensor}: lo has "
            f"{len(piece.lo)}, hi {len(piece.hi)}, at {len(piece.at)}")
    box = _abi.Box(len(piece.lo), _dims(piece.lo, row), _dims(piece.hi, row))
    return _abi.sized(
        _abi.Piece, transposed=int(piece.transposed), box=box,
        tensor=_abi.text_of(piece.tensor, f"row {row}: a piece's tensor"),
        at=_dims(piece.at or (0,) * ndim, row))


class ViewBuffer:
    """Rows as the library takes them, with everything that they point to."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        for row in self.rows:
            if not isinstance(row, Row):
                raise errors.InvalidError(
                    f"a {type(row).__name__} is no row: give a list of "
                    "dynatrain.Row(name, tensor)")
        self.keep: List[Any] = []
        self.uuids: Dict[int, bytes] = {}  # of devices that rows lie on
        self.array = (_abi.Row * max(len(self.rows), 1))()
        for index, row in enumerate(self.rows):
            self.array[index] = self._row(row)
        self.view = _abi.sized(
            _abi.View, row_struct_size=c.sizeof(_abi.Row), row=self.array,
            row_count=len(self.rows))

    def _row(self, row: Row) -> Any:
        memory = row.memory()
        if row.global_shape and len(row.global_shape) != len(memory.shape):
            raise errors.InvalidError(
                f"row {row.name} has shape {tuple(memory.shape)}, and a "
                f"global_shape of {len(row.global_shape)} dimensions")
        pieces = (_abi.Piece * max(len(row.pieces), 1))(
            *[_piece(piece, row.name, len(memory.shape))
              for piece in row.pieces])
        name = _abi.text_of(row.name, "a row's name")
        self.keep += [memory.keep, pieces, name]
        flags = (_abi.ROW_READ_ONLY * (row.read_only or memory.read_only)
                 | _abi.ROW_ALIAS * row.alias | _abi.ROW_STAGED * row.staged
                 | _abi.ROW_OPTIONAL * row.optional)
        device = self._device(row, memory)
        return _abi.sized(
            _abi.Row, kind=_abi.choice(_abi.KINDS, row.kind, f"row {row.name}: kind"),
            dtype=_abi.choice(_abi.DTYPES, memory.dtype, f"row {row.name}: dtype"),
            flags=flags, name=name, ndim=len(memory.shape),
            piece_count=len(row.pieces), shape=_dims(memory.shape, row.name),
            stride=_dims(memory.stride, row.name), data=memory.address or None,
            fd=row.fd, fd_offset=row.fd_offset,
            piece_struct_size=c.sizeof(_abi.Piece) if row.pieces else 0,
            piece=pieces if row.pieces else None,
            global_shape=_dims(row.global_shape, row.name), device=device)

    def _device(self, row: Row, memory: tensors.Memory) -> Any:
        device = _abi.sized(_abi.Device, type=_abi.DEVICES[memory.device],
                            stream=row.stream)
        if memory.device != "cpu":
            index = memory.device_index
            if index not in self.uuids:
                self.uuids[index] = devices.uuid_of(index)
            device.uuid[:] = self.uuids[index]
            if row.stream is None:
                device.stream = devices.current_stream(index)
        return device


@dataclasses.dataclass(frozen=True)
class Report:
    """What this member did in one switch; times in seconds."""

    committed: bool
    epoch: int
    version: int
    wait: float
    transfer: float
    verify: float
    commit: float
    total: float
    moved_bytes: int
    written_bytes: int
    scratch_bytes: int
    rows_changed: int
    source: str


def _report(row: Any) -> Report:
    def seconds(name: str) -> float:
        return float(getattr(row, name + "_ns") / 1e9)

    return Report(
        committed=bool(row.committed), epoch=row.epoch, version=row.version,
        wait=seconds("wait"), transfer=seconds("transfer"),
        verify=seconds("verify"), commit=seconds("commit"),
        total=seconds("total"), moved_bytes=row.moved_bytes,
        written_bytes=row.written_bytes, scratch_bytes=row.scratch_bytes,
        rows_changed=row.rows_changed,
        source="sibling" if row.source else "trainer")


def _nanoseconds(seconds: Optional[float]) -> int:
    """None and more than 290 years: for ever."""
    if seconds is None:
        return -1
    if not isinstance(seconds, numbers.Real) or not seconds >= 0:
        raise errors.InvalidError(
            f"a timeout of {seconds!r}: seconds, or None to wait for ever")
    return -1 if seconds * 1e9 >= 1 << 63 else int(seconds * 1e9)


class Ticket(Handle):
    """An offer that is open: its rows may not be written until it is done."""

    _destroy = "dyt_ticket_destroy"

    def __init__(self, pointer: Any, session: "Session", version: int) -> None:
        super().__init__(pointer, session)
        self.version = version
        self._session = session
        session.tickets.add(self)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """True: the rows may be written.  False: the deadline passed and the
        offer goes on."""
        pointer = self.pointer
        try:
            self._session.blocking(
                lambda: _abi.lib().dyt_ticket_wait(pointer,
                                                   _nanoseconds(timeout)))
        except errors.Pending:
            return False
        return True

    @property
    def done(self) -> bool:
        try:
            _abi.check(_abi.lib().dyt_ticket_done(self.pointer))
        except errors.Pending:
            return False
        return True

    def __repr__(self) -> str:
        return f"<Ticket: version {self.version} of {self._session!r}>"

    def cancel(self) -> None:
        """Take the offer back."""
        _abi.check(_abi.lib().dyt_ticket_cancel(self.pointer))

    def __exit__(self, kind: Any, *about: Any) -> None:
        if kind is None and self._pointer:
            self.wait()
        self.close()


def _attributes(pairs: Mapping[str, int]) -> Any:
    for name, value in pairs.items():
        if not isinstance(value, int):
            raise errors.InvalidError(
                f"attribute {name} {value!r} is no integer")
    rows = (_abi.Attribute * max(len(pairs), 1))(
        *[(_abi.text_of(name), value) for name, value in pairs.items()])
    for row, (name, value) in zip(rows, pairs.items()):
        _abi.fitting(row.value, value, f"attribute {name}")
    return rows


def _experts(experts: Sequence[int]) -> Any:
    places = (c.c_int32 * max(len(experts), 1))(*experts)
    for kept, value in zip(places, experts):
        _abi.fitting(kept, value, "expert")
    return places


class Session(Handle):
    """A member of a job.  Leaves it when closed."""

    _destroy = "dyt_session_leave"

    def __init__(self, role: str, *, address: Optional[str] = None,
                 job: str = "default", pool: Optional[str] = None,
                 rank: int = 0, size: int = 1, replica: int = 0,
                 tp: Tuple[int, int] = (0, 1), pp: Tuple[int, int] = (0, 1),
                 dp: Tuple[int, int] = (0, 1), ep: Tuple[int, int] = (0, 1),
                 experts: Optional[Sequence[int]] = None,
                 attributes: Optional[Mapping[str, int]] = None,
                 host: str = "auto", key: Optional[str] = None,
                 manager_key: Optional[str] = None, commit: str = "staged",
                 memory: str = "own", verify: str = "sample",
                 policy: str = "all", quorum: int = 0,
                 max_version_skew: int = 0, cap_bytes: int = 0,
                 timeout: float = 0.0, host_name: Optional[str] = None,
                 host_address: Optional[str] = None) -> None:
        super().__init__(None)
        address = address or default_address(job)
        if address.startswith("unix:"):
            _folder_of(address[5:])
        pairs = dict(attributes or {})
        rows = _attributes(pairs)
        places = _experts(experts or ())
        params = _abi.sized(
            _abi.SessionParams, role=_abi.choice(_abi.ROLES, role, "role"),
            address=_abi.text_of(address, "address"),
            job=_abi.text_of(job, "job"),
            pool=_abi.encoded(pool, "pool"), key=_abi.encoded(key),
            manager_key=_abi.encoded(manager_key),
            host_manager=_abi.choice(_abi.HOSTING, host, "host"),
            rank=rank, size=size, replica=replica, tp_rank=tp[0],
            tp_size=tp[1], pp_rank=pp[0], pp_size=pp[1], dp_rank=dp[0],
            dp_size=dp[1], ep_rank=ep[0], ep_size=ep[1],
            expert=places if experts else None,
            expert_count=len(experts or ()), attribute_count=len(pairs),
            attribute=rows if pairs else None,
            commit=_abi.choice(_abi.COMMITS, commit, "commit"),
            memory=_abi.choice(_abi.MEMORIES, memory, "memory"),
            verify=_abi.choice(_abi.VERIFIES, verify, "verify"),
            policy=_abi.choice(_abi.POLICIES, policy, "policy"),
            quorum=quorum, max_version_skew=max_version_skew,
            cap_bytes=cap_bytes, timeout_ns=_nanoseconds(timeout),
            host=_abi.encoded(host_name),
            host_address=_abi.encoded(host_address))
        self.address, self.job, self.params = address, job, params
        self._view: Optional[ViewBuffer] = None
        self._hooks: Any = None
        self.tickets: "weakref.WeakSet[Ticket]" = weakref.WeakSet()
        self._keep = rows, places
        self._pointer = _abi.patient(self._join, _abi.lib().dyt_session_leave)

    def _join(self) -> Any:
        out = c.c_void_p()
        _abi.check(_abi.lib().dyt_session_join(c.byref(self.params),
                                               c.byref(out)))
        return out

    def __repr__(self) -> str:
        params = self.params
        role = [name for name, value in _abi.ROLES.items()
                if value == params.role][0]
        state = "" if self._pointer else ", closed"
        return (f"<Session: {role} {params.rank} of {params.size}, job "
                f"{self.job} at {self.address}{state}>")

    def close(self) -> None:
        """Leave the job; offers that are open are taken back, and the tensors
        are no longer kept."""
        for ticket in list(self.tickets):
            ticket.close()
        super().close()
        self._view = None

    def blocking(self, call: Callable[[], int]) -> None:
        """Make a call that may block.  In the main thread it is made by
        another one, so that an interrupt from the keyboard ends it."""
        if threading.current_thread() is not threading.main_thread():
            _abi.check(call())
            return
        failure: List[BaseException] = []
        begun, ended = threading.Event(), threading.Event()

        def run() -> None:
            begun.set()
            try:
                _abi.check(call())
            except BaseException as problem:
                failure.append(problem)
            ended.set()

        thread = threading.Thread(target=run, name="dynatrain")
        try:
            thread.start()
            thread.join()
        except BaseException:
            # one that comes before the call has begun is not for it
            while begun.wait(1.0) and not ended.is_set():
                self.interrupt()
                ended.wait(0.05)
            raise
        if failure:
            raise failure[0]

    def publish(self, rows: Sequence[Row], rules: Optional[Rules] = None
                ) -> None:
        """Say what this member holds; every mismatch is told at once.  The
        tensors live as long as the session."""
        view = ViewBuffer(rows)
        pointer = self.pointer
        struct = c.byref(rules.struct) if rules is not None else None
        self.blocking(lambda: _abi.lib().dyt_session_publish(
            pointer, c.byref(view.view), struct))
        self._view = view

    def map(self, rows: Sequence[Row]) -> List[Row]:
        """The same rows in memory of ours, which holds what theirs held: each
        `tensor` is a tensors.Memory."""
        view = ViewBuffer(rows)
        _abi.check(_abi.lib().dyt_session_map(self.pointer, view.array,
                                              len(view.rows)))
        mapped = []
        for index, row in enumerate(view.rows):
            struct = view.array[index]
            old = row.memory()
            memory = old._replace(
                address=struct.data, stride=tensors.dense(old.shape),
                read_only=False, keep=self)
            mapped.append(dataclasses.replace(
                row, tensor=memory, dtype="", shape=(), fd=struct.fd,
                fd_offset=struct.fd_offset))
        return mapped

    def _address(self, function: str, row: int) -> int:
        out = c.c_void_p()
        _abi.check(getattr(_abi.lib(), function)(self.pointer, row,
                                                 c.byref(out)))
        return int(out.value or 0)

    def row_data(self, row: int) -> int:
        """Address of a mapped row in the set that is live now."""
        return self._address("dyt_session_row_data", row)

    def staged(self, row: int) -> int:
        """Address of what the last receive brought for a staged row."""
        return self._address("dyt_session_staged", row)

    def offer(self, version: int, snapshot: bool = False,
              event: Any = None) -> Ticket:
        """Offer what the rows hold now.  They may not be written until the
        ticket is done, wherever they lie; at once with a snapshot.
        `event` (torch's, or a cudaEvent_t) is behind what made the version;
        without one it is all that torch has queued by now."""
        if event is None and self._view is not None:
            event = devices.mark(self._view.uuids)
        params = _abi.sized(_abi.OfferParams, snapshot=int(snapshot),
                            version=version, event=devices.event_of(event))
        pointer, out = self.pointer, c.c_void_p()
        self.blocking(lambda: _abi.lib().dyt_session_offer(
            pointer, c.byref(params), c.byref(out)))
        return Ticket(out, self, version)

    def will_write(self) -> None:
        """Raises StateError where an open offer pins the rows."""
        _abi.check(_abi.lib().dyt_session_will_write(self.pointer))

    def receive(self, version: int = 0, timeout: Optional[float] = None,
                event: Any = None) -> Report:
        """Take at least this version (0: the newest) into the rows.  Rows of a
        device are written behind what their streams hold by then, or behind
        `event` (torch's, or a cudaEvent_t)."""
        row = _abi.sized(_abi.SwitchReport)
        params = _abi.sized(_abi.ReceiveParams, version=version,
                            deadline_ns=_nanoseconds(timeout),
                            event=devices.event_of(event))
        pointer, self.hook_failure = self.pointer, None
        try:
            self.blocking(lambda: _abi.lib().dyt_session_receive_with(
                pointer, c.byref(params), c.byref(row)))
        except errors.Error as problem:
            if self.hook_failure is None:
                raise
            raise problem from self.hook_failure
        return _report(row)

    def valid(self) -> int:
        """The version that the rows hold; StateError where they hold none."""
        out = c.c_uint64()
        _abi.check(_abi.lib().dyt_session_valid(self.pointer, c.byref(out)))
        return out.value

    def changed(self) -> List[int]:
        """Rows that the last commit wrote, also with the bytes that were
        there: compare row_hash() where that matters."""
        capacity = len(self._view.rows) if self._view else 0
        rows = (c.c_uint64 * max(capacity, 1))()
        count = c.c_size_t()
        _abi.check(_abi.lib().dyt_session_changed(
            self.pointer, rows, capacity, c.byref(count)))
        return list(rows[:min(count.value, capacity)])

    def row_hash(self, row: int) -> int:
        """Content hash of what a row holds now."""
        out = c.c_uint64()
        _abi.check(_abi.lib().dyt_session_row_hash(self.pointer, row,
                                                   c.byref(out)))
        return out.value

    def set_hooks(self, pause: Optional[Callable[[], None]] = None,
                  resume: Optional[Callable[[], None]] = None,
                  release: Optional[Callable[[int], None]] = None,
                  restore: Optional[Callable[[int], None]] = None) -> None:
        """Called in the thread that receives.  One that raises ends the
        receive with an error, whose cause it is."""

        def guarded(hook: Optional[Callable[..., None]]) -> Any:
            def call(_: Any, *arguments: int) -> int:
                try:
                    if hook is not None:
                        hook(*arguments)
                    return 0
                except Exception as problem:
                    self.hook_failure = problem  # raised by receive()
                    return errors.CancelledError.status
            return call

        none, tagged = _abi.Hook(0), _abi.TagHook(0)
        self._hooks = _abi.sized(
            _abi.SessionHooks,
            pause=_abi.Hook(guarded(pause)) if pause else none,
            resume=_abi.Hook(guarded(resume)) if resume else none,
            release=_abi.TagHook(guarded(release)) if release else tagged,
            restore=_abi.TagHook(guarded(restore)) if restore else tagged)
        _abi.check(_abi.lib().dyt_session_set_hooks(self.pointer,
                                                    c.byref(self._hooks)))

    hook_failure: Optional[Exception] = None

    def release(self, *tags: str) -> None:
        """Give memory back: "weights", "kv_cache", "optimizer", "grad"."""
        _abi.check(_abi.lib().dyt_session_release(self.pointer, _bits(tags)))

    def restore(self, *tags: str) -> None:
        _abi.check(_abi.lib().dyt_session_restore(self.pointer, _bits(tags)))

    def interrupt(self) -> None:
        """End this session's blocking calls with CancelledError."""
        if self._pointer:
            _abi.lib().dyt_session_interrupt(self._pointer)


def _folder_of(path: str) -> None:
    """A socket's folder is made for it, and its owner's alone."""
    folder = pathlib.Path(path).parent
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:
        raise errors.InputOutputError(
            f"{folder}, for the job's socket, cannot be made: "
            f"{getattr(problem, 'strerror', None) or problem}") from None


def _bits(tags: Iterable[str]) -> int:
    bits = 0
    for tag in tags:
        bits |= _abi.choice(_abi.TAGS, tag, "tag")
    return bits


def job_status(address: Optional[str] = None, job: str = "default",
               key: Optional[str] = None, manager_key: Optional[str] = None,
               timeout: float = 10.0) -> Dict[str, Any]:
    """Who is in a job and what they hold."""
    where = _abi.text_of(address or default_address(job), "address")
    text = _abi.patient(lambda: _abi.take_text(
        _abi.lib().dyt_job_status, where, _abi.encoded(key),
        _abi.encoded(manager_key), _nanoseconds(timeout)),
        late=lambda _: None)
    return dict(json.loads(text))
