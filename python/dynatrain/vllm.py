"""vLLM's workers as receivers: weights are written into the server's own
tensors, and those that it keeps packed are packed again.

vLLM >= 0.29: `--weight-transfer-config '{"backend": "dynatrain"}'`; the entry
point of this package registers it (dynatrain.vllm_engine).  Older ones:
`--worker-extension-cls dynatrain.vllm.WorkerExtension`, and collective_rpc of
its methods.  Options come with init_info, else from the JSON of DYNATRAIN_VLLM.
"""

import json
import logging
import os
from typing import Any, Dict, List, Optional, Tuple

from dynatrain import errors
from dynatrain.rules import load
from dynatrain.session import Report, Row, Session

log = logging.getLogger("dynatrain")

PLAIN = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod",
         "UnquantizedFusedMoEMethod", "NoneType"}
FAMILIES = {"qwen3_moe": "vllm/qwen3_moe", "mixtral": "vllm/mixtral",
            "deepseek_v2": "vllm/deepseek_v3", "deepseek_v3": "vllm/deepseek_v3",
            "gpt2": "vllm/gpt2"}  # others: vllm/llama


def register() -> None:
    """The entry point: called in the front end, the core and every worker."""
    try:
        from vllm.distributed.weight_transfer.factory import (
            WeightTransferEngineFactory as Factory)
    except ImportError:  # before the plug point: WorkerExtension
        return
    if "dynatrain" not in Factory._registry:
        Factory.register_engine("dynatrain", "dynatrain.vllm_engine", "Engine")
    if options({}).get("pack") is False:  # CPU: weights stay as they lie
        from vllm import _custom_ops
        _custom_ops._supports_onednn = False


def options(given: Dict[str, Any]) -> Dict[str, Any]:
    """Options that were given, over those of the environment."""
    text = os.environ.get("DYNATRAIN_VLLM", "")
    return {**(json.loads(text) if text else {}), **given}


def refuse(model: Any, vllm_config: Any) -> None:
    """What cannot be written is named, all at once, before anything moves."""
    found = [f"{name} ({type(module.quant_method).__name__})"
             for name, module in model.named_modules()
             if type(getattr(module, "quant_method", None)).__name__
             not in PLAIN]
    if vllm_config.lora_config is not None:
        found.append("LoRA adapters")
    if found:
        raise errors.UnsupportedError(
            f"{len(found)} layers are not plain weights: "
            + ", ".join(found[:10]))


def is_packed(module: Any) -> bool:
    """Does the layer compute from a packed copy?  On CPUs only."""
    linear = getattr(module, "cpu_linear", None)
    return getattr(linear, "__closure__", None) is not None


def local_shape(module: Any) -> Tuple[int, int]:
    """Of a weight that has been packed away."""
    return sum(module.output_partition_sizes), module.input_size_per_partition


