"""What stands between DynaTrain and TRL, verl, SGLang and vLLM's HTTP routes:
against recorded doubles of theirs and of a session.  Where TRL is installed its
own class is used, and its own transfer must not be called."""

import asyncio
import ctypes as c
import http.server
import json
import sys
import threading
import types

import support

try:
    import torch
except ImportError:
    support.skip("no torch")
import dynatrain.torch  # noqa: E402
from dynatrain import (errors, sglang, session, tensors, trl, verl,  # noqa: E402
                       vllm_http)

CALLS = []


class Ticket:
    def __init__(self, version):
        self.version = version

    def wait(self, timeout=None):
        CALLS.append(("wait", self.version))
        return True

    def close(self):
        CALLS.append(("close", self.version))


class Session:
    """Records what is asked of it; a receive fills rows with the version."""

    address, job = "unix:/nowhere", "double"

    def __init__(self, role, **options):
        self.role, self.options = role, options
        CALLS.append(("join", role))

    def publish(self, rows, rules=None):
        self.rows = rows
        CALLS.append(("publish", self.role, len(rows)))

    def offer(self, version, snapshot=False):
        CALLS.append(("offer", version))
        return Ticket(version)

    def will_write(self):
        CALLS.append(("will_write",))

    def receive(self, version=0, timeout=None):
        CALLS.append(("receive", version))
        for row in self.rows:
            row.tensor.fill_(version or 7)

    def close(self):
        CALLS.append(("leave", self.role))


dynatrain.torch.Session = verl.Session = sglang.Session = Session


class Routes(http.server.BaseHTTPRequestHandler):
    """vLLM's routes for updates; one that is told to fail does."""

    fails = set()
    seen = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.partition("?")[0]
        self.seen.append((self.path, json.loads(body or b"{}")))
        CALLS.append(("post", self.path))
        bad = path in self.fails
        self.send_response(500 if bad else 200)
        self.end_headers()
        self.wfile.write(b"7 rows fit no rule" if bad else
                         b'{"success": true}')

    def log_message(self, *about):
        pass


def routes():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Routes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Routes.seen.clear()
    Routes.fails = set()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


def posts():
    return [call[1].partition("?")[0] for call in CALLS if call[0] == "post"]


def updates_go_in_the_order_that_works():
    server, url = routes()
    CALLS.clear()
    servers = vllm_http.Servers([url], in_flight="continue")
    servers.init(address="unix:/a", commit="in_place")
    servers.update(3)
    assert posts() == ["/init_weight_transfer_engine", "/pause",
                       "/start_weight_update", "/update_weights",
                       "/finish_weight_update", "/reset_prefix_cache",
                       "/resume"], posts()
    assert Routes.seen[0][1]["init_info"]["replica"] == 0
    assert Routes.seen[1][0] == "/pause?mode=keep"
    assert Routes.seen[3][1]["update_info"]["version"] == 3
    assert Routes.seen[5][0].endswith("reset_running_requests=true")
    CALLS.clear()
    Routes.seen.clear()
    servers.rejoin(0)  # one that was started again
    assert posts() == ["/pause", "/init_weight_transfer_engine",
                       "/start_weight_update", "/update_weights",
                       "/finish_weight_update", "/reset_prefix_cache",
                       "/resume"], posts()
    assert Routes.seen[1][1]["init_info"] == {
        "address": "unix:/a", "commit": "in_place", "replica": 0}
    assert Routes.seen[3][1]["update_info"]["version"] == 3
    server.shutdown()


def a_failed_update_ends_on_all_ranks():
    """vLLM's ranks that did not raise still think that an update runs."""
    for commit, resumed in (("staged", True), ("in_place", False)):
        server, url = routes()
        servers = vllm_http.Servers([url])
        servers.init(commit=commit)
        CALLS.clear()
        Routes.fails = {"/update_weights"}
        support.raises(errors.Error, lambda s=servers: s.update(1),
                       "7 rows fit no rule")
        assert "/finish_weight_update" in posts()
        assert "/reset_prefix_cache" not in posts()
        assert ("/resume" in posts()) == resumed, commit
        server.shutdown()


