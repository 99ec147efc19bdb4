"""verl's flow through the library of this build: a trainer's rank and two servers
of two tensor-parallel workers, each of which gets its own shards.  usage:
test_verl.py LIBDYNATRAIN"""

import asyncio
import sys
import tempfile
import threading
import types

import support

try:
    import torch
    from torch import nn
except ImportError:
    support.skip("no torch")
support.use_library(sys.argv[1])
from dynatrain import errors, verl  # noqa: E402

HIDDEN, HEADS, KV_HEADS, HEAD, FFN, VOCABULARY, TP = 8, 4, 2, 2, 6, 10, 2


def tree(**parts):
    """Modules by name; a number pair makes a linear layer of that shape."""
    module = nn.Module()
    for name, part in parts.items():
        if isinstance(part, tuple):
            part = nn.Linear(part[1], part[0], bias=False)
        module.add_module(name, part)
    return module


def checkpoint():
    """Names and shapes of a Llama as trainers have them."""
    layer = tree(
        self_attn=tree(q_proj=(HEADS * HEAD, HIDDEN),
                       k_proj=(KV_HEADS * HEAD, HIDDEN),
                       v_proj=(KV_HEADS * HEAD, HIDDEN),
                       o_proj=(HIDDEN, HEADS * HEAD)),
        mlp=tree(gate_proj=(FFN, HIDDEN), up_proj=(FFN, HIDDEN),
                 down_proj=(HIDDEN, FFN)),
        input_layernorm=nn.RMSNorm(HIDDEN))
    module = tree(model=tree(embed_tokens=nn.Embedding(VOCABULARY, HIDDEN),
                             layers=nn.ModuleList([layer])))
    module.config = types.SimpleNamespace(to_dict=lambda: {
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "tied": True})
    return module


