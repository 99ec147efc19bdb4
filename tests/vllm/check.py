"""A running vLLM server gets weights from a trainer that is sharded over two
processes, and answers bit for bit like servers that loaded them from disk.
usage: check.py MODEL [--tp 1 3] [--updates N] [--dtype float32]

Six updates by default, 20 with DYNATRAIN_TEST_FULL=1."""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import signal
import tempfile
import time

from servers import PROMPTS, Server, Trainer, make_weights

from dynatrain import errors
from dynatrain.vllm_http import Servers


def references(models, tp, dtype, folder):
    """One fresh server for each set of weights, which loads it from disk."""
    found = {}
    for name, path in models.items():
        with Server(path, tp, dtype, folder / f"reference-{name}-{tp}.log",
                    backend=False) as server:
            found[name] = server.wait().answers()
    assert found["A"] != found["B"], "the two sets answer alike"
    return found


def update(trainer, servers, version, name):
    """One version from the trainer into the servers; seconds that it took."""
    trainer.offer(version, name)
    begun = time.monotonic()
    servers.update(version)
    took = time.monotonic() - begun
    trainer.done()
    return took


def same(server, want, what):
    have = server.answers()
    assert [ids for ids, _ in have] == [ids for ids, _ in want], (
        f"{what}: token ids differ")
    assert have == want, f"{what}: log-probabilities differ"


def updates(trainer, server, want, count, options):
    """A, B, A, …: bit for bit, every time."""
    servers = Servers([server.url], timeout=300)
    servers.init(**options)
    times = []
    for version in range(1, count + 1):
        name = "BA"[version % 2 == 0]
        times.append(update(trainer, servers, version, name))
        same(server, want[name], f"version {version} ({name})")
        assert servers.versions() == [str(version)]
    print(f"ok {count} updates with {options}: "
          f"{sorted(times)[len(times) // 2]:.2f} s each", flush=True)
    return servers, count


def in_flight(trainer, server, servers, version):
    """Requests that run while weights change: waited for, aborted, or gone on
    with."""
    for setting, kv in (("wait", "recompute"), ("abort", "recompute"),
                        ("continue", "recompute"), ("continue", "keep")):
        servers.in_flight, servers.kv = setting, kv
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            call = pool.submit(server.post, "/v1/completions", model="m",
                               prompt=PROMPTS[:1], max_tokens=200,
                               temperature=0, ignore_eos=True,
                               return_token_ids=True)
            wait_for_running(server)
            version += 1
            update(trainer, servers, version, "BA"[version % 2 == 0])
            choice = call.result()["choices"][0]
        if setting == "abort":
            assert choice["finish_reason"] == "abort", choice
            assert len(choice["token_ids"]) < 200
        else:
            assert choice["finish_reason"] == "length", choice
            assert len(choice["token_ids"]) == 200
        print(f"ok in flight: {setting}, kv {kv}", flush=True)
    servers.in_flight, servers.kv = "wait", "recompute"
    return version


def wait_for_running(server):
    import urllib.request
    for _ in range(600):
        with urllib.request.urlopen(server.url + "/metrics") as reply:
            for line in reply.read().decode().splitlines():
                if line.startswith("vllm:num_requests_running") and \
                        float(line.rsplit(" ", 1)[1]) > 0:
                    return
        time.sleep(0.05)
    raise AssertionError("no request is running")


def wrong_dialect(server, folder, options):
    """Rules of another family: refused, with what does not fit."""
    table = folder / "wrong.toml"
    table.write_text('family = "wrong"\n[[rule]]\nname = "model.norm.weight"\n'
                     'part = [{ tensor = "model.norm.wieght" }]\n',
                     encoding="utf-8")
    servers = Servers([server.url])
    try:
        servers.init(**{**options, "rules": str(table)})
    except errors.Error as problem:
        text = str(problem)
        assert "qkv_proj" in text and "model.norm.w" in text, text
        print("ok wrong dialect:", text[:160].replace("\n", " "), flush=True)
        return
    raise AssertionError("a wrong table of rules was accepted")


def close_to_transformers(want, model, dtype):
    """Where the two best tokens are further apart than 0.05, transformers
    chooses the same ones."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    net = AutoModelForCausalLM.from_pretrained(
        str(model), dtype=getattr(torch, dtype)).eval()
    compared = 0
    for prompt, (ids, _) in zip(PROMPTS, want):
        tokens = tokenizer(prompt)["input_ids"] + ids
        with torch.no_grad():
            logits = net(torch.tensor([tokens])).logits[0]
        first = len(tokens) - len(ids)
        for place, token in enumerate(ids):
            best = torch.log_softmax(logits[first + place - 1], -1).topk(2)
            if best.values[0] - best.values[1] > 0.05:
                assert int(best.indices[0]) == token, (prompt, place)
                compared += 1
    assert compared > len(PROMPTS) * 8, compared
    print(f"ok transformers agrees on {compared} tokens", flush=True)


def one_size(args, models, tp, folder):
    want = references(models, tp, args.dtype, folder)
    if tp == 1:
        close_to_transformers(want["B"], models["B"], args.dtype)
    options = {"address": f"unix:{folder}/job-{tp}.sock", "job": f"check-{tp}"}
    with Trainer(folder, models, args.dtype, **options) as trainer, \
            Server(models["A"], tp, args.dtype, folder / f"server-{tp}.log"
                   ) as server:
        server.wait()
        wrong_dialect(server, folder, options)
        servers, version = updates(trainer, server, want, args.updates,
                                   options)
        if tp != 1:
            return
        version = in_flight(trainer, server, servers, version)
        modes(trainer, server, want, version, options)
    if tp == 1:
        restarted(args, models, want, folder)


def modes(trainer, server, want, version, options):
    """The other ways in which a version arrives."""
    for extra in ({"commit": "in_place"},
                  {"memory": "mapped", "commit": "double"},
                  {"memory": "mapped", "commit": "in_place"}):
        servers = Servers([server.url], timeout=300)
        servers.init(**options, **extra)
        for name in "AB":
            version += 1
            took = update(trainer, servers, version, name)
            same(server, want[name], f"{extra}, version {version}")
        print(f"ok {extra}: {took:.2f} s", flush=True)


def restarted(args, models, want, folder):
    """A server that is killed and started again joins and gets the version."""
    options = {"address": f"unix:{folder}/job-r.sock", "job": "check-r"}
    with Trainer(folder, models, args.dtype, **options) as trainer:
        for version, how in ((1, signal.SIGKILL), (2, signal.SIGTERM)):
            with Server(models["A"], 1, args.dtype,
                        folder / f"restart-{version}.log") as server:
                servers = Servers([server.wait().url], timeout=300)
                servers.init(**options)
                update(trainer, servers, version, "B")
                same(server, want["B"], f"start {version}")
                server.stop(how)
    print("ok killed and started again", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--tp", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--dtype", default="float32")
    full = os.environ.get("DYNATRAIN_TEST_FULL") == "1"
    parser.add_argument("--updates", type=int, default=20 if full else 6)
    args = parser.parse_args()
    begun = time.monotonic()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dynatrain-vllm-"))
    try:
        a, b = make_weights(args.model, folder)
        for tp in args.tp:
            one_size(args, {"A": a, "B": b}, tp, folder)
            print(f"ok TP {tp}", flush=True)
    except BaseException:
        for log in folder.glob("server*.log"):
            print(f"--- {log.name}\n{log.read_text()[-4000:]}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"vllm-check: all of it held, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
