"""Modules, FSDP2 and DTensor shards, and optimizers of PyTorch: their own
memory as rows, offers of it, and receives into it.

    trainer = dynatrain.torch.Trainer(model, optimizer)
    with trainer.offered(version):       # nothing is gathered
        ...                              # reading is fine; optimizer.step() raises

    receiver = dynatrain.torch.Receiver(model)
    receiver.receive()
"""

import contextlib
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
import torch.distributed

from dynatrain import errors, placement, tensors
from dynatrain.rules import Rules
from dynatrain.session import Piece, Report, Row, Session, Ticket

Rename = Callable[[str], Optional[str]]
STATES = ("exp_avg", "exp_avg_sq", "master")
_WRAPPERS = ("_checkpoint_wrapped_module.", "_fsdp_wrapped_module.",
             "_orig_mod.", "module.")


def plain_name(name: str) -> str:
    """A parameter's name without what wrappers put into it."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "") if wrapper != "module." else (
            name[len(wrapper):] if name.startswith(wrapper) else name)
    return name


def shard_of(name: str, tensor: Any
             ) -> Tuple[Any, Tuple[int, ...], Optional[placement.Box]]:
    """(local tensor, global shape, its box) of a tensor or DTensor; the box is
    None where this rank holds nothing of it.  No byte moves."""
    shape = tuple(tensor.shape)
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is None:
        whole = (0,) * len(shape), shape
        return tensor.detach(), shape, whole if tensor.numel() else None
    with torch.no_grad():
        local = tensor.to_local().detach()
    coordinate = mesh.get_coordinate()
    if coordinate is None:  # this rank is not in the mesh
        return local, shape, None
    box = placement.box_of(
        shape, placement.of_torch(tensor.placements, name), tuple(mesh.shape),
        coordinate, name)
    if box is not None and tensors.extent(*box) != tuple(local.shape):
        raise errors.UnsupportedError(
            f"{name}: this rank holds {tuple(local.shape)} of {shape}, and its "
            f"placements {tensor.placements} say {tensors.extent(*box)}")
    return local, shape, box


def row_of(name: str, tensor: Any, kind: str = "param", vps: str = ""
           ) -> Optional[Row]:
    """One tensor or DTensor as a row; None where this rank holds nothing."""
    local, shape, box = shard_of(name, tensor)
    if box is None:
        return None
    lo, hi = box
    piece = Piece(vps or name, lo or (0,), hi or (1,))
    return Row(name, local if shape else local.reshape(1), kind=kind,
               pieces=[piece], global_shape=shape or (1,))


def _refuse_module(module: Any) -> None:
    if not hasattr(module, "named_parameters"):
        raise errors.InvalidError(
            f"a {type(module).__name__} has no named_parameters(): give the "
            "module itself, or rows")
    for inner in module.modules():
        if type(inner).__name__ == "FullyShardedDataParallel" and getattr(
                inner.sharding_strategy, "name", "") != "NO_SHARD":
            raise errors.UnsupportedError(
                "FullyShardedDataParallel (FSDP1) keeps flat parameters without "
                "their shapes: shard with fully_shard() (FSDP2)")


def _refuse(name: str, parameter: Any) -> None:
    """Parameters that are not the weights that their names say."""
    if "lora_" in name:
        raise errors.UnsupportedError(
            f"{name} is a LoRA adapter: dynatrain.trl.attach() merges them; else "
            "give rename=dynatrain.trl.vllm_name, and call merge_adapter() "
            "before an offer and unmerge_adapter() when it is done")
    if hasattr(parameter, "ds_tensor"):
        raise errors.UnsupportedError(
            f"{name} is partitioned by DeepSpeed's ZeRO-3, whose flat pieces "
            "are not read: use ZeRO-2 or fully_shard() (FSDP2)")
    if torch.nn.parameter.is_lazy(parameter):
        raise errors.UnsupportedError(
            f"{name} has no shape yet: run the module once before")


def _state_of(optimizer: Any, parameter: Any) -> List[Tuple[str, Any]]:
    """What an optimizer keeps for a parameter, by kind."""
    state = {} if optimizer is None else optimizer.state.get(parameter, {})
    return [(kind, state[kind]) for kind in STATES if kind in state]


def _stateful(optimizer: Any) -> Any:
    """An optimizer whose state is to be offered has some."""
    if optimizer is None:
        raise errors.InvalidError("state=True, and no optimizer that has it")
    if not optimizer.state:
        raise errors.StateError(
            f"state=True, and the {type(optimizer).__name__} has no state before "
            "its first step: make that step, or load its state, before the "
            "Trainer")
    return optimizer


def module_rows(module: Any, rename: Optional[Rename] = None,
                optimizer: Any = None) -> List[Row]:
    """Rows of a module's parameters, tied ones once, and of an optimizer's
    state for them.  `rename` gives the VPS name of a parameter, None to leave
    it out; without it names are taken as they are."""
    _refuse_module(module)
    _cut_again(module)
    rows: List[Row] = []
    for name, parameter in module.named_parameters():
        plain = plain_name(name)
        vps = plain if rename is None else rename(plain)
        if vps is None:
            continue
        _refuse(plain, parameter)
        row = row_of(vps, parameter)
        if row is not None:
            rows.append(row)
        for kind, tensor in _state_of(optimizer, parameter):
            row = row_of(vps, tensor, kind)
            if row is not None:
                rows.append(row)
    return rows


def tensor_over(address: int, shape: Tuple[int, ...], dtype: Any,
                device: Any = "cpu") -> Any:
    """A tensor over memory of the library, which must live longer."""
    count = tensors.elements(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype, device=device)
    size = torch.empty(0, dtype=dtype).element_size()
    if torch.device(device).type == "cuda":
        lent = types.SimpleNamespace(__cuda_array_interface__={
            "shape": (count * size,), "typestr": "|u1", "version": 3,
            "data": (address, False), "strides": None})
        return torch.as_tensor(lent, device=device).view(dtype).view(shape)
    buffer = tensors.bytes_at(address, count * size)
    return torch.frombuffer(buffer, dtype=dtype, count=count).view(shape)


def place() -> Tuple[int, int]:
    """(rank, size) of the default process group; (0, 1) without one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def _hookable(optimizer: Any) -> Any:
    """What runs hooks before its step: wrappers, as accelerate's, hold it."""
    inner = optimizer
    while not hasattr(inner, "_optimizer_step_pre_hooks"):
        inner = getattr(inner, "optimizer", None)
        if inner is None:
            raise errors.InvalidError(
                f"a {type(optimizer).__name__} runs no hooks before its step: "
                "leave it out, and write the parameters inside of "
                "`with trainer.writing():`")
    return inner


