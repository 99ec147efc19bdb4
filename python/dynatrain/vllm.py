"""vLLM's workers as receivers: weights are written into the server's own
tensors, and those that it keeps packed are packed again.

vLLM >= 0.29: `--weight-transfer-config '{"backend": "dynatrain"}'`; the entry
point of this package registers it (dynatrain.vllm_engine).  Older ones:
`--worker-extension-cls dynatrain.vllm.WorkerExtension`, and collective_rpc of
its methods.  Options come with init_info, else from the JSON of DYNATRAIN_VLLM.
"""

import logging
from typing import Any, Dict, List, Optional

import torch

from dynatrain import _server, errors
from dynatrain.session import Report
from dynatrain.torch import Receiver, tensor_over

log = logging.getLogger("dynatrain")
VARIABLE = "DYNATRAIN_VLLM"


def register() -> None:
    """The entry point: called in the front end, the core and every worker."""
    try:
        from vllm.distributed.weight_transfer.factory import (
            WeightTransferEngineFactory as Factory)
    except ImportError:  # before the plug point: WorkerExtension
        return
    if "dynatrain" not in Factory._registry:
        Factory.register_engine("dynatrain", "dynatrain.vllm_engine", "Engine")
    if _server.options(VARIABLE, {}).get("pack") is False:  # CPU: weights stay as they lie
        from vllm import _custom_ops
        _custom_ops._supports_onednn = False


class Server:
    """One worker's model as a receiver, or its draft model beside the policy."""

    def __init__(self, model: Any, vllm_config: Any, policy: Any = None,
                 model_config: Any = None, **given: Any) -> None:
        self.model, self.config, self.policy = model, vllm_config, policy
        self.model_config = model_config or vllm_config.model_config
        self.parallel = vllm_config.parallel_config
        self.receiver: Any = None  # once joined
        self.failure: Optional[BaseException] = None
        self.report: Optional[Report] = None
        self.packed: Dict[int, List[Any]] = {}  # row -> modules to pack again
        self._guarded(self._join, _server.options(VARIABLE, given))

    def _guarded(self, call: Any, *arguments: Any) -> Any:
        """All ranks end with the same status, but only the last one raises:
        vLLM stops listening at the first rank that does."""
        try:
            return call(*arguments)
        except BaseException as problem:
            self.failure = problem
            ranks = self.parallel.world_size
            if ((self.parallel.rank + 1) % ranks == 0
                    or not isinstance(problem, Exception)):
                raise
            log.error("dynatrain: %s", problem)
            return None

    def _join(self, given: Dict[str, Any]) -> None:
        from vllm.distributed import parallel_state as groups
        if self.policy is not None:
            given = _server.draft_options(given)
        given.pop("draft", None)
        _server.refuse(self.model, self.config.lora_config is not None)
        hf = self.model_config.hf_text_config
        ep = self.parallel.enable_expert_parallel
        place = _server.place(
            groups.get_tp_group(), groups.get_pp_group(), hf.to_dict(),
            self.model_config.get_head_size(),
            groups.get_ep_group() if ep else None, self.model)
        place["replica"] = self.parallel.data_parallel_index
        given.pop("pack", None)
        _server.known(given)
        rules = _server.rules_of(given.pop("rules", None), hf.model_type)
        rows, modules = _server.rows(self.model, self.policy)
        for index, (first, module) in enumerate(modules):
            head = "LMHead" in type(module).__name__  # packs a tied weight
            if rows[index].staged or (head and _server.is_packed(module)):
                self.packed.setdefault(first, []).append(module)
        self.receiver = Receiver(self.model, rows=rows, rules=rules,
                                 **{**place, **given})

    def receive(self, version: int = 0, timeout: Optional[float] = None
                ) -> Optional[Report]:
        """Take a version: the server is paused, and its prefix cache reset after."""
        return self._guarded(self._receive, version, timeout)  # type: ignore

    def _receive(self, version: int, timeout: Optional[float]) -> Report:
        if self.receiver is None:
            raise errors.StateError(f"this rank never joined: {self.failure}")
        report: Report = self.receiver.receive(version, timeout)
        self.report = report
        for index in self.receiver.session.changed():
            for module in self.packed.get(index, ()):
                self._pack(index, module)
        return report

    def _pack(self, index: int, module: Any) -> None:
        """What vLLM does after loading: from a weight that lies row-major."""
        row = self.receiver.rows[index]
        if row.staged:  # lent or mapped
            weight = tensor_over(self.receiver.session.row_data(index),
                                 row.memory().shape, module.weight.dtype)
            module.weight = torch.nn.Parameter(weight, requires_grad=False)
        module.quant_method.process_weights_after_loading(module)

    def close(self) -> None:
        """Leave the job; mapped parameters get memory of their own again."""
        if self.receiver is not None:
            self.receiver.close()
            self.receiver = None


class WorkerExtension:
    """Mixed into the worker of vLLM before 0.29: collective_rpc of these."""

    def dynatrain_init(self: Any, **init_info: Any) -> None:
        self.dynatrain = Server(self.model_runner.get_model(),
                                self.vllm_config, **init_info)

    def dynatrain_update(self: Any, version: int = 0,
                         timeout: Optional[float] = None) -> int:
        report = self.dynatrain.receive(version, timeout)
        return report.version if report else 0

    def dynatrain_close(self: Any) -> None:
        self.dynatrain.close()
