"""Stages 1 to 4 without a process group: models, layouts, plans, schedules."""

import ctypes as c
import json
import pathlib
from typing import (Any, Dict, Iterable, Iterator, List, NamedTuple, NoReturn,
                    Optional, Tuple, TypeVar, Union)

from dynatrain import _abi, errors

Self = TypeVar("Self", bound="Handle")


class Handle:
    """Something of the library's that is given back once."""

    _destroy = ""

    def __init__(self, pointer: Any, *needs: "Handle") -> None:
        self._pointer = pointer
        self._needs = needs  # must live longer

    @property
    def pointer(self) -> Any:
        if not self._pointer:
            raise errors.StateError(f"{type(self).__name__} is closed")
        return self._pointer

    def close(self) -> None:
        pointer, self._pointer = self._pointer, None
        if pointer:
            getattr(_abi.lib(), self._destroy)(pointer)

    def __enter__(self: Self) -> Self:
        self.pointer  # raises where it is closed
        return self

    def __exit__(self, *about: Any) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} of dynatrain is not pickled or "
                        "copied: it lives in the process that made it, and "
                        "another one makes its own")

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self.close()


class TensorInfo(NamedTuple):
    name: str
    shape: Tuple[int, ...]
    kinds: int
    layer: int
    expert: int


