"""TRL's trainers sync through DynaTrain: their shards go straight into the
server's own tensors.

    trainer = GRPOTrainer(...)            # use_vllm=True
    dynatrain.trl.attach(trainer)

In server mode the trainer opens a communicator of NCCL when it is made; call
prepare() before, and start the server with
--weight-transfer-config '{"backend": "dynatrain"}'.  Written against TRL 1.16.
"""

import contextlib
from typing import Any, Dict, Iterator, List, Optional

from dynatrain import errors
from dynatrain.torch import Trainer
from dynatrain.vllm_http import Servers


def prepare() -> None:
    """Before a trainer in server mode is made: its client no longer joins a
    group of NCCL, which needs a GPU."""
    from trl.generation import vllm_client
    client: Any = vllm_client.VLLMClient

    def init_communicator(self: Any, device: Any = 0) -> None:
        config = self.get_server_info()["weight_transfer_config"]
        if "dynatrain" not in str(config):
            raise errors.ConfigError(
                f"the server at {self.base_url} has weight_transfer_config "
                f"{config}: start it with --weight-transfer-config "
                """'{"backend": "dynatrain"}'""")

    client.init_communicator = init_communicator


def vllm_name(name: str) -> Optional[str]:
    """A parameter's name without PEFT's; None for adapters, which are merged."""
    name = name.replace("base_model.model.", "").replace(".base_layer", "")
    name = name.replace("modules_to_save.default.", "")
    return None if "lora_" in name or "original_module" in name else name


class Sync:
    """What stands in the place of TRL's own transfer."""

    def __init__(self, trainer: Any, urls: Optional[List[str]] = None,
                 in_flight: str = "wait", timeout: float = 300.0,
                 **session: Any) -> None:
        accelerator = trainer.accelerator
        self.main = accelerator.is_main_process
        self.module = accelerator.unwrap_model(trainer.model)
        self.timeout = timeout
        self.servers = Servers(urls, in_flight, timeout=timeout) if urls \
            else None
        self.local: Any = None  # a receiver in this process: colocate
        options: Dict[str, Any] = {
            "rank": accelerator.process_index,
            "size": accelerator.num_processes, **session}
        self.trainer = Trainer(self.module, getattr(trainer, "optimizer", None),
                               rename=vllm_name, **options)
        self.session = {"address": self.trainer.session.address,
                        "job": self.trainer.session.job}
        self._joined = self.closed = False

    @contextlib.contextmanager
    def merged(self) -> Iterator[None]:
        """Adapters lie in the base weights for as long as they are read."""
        if not hasattr(self.module, "merge_adapter"):
            yield
            return
        self.module.merge_adapter()
        try:
            yield
        finally:
            self.module.unmerge_adapter()

    def push(self, paused: bool = False) -> None:
        """One version, from every rank: returns when it may train on."""
        if self.closed:
            raise errors.StateError(
                "what dynatrain.trl.attach() gave is closed: attach() again")
        with self.merged(), self.trainer.offered(timeout=self.timeout) as t:
            if self.local is not None:
                self.local.receive(t.version, self.timeout)
            if self.main and self.servers is not None:
                if not self._joined:
                    self.servers.init(**self.session)
                    self._joined = True
                (self.servers.transfer if paused else self.servers.update)(
                    t.version)

    def close(self) -> None:
        """Leave the job; attach() may be called again."""
        self.closed = True
        if self.local is not None:
            self.local.close()
        self.trainer.close()


def attach(trainer: Any, **options: Any) -> Sync:
    """Replace a trainer's own weight sync, and keep its order of wake, load
    and reset of the cache.  Options are those of Sync and dynatrain.Session."""
    generation = getattr(trainer, "vllm_generation", None)
    if generation is not None:
        return _attach_generation(trainer, generation, options)
    if hasattr(trainer, "_streaming_iter"):
        return _attach_async(trainer, options)
    raise errors.InvalidError(
        f"{type(trainer).__name__} has no vllm_generation and no weight "
        "transfer: is use_vllm=True?")


def _attach_generation(trainer: Any, generation: Any,
                       options: Dict[str, Any]) -> Sync:
    there = getattr(generation, "sync_weights", None)
    if there is None:  # nobody would call what is put in its place
        raise errors.UnsupportedError(
            f"{type(generation).__name__} has no sync_weights(): this is written "
            "against TRL 1.16")
    _refuse_twice(there)
    server = generation.mode == "server"
    if server and "urls" not in options:
        url = generation.server_base_url or (
            f"http://{generation.server_host}:{generation.server_port}")
        options["urls"] = [url]
    sync = Sync(trainer, **options)

    def sync_weights() -> None:
        if not server:
            if generation.enable_sleep_mode:
                generation.llm.wake_up(tags=["weights"])
                generation._llm_weights_sleeping = False
            if sync.local is None:
                sync.local = _colocated(trainer, generation, sync)
        sync.push()
        if not server:
            generation.llm.reset_prefix_cache()

    sync_weights.sync = sync  # type: ignore[attr-defined]
    generation.sync_weights = sync_weights
    return sync


def _refuse_twice(there: Any) -> None:
    """`there`: what a trainer transfers with by now."""
    sync = getattr(there, "sync", None)
    if sync is not None and not sync.closed:
        raise errors.StateError(
            f"this trainer is attached to job {sync.session['job']} already: "
            "close() what attach() gave, before another one")


def _colocated(trainer: Any, generation: Any, sync: Sync) -> Any:
    """vLLM in this process: its model receives from all ranks' shards."""
    from dynatrain.vllm import Server
    engine = generation.llm.llm_engine
    model = engine.model_executor.driver_worker.model_runner.model
    replica = trainer.accelerator.process_index // \
        generation.tensor_parallel_size
    return Server(model, engine.vllm_config, replica=replica, **sync.session)


class WeightTransfer:
    """TRL's WeightTransferProtocol, for the experimental asynchronous
    trainer."""

    def __init__(self, sync: Sync) -> None:
        self.sync = sync

    def _servers(self) -> Servers:
        if self.sync.servers is None:
            raise errors.StateError("attach() was given no urls")
        return self.sync.servers

    def init_weight_transfer(self) -> None:
        """The servers join at the first push, when there is an offer."""

    def pause(self) -> None:
        self._servers().pause()

    def send_weights(self, iterator: Any) -> None:
        """The iterator would gather whole tensors: it is not run."""
        self.sync.push(paused=True)

    def resume(self) -> None:
        self._servers().resume()

    def destroy(self) -> None:
        self.sync.close()


def _attach_async(trainer: Any, options: Dict[str, Any]) -> Sync:
    _refuse_twice(getattr(trainer, "weight_transfer", None))
    if "urls" not in options:
        options["urls"] = [trainer.args.vllm_server_base_url]
    options.setdefault("in_flight", "continue")
    sync = Sync(trainer, **options)
    trainer.weight_transfer = WeightTransfer(sync) if sync.main else None

    def stream() -> Iterator[Any]:
        if not sync.main:  # takes part in the offer, where TRL would gather
            sync.push(paused=True)
        yield from ()

    trainer._streaming_iter = stream
    return sync