class Accelerator:
    is_main_process, process_index, num_processes = True, 0, 1

    @staticmethod
    def unwrap_model(model):
        return model


def generation_of(mode, url):
    """TRL's own object where it is there, as its constructor would leave it."""
    try:
        from trl.generation.vllm_generation import VLLMGeneration
        made = VLLMGeneration.__new__(VLLMGeneration)
    except ImportError:
        made = types.SimpleNamespace(sync_weights=lambda: None)
    made.mode, made.server_base_url, made.enable_sleep_mode = mode, url, True
    made.tensor_parallel_size = 1

    def own(*about, **more):
        raise AssertionError("TRL's own transfer was called")

    made.vllm_client = types.SimpleNamespace(
        update_named_params=own, update_named_param=own,
        update_model_params=own, reset_prefix_cache=own)
    made._iter_named_params = own
    made._llm_weights_sleeping = True
    return made


def trl_server_mode_syncs_through_us():
    server, url = routes()
    module = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(module.parameters())
    trainer = types.SimpleNamespace(
        accelerator=Accelerator(), model=module, optimizer=optimizer,
        vllm_generation=generation_of("server", url))
    CALLS.clear()
    sync = trl.attach(trainer, job="double")
    for version in (1, 2):
        trainer.vllm_generation.sync_weights()
        assert ("offer", version) in CALLS and ("wait", version) in CALLS
    assert posts().count("/init_weight_transfer_engine") == 1
    assert posts().count("/update_weights") == 2
    assert CALLS.index(("offer", 1)) < CALLS.index(
        ("post", "/init_weight_transfer_engine"))
    module(torch.ones(1, 3)).sum().backward()
    CALLS.clear()
    optimizer.step()
    assert CALLS == [("will_write",)], CALLS
    support.raises(errors.StateError, lambda: trl.attach(trainer),
                   "job double", "close()")
    sync.close()
    optimizer.step()
    assert CALLS.count(("will_write",)) == 1
    support.raises(errors.StateError, trainer.vllm_generation.sync_weights,
                   "attach() again")
    again = trl.attach(trainer, job="double")
    trainer.vllm_generation.sync_weights()
    assert again.trainer.version == 1
    again.close()
    server.shutdown()


def trl_colocated_keeps_its_order():
    module = torch.nn.Linear(3, 2)
    generation = generation_of("colocate", None)
    generation.llm = types.SimpleNamespace(
        wake_up=lambda tags: CALLS.append(("wake", *tags)),
        reset_prefix_cache=lambda: CALLS.append(("reset",)))
    trainer = types.SimpleNamespace(accelerator=Accelerator(), model=module,
                                    vllm_generation=generation)
    sync = trl.attach(trainer)
    sync.local = types.SimpleNamespace(
        receive=lambda version, timeout: CALLS.append(("receive", version)),
        close=lambda: None)
    CALLS.clear()
    generation.sync_weights()
    assert [c[0] for c in CALLS] == ["wake", "offer", "receive", "wait",
                                     "close", "reset"], CALLS
    assert generation._llm_weights_sleeping is False
    sync.close()


def trl_asynchronous_client():
    server, url = routes()
    module = torch.nn.Linear(3, 2)

    def own():
        raise AssertionError("whole tensors were gathered")
        yield

    trainer = types.SimpleNamespace(
        accelerator=Accelerator(), model=module, _streaming_iter=own,
        args=types.SimpleNamespace(vllm_server_base_url=url))
    sync = trl.attach(trainer)
    CALLS.clear()
    transfer = trainer.weight_transfer
    transfer.init_weight_transfer()
    transfer.pause()
    transfer.send_weights(trainer._streaming_iter())
    transfer.resume()
    assert posts() == ["/pause", "/init_weight_transfer_engine",
                       "/start_weight_update", "/update_weights",
                       "/finish_weight_update", "/reset_prefix_cache",
                       "/resume"], posts()
    assert ("post", "/pause?mode=keep") in CALLS
    # Another rank takes part in the offer, and gathers nothing.
    sync.main = False
    CALLS.clear()
    assert list(trainer._streaming_iter()) == []
    assert ("offer", 2) in CALLS and not posts()
    support.raises(errors.StateError, lambda: trl.attach(trainer), "already")
    transfer.destroy()
    server.shutdown()


