"""verl's checkpoint engine `dynatrain`: trainers' shards are read where they
lie, each rollout worker gets its own, and nothing is gathered on any side.

    import dynatrain.verl
    dynatrain.verl.register()             # in trainer and rollout workers
    dynatrain.verl.attach(module)         # in each trainer worker

Then `checkpoint_engine.backend = "dynatrain"`, with `tp` among its engine_kwargs.
Where the server's model lives in the rollout worker's process,
attach_server(make) has it written directly, and verl has nothing left to load.
Elsewhere a worker gets (name, shard) rows of its tensor-parallel part, which
load_shards() copies into a server's fused parameters; with tp = 1 these are the
whole tensors that any loader takes.  Written against the interface of
verl/checkpoint_engine/base.py, which is not imported before register().
"""

from typing import (Any, AsyncIterator, Callable, Dict, Iterable, List,
                    Optional, Sequence, Tuple)

import torch

from dynatrain import errors
from dynatrain.session import (Piece, Report, Row, Session,
                               default_address)
from dynatrain.torch import Rename, Trainer, module_rows

_attached: Dict[str, Any] = {}
_server: Dict[str, Callable[..., Any]] = {}

# How servers cut a matrix by its name: at rows, at columns; others are whole.
ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens",
        "lm_head")
COLUMNS = ("o_proj", "down_proj")
# Which of a server's parameters they are parts of, in this order.
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"),
         "gate_up_proj": ("gate_proj", "up_proj")}


def attach(module: Any, optimizer: Any = None, rename: Optional[Rename] = None
           ) -> None:
    """The module whose shards this process offers."""
    _attached.update(module=module, optimizer=optimizer, rename=rename)


def attach_server(make: Callable[..., Any]) -> None:
    """In a rollout worker whose process has the server's model: make(**session)
    gives what receives into it, such as a dynatrain.vllm.Server."""
    _server["make"] = make


def shard_box(name: str, shape: Sequence[int], tp: Tuple[int, int],
              numbers: Dict[str, int]) -> Tuple[Tuple[int, ...],
                                                Tuple[int, ...]]:
    """[lo, hi) of a whole tensor that rank tp[0] of tp[1] holds.  Fewer heads
    of keys than ranks: several ranks hold the same one."""
    rank, size = tp
    layer = name.split(".")[-2] if "." in name else name
    lo, hi = [0] * len(shape), list(shape)
    axis = 0 if layer in ROWS else 1 if layer in COLUMNS else None
    if size == 1 or axis is None or axis >= len(shape):
        return tuple(lo), tuple(hi)
    groups = numbers.get("num_key_value_heads", size)
    if layer in ("k_proj", "v_proj") and groups < size:
        rank, size = rank * groups // size, groups
    if shape[axis] % size:
        raise errors.UnsupportedError(
            f"{name}: {shape[axis]} does not divide by {size} ranks")
    step = shape[axis] // size
    lo[axis], hi[axis] = rank * step, (rank + 1) * step
    return tuple(lo), tuple(hi)


def load_shards(model: Any, named: Iterable[Tuple[str, Any]]) -> None:
    """Copy shards into a server's own parameters, fused ones part by part."""
    parameters = dict(model.named_parameters())
    shards = dict(named)
    for whole, parts in FUSED.items():
        for name in [n for n in parameters if f".{whole}." in n]:
            names = [name.replace(whole, part) for part in parts]
            if not shards.keys() >= set(names):
                raise errors.InvalidError(
                    f"{name}: of {', '.join(names)} some did not come")
            found = [shards.pop(part) for part in names]
            with torch.no_grad():
                parameters[name].copy_(torch.cat(found))
    for name, shard in shards.items():
        if name not in parameters:
            raise errors.InvalidError(f"the server has no parameter {name}")
        rows = parameters[name].data
        if rows.dim() and name.split(".")[-2] in ("embed_tokens", "lm_head"):
            rows = rows[:shard.shape[0]]  # what pads the vocabulary stays
        rows.copy_(shard)


