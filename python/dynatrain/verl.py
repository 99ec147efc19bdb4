"""verl's checkpoint engine `dynatrain`: trainers' shards are read where they
lie, and nothing is gathered on their side.

    import dynatrain.verl
    dynatrain.verl.register()             # in trainer and rollout workers
    dynatrain.verl.attach(module)         # in each trainer worker

Then `checkpoint_engine.backend = "dynatrain"`.  A rollout worker receives whole
tensors and hands them to its server's own loader, as verl's protocol wants it.
Written against the interface of verl/checkpoint_engine/base.py, which is not
imported before register().
"""

from typing import Any, AsyncIterator, Dict, List, Optional, Sequence, Tuple

import torch

from dynatrain import errors
from dynatrain.session import Piece, Row, Session, default_address
from dynatrain.torch import Rename, Trainer, module_rows, shard_of

_attached: Dict[str, Any] = {}


def attach(module: Any, optimizer: Any = None, rename: Optional[Rename] = None
           ) -> None:
    """The module whose shards this process offers."""
    _attached.update(module=module, optimizer=optimizer, rename=rename)


class CheckpointEngine:
    """The methods of verl's CheckpointEngine."""

    def __init__(self, bucket_size: int = 0, is_master: bool = False,
                 job: str = "verl", address: Optional[str] = None,
                 timeout: float = 600.0, **session: Any) -> None:
        self.options = {"job": job, "address": address, "timeout": timeout,
                        **session}
        self.trainer: Optional[Trainer] = None
        self.session: Optional[Session] = None
        self.tensors: List[Tuple[str, Any]] = []
        self.place: Dict[str, Any] = {}

    def prepare(self) -> Dict[str, Any]:
        """What the others must know of this process: a trainer's address, and
        the names, shapes and dtypes of whole tensors."""
        if not _attached:
            return {"tensors": None}
        rows = []
        for row in module_rows(_attached["module"], _attached["rename"]):
            dtype = str(row.tensor.dtype).rpartition(".")[2]
            rows.append((row.name, tuple(row.global_shape), dtype))
        address = self.options["address"] or default_address(
            str(self.options["job"]))
        return {"tensors": rows, "address": address}

    @classmethod
    def build_topology(cls, trainer_world_size: int, rollout_world_size: int,
                       metadata: Sequence[Dict[str, Any]]
                       ) -> Tuple[Dict[str, List[Any]], Dict[str, List[Any]]]:
        tensors: Dict[str, Any] = {}
        for about in metadata[:trainer_world_size]:
            for row in about["tensors"] or ():
                tensors.setdefault(row[0], row)
        address = metadata[0].get("address")
        if not tensors:
            raise errors.StateError("no trainer called dynatrain.verl.attach()")

        def kwargs(count: int, offers: bool) -> Dict[str, List[Any]]:
            return {"rank": list(range(count)), "size": [count] * count,
                    "offers": [offers] * count, "address": [address] * count,
                    "tensors": [None if offers else list(tensors.values())]
                    * count}
        return kwargs(trainer_world_size, True), kwargs(rollout_world_size,
                                                        False)

    def init_process_group(self, rank: int, size: int, offers: bool,
                           address: str, tensors: Any) -> None:
        """Trainers join now; a rollout worker when it receives, as joining
        waits for the trainer's ranks."""
        self.options["address"] = address
        if not offers:
            self.place = {"replica": rank, "tensors": tensors}
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
        if self.session is None:
            self._join()
        assert self.session is not None
        self.session.receive(timeout=float(self.options["timeout"]))
        for name, tensor in self.tensors:
            yield name, tensor

    def _join(self) -> None:
        self.tensors = [
            (name, torch.empty(shape, dtype=getattr(torch, dtype)))
            for name, shape, dtype in self.place["tensors"]]
        rows = []
        for name, tensor in self.tensors:
            shape = shard_of(name, tensor)[1]
            rows.append(Row(name, tensor, pieces=[
                Piece(name, (0,) * len(shape), shape)]))
        session = Session("receiver", replica=self.place["replica"],
                          commit="in_place", **self.options)
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
        if self.session is not None:
            self.session.close()
        self.trainer = self.session = None


def register() -> Any:
    """Make the backend known to verl; gives the class that it will use."""
    from verl.checkpoint_engine.base import (  # type: ignore
        CheckpointEngine as Base, CheckpointEngineRegistry)

    made = type("DynaTrainCheckpointEngine", (CheckpointEngine, Base), {})
    CheckpointEngineRegistry.register("dynatrain")(made)
    return made