def server():
    """The same in a worker of a server: its shards, fused, padded rows."""
    layer = tree(
        self_attn=tree(qkv_proj=((HEADS + 2 * KV_HEADS) * HEAD // TP, HIDDEN),
                       o_proj=(HIDDEN, HEADS * HEAD // TP)),
        mlp=tree(gate_up_proj=(2 * FFN // TP, HIDDEN),
                 down_proj=(HIDDEN, FFN // TP)),
        input_layernorm=nn.RMSNorm(HIDDEN))
    return tree(model=tree(embed_tokens=nn.Embedding(VOCABULARY // TP + 3,
                                                     HIDDEN),
                           layers=nn.ModuleList([layer])))


def want(whole, rank):
    """A server's parameters, cut by hand."""
    layer = whole.model.layers[0]

    def rows(linear):
        return linear.weight.detach().chunk(TP)[rank]

    def columns(linear):
        return linear.weight.detach().chunk(TP, 1)[rank]

    attention, mlp = layer.self_attn, layer.mlp
    prefix = "model.layers.0."
    return {
        prefix + "self_attn.qkv_proj.weight": torch.cat(
            [rows(attention.q_proj), rows(attention.k_proj),
             rows(attention.v_proj)]),
        prefix + "self_attn.o_proj.weight": columns(attention.o_proj),
        prefix + "mlp.gate_up_proj.weight": torch.cat(
            [rows(mlp.gate_proj), rows(mlp.up_proj)]),
        prefix + "mlp.down_proj.weight": columns(mlp.down_proj),
        prefix + "input_layernorm.weight": layer.input_layernorm.weight}


def gathered():
    raise AssertionError("whole tensors were gathered")
    yield


def started(folder, workers):
    """The engines of a trainer and its workers, as verl makes them."""
    module = checkpoint()
    verl.attach(module)
    address = f"unix:{folder}/job.sock"
    sender = verl.CheckpointEngine(is_master=True, address=address, timeout=60)
    about = sender.prepare()
    verl._attached.clear()
    receivers = [verl.CheckpointEngine(tp=TP, address=address, timeout=60)
                 for _ in range(workers)]
    ours, theirs = verl.CheckpointEngine.build_topology(
        1, workers, [about] + [one.prepare() for one in receivers])
    verl.attach(module)
    sender.init_process_group(**{k: v[0] for k, v in ours.items()})
    for index, one in enumerate(receivers):
        one.init_process_group(**{k: v[index] for k, v in theirs.items()})
    return module, sender, receivers


def everybody(*calls):
    """Each in a thread, as they are processes of their own."""
    failures = []

    def run(call):
        try:
            call()
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def collected(receiver, found):
    async def collect():
        found.append([row async for row in receiver.receive_weights()])
    asyncio.run(collect())


def workers_get_their_own_shards():
    with tempfile.TemporaryDirectory() as folder:
        module, sender, receivers = started(folder, 2 * TP)
        found = [[] for _ in receivers]
        for version in (1, 2):
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.normal_()
            everybody(lambda: asyncio.run(sender.send_weights(gathered())),
                      *[lambda r=r, f=f: collected(r, f)
                        for r, f in zip(receivers, found)])
            whole = sum(p.numel() for p in module.parameters())
            for index, rows in enumerate(found):
                rank = index % TP
                shards = rows[-1]
                assert sum(t.numel() for _, t in shards) < whole / TP + HIDDEN
                model = server()
                tail = model.model.embed_tokens.weight.detach().clone()
                verl.load_shards(model, shards)
                have = dict(model.named_parameters())
                for name, tensor in want(module, rank).items():
                    assert torch.equal(have[name], tensor), (index, name)
                rows = VOCABULARY // TP
                embed = have["model.embed_tokens.weight"]
                assert torch.equal(
                    embed[:rows],
                    module.model.embed_tokens.weight.chunk(TP)[rank])
                assert torch.equal(embed[rows:], tail[rows:]), "padding moved"
        assert [one.place["replica"] for one in receivers] == [0, 0, 1, 1]
        for one in receivers:
            one.finalize()
            one.close()
        sender.close()


def a_server_in_the_process_is_written_directly():
    """Nothing is left for verl to load."""
    calls = []

    def make(**session):
        calls.append(session)
        return types.SimpleNamespace(
            receive=lambda version, timeout: calls.append((version, timeout)),
            close=lambda: calls.append("closed"))

    verl.attach_server(make)
    try:
        engine = verl.CheckpointEngine(tp=2)
        engine.init_process_group(rank=1, size=2, replica=3, offers=False,
                                  address="unix:/a", tensors=[], numbers={},
                                  version=4)
        for _ in range(2):
            found = []
            collected(engine, found)
            assert found == [[]]
        engine.close()
    finally:
        verl._server.clear()
    assert calls[0]["tp"] == (1, 2) and calls[0]["replica"] == 3
    assert calls[0]["commit"] == "in_place" and calls[1:] == [
        (5, 600.0), (6, 600.0), "closed"]


def boxes_of_few_heads_and_odd_sizes():
    numbers = {"num_key_value_heads": 2}
    boxes = [verl.shard_box("m.k_proj.weight", (4, 8), (rank, 4), numbers)
             for rank in range(4)]
    assert [box[0][0] for box in boxes] == [0, 0, 2, 2], boxes
    assert verl.shard_box("m.norm.weight", (8,), (1, 4), {}) == ((0,), (8,))
    assert verl.shard_box("m.o_proj.bias", (8,), (1, 4), {}) == ((0,), (8,))
    support.raises(errors.UnsupportedError, lambda: verl.shard_box(
        "m.up_proj.weight", (7, 8), (0, 2), {}), "up_proj", "7")
    support.raises(errors.InvalidError, lambda: verl.load_shards(
        server(), []), "q_proj", "did not come")
    support.raises(errors.InvalidError, lambda: verl.load_shards(
        nn.Module(), [("model.wrong.weight", torch.ones(1))]), "model.wrong")
    support.raises(errors.InvalidError, lambda:
                   verl.CheckpointEngine.build_topology(
                       1, 3, [{"tensors": [("a", (1,), "float32")],
                               "address": "unix:/a", "numbers": {},
                               "version": 0}]
                       + [{"tensors": None, "tp": 2}] * 3), "3 rollout")


if __name__ == "__main__":
    support.run(boxes_of_few_heads_and_odd_sizes,
                workers_get_their_own_shards,
                a_server_in_the_process_is_written_directly)
