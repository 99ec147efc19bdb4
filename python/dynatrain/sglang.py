"""SGLang's workers as receivers: its plugin group `sglang.srt.plugins` loads
register(), and updates that name the format `dynatrain.sglang.load`
(update_weights_from_tensor, dynatrain.sglang_http) come here on every
tensor-parallel worker.  No tensor travels in them: one is called
"dynatrain.version" and holds the version to receive, one "dynatrain.init:{…}"
carries options (those of dynatrain.Session, and `rules`) and joins the job.
Else options come from the JSON of DYNATRAIN_SGLANG.

A version of SGLang without that group takes the same by
`--custom-weight-loader dynatrain.sglang.load`; a failure then ends the server, as
one of any loader does there.
"""

import json
import logging
from typing import Any, Dict, Iterable, Tuple

from dynatrain import _server, errors
from dynatrain.session import Session

log = logging.getLogger("dynatrain")

FORMAT = "dynatrain.sglang.load"
VERSION = "dynatrain.version"
INIT = "dynatrain.init:"
UPDATER = ("sglang.srt.model_executor.model_runner_components.weight_updater."
           "WeightUpdater.update_weights_from_tensor")
_servers: Dict[int, "Server"] = {}


def register() -> None:
    """The entry point: called in every process of the server."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    HookRegistry.register(UPDATER, _around, HookType.AROUND)


def _around(original: Any, updater: Any, named_tensors: Any,
            load_format: Any = None) -> Tuple[bool, str]:
    """An update of ours is answered with what came of it: one that raised
    would end the server, which still has what it served."""
    if load_format != FORMAT:
        return original(updater, named_tensors,  # type: ignore[no-any-return]
                        load_format=load_format)
    try:
        load(updater.get_model(), named_tensors)
    except Exception as problem:
        log.error("dynatrain: %s", problem)
        return False, f"dynatrain: {problem}"
    return True, "Success"


class Server:
    """One worker's model."""

    def __init__(self, model: Any, **given: Any) -> None:
        options = _server.options("DYNATRAIN_SGLANG", given)
        _server.refuse(model)
        _server.known(options)
        rules = _server.rules_of(options.pop("rules", None),
                                 getattr(model.config, "model_type", ""))
        self.session = Session("receiver", **{**_place(model), **options})
        try:
            self.session.publish(_server.rows(model)[0], rules)
        except BaseException:
            self.session.close()
            raise


def _place(model: Any) -> Dict[str, Any]:
    from sglang.srt.distributed import parallel_state as groups
    config = model.config
    numbers = config.to_dict()
    return _server.place(
        groups.get_tp_group(), groups.get_pp_group(), numbers,
        numbers.get("head_dim") or config.hidden_size
        // config.num_attention_heads)


def _join(model: Any, **options: Any) -> Server:
    old = _servers.pop(id(model), None)
    if old is not None:
        old.session.close()
    server = _servers[id(model)] = Server(model, **options)
    return server


def load(model: Any, named_tensors: Iterable[Tuple[str, Any]]) -> None:
    """Do what an update asks for: join, receive, or both."""
    asked = dict(named_tensors)
    inits = [name for name in asked if name.startswith(INIT)]
    if not asked or set(asked) - {VERSION} != set(inits):
        raise errors.InvalidError(
            f"an update for this loader has {VERSION!r} or {INIT + '{…}'!r}, "
            f"not {sorted(asked)[:5]}")
    for name in inits:
        _join(model, **json.loads(name[len(INIT):]))
    if VERSION in asked:
        server = _servers.get(id(model)) or _join(model)
        server.session.receive(int(asked[VERSION]))