class OnGpu(torch.nn.Parameter):
    """A parameter that says it lies on a GPU."""

    device = torch.device("cuda", 0)


class Lends(Session):
    """Maps rows into two sets of memory of its own, as on a device."""

    def map(self, rows):
        self.sets = [[(c.c_uint8 * (row.tensor.numel() * 2))()
                      for row in rows] for _ in range(2)]
        self.live = 0
        return [session.Row(row.name, row.memory()._replace(
            address=c.addressof(memory)))
            for row, memory in zip(rows, self.sets[0])]

    def row_data(self, row):
        return c.addressof(self.sets[self.live][row])

    def receive(self, version=0, timeout=None):
        self.live = 1 - self.live
        for memory in self.sets[self.live]:
            c.memset(memory, version, len(memory))


def interfaced(lent, device):
    """torch.as_tensor() of a build with a GPU, as the CUDA array interface says
    it: over the memory that is named, which no byte leaves."""
    about = lent.__cuda_array_interface__
    (count,), (address, read_only) = about["shape"], about["data"]
    assert about["version"] == 3 and about["typestr"] == "|u1", about
    assert about["strides"] is None and read_only is False, about
    assert torch.device(device).type == "cuda", device
    return torch.frombuffer((c.c_uint8 * count).from_address(address),
                            dtype=torch.uint8)


def parameters_of_a_gpu_lie_in_our_memory():
    """By doubles of the device: the tensor over our memory has its dtype, shape
    and bytes, follows the set that is live, and at the end leaves ours, which
    is given back when the device has read it."""
    synchronised, before = [], (torch.as_tensor, torch.cuda.synchronize,
                                dynatrain.torch.Session)
    module = torch.nn.Module()
    module.register_parameter("w", OnGpu(
        torch.ones(3, 4, dtype=torch.bfloat16), requires_grad=False))
    own = module.w.data_ptr()
    row = session.Row("w", module.w)
    row.memory = lambda: tensors.memory_of(module.w)  # no driver tells a UUID
    torch.as_tensor = interfaced
    torch.cuda.synchronize = synchronised.append
    dynatrain.torch.Session = Lends
    try:
        receiver = dynatrain.torch.Receiver(module, rows=[row],
                                            memory="mapped", commit="double")
        lent = receiver.session
        assert module.w.data_ptr() == c.addressof(lent.sets[0][0]) != own
        for version, at in ((1, 1), (2, 0)):
            receiver.receive(version)
            w = module.w
            assert w.data_ptr() == c.addressof(lent.sets[at][0])
            assert w.shape == (3, 4) and w.dtype == torch.bfloat16
            assert bytes(lent.sets[at][0]) == bytes([version] * 24)
            assert w.view(torch.uint8).unique().tolist() == [version]
        receiver.close()
        assert module.w.data_ptr() not in map(c.addressof, (
            lent.sets[0][0], lent.sets[1][0]))
        assert module.w.view(torch.uint8).unique().tolist() == [2]
        assert synchronised == [torch.device("cuda", 0)]
        empty = dynatrain.torch.tensor_over(0, (0, 4), torch.float32, "meta")
        assert empty.shape == (0, 4)
    finally:
        (torch.as_tensor, torch.cuda.synchronize,
         dynatrain.torch.Session) = before


