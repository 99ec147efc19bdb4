"""The loop of `dynatrain run` with a vLLM server as its generation engine:
training in pipeline stages and with a shared optimizer state, weights through
the session, samples over HTTP."""

import json
import pathlib
import subprocess

from servers import end_group, in_group

JOB = pathlib.Path(__file__).resolve().parents[2] / "configs/smollm2/job.toml"


def settings(site, model, program_engine, steps):
    """Of the example job: fp32 on both sides, so that log-probabilities can be
    compared closely."""
    url = site.servers[0].url
    return {
        "name": "grpo", "model": str(model), "runs": str(site.folder / "runs"),
        "steps": steps, "eval.every": 0, "eval.before_training": "false",
        "eval.limit": 4, "metrics.completions_every": 1,
        "algorithm.prompts_per_step": 2, "algorithm.samples_per_prompt": 4,
        "algorithm.max_logprob_gap": 0.01, "switch.deadline": 600,
        "phase.rollout.engine": "plugin",
        "phase.rollout.plugin.path": program_engine,
        "phase.rollout.plugin.options": json.dumps(
            [f"url={url}", "model=m"]),
        "phase.rollout.plugin.address": f"unix:{site.folder}/grpo.sock",
        "phase.rollout.layout.dtype": "f32", "phase.train.layout.dtype": "f32",
        "phase.train.layout.pp": 2, "phase.train.layout.dp": 2,
        "phase.train.layout.zero": 1, "phase.train.batch.mini_batch": 8}


def grpo(checks, site, options):
    steps = 3 if options.full else 2
    with checks.one(f"{site.name}: dynatrain run, {steps} steps of GRPO with "
                    "PP 2 x ZeRO-1") as notes:
        command = [options.program, "run", str(JOB)]
        for key, value in settings(site, site.models["A"], options.engine,
                                   steps).items():
            command += ["--set", f"{key}={value}"]
        log = site.folder / "grpo.log"
        with open(log, "w", encoding="utf-8") as out:
            child = in_group(command, stdout=out, stderr=subprocess.STDOUT,
                             cwd=str(site.folder))
            try:
                code = child.wait(1200)
            finally:
                end_group(child)
        assert code == 0, f"it ended with {code}: {log.read_text()[-2000:]}"
        run = site.folder / "runs/grpo"
        summary = json.loads((run / "summary.json").read_text())
        lines = [json.loads(line) for line in
                 (run / "metrics.jsonl").read_text().splitlines()]
        assert [line["version"] for line in lines] == list(
            range(1, steps + 1)), lines
        gap = summary["logprob_gap_max"]
        assert 0 < gap < 0.01, summary
        notes.append(f"logprob_gap_max {gap:.2g}")
        samples = [json.loads(line) for line in
                   (run / "completions.jsonl").read_text().splitlines()]
        spans = [(sample, span) for sample in samples
                 for span in sample["versions"] if not sample["eval"]]
        for sample, span in spans:  # all of a sample is of one version
            assert span["count"] == len(sample["ids"]), sample
        assert {span["version"] for _, span in spans} == set(
            range(steps)), spans
        notes.append(f"versions on all tokens of {len(spans)} samples")
