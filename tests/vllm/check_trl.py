"""GRPO of TRL against a vLLM server over HTTP, through dynatrain.trl.attach.
usage: check_trl.py MODEL [--steps N]

TRL's own transfer raises; the order of an update, and of updates and
generation, is recorded; every step's samples must have the log-probabilities
that the trainer's weights give them, which they have only where the server got
exactly these; versions advance by one a step.  Exit status 77: no TRL here."""

import argparse
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    import trl
    from datasets import Dataset
    from trl.generation.vllm_client import VLLMClient
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import dynatrain.trl

PROMPTS = ["The capital of France is", "Once upon a time there was",
           "2 + 2 =", "The weather in the mountains"]
# Samples of vLLM under the trainer's own forward pass, both fp32.
LOGPROB_GAP = 0.01
ORDER = ["/pause", "/start_weight_update", "/update_weights",
         "/finish_weight_update", "/reset_prefix_cache", "/resume"]


@contextlib.contextmanager
def serving(model, log):
    """`vllm serve` as TRL wants it, but for the backend; its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with open(log, "w", encoding="utf-8") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve",
             str(model), "--port", str(port), "--host", "127.0.0.1",
             "--enforce-eager", "--max-model-len", "512", "--dtype", "float32",
             "--logprobs-mode", "processed_logprobs",
             "--weight-transfer-config", '{"backend": "dynatrain"}'],
            stdout=out, stderr=subprocess.STDOUT, cwd=str(log.parent),
            env={**os.environ, "VLLM_SERVER_DEV_MODE": "1",
                 "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
                 "VLLM_NO_USAGE_STATS": "1"})
    try:
        while server.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + "/health", timeout=5).close()
                break
            time.sleep(0.5)
        else:
            raise RuntimeError("the server ended")
        yield url
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def forbid_own_transfer(generation):
    """What TRL would send weights with."""

    def own(*about, **more):
        raise AssertionError("TRL's own transfer was called")

    for name in ("update_named_param", "update_named_params",
                 "update_model_params", "weight_update",
                 "_start_weight_update", "_finish_weight_update"):
        assert hasattr(VLLMClient, name), name
        setattr(VLLMClient, name, own)
    assert hasattr(generation, "_iter_named_params")
    generation._iter_named_params = own


def recorded(sync, generation):
    """Names of what was done, in order."""
    calls = []
    post, generate = sync.servers.post, generation.generate

    def posts(url, path, **body):
        calls.append(path.partition("?")[0])
        return post(url, path, **body)

    def generates(*about, **more):
        calls.append("generate")
        return generate(*about, **more)

    sync.servers.post, generation.generate = posts, generates
    return calls


def reward(completions, **columns):
    """Lengths differ between samples, so advantages do."""
    return [-len(text) / 100 for text in completions]


def make_trainer(model, url, folder, steps):
    dynatrain.trl.prepare()  # no NCCL: before the trainer is made
    return trl.GRPOTrainer(
        model=str(model), reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": PROMPTS * 4}),
        args=trl.GRPOConfig(
            output_dir=str(folder / "trl"), use_vllm=True, vllm_mode="server",
            vllm_server_base_url=url, max_steps=steps, num_generations=2,
            per_device_train_batch_size=4, max_completion_length=12,
            learning_rate=3e-4, lr_scheduler_type="constant", logging_steps=1,
            report_to=[], use_cpu=True, bf16=False, save_strategy="no",
            gradient_checkpointing=False,
            model_init_kwargs={"dtype": "float32"}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dynatrain-trl-"))
    log = folder / "server.log"
    try:
        with serving(args.model.resolve(), log) as url:
            run(args, url, folder)
    except BaseException:
        print(f"--- {log.name}\n{log.read_text()[-3000:]}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(args, url, folder):
    trainer = make_trainer(args.model, url, folder, args.steps)
    generation = trainer.vllm_generation
    forbid_own_transfer(generation)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    sync = dynatrain.trl.attach(trainer, address=f"unix:{folder}/job.sock",
                                job="trl")
    calls = recorded(sync, generation)
    try:
        trainer.train()
        joined = calls.pop(0)
        assert joined == "/init_weight_transfer_engine", joined
        assert calls == (ORDER + ["generate"]) * args.steps, calls
        assert sync.trainer.version == args.steps
        assert sync.servers.versions() == [str(args.steps)]
        assert any((a != b).any() for a, b in
                   zip(before, trainer.model.parameters())), "nothing learnt"
    finally:
        sync.close()
    gaps = [row["sampling/sampling_logp_difference/max"]
            for row in trainer.state.log_history
            if "sampling/sampling_logp_difference/max" in row]
    assert len(gaps) == args.steps, trainer.state.log_history
    assert max(gaps) < LOGPROB_GAP, gaps
    print(f"ok TRL {trl.__version__}: {args.steps} steps of GRPO, "
          f"{args.steps} versions, largest gap of a sample's log-probability "
          f"{max(gaps):.2g}", flush=True)


if __name__ == "__main__":
    main()
