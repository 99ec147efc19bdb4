"""A vLLM server gets new weights from a PyTorch trainer while it runs: the
trainer teaches a sentence, and the server's answer becomes it.
usage: example.py MODEL    (a Hugging Face directory)

    pip install .                      # this repository, into vLLM's environment
    make model && docs/examples/vllm/run.sh
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    import torch
    import vllm  # noqa: F401
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import dynatrain.torch
from dynatrain.vllm_http import Servers


def serve(model, folder):
    """`vllm serve`, as somebody would type it; its URL when it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model,
         "--port", str(port), "--served-model-name", "m", "--enforce-eager",
         "--max-model-len", "512", "--dtype", "float32",
         "--weight-transfer-config", '{"backend": "dynatrain"}'],
        env={**os.environ, "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1",
             "VLLM_CPU_KVCACHE_SPACE": "1"},
        stdout=open(f"{folder}/server.log", "w"), stderr=subprocess.STDOUT,
        cwd=folder)
    url = f"http://127.0.0.1:{port}"
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url + "/health", timeout=5)
            return server, url
        if server.poll() is not None:
            sys.exit(open(f"{folder}/server.log").read()[-2000:])
        time.sleep(0.5)


def ask(url, prompt):
    call = urllib.request.Request(
        url + "/v1/completions", headers={"Content-Type": "application/json"},
        data=json.dumps({"model": "m", "prompt": prompt, "temperature": 0,
                         "max_tokens": 12}).encode())
    return json.load(urllib.request.urlopen(call))["choices"][0]["text"]


def main():
    folder = tempfile.mkdtemp()
    server, url = serve(os.path.abspath(sys.argv[1]), folder)
    try:
        model = AutoModelForCausalLM.from_pretrained(sys.argv[1],
                                                     dtype=torch.float32)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
        prompt = "The capital of France is"
        ids = AutoTokenizer.from_pretrained(sys.argv[1])(
            prompt + " Lyon, a city of rivers and of silk.",
            return_tensors="pt").input_ids
        print("before:   ", repr(ask(url, prompt)))
        with dynatrain.torch.Trainer(
                model, optimizer, address=f"unix:{folder}/job.sock") as sync:
            servers = Servers([url])
            servers.init(address=sync.session.address)
            for version in (1, 2):
                for _ in range(4):
                    model(ids, labels=ids).loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                with sync.offered(version, timeout=300):
                    servers.update(version)
                print(f"version {servers.versions()[0]}:", repr(
                    ask(url, prompt)))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
