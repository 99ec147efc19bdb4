"""The weight transfer engine `dynatrain` of vLLM >= 0.29."""

from dataclasses import dataclass
from typing import Any, Dict, Optional

from vllm.distributed.weight_transfer import base

from dynatrain import _server
from dynatrain.vllm import Server


@dataclass
class InitInfo(base.WeightTransferInitInfo):
    options: Dict[str, Any]  # of dynatrain.Session, and `rules`; may be empty


@dataclass
class UpdateInfo(base.WeightTransferUpdateInfo):
    version: int = 0  # at least this one; 0: the newest
    timeout: Optional[float] = None


class Engine(base.WeightTransferEngine[InitInfo, UpdateInfo]):
    init_info_cls, update_info_cls = InitInfo, UpdateInfo

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self._options: Dict[str, Any] = {}
        self._servers: Dict[int, Server] = {}

    def parse_init_info(self, init_dict: Dict[str, Any]) -> InitInfo:
        return InitInfo(init_dict)

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        self.shutdown()
        _server.all_here()
        self._options = init_info.options
        self._server()

    def _server(self) -> Server:
        """Of the model that is updated; a draft joins its job at its first update."""
        server = self._servers.get(id(self.model))
        if server is None or server.receiver is None:
            draft = {} if self.model is self._default_model else {
                "policy": self._default_model, "model_config": self.model_config}
            server = Server(self.model, self.vllm_config, **draft, **self._options)
            self._servers[id(self.model)] = server
        return server

    def start_weight_update(self) -> None:
        """Nothing is written before the replica has agreed."""

    def receive_weights(self, update_info: UpdateInfo) -> None:
        self._server().receive(update_info.version, update_info.timeout)

    def finish_weight_update(self) -> None:
        """receive_weights() has committed, or has changed nothing."""

    def shutdown(self) -> None:
        while self._servers:
            self._servers.popitem()[1].close()
