"""GRPO of TRL with a vLLM server that gets its weights through DynaTrain.
usage: example.py MODEL [SERVER-URL]    (a Hugging Face directory)

Without a URL it starts the server that it needs:
    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs
        --weight-transfer-config '{"backend": "dynatrain"}'
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    import trl
    import vllm  # noqa: F401
    from datasets import Dataset
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import dynatrain.trl


@contextlib.contextmanager
def serving(model):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    log = tempfile.NamedTemporaryFile(suffix=".log")
    server = subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model,
         "--port", url.rpartition(":")[2], "--host", "127.0.0.1",
         "--enforce-eager", "--max-model-len", "512", "--dtype", "float32",
         "--logprobs-mode", "processed_logprobs",
         "--weight-transfer-config", '{"backend": "dynatrain"}'],
        env={**os.environ, "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1",
             "VLLM_CPU_KVCACHE_SPACE": "1"},
        stdout=log, stderr=subprocess.STDOUT, cwd=tempfile.gettempdir())
    try:
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + "/health", timeout=5).close()
                break
            if server.poll() is not None:
                sys.exit(open(log.name).read()[-2000:])
            time.sleep(0.5)
        yield url
    finally:
        server.terminate()
        server.wait()


def reward(completions, **columns):
    """Short answers are good ones."""
    return [-len(text) / 100 for text in completions]


def train(model, url, folder):
    dynatrain.trl.prepare()  # no NCCL: before the trainer is made
    trainer = trl.GRPOTrainer(
        model=model, reward_funcs=reward,
        train_dataset=Dataset.from_dict(
            {"prompt": ["2 + 2 =", "The sky is"] * 8}),
        args=trl.GRPOConfig(
            output_dir=folder, use_vllm=True, vllm_mode="server",
            vllm_server_base_url=url, max_steps=2, num_generations=2,
            per_device_train_batch_size=2, max_completion_length=8,
            learning_rate=1e-5, logging_steps=1, report_to=[], use_cpu=True,
            bf16=False, save_strategy="no",
            model_init_kwargs={"dtype": "float32"}))
    sync = dynatrain.trl.attach(  # from here on TRL's own transfer is not used
        trainer, address=f"unix:{folder}/job.sock")
    try:
        trainer.train()
        print(f"trainer at version {sync.trainer.version}, server at "
              f"{sync.servers.versions()[0]}")
    finally:
        sync.close()


def main():
    model = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 2:
            train(model, sys.argv[2], folder)
            return
        with serving(model) as url:
            train(model, url, folder)


if __name__ == "__main__":
    main()