class CheckpointEngine:
    """The methods of verl's CheckpointEngine."""

    def __init__(self, bucket_size: int = 0, is_master: bool = False,
                 job: str = "verl", address: Optional[str] = None,
                 timeout: float = 600.0, tp: int = 1, **session: Any) -> None:
        self.tp = tp  # of the server that this rollout worker is part of
        self.options = {"job": job, "address": address, "timeout": timeout,
                        **session}
        self.trainer: Optional[Trainer] = None
        self.version = 0  # what a worker has
        self.session: Optional[Session] = None
        self.server: Any = None
        self.tensors: List[Tuple[str, Any]] = []
        self.tensors_of: List[Tuple[str, Tuple[int, ...], str]] = []
        self.place: Dict[str, Any] = {}

    def prepare(self) -> Dict[str, Any]:
        """What the others must know of this process: a trainer's address, and
        the names, shapes and dtypes of whole tensors; a worker's degree."""
        if not _attached:
            return {"tensors": None, "tp": self.tp}
        rows = []
        for row in module_rows(_attached["module"], _attached["rename"]):
            dtype = str(row.tensor.dtype).rpartition(".")[2]
            rows.append((row.name, tuple(row.global_shape), dtype))
        address = self.options["address"] or default_address(
            str(self.options["job"]))
        config = getattr(_attached["module"], "config", None)
        numbers = {key: value for key, value in (
            config.to_dict() if config is not None else {}).items()
            if isinstance(value, int) and not isinstance(value, bool)}
        return {"tensors": rows, "address": address, "numbers": numbers,
                "version": self.trainer.version if self.trainer else 0}

    @classmethod
    def build_topology(cls, trainer_world_size: int, rollout_world_size: int,
                       metadata: Sequence[Dict[str, Any]]
                       ) -> Tuple[Dict[str, List[Any]], Dict[str, List[Any]]]:
        tensors: Dict[str, Any] = {}
        for about in metadata[:trainer_world_size]:
            for row in about["tensors"] or ():
                tensors.setdefault(row[0], row)
        if not tensors:
            raise errors.StateError("no trainer called dynatrain.verl.attach()")
        degrees = {about["tp"] for about in metadata[trainer_world_size:]}
        tp = degrees.pop() if degrees else 1
        if degrees or rollout_world_size % tp:
            raise errors.InvalidError(
                f"{rollout_world_size} rollout workers are not servers of "
                f"tp {tp}{''.join(f' and {more}' for more in degrees)}")

        def kwargs(count: int, offers: bool) -> Dict[str, List[Any]]:
            about = {"address": metadata[0]["address"],
                     "version": metadata[0]["version"],
                     "numbers": metadata[0]["numbers"], "offers": offers,
                     "size": count if offers else tp,
                     "tensors": None if offers else list(tensors.values())}
            rows = {key: [value] * count for key, value in about.items()}
            ranks = list(range(count))
            return {**rows, "rank": ranks if offers else
                    [rank % tp for rank in ranks],
                    "replica": [0 if offers else rank // tp for rank in ranks]}
        return kwargs(trainer_world_size, True), kwargs(rollout_world_size,
                                                        False)

    def init_process_group(self, rank: int, size: int, replica: int,
                           offers: bool, address: str, tensors: Any,
                           numbers: Dict[str, int], version: int) -> None:
        """Trainers join now; a rollout worker when it receives, as joining
        waits for the trainer's ranks.  `version` is what they have offered so
        far."""
        self.options["address"] = address
        self.version = version
        if not offers:
            self.tensors_of = tensors
            self.place = {"rank": rank, "size": size, "replica": replica,
                          "tp": (rank, size), "attributes": numbers}
        elif self.trainer is None:
            self.trainer = Trainer(
                _attached["module"], _attached["optimizer"],
                rename=_attached["rename"], rank=rank, size=size,
                **self.options)

    async def send_weights(self, weights: Any) -> None:
        """`weights` would gather whole tensors: it is not run."""
        if self.trainer is None:
            raise errors.StateError("init_process_group() was not called")
        with self.trainer.offered(timeout=float(self.options["timeout"])):
            pass

    async def receive_weights(self) -> AsyncIterator[Tuple[str, Any]]:
        """This worker's shards; none where the server's model has got them."""
        timeout = float(self.options["timeout"])
        if _server:
            if self.server is None:
                self.server = _server["make"](**self._options())
            self._took(self.server.receive(self.version + 1, timeout))
            return
        if self.session is None:
            self._join()
        assert self.session is not None
        self._took(self.session.receive(self.version + 1, timeout))
        for name, tensor in self.tensors:
            yield name, tensor

    def _took(self, report: Optional[Report]) -> None:
        """Whoever is here before the next offer waits for it, and does not take
        this version again."""
        self.version = report.version if report else self.version + 1

    def _options(self) -> Dict[str, Any]:
        return {"commit": "in_place", **self.place, **self.options}

    def _join(self) -> None:
        rows = []
        self.tensors = []
        for name, shape, dtype in self.tensors_of:
            lo, hi = shard_box(name, shape, self.place["tp"],
                               self.place["attributes"])
            tensor = torch.empty([b - a for a, b in zip(lo, hi)],
                                 dtype=getattr(torch, dtype))
            self.tensors.append((name, tensor))
            rows.append(Row(name, tensor, pieces=[Piece(name, lo, hi)]))
        session = Session("receiver", **self._options())
        try:
            session.publish(rows)
        except BaseException:
            session.close()
            raise
        self.session = session

    def finalize(self) -> None:
        """The session stays: the next step plans nothing."""

    def close(self) -> None:
        if self.trainer is not None:
            self.trainer.close()
        for receiver in (self.session, self.server):
            if receiver is not None:
                receiver.close()
        self.trainer = self.session = self.server = None


def register() -> Any:
    """Make the backend known to verl; gives the class that it will use."""
    from verl.checkpoint_engine.base import (
        CheckpointEngine as Base, CheckpointEngineRegistry)

    made = type("DynaTrainCheckpointEngine", (CheckpointEngine, Base), {})
    CheckpointEngineRegistry.register("dynatrain")(made)
    return made
