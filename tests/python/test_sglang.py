"""Both ends of an update of SGLang: dynatrain.sglang_http and the workers' hook,
over a server that answers as SGLang does, with a session of the library of this
build: two tensor-parallel workers get their shards from a trainer.  Standard
library only.  usage: test_sglang.py LIBDYNATRAIN"""

import ctypes
import http.server
import json
import sys
import tempfile
import threading
import types

import sglang_double
import support

support.use_library(sys.argv[1])
import dynatrain  # noqa: E402
from dynatrain import Row, errors, sglang, sglang_http, tensors  # noqa: E402

HIDDEN, HEADS, KV_HEADS, HEAD, FFN, VOCABULARY = 8, 4, 2, 2, 6, 64
WORKERS = 2
PLACE = threading.local()


class Tensor:
    """A dense tensor of floats that looks like torch's."""

    dtype, device = "torch.float32", types.SimpleNamespace(type="cpu",
                                                           index=None)

    def numel(self):
        return len(self.memory)

    def __init__(self, *shape):
        self.shape = shape
        self.memory = (ctypes.c_float * tensors.elements(shape))()

    @property
    def data(self):
        return self

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def stride(self):
        return tensors.dense(self.shape)

    def rows(self):
        width = self.shape[-1]
        return [list(self.memory[i:i + width])
                for i in range(0, len(self.memory), width)]