def flattened(value: Any, prefix: str = "") -> Iterable[Tuple[str, str]]:
    """config.json as the library takes it: dotted keys, values as in JSON
    without quotes."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flattened(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from flattened(inner, f"{prefix}.{index}")
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(value)


class Model(Handle):
    """A catalogue: what tensors exist."""

    _destroy = "dyt_model_destroy"

    @classmethod
    def from_config(cls, config: Union[str, pathlib.Path, Dict[str, Any]]
                    ) -> "Model":
        """By a Hugging Face config.json: a dict, the file, or its folder."""
        if not isinstance(config, dict):
            path = pathlib.Path(config)
            if path.is_dir():
                path = path / "config.json"
            config = json.loads(path.read_text(encoding="utf-8"))
        rows = [(k.encode(), v.encode()) for k, v in flattened(config)]
        pairs = (_abi.ConfigPair * len(rows))(*rows)
        out = c.c_void_p()
        _abi.check(_abi.lib().dyt_model_from_config(pairs, len(rows),
                                                    c.byref(out)))
        return cls(out)

    @classmethod
    def from_tensors(cls, tensors: Iterable[Tuple[str, Tuple[int, ...]]]
                     ) -> "Model":
        """By names and shapes."""
        rows = []
        for name, shape in tensors:
            if len(shape) > _abi.MAX_DIMS:
                raise errors.InvalidError(f"{name}: {len(shape)} dimensions")
            rows.append(_abi.sized(
                _abi.Tensor, name=name.encode(), ndim=len(shape),
                shape=_abi.Dims(*shape), layer=-1, expert=-1))
        out = c.c_void_p()
        _abi.check(_abi.lib().dyt_model_create(
            (_abi.Tensor * len(rows))(*rows), len(rows), c.byref(out)))
        return cls(out)

    @property
    def elements(self) -> int:
        return int(_abi.lib().dyt_model_elements(self.pointer))

    def __len__(self) -> int:
        return int(_abi.lib().dyt_model_tensor_count(self.pointer))

    def tensor(self, index: int) -> TensorInfo:
        row = _abi.sized(_abi.Tensor)
        _abi.check(_abi.lib().dyt_model_tensor(self.pointer, index,
                                               c.byref(row)))
        return TensorInfo(row.name.decode(), tuple(row.shape[:row.ndim]),
                          row.kinds, row.layer, row.expert)

    def __iter__(self) -> Iterator[TensorInfo]:
        return (self.tensor(index) for index in range(len(self)))

    def find(self, name: str) -> int:
        out = c.c_uint32()
        _abi.check(_abi.lib().dyt_model_find(self.pointer, name.encode(),
                                             c.byref(out)))
        return out.value

    def layout(self, spec: str, kinds: Iterable[str] = ()) -> "Layout":
        """Who holds what, by degrees: "vllm:tp=8"."""
        bits = 0
        for kind in kinds:
            bits |= 1 << _abi.choice(_abi.KINDS, kind, "kind")
        out = c.c_void_p()
        _abi.check(_abi.lib().dyt_layout_build(self.pointer, spec.encode(),
                                               bits, c.byref(out)))
        return Layout(out, self)


class ShardInfo(NamedTuple):
    tensor: int
    kind: int
    dtype: int
    lo: Tuple[int, ...]
    hi: Tuple[int, ...]
    offset: int
    stride: Tuple[int, ...]  # bytes
    buffer: Optional[str]


class Layout(Handle):
    """Who holds what in one phase."""

    _destroy = "dyt_layout_destroy"

    @property
    def world_size(self) -> int:
        return int(_abi.lib().dyt_layout_world_size(self.pointer))

    @property
    def fingerprint(self) -> int:
        return int(_abi.lib().dyt_layout_fingerprint(self.pointer))

    def shards(self, rank: int) -> List[ShardInfo]:
        count = c.c_uint64()
        library = _abi.lib()
        _abi.check(library.dyt_layout_shard_count(self.pointer, rank,
                                                  c.byref(count)))
        found = []
        for index in range(count.value):
            row = _abi.sized(_abi.Shard)
            _abi.check(library.dyt_layout_shard(self.pointer, rank, index,
                                                c.byref(row)))
            n = row.box.ndim
            found.append(ShardInfo(
                row.tensor, row.kind, row.dtype, tuple(row.box.lo[:n]),
                tuple(row.box.hi[:n]), row.offset, tuple(row.stride[:n]),
                row.buffer.decode() if row.buffer else None))
        return found

    def json(self) -> Dict[str, Any]:
        return dict(json.loads(_abi.take_text(_abi.lib().dyt_layout_json,
                                              self.pointer)))

    def plan(self, target: "Layout", hosts: Optional[str] = None) -> "Plan":
        params = _abi.sized(_abi.PlanParams, hosts=_abi.encoded(hosts))
        out = c.c_void_p()
        _abi.check(_abi.lib().dyt_plan_build(
            self.pointer, target.pointer, c.byref(params), c.byref(out)))
        return Plan(out, self, target)


def _as_dict(row: Any) -> Dict[str, Any]:
    return {name: getattr(row, name) for name, _ in row._fields_
            if name not in ("struct_size", "reserved", "binds")}


class Plan(Handle):
    """What goes from whom to whom."""

    _destroy = "dyt_plan_destroy"

    @property
    def totals(self) -> Dict[str, int]:
        row = _abi.sized(_abi.PlanTotals)
        _abi.check(_abi.lib().dyt_plan_totals(self.pointer, c.byref(row)))
        return _as_dict(row)

    @property
    def text(self) -> str:
        return _abi.take_text(_abi.lib().dyt_plan_text, self.pointer)

    def schedule(self, strategy: Optional[str] = None,
                 chunk_bytes: int = 0) -> "Schedule":
        params = _abi.sized(_abi.ScheduleParams, chunk_bytes=chunk_bytes,
                            strategy=_abi.encoded(strategy))
        out = c.c_void_p()
        _abi.check(_abi.lib().dyt_schedule_build(
            self.pointer, c.byref(params), c.byref(out)))
        return Schedule(out, self)


class Schedule(Handle):
    """In which order."""

    _destroy = "dyt_schedule_destroy"

    @property
    def totals(self) -> Dict[str, Any]:
        row = _abi.sized(_abi.ScheduleTotals)
        _abi.check(_abi.lib().dyt_schedule_totals(self.pointer, c.byref(row)))
        return _as_dict(row)

    @property
    def text(self) -> str:
        return _abi.take_text(_abi.lib().dyt_schedule_text, self.pointer)
