"""What the workers of servers have in common: rows of a module's own tensors,
their place in the replica, layers that cannot be written."""

import inspect
import json
import os
from typing import Any, Dict, List, Optional, Tuple

from dynatrain import errors
from dynatrain.rules import Rules, load
from dynatrain.session import Row, Session

PLAIN = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod",
         "UnquantizedFusedMoEMethod", "NoneType"}
FAMILIES = {"qwen3_moe": "vllm/qwen3_moe", "mixtral": "vllm/mixtral",
            "deepseek_v2": "vllm/deepseek_v3", "deepseek_v3": "vllm/deepseek_v3",
            "gpt2": "vllm/gpt2"}  # others: vllm/llama


def rules_of(given: Optional[str], model_type: str) -> Optional[Rules]:
    """The table that was given by name or path, else that of the model."""
    return load(given or FAMILIES.get(model_type, "vllm/llama"))


def options(variable: str, given: Dict[str, Any]) -> Dict[str, Any]:
    """Options that were given, over those of the environment."""
    text = os.environ.get(variable) or "{}"
    try:
        return {**json.loads(text), **given}
    except (ValueError, TypeError) as problem:
        raise errors.ConfigError(
            f"{variable}={text}: no JSON object: {problem}") from None


def known(given: Dict[str, Any]) -> None:
    """Options that nobody knows are named before anybody is asked."""
    names = sorted({"rules", "draft", "pack"} | set(
        inspect.signature(Session).parameters) - {"role"})
    wrong = [name for name in given if name not in names]
    if wrong:
        raise errors.ConfigError(
            f"unknown options {', '.join(wrong)}: there are {', '.join(names)}")


def refuse(model: Any, lora: bool = False) -> None:
    """What cannot be written is named, all at once, before anything moves."""
    found = [f"{name} ({type(module.quant_method).__name__})"
             for name, module in model.named_modules()
             if type(getattr(module, "quant_method", None)).__name__
             not in PLAIN]
    if lora:
        found.append("LoRA adapters")
    if found:
        raise errors.UnsupportedError(
            f"{len(found)} layers are not plain weights: "
            + ", ".join(found[:10]))


def place(tp: Any, pp: Any, config: Dict[str, Any], head_dim: int,
          ep: Any = None, model: Any = None) -> Dict[str, Any]:
    """Arguments of Session from the groups that the worker is in (ep: where it
    has some experts only) and from the numbers of its model."""
    expert = {} if ep is None else {
        "ep": (ep.rank_in_group, ep.world_size), "experts": experts(model)}
    numbers = {name: value for name, value in config.items()
               if isinstance(value, int) and not isinstance(value, bool)}
    return {"rank": pp.rank_in_group * tp.world_size + tp.rank_in_group,
            "size": pp.world_size * tp.world_size,
            "tp": (tp.rank_in_group, tp.world_size),
            "pp": (pp.rank_in_group, pp.world_size),
            "attributes": {**numbers, "head_dim": head_dim}, **expert}


def experts(model: Any) -> Optional[List[int]]:
    """Global numbers of this rank's experts, in order of their places."""
    for module in model.modules():
        places = getattr(module, "expert_map", None)
        if places is not None:
            pairs = enumerate(places.tolist())
            return [e for _, e in sorted((p, e) for e, p in pairs if p >= 0)]
    return None


def draft_options(given: Dict[str, Any]) -> Dict[str, Any]:
    """Those of `draft`, over the others but where the policy's job is."""
    own = given.get("draft") or {}
    if not ({"job", "address"} & set(own)):
        raise errors.UnsupportedError(
            "the weights of a speculative draft model are a target of their "
            "own: a trainer publishes them in another job, and the options name "
            """that one beside the policy's: "draft": {"address": …, "job": …}""")
    rest = {name: value for name, value in given.items()
            if name not in ("job", "address", "draft", "rules")}
    return {"pool": "draft", **rest, **own}


def all_here() -> None:
    """Every rank of this server has come here: one that joins a job again
    would meet others that have yet to leave it, and be told so."""
    from vllm.distributed import parallel_state as groups
    group: Any
    for group in (groups.get_tp_group(), groups.get_pp_group()):
        group.barrier()


def is_packed(module: Any) -> bool:
    """Does a layer of vLLM compute from a packed copy?  On CPUs only."""
    linear = getattr(module, "cpu_linear", None)
    return getattr(linear, "__closure__", None) is not None


def rows(model: Any, others: Any = None
         ) -> Tuple[List[Row], List[Tuple[int, Any]]]:
    """Rows of all parameters, and of each (the first row with its memory, its
    module): the others are aliases of that one.  Linear weights that have been
    packed away have no memory, and get some of the library.  What a draft has
    of another model, `others`, comes with that one."""
    modules = dict(model.named_modules(remove_duplicate=False))
    theirs = {id(parameter) for _, parameter in others.named_parameters()
              } if others is not None else set()
    found: List[Row] = []
    of: List[Tuple[int, Any]] = []
    seen: Dict[int, int] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in theirs:
            continue
        module = modules[name.rpartition(".")[0]]
        first = len(found)
        if parameter.numel() == 0:
            shape = (sum(module.output_partition_sizes),
                     module.input_size_per_partition)
            found.append(Row(name, shape=shape, staged=True,
                             dtype=str(parameter.dtype).rpartition(".")[2]))
        else:
            first = seen.setdefault(parameter.data_ptr(), first)
            found.append(Row(name, parameter.data, alias=first != len(found)))
        of.append((first, module))
    return found, of