class Model:
    """The names of a Llama in SGLang, one layer, this worker's shards."""

    class config:
        hidden_size, num_attention_heads = HIDDEN, HEADS
        model_type = "llama"

        @staticmethod
        def to_dict():
            return {"hidden_size": HIDDEN, "num_attention_heads": HEADS,
                    "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
                    "intermediate_size": FFN, "vocab_size": VOCABULARY}

    def __init__(self):
        layer = "model.layers.0."
        w = WORKERS
        head = Tensor(VOCABULARY // w, HIDDEN)
        self.named = {
            "model.embed_tokens.weight": head,
            layer + "self_attn.qkv_proj.weight": Tensor(
                (HEADS + 2 * KV_HEADS) * HEAD // w, HIDDEN),
            layer + "self_attn.o_proj.weight": Tensor(
                HIDDEN, HEADS * HEAD // w),
            layer + "mlp.gate_up_proj.weight": Tensor(2 * FFN // w, HIDDEN),
            layer + "mlp.down_proj.weight": Tensor(HIDDEN, FFN // w),
            layer + "input_layernorm.weight": Tensor(HIDDEN),
            layer + "post_attention_layernorm.weight": Tensor(HIDDEN),
            "model.norm.weight": Tensor(HIDDEN),
            "lm_head.weight": head}

    def named_modules(self, remove_duplicate=True):
        return [(name.rpartition(".")[0], types.SimpleNamespace())
                for name in self.named]

    def named_parameters(self, remove_duplicate=True):
        return self.named.items()


def whole():
    """The trainer's tensors, by their names in a checkpoint."""
    layer = "model.layers.0."
    return {
        "model.embed_tokens.weight": Tensor(VOCABULARY, HIDDEN),
        layer + "self_attn.q_proj.weight": Tensor(HEADS * HEAD, HIDDEN),
        layer + "self_attn.k_proj.weight": Tensor(KV_HEADS * HEAD, HIDDEN),
        layer + "self_attn.v_proj.weight": Tensor(KV_HEADS * HEAD, HIDDEN),
        layer + "self_attn.o_proj.weight": Tensor(HIDDEN, HEADS * HEAD),
        layer + "mlp.gate_proj.weight": Tensor(FFN, HIDDEN),
        layer + "mlp.up_proj.weight": Tensor(FFN, HIDDEN),
        layer + "mlp.down_proj.weight": Tensor(HIDDEN, FFN),
        layer + "input_layernorm.weight": Tensor(HIDDEN),
        layer + "post_attention_layernorm.weight": Tensor(HIDDEN),
        "model.norm.weight": Tensor(HIDDEN)}


def fill(named, version):
    for number, tensor in enumerate(named.values()):
        for index in range(len(tensor.memory)):
            tensor.memory[index] = version * 4096 + number * 512 + index


def want(named, name, rank):
    """A worker's rows of a parameter, from the trainer's whole tensors."""
    def cut(tensor):
        rows = tensor.rows()
        count = len(rows) // WORKERS
        return rows[rank * count:(rank + 1) * count]

    def get(*last):
        prefix = name.rpartition(".")[0].rpartition(".")[0]
        return [row for one in last
                for row in cut(named[f"{prefix}.{one}.weight"])]

    if "qkv_proj" in name:
        return get("q_proj", "k_proj", "v_proj")
    if "gate_up_proj" in name:
        return get("gate_proj", "up_proj")
    if "o_proj" in name or "down_proj" in name:
        rows = named[name].rows()
        width = len(rows[0]) // WORKERS
        return [row[rank * width:(rank + 1) * width] for row in rows]
    if "embed" in name or "lm_head" in name:
        return cut(named["model.embed_tokens.weight"])
    return named[name].rows()


def stub_sglang():
    """What the hook asks SGLang for: the place of this worker."""
    states = types.ModuleType("parallel_state")
    states.get_tp_group = lambda: types.SimpleNamespace(
        rank_in_group=PLACE.rank, world_size=WORKERS)
    states.get_pp_group = lambda: types.SimpleNamespace(
        rank_in_group=0, world_size=1)
    hooks = types.ModuleType("sglang.srt.plugins.hook_registry")
    found = {}
    hooks.HookType = types.SimpleNamespace(AROUND="around")
    hooks.HookRegistry = types.SimpleNamespace(
        register=lambda target, hook, kind: found.update(
            {target: (hook, kind)}))
    package = types.ModuleType("sglang.srt.distributed")
    package.parallel_state = states
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["sglang.srt.distributed"] = package
    sys.modules["sglang.srt.plugins.hook_registry"] = hooks
    sglang.register()
    (target, (hook, kind)), = found.items()
    assert target.endswith("WeightUpdater.update_weights_from_tensor")
    assert kind == "around"
    return hook


class Server:
    """The double behind HTTP."""

    def __init__(self, hook):
        self.models = [Model() for _ in range(WORKERS)]
        self.others = []

        def original(updater, named_tensors, load_format=None):
            self.others.append(load_format)
            return True, "Success"

        def update(rank, named_tensors, load_format):
            PLACE.rank = rank
            updater = types.SimpleNamespace(
                get_model=lambda: self.models[rank])
            return hook(original, updater, named_tensors=named_tensors,
                        load_format=load_format)

        self.double = double = sglang_double.Double(WORKERS, update)

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status, body):
                if status == 0:  # nobody answers any more
                    return
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def do_GET(self):
                self.answer(*double.get(self.path))

            def do_POST(self):
                size = int(self.headers["Content-Length"])
                self.answer(*double.post(
                    self.path, json.loads(self.rfile.read(size) or b"{}")))

            def log_message(self, *about):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def check(self, named):
        for rank, model in enumerate(self.models):
            for name, tensor in model.named.items():
                assert tensor.rows() == want(named, name, rank), (rank, name)


HOOK = stub_sglang()
ROUTES = ["/begin_weight_update", "/update_weights_from_tensor",
          "/end_weight_update"]


def workers_get_their_shards():
    server = Server(HOOK)
    named = whole()
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/job.sock"
        with dynatrain.Session("trainer", address=address, job="sgl",
                               timeout=30) as trainer:
            trainer.publish([Row(name, tensor)
                             for name, tensor in named.items()])
            servers = sglang_http.Servers([server.url])
            version = 0
            for setting, kv, mode in (("wait", "recompute", None),
                                      ("abort", "recompute", "abort"),
                                      ("continue", "recompute", "retract"),
                                      ("continue", "keep", "in_place")):
                servers.in_flight, servers.kv = setting, kv
                version += 1
                fill(named, version)
                server.double.seen.clear()
                flushes = server.double.flushes
                with trainer.offer(version):
                    if version == 1:
                        servers.init(address=address, job="sgl")
                        assert server.double.seen == ROUTES
                        server.double.seen.clear()
                    server.double.running = 3
                    servers.update(version)
                paused = ["/pause_generation"] if mode else []
                resumed = ["/continue_generation"] if mode else []
                assert server.double.seen == paused + ROUTES + resumed
                assert server.double.flushes - flushes == (kv != "keep")
                assert server.double.paused is None
                server.check(named)
                assert servers.versions() == [str(version)]
            with trainer.offer(5):  # it was started again
                servers.rejoin(0)
                assert server.double.paused is None
            servers.version = 5
            refused(server, servers, named)
            assert not sglang._servers, "the last init failed"


def refused(server, servers, named):
    """An update that fails is answered, and the server lives on with what it
    had."""
    servers.in_flight, servers.kv = "abort", "recompute"
    held = [list(t.memory) for t in server.models[0].named.values()]
    body = sglang_http.update_body(WORKERS, [("model.norm.weight", 1)])
    servers.post(server.url, "/begin_weight_update")
    support.raises(errors.Error, lambda: servers.post(
        server.url, "/update_weights_from_tensor", **body),
        "400", "dynatrain.version")
    servers.post(server.url, "/end_weight_update")
    wrong = {**body, "load_format": None}
    servers.post(server.url, "/begin_weight_update")
    servers.post(server.url, "/update_weights_from_tensor", **wrong)
    servers.post(server.url, "/end_weight_update")
    assert server.others == [None] * WORKERS, "updates of others pass"
    # A job that is not there.
    support.raises(errors.Error, lambda: servers.init(
        address="unix:/nowhere/job.sock", job="x", timeout=1.0))
    assert not server.double.session and not server.double.dead
    # Somebody who died left a session open.
    server.double.session = True
    support.raises(errors.Error, lambda: servers.init(
        address="unix:/nowhere/job.sock", job="x", timeout=1.0), "nowhere")
    assert not server.double.session
    assert held == [list(t.memory) for t in server.models[0].named.values()]


def names_do_not_fit():
    """Refused with what does not fit, before anything moves."""
    server = Server(HOOK)
    server.models = [Model() for _ in range(WORKERS)]
    for model in server.models:
        model.named["model.layers.0.mlp.shared.weight"] = Tensor(3, HIDDEN)
    named = whole()
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/job.sock"
        with dynatrain.Session("trainer", address=address, job="sgl",
                               timeout=30) as trainer:
            trainer.publish([Row(name, tensor)
                             for name, tensor in named.items()])
            fill(named, 1)
            with_offer = trainer.offer(1)
            servers = sglang_http.Servers([server.url])
            support.raises(errors.Error, lambda: servers.init(
                address=address, job="sgl"), "mlp.shared.weight")
            assert not server.double.dead and not server.double.session
            with_offer.close()


def payloads_are_sglangs():
    rows = [(sglang.VERSION, 1 << 40), (sglang.INIT + '{"é": 1}', 0)]
    body = sglang_http.update_body(3, rows)
    assert len(body["serialized_named_tensors"]) == 3
    found = sglang_double.unpickled(body["serialized_named_tensors"][2])
    assert [(name, int(value)) for name, value in found] == rows


if __name__ == "__main__":
    support.run(payloads_are_sglangs, workers_get_their_shards,
                names_do_not_fit)
