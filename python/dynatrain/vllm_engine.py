"""The weight transfer engine `dynatrain` of vLLM >= 0.29."""

from dataclasses import dataclass, field
from typing import Any, Dict, Optional

from vllm.distributed.weight_transfer.base import (WeightTransferEngine,
                                                   WeightTransferInitInfo,
                                                   WeightTransferUpdateInfo)

from dynatrain.vllm import Server


@dataclass
class InitInfo(WeightTransferInitInfo):
    """Arguments of dynatrain.Session (address, job, commit, memory, …) and
    `rules`; all of them have defaults."""

    options: Dict[str, Any] = field(default_factory=dict)


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """version: at least this one (0: the newest); timeout in seconds."""

    version: int = 0
    timeout: Optional[float] = None


class Engine(WeightTransferEngine[InitInfo, UpdateInfo]):
    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def __init__(self, config: Any, vllm_config: Any, device: Any,
                 model: Any) -> None:
        super().__init__(config, vllm_config, device, model)
        self._options: Dict[str, Any] = {}
        self._servers: Dict[int, Server] = {}

    def parse_init_info(self, init_dict: Dict[str, Any]) -> InitInfo:
        return InitInfo(dict(init_dict))

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        self.shutdown()
        self._options = init_info.options
        self._server()

    def _server(self) -> Server:
        """Of the model that is updated: a draft model is a pool of its own."""
        server = self._servers.get(id(self.model))
        if server is None or server.session is None:
            draft = self.model is not self._default_model
            options = {**self._options, **({"pool": "draft"} if draft else {})}
            server = Server(self.model, self.vllm_config, **options)
            self._servers[id(self.model)] = server
        return server

    def start_weight_update(self) -> None:
        """Nothing is written before the replica has agreed."""

    def receive_weights(self, update_info: UpdateInfo) -> None:
        self._server().receive(update_info.version, update_info.timeout)

    def finish_weight_update(self) -> None:
        """receive_weights() has committed, or has changed nothing."""

    def shutdown(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers = {}
