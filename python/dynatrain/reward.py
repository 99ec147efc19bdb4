"""Runs reward functions that people already have as the `command` reward of a
job.  Standard library only; the protocol is docs/rewards.md's.

    python -m dynatrain.reward rewards.py:accuracy --style trl
    python -m dynatrain.reward my_scores.py:compute_score --style verl

trl   f(prompts, completions, **columns) -> one number or None for each sample;
      also called with completion_ids and every field of the data row, as far as
      it takes them.  Rows with `messages` get completions as messages.
verl  f(data_source, solution_str, ground_truth, extra_info) -> a number, or a
      dict with `score`; its other numbers become components.
"""

import argparse
import asyncio
import importlib.util
import inspect
import json
import math
import numbers
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, TextIO

Sample = Dict[str, Any]
Function = Callable[..., Any]

# Fields of a sample that are no column of the data row.
OURS = {"id", "group", "prompt", "completion", "completion_ids",
        "finish_reason", "version", "step"}


class RewardError(Exception):
    """What the user did wrong, in one line."""


def load(target: str) -> Function:
    """The function of "FILE:FUNC" or "MODULE:FUNC"."""
    place, colon, name = target.rpartition(":")
    if not colon or not name:
        raise RewardError(f"{target!r} is not FILE:FUNC")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location("reward_file", place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
            sys.modules["reward_file"] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except (ImportError, OSError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise RewardError(f"{place}: {why}") from problem
    function: Any = getattr(module, name, None)
    if not callable(function):
        offered = [n for n, f in vars(module).items()
                   if inspect.isroutine(f) and not n.startswith("_")]
        raise RewardError(f"{place} has no function {name!r}; "
                          f"it has {', '.join(offered) or 'none'}")
    found: Function = function
    return found


def call(function: Function, given: Dict[str, Any]) -> Any:
    """Call with as many of the arguments as it takes, by name."""
    takes = inspect.signature(function).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        given = {name: value for name, value in given.items()
                 if name in takes}
    lacks = [name for name, p in takes.items() if name not in given
             and p.default is p.empty
             and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if lacks:
        raise RewardError(f"{function.__name__} wants {', '.join(lacks)}, "
                          "which the rows have not")
    result = function(**given)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def number(value: Any, what: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise RewardError(f"{what} is {value!r}, not a number") from None
    if not math.isfinite(found):
        raise RewardError(f"{what} is {found}")
    return found


def columns(samples: List[Sample]) -> Dict[str, List[Any]]:
    names = {name for sample in samples for name in sample} - OURS
    return {name: [sample.get(name) for sample in samples]
            for name in sorted(names)}


def trl(function: Function, samples: List[Sample]) -> List[Dict[str, Any]]:
    given: Dict[str, Any] = dict(columns(samples))
    chat = given.pop("messages", [None] * len(samples))
    given["prompts"] = [messages or sample["prompt"]
                        for messages, sample in zip(chat, samples)]
    given["completions"] = [
        [{"role": "assistant", "content": sample["completion"]}]
        if messages else sample["completion"]
        for messages, sample in zip(chat, samples)]
    given["completion_ids"] = [s["completion_ids"] for s in samples]
    given.setdefault("finish_reason", [s["finish_reason"] for s in samples])
    rewards = list(call(function, given))
    if len(rewards) != len(samples):
        raise RewardError(f"{function.__name__} gave {len(rewards)} rewards "
                          f"for {len(samples)} samples")
    return [{"id": sample["id"], "reward": None if reward is None else number(
        reward, f"the reward of sample {sample['id']}")}
        for sample, reward in zip(samples, rewards)]


def ground_truth(sample: Sample) -> Any:
    inner = sample.get("reward_model")
    if isinstance(inner, dict) and "ground_truth" in inner:
        return inner["ground_truth"]
    if "ground_truth" in sample:
        return sample["ground_truth"]
    raise RewardError("a row has neither `ground_truth` nor "
                      "`reward_model.ground_truth`")


def verl(function: Function, samples: List[Sample]) -> List[Dict[str, Any]]:
    replies = []
    for sample in samples:
        result = call(function, {
            "data_source": sample.get("data_source", ""),
            "solution_str": sample["completion"],
            "ground_truth": ground_truth(sample),
            "extra_info": sample.get("extra_info") or {}})
        reply: Dict[str, Any] = {"id": sample["id"]}
        if isinstance(result, dict):
            if "score" not in result:
                raise RewardError("the dict of a reward has no `score`")
            reply["components"] = {
                name: float(value) for name, value in result.items()
                if name != "score" and isinstance(value, numbers.Real)
                and math.isfinite(value)}
            result = result["score"]
        reply["reward"] = None if result is None else number(
            result, f"the reward of sample {sample['id']}")
        replies.append(reply)
    return replies


STYLES = {"trl": trl, "verl": verl}


def serve(function: Function, style: str, lines: Iterator[str],
          out: TextIO) -> None:
    """Answer each line of samples with one line of rewards."""
    for line in lines:
        print(json.dumps(STYLES[style](function, json.loads(line))), file=out,
              flush=True)


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dynatrain.reward",
        description="Run a reward function as the command of a job.")
    parser.add_argument("target", metavar="FILE:FUNC")
    parser.add_argument("--style", choices=sorted(STYLES), required=True)
    args = parser.parse_args(arguments)
    # What the function prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    try:
        serve(load(args.target), args.style, sys.stdin, answers)
    except RewardError as problem:
        print(f"dynatrain.reward: {problem}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