def _cut_again(module: Any) -> None:
    """FSDP2 leaves a root's parameters whole after a forward pass that no
    backward one followed: what lasts are its shards."""
    for inner in module.modules():
        if type(inner).__name__.startswith("FSDP") and hasattr(inner, "reshard"):
            inner.reshard()


def _address(tensor: Any) -> int:
    try:
        return int(getattr(tensor, "_local_tensor", tensor).data_ptr())
    except RuntimeError:  # it has none: it is in no row
        return 0


class _Places:
    """Where parameters, and an optimizer's state for them, lay when they were
    published: module.to(), load_state_dict(assign=True) and the like give them
    other memory, and what lies at the old place is no longer theirs."""

    def __init__(self, module: Any, rows: List[Row], optimizer: Any = None
                 ) -> None:
        self._module, self._optimizer = module, optimizer
        published = {row.memory().address for row in rows}
        self._were = {name: address for name, address in self._lie().items()
                      if address in published}

    def _lie(self) -> Dict[str, int]:
        """Where they lie now, by name: the module may have others."""
        _cut_again(self._module)
        found = {}
        for name, parameter in self._module.named_parameters():
            name = plain_name(name)
            found[name] = _address(parameter)
            for kind, tensor in _state_of(self._optimizer, parameter):
                found[f"{kind} of {name}"] = _address(tensor)
        return found

    def renew(self) -> None:
        """They have been moved on purpose."""
        now = self._lie()
        self._were = {name: now.get(name, 0) for name in self._were}

    def check(self) -> None:
        now = self._lie()
        moved = [name for name, address in self._were.items()
                 if now.get(name) != address]
        if moved:
            raise errors.StateError(
                f"{len(moved)} parameters have other memory than was published "
                "(module.to(), an assigned .data or parameter, a loaded state "
                f"dict): {', '.join(moved[:5])}; close this and make it anew")


