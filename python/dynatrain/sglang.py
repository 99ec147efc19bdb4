"""SGLang's workers as receivers, by its hook for loaders of one's own:

    python -m sglang.launch_server … --custom-weight-loader dynatrain.sglang.load

and an update of the tensor "dynatrain.version" with that load_format
(update_weights_from_tensor), which every tensor-parallel worker gets.  Options
come from the JSON of DYNATRAIN_SGLANG.  Verified against a recorded double: the
package does not install on a machine without a GPU.
"""

import json
import os
from typing import Any, Dict, Iterable, List, Tuple

from dynatrain import errors
from dynatrain.rules import load as load_rules
from dynatrain.session import Row, Session

VERSION = "dynatrain.version"
PLAIN = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod",
         "UnquantizedFusedMoEMethod", "NoneType"}
_servers: Dict[int, "Server"] = {}


class Server:
    """One worker's model."""

    def __init__(self, model: Any) -> None:
        options = json.loads(os.environ.get("DYNATRAIN_SGLANG", "{}"))
        found = [name for name, module in model.named_modules()
                 if type(getattr(module, "quant_method", None)).__name__
                 not in PLAIN]
        if found:
            raise errors.UnsupportedError(
                "layers that are not plain weights: " + ", ".join(found[:10]))
        rules = load_rules(options.pop("rules", "vllm/llama"))
        self.session = Session("receiver", **{**self._place(model), **options})
        try:
            self.session.publish(self._rows(model), rules)
        except BaseException:
            self.session.close()
            raise

    @staticmethod
    def _place(model: Any) -> Dict[str, Any]:
        from sglang.srt.distributed import parallel_state as groups
        tp, pp = groups.get_tp_group(), groups.get_pp_group()
        config = model.config
        numbers = {name: value for name, value in config.to_dict().items()
                   if isinstance(value, int) and not isinstance(value, bool)}
        numbers.setdefault("head_dim", config.hidden_size
                           // config.num_attention_heads)
        return {"rank": pp.rank_in_group * tp.world_size + tp.rank_in_group,
                "size": pp.world_size * tp.world_size,
                "tp": (tp.rank_in_group, tp.world_size),
                "pp": (pp.rank_in_group, pp.world_size),
                "attributes": numbers}

    @staticmethod
    def _rows(model: Any) -> List[Row]:
        rows: List[Row] = []
        seen: Dict[int, str] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            first = seen.setdefault(parameter.data_ptr(), name)
            rows.append(Row(name, parameter.data, alias=first != name))
        return rows


def load(model: Any, named_tensors: Iterable[Tuple[str, Any]]) -> None:
    """SGLang's hook: receive the version that the tensor names."""
    versions = dict(named_tensors)
    if set(versions) != {VERSION}:
        raise errors.InvalidError(
            f"an update for this loader has the one tensor {VERSION!r}, not "
            f"{sorted(versions)[:5]}")
    server = _servers.get(id(model))
    if server is None:
        server = _servers[id(model)] = Server(model)
    server.session.receive(int(versions[VERSION]))