def trl_without_vllm_is_refused():
    support.raises(errors.InvalidError, lambda: trl.attach(
        types.SimpleNamespace()), "use_vllm")
    support.raises(errors.UnsupportedError, lambda: trl.attach(
        types.SimpleNamespace(vllm_generation=object())), "object", "TRL 1.16")


def adapters_are_merged_while_they_are_read():
    assert trl.vllm_name("base_model.model.model.norm.base_layer.weight") == \
        "model.norm.weight"
    assert trl.vllm_name("base_model.model.q.lora_A.default.weight") is None


def verl_takes_shards():
    module = torch.nn.Linear(3, 2)
    verl.attach(module)
    sender = verl.CheckpointEngine(bucket_size=1 << 20, is_master=True)
    about = sender.prepare()
    assert [row[0] for row in about["tensors"]] == ["weight", "bias"]
    verl._attached.clear()
    receiver = verl.CheckpointEngine()
    ours, theirs = verl.CheckpointEngine.build_topology(
        1, 2, [about, receiver.prepare(), receiver.prepare()])
    assert all(len(v) == 1 for v in ours.values())
    assert all(len(v) == 2 for v in theirs.values())
    verl.attach(module)
    sender.init_process_group(**{k: v[0] for k, v in ours.items()})
    receiver.init_process_group(**{k: v[1] for k, v in theirs.items()})

    def gathered():
        raise AssertionError("whole tensors were gathered")
        yield

    CALLS.clear()
    asyncio.run(sender.send_weights(gathered()))
    assert ("offer", 1) in CALLS

    async def collect():
        return [item async for item in receiver.receive_weights()]

    found = dict(asyncio.run(collect()))
    assert torch.equal(found["weight"], torch.full((2, 3), 1.0))
    sender.finalize()
    sender.close()
    receiver.close()
    support.raises(errors.StateError, lambda:
                   verl.CheckpointEngine.build_topology(
                       1, 1, [{"tensors": None}, {"tensors": None}]),
                   "attach")


def sglang_loads_by_its_hook():
    class Config:
        hidden_size, num_attention_heads = 16, 8

        @staticmethod
        def to_dict():
            return {"vocab_size": 50, "tied": True}

    group = types.SimpleNamespace(rank_in_group=1, world_size=2)
    alone = types.SimpleNamespace(rank_in_group=0, world_size=1)
    states = types.ModuleType("parallel_state")
    states.get_tp_group, states.get_pp_group = lambda: group, lambda: alone
    package = types.ModuleType("sglang.srt.distributed")
    package.parallel_state = states
    for name in ("sglang", "sglang.srt"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["sglang.srt.distributed"] = package
    sglang._server.rules_of = lambda given, model_type: model_type
    model = torch.nn.Linear(3, 2)
    model.config = Config()
    CALLS.clear()
    for version in (4, 5):
        sglang.load(model, [(sglang.VERSION, torch.tensor(version))])
    assert [c for c in CALLS if c[0] == "receive"] == [("receive", 4),
                                                      ("receive", 5)]
    assert CALLS.count(("join", "receiver")) == 1
    server = sglang._servers[id(model)]
    assert server.session.options["tp"] == (1, 2)
    assert server.session.options["attributes"] == {"vocab_size": 50,
                                                    "head_dim": 2}
    assert float(model.weight.detach().min()) == 5.0
    support.raises(errors.InvalidError, lambda: sglang.load(
        model, [("model.norm.weight", torch.ones(1))]), "dynatrain.version")


if __name__ == "__main__":
    assert session.default_address("x").startswith("unix:")
    support.run(updates_go_in_the_order_that_works,
                a_failed_update_ends_on_all_ranks,
                trl_server_mode_syncs_through_us,
                trl_colocated_keeps_its_order, trl_asynchronous_client,
                parameters_of_a_gpu_lie_in_our_memory,
                trl_without_vllm_is_refused,
                adapters_are_merged_while_they_are_read, verl_takes_shards,
                sglang_loads_by_its_hook)
