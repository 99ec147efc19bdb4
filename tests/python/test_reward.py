"""dynatrain.reward by its protocol, and as the command of a whole run.
usage: test_reward.py [DYNATRAIN]"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import support

FUNCTIONS = '''
import asyncio
from fractions import Fraction
print("printed while loading")

def same(prompts, completions, sorted=None, **columns):
    print("printed by the function")
    return [float(c == s) for c, s in zip(completions, sorted)]

def some(prompts, completions):
    return [None if c == "x" else len(c) for c in completions]

async def later(completions, completion_ids, **kw):
    await asyncio.sleep(0)
    return [len(ids) for ids in completion_ids]

def chat(prompts, completions, **kw):
    return [float(p[-1]["content"] == "hi" and c[0]["content"] == "ab")
            for p, c in zip(prompts, completions)]

def short(completions, **kw):
    return [1.0]

def broken(completions, **kw):
    return ["no number"] * len(completions)

def needs(completions, nothing):
    return [0.0 for _ in completions]

def positions(completions, sorted, **kw):
    return [sum(a == b for a, b in zip(c, s)) / max(len(c), len(s), 1)
            for c, s in zip(completions, sorted)]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(solution_str == ground_truth), "length":
            Fraction(len(solution_str)), "source": data_source,
            "index": extra_info["index"]}
'''


def sample(number, completion, **fields):
    return {"id": number, "group": 0, "prompt": "dbca>", "completion":
            completion, "completion_ids": [1, 2, 3], "finish_reason": "stop",
            "version": 1, "step": 2, **fields}


def serve(function, style, *batches):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "functions.py"
        path.write_text(FUNCTIONS, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "dynatrain.reward", f"{path}:{function}",
             "--style", style], input="".join(
                json.dumps(batch) + "\n" for batch in batches),
            capture_output=True, text=True, timeout=60,
            env={**os.environ, "PYTHONPATH": str(support.ROOT / "python")})
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def trl_functions_get_columns():
    batch = [sample(0, "abcd", sorted="abcd"), sample(1, "x", sorted="abcd")]
    done, answers = serve("same", "trl", batch, batch[1:])
    assert done.returncode == 0, done.stderr
    assert answers == [[{"id": 0, "reward": 1.0}, {"id": 1, "reward": 0.0}],
                       [{"id": 1, "reward": 0.0}]], answers
    assert "printed by the function" in done.stderr


def trl_none_drops_and_async_works():
    batch = [sample(0, "abc"), sample(1, "x")]
    assert serve("some", "trl", batch)[1] == [
        [{"id": 0, "reward": 3.0}, {"id": 1, "reward": None}]]
    assert serve("later", "trl", batch)[1][0][0]["reward"] == 3.0


def trl_messages_are_messages():
    batch = [sample(0, "ab", messages=[{"role": "user", "content": "hi"}])]
    assert serve("chat", "trl", batch)[1] == [[{"id": 0, "reward": 1.0}]]


def wrong_functions_are_one_line():
    batch = [sample(0, "abc"), sample(1, "x")]
    for function, says in (("short", "1 rewards for 2 samples"),
                           ("broken", "not a number"),
                           ("needs", "wants nothing"),
                           ("absent", "has no function")):
        done, answers = serve(function, "trl", batch)
        lines = [line for line in done.stderr.splitlines()
                 if line.startswith("dynatrain.reward:")]
        assert done.returncode == 1 and answers == [], done
        assert len(lines) == 1 and says in lines[0], done.stderr


def verl_scores_have_components():
    rows = [sample(0, "4", data_source="gsm", extra_info={"index": 7},
                   reward_model={"style": "rule", "ground_truth": "4"}),
            sample(1, "5", ground_truth="4", extra_info={"index": 8})]
    done, answers = serve("compute_score", "verl", rows)
    assert done.returncode == 0, done.stderr
    assert answers == [[
        {"id": 0, "components": {"length": 1.0, "index": 7.0}, "reward": 1.0},
        {"id": 1, "components": {"length": 1.0, "index": 8.0}, "reward": 0.0},
    ]], answers


JOB = """name = "{kind}"
model = "{folder}/model"
runs = "{folder}"
steps = 2
ranks = 2
[[phase]]
name = "rollout"
[phase.layout]
tp = 2
[phase.sampling]
max_response_tokens = 4
[phase.kv]
memory = "1MiB"
max_sequences = 16
[[phase]]
name = "train"
[phase.layout]
dp = 2
[phase.batch]
micro_batch_tokens = 64
[phase.optimizer]
lr = 0.002
[data]
train = "train.jsonl"
prompt = "{{letters}}>"
chat_template = "none"
max_prompt_tokens = 8
[[reward.functions]]
{reward}
[algorithm]
prompts_per_step = 4
samples_per_prompt = 4
"""
BUILTIN = 'kind = "position_match"\nanswer = "sorted"\nname = "r"'
COMMAND = """kind = "command"
name = "r"
command = ["{python}", "-m", "dynatrain.reward", "{functions}:positions",
           "--style", "trl"]"""


def a_run_uses_the_function():
    """Two steps of the quickstart's task: the same rewards from Python as from
    the built-in function."""
    program = sys.argv[1]
    rewards = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        functions = folder / "functions.py"
        functions.write_text(FUNCTIONS, encoding="utf-8")
        subprocess.run([program, "model", "init", "--preset", "tiny", "--out",
                        str(folder / "model")], check=True, capture_output=True)
        shutil.copy(support.ROOT / "configs" / "quickstart" / "train.jsonl",
                    folder)
        command = COMMAND.format(python=sys.executable, functions=functions)
        for kind, reward in (("builtin", BUILTIN), ("python", command)):
            job = folder / f"{kind}.toml"
            job.write_text(JOB.format(kind=kind, folder=folder, reward=reward),
                           encoding="utf-8")
            done = subprocess.run(
                [program, "run", str(job)], capture_output=True, text=True,
                env={**os.environ,
                     "PYTHONPATH": str(support.ROOT / "python")}, timeout=100)
            assert done.returncode == 0, done.stdout + done.stderr
            lines = (folder / kind / "metrics.jsonl").read_text().splitlines()
            rewards[kind] = [json.loads(line)["reward/mean"] for line in lines]
    assert rewards["builtin"] == rewards["python"], rewards
    assert len(rewards["python"]) == 2, rewards


if __name__ == "__main__":
    tests = [trl_functions_get_columns, trl_none_drops_and_async_works,
             trl_messages_are_messages, wrong_functions_are_one_line,
             verl_scores_have_components]
    support.run(*tests, *([a_run_uses_the_function] if len(sys.argv) > 1
                          else []))
