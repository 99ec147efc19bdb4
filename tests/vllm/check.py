"""vLLM gets weights from a trainer that is sharded over two processes, and
answers bit for bit like fresh engines that loaded them from disk: as a library
(--updates, and two more in each other way to commit), then as a server over
HTTP (--http-updates).  usage: check.py MODEL [--tp 1 3] [--updates N]
[--http-updates N] [--dtype float32]

DYNATRAIN_TEST_FULL=1: also servers at every TP, requests in flight, a wrong
dialect, and a server that is killed and started again."""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import signal
import tempfile
import time

import engines
from servers import PROMPTS, Server, Trainer, make_weights

from dynatrain import errors
from dynatrain.vllm_http import Servers


# The ways to commit; 0 is updated --updates times, the others twice.
WAYS = ({}, {"commit": "in_place"}, {"memory": "mapped", "commit": "double"},
        {"memory": "mapped", "commit": "in_place"})


def references(models, tp, dtype):
    """Of one fresh engine for each set of weights, which loads it from disk."""
    found = {name: engines.reference(path, tp, dtype)
             for name, path in models.items()}
    assert found["A"] != found["B"], "the two sets answer alike"
    return found


def library(args, models, want, tp, folder):
    """Rows of the table: (what, updates, seconds each)."""
    ways = WAYS if tp == 1 else WAYS[:1] + WAYS[-1:]
    counts = [args.updates] + [2] * (len(ways) - 1)
    rows = engines.updated(models, want, tp, args.dtype, folder, ways, counts)
    table = []
    for number, way in enumerate(ways):
        mine = [row for row in rows if row[0] == number]
        wrong = [f"version {row[1]} ({row[2]}): {row[4]} differ"
                 for row in mine if row[4]]
        assert not wrong and len(mine) == counts[number], (tp, way, wrong)
        name = ", ".join(way.values()) or "staged"
        times = sorted(row[3] for row in mine)
        table.append((f"library, TP {tp}, {name}", len(mine),
                      times[len(times) // 2]))
        print(f"ok {table[-1][0]}: {len(mine)} updates", flush=True)
    return table


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
    print(f"ok over HTTP: {count} updates", flush=True)
    return servers, count, sorted(times)[len(times) // 2]


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


def http(args, models, want, tp, folder, full):
    options = {"address": f"unix:{folder}/job-{tp}.sock", "job": f"check-{tp}"}
    with Trainer(folder, models, args.dtype, **options) as trainer, \
            Server(models["A"], tp, args.dtype, folder / f"server-{tp}.log"
                   ) as server:
        server.wait()
        if full:
            wrong_dialect(server, folder, options)
        servers, version, took = updates(trainer, server, want,
                                         args.http_updates, options)
        if full and tp == 1:
            in_flight(trainer, server, servers, version)
    if full and tp == 1:
        restarted(args, models, want, folder)
    return f"HTTP, TP {tp}, staged", args.http_updates, took


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
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--http-updates", type=int, default=20 if full else 4)
    args = parser.parse_args()
    begun = time.monotonic()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dynatrain-vllm-"))
    table = []
    try:
        models = dict(zip("AB", make_weights(args.model, folder)))
        for tp in args.tp:
            want = references(models, tp, args.dtype)
            if tp == 1:
                close_to_transformers(want["B"], models["B"], args.dtype)
            table += library(args, models, want, tp, folder)
            if args.http_updates and (full or tp == args.tp[0]):
                table.append(http(args, models, want, tp, folder, full))
    except BaseException:
        for log in folder.glob("server*.log"):
            print(f"--- {log.name}\n{log.read_text()[-4000:]}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'vLLM, ' + args.dtype:44}{'updates':>8}{'seconds':>9}  ids, logprobs")
    for what, count, took in table:
        print(f"{what:44}{count:8}{took:9.2f}  bit for bit")
    print(f"vllm-check: ok, {sum(row[1] for row in table)} updates equal "
          f"engines that loaded from disk, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