class Trainer:
    """A trainer's rank.  While an offer is open, the optimizer's step raises
    StateError instead of writing what is being read."""

    def __init__(self, module: Any, optimizer: Any = None, *,
                 rename: Optional[Rename] = None, state: bool = False,
                 rows: Optional[List[Row]] = None, **session: Any) -> None:
        rank, size = place()
        stateful = _stateful(optimizer) if state and rows is None else None
        self.rows = rows if rows is not None else module_rows(
            module, rename, stateful)
        self.session = Session(
            "trainer", **{"rank": rank, "size": size, **session})
        self._guard: Any = None
        self._places: Optional[_Places] = None
        try:
            if rows is None:
                self._places = _Places(module, self.rows, stateful)
            self.session.publish(self.rows)
            if optimizer is not None:
                self._guard = _hookable(optimizer).register_step_pre_hook(
                    lambda *about: self.session.will_write())
        except BaseException:
            self.session.close()
            raise
        self.version = 0
        self.ticket: Optional[Ticket] = None

    def offer(self, version: Optional[int] = None, snapshot: bool = False
              ) -> Ticket:
        """Offer what the parameters hold now, as `version` (else the next)."""
        if self._places is not None:
            self._places.check()
        version = self.version + 1 if version is None else version
        self.ticket = self.session.offer(version, snapshot=snapshot)
        self.version = version
        return self.ticket

    @contextlib.contextmanager
    def offered(self, version: Optional[int] = None,
                timeout: Optional[float] = None) -> Iterator[Ticket]:
        """An offer for as long as the block lasts, and until it is done."""
        ticket = self.offer(version)
        try:
            yield ticket
            if not ticket.wait(timeout):
                raise errors.DeadlineError(
                    f"version {ticket.version} was not taken in time")
        finally:
            ticket.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Around writes that no optimizer makes: raises StateError at once
        where an open offer pins the parameters."""
        self.session.will_write()
        yield

    def close(self) -> None:
        if self._guard is not None:
            self._guard.remove()
            self._guard = None
        self.session.close()

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *about: Any) -> None:
        self.close()


class Receiver:
    """A module that receives into its parameters: into their own memory, or
    (memory="mapped") into segments of the library that they are re-pointed to,
    which a trainer on this host writes without a copy in between."""

    def __init__(self, module: Any, *, rename: Optional[Rename] = None,
                 rules: Optional[Rules] = None,
                 rows: Optional[List[Row]] = None, **session: Any) -> None:
        rank, size = place()
        self.module = module
        self.rows = rows if rows is not None else module_rows(module, rename)
        self.session = Session(
            "receiver", **{"rank": rank, "size": size, **session})
        self._mapped: Dict[int, Any] = {}  # row: the tensor that lies there
        self._places: Optional[_Places] = None
        try:
            if session.get("memory") == "mapped":
                self._map()
            if rows is None:
                self._places = _Places(module, self.rows)
            self.session.publish(self.rows, rules)
        except BaseException:
            self.session.close()
            raise

    def _map(self) -> None:
        """The parameters get memory of the library."""
        local = {}
        for parameter in self.module.parameters():
            tensor = getattr(parameter, "_local_tensor", parameter)
            if tensor.numel():
                local[tensor.data_ptr()] = tensor
        own = [0 if row.staged else row.memory().address for row in self.rows]
        self.rows = self.session.map(self.rows)
        self._mapped = {index: local[address]
                        for index, address in enumerate(own) if address}
        for index in self._mapped:
            self._point(index, self.rows[index].memory().address)

    def _point(self, index: int, address: int) -> None:
        tensor = self._mapped[index]
        if address != tensor.data_ptr():
            tensor.data = tensor_over(address, tuple(tensor.shape),
                                      tensor.dtype, tensor.device)

    def receive(self, version: int = 0, timeout: Optional[float] = None
                ) -> Report:
        """Take a version into the parameters; nobody may use them meanwhile."""
        if self._places is not None:
            self._places.check()
        report = self.session.receive(version, timeout)
        for index in self._mapped:  # double: to the set that is live now
            self._point(index, self.session.row_data(index))
        if self._places is not None:
            self._places.renew()
        return report

    def close(self) -> None:
        """Leave the job.  Parameters that were re-pointed get memory of their
        own again."""
        for tensor in self._mapped.values():
            tensor.data = tensor.data.clone()
            if tensor.device.type == "cuda":  # or it would still be read
                torch.cuda.synchronize(tensor.device)
        self._mapped = {}
        self.session.close()

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, *about: Any) -> None:
        self.close()