class Server:
    """One worker's model as a receiver."""

    def __init__(self, model: Any, vllm_config: Any, **given: Any) -> None:
        self.model, self.config = model, vllm_config
        self.last = self._is_last()
        self.session: Optional[Session] = None
        self.failure: Optional[BaseException] = None
        self.report: Optional[Report] = None
        self.rows: List[Row] = []
        self.packed: Dict[int, List[Any]] = {}  # row -> modules to pack again
        self._guarded(self._join, options(given))

    def _parallel(self) -> Any:
        return self.config.parallel_config

    def _is_last(self) -> bool:
        parallel = self._parallel()
        return bool(parallel.rank % parallel.world_size
                    == parallel.world_size - 1)

    def _guarded(self, call: Any, *arguments: Any) -> Any:
        """All ranks end with the same status, but only the last one raises:
        vLLM stops listening at the first rank that does."""
        try:
            return call(*arguments)
        except BaseException as problem:
            self.failure = problem
            if self.last or not isinstance(problem, Exception):
                raise
            log.error("dynatrain: %s", problem)
            return None

    def _rows(self) -> List[Row]:
        modules = dict(self.model.named_modules(remove_duplicate=False))
        rows: List[Row] = []
        seen: Dict[int, int] = {}
        for name, parameter in self.model.named_parameters(
                remove_duplicate=False):
            module = modules[name.rpartition(".")[0]]
            if parameter.numel() == 0:
                row = Row(name, dtype=str(parameter.dtype).rpartition(".")[2],
                          shape=local_shape(module), staged=True)
                self.packed[len(rows)] = [module]
            else:
                first = seen.setdefault(parameter.data_ptr(), len(rows))
                row = Row(name, parameter.data, alias=first != len(rows))
                if is_packed(module) and "LMHead" in type(module).__name__:
                    self.packed.setdefault(first, []).append(module)
            rows.append(row)
        return rows

    def _place(self) -> Dict[str, Any]:
        from vllm.distributed import parallel_state as groups
        parallel = self._parallel()
        hf = self.config.model_config.hf_text_config
        numbers = {name: value for name, value in hf.to_dict().items()
                   if isinstance(value, int) and not isinstance(value, bool)}
        numbers["head_dim"] = self.config.model_config.get_head_size()
        tp, pp = groups.get_tp_group(), groups.get_pp_group()
        place = {"rank": parallel.rank % parallel.world_size,
                 "size": parallel.world_size,
                 "tp": (tp.rank_in_group, tp.world_size),
                 "pp": (pp.rank_in_group, pp.world_size),
                 "replica": parallel.data_parallel_index,
                 "attributes": numbers}
        if parallel.enable_expert_parallel:
            ep = groups.get_ep_group()
            place["ep"] = (ep.rank_in_group, ep.world_size)
            place["experts"] = self._experts()
        return place

    def _experts(self) -> Optional[List[int]]:
        """Global numbers of this rank's experts, in order of their places."""
        for module in self.model.modules():
            places = getattr(module, "expert_map", None)
            if places is not None:
                pairs = enumerate(places.tolist())
                return [e for _, e in sorted((p, e) for e, p in pairs
                                             if p >= 0)]
        return None

    def _join(self, given: Dict[str, Any]) -> None:
        refuse(self.model, self.config)
        given.pop("pack", None)
        rules = given.pop("rules", None) or FAMILIES.get(
            self.config.model_config.hf_text_config.model_type, "vllm/llama")
        self.rows = self._rows()
        self.session = Session("receiver", **{**self._place(), **given})
        if given.get("memory") == "mapped":
            self._repoint(self.session.map(self.rows))
        self.session.publish(self.rows, load(rules))

    def _repoint(self, mapped: List[Row]) -> None:
        from dynatrain.torch import tensor_over
        named = dict(self.model.named_parameters(remove_duplicate=False))
        for row in mapped:
            if not row.staged:
                memory, target = row.memory(), named[row.name]
                target.data = tensor_over(memory.address, memory.shape,
                                          target.dtype)
        self.rows = mapped

    def receive(self, version: int = 0, timeout: Optional[float] = None
                ) -> Optional[Report]:
        """Take a version; nobody generates meanwhile.  The prefix cache is
        the front end's to reset (dynatrain.vllm_http does)."""
        return self._guarded(self._receive, version, timeout)  # type: ignore

    def _receive(self, version: int, timeout: Optional[float]) -> Report:
        if self.session is None:
            raise errors.StateError(f"this rank never joined: {self.failure}")
        self.report = self.session.receive(version, timeout)
        if self.report.committed and self.session.params.memory:
            self._follow()
        for index in self.session.changed():
            for module in self.packed.get(index, ()):
                self._pack(index, module)
        return self.report

    def _follow(self) -> None:
        """Mapped with two sets: the parameters go to the one that is live."""
        from dynatrain.torch import tensor_over
        assert self.session is not None
        named = dict(self.model.named_parameters(remove_duplicate=False))
        for index, row in enumerate(self.rows):
            target = named[row.name]
            if not row.staged:
                address = self.session.row_data(index)
                if address != target.data_ptr():
                    target.data = tensor_over(address, tuple(target.shape),
                                              target.dtype)

    def _pack(self, index: int, module: Any) -> None:
        """What vLLM does after loading: from a weight that lies row-major."""
        import torch
        from dynatrain.torch import tensor_over
        assert self.session is not None
        if self.rows[index].staged:
            weight = tensor_over(self.session.row_data(index),  # lent or mapped
                                 tuple(self.rows[index].shape),
                                 module.weight.dtype)
            module.weight = torch.nn.Parameter(weight, requires_grad=False)
        module.quant_method.process_weights_after_loading(module)

    def close(self) -> None:
        """Leave the job; mapped parameters get memory of their own again."""
        if self.session is not None:
            if self.session.params.memory:
                for parameter in self.model.parameters():
                    parameter.data = parameter.data.clone()
            self.session.close()
            self.session = None


class WorkerExtension:
    """Mixed into the worker of vLLM before 0.29: collective_rpc of these."""

    def dynatrain_init(self, **init_info: Any) -> None:
        worker: Any = self
        worker.dynatrain = Server(worker.model_runner.get_model(),
                                  worker.vllm_config, **init_info)

    def dynatrain_update(self, version: int = 0,
                         timeout: Optional[float] = None) -> int:
        report = self.dynatrain.receive(version, timeout)  # type: ignore
        return report.version if report else 0

    def dynatrain_close(self) -> None:
        self.dynatrain.close()  # type: ignore
