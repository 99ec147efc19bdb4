"""A server that answers as vLLM or SGLang would, and misbehaves on request.

usage: fake_llm_server.py KIND [FAULT]

Prints its port.  The completion of a prompt is its ids, reversed, each sample
one token longer than the one before; a log-probability is -id / 1000.  Faults:
  once-500     the first request for samples gets a 500
  dies         the second one gets no answer, and the server is gone
  text-only    answers hold text and no ids
  refuses      a version is not taken
  holds        requests after the first update are answered after the second
Weights of vLLM: /start_weight_update, /update_weights, /finish_weight_update and
/reset_prefix_cache must come in this order while paused.  Those of SGLang go
through the double of its routes to two workers, where the hook of
python/dynatrain/sglang.py reads them for a session that only keeps the version.
"""
import http.server
import json
import os
import pathlib
import sys
import threading
import types

KIND = sys.argv[1]
FAULT = sys.argv[2] if len(sys.argv) > 2 else ""
STATE = {"paused": False, "step": 0, "asked": 0, "version": None, "updates": 0}
UPDATED_TWICE = threading.Event()
ORDER = ["/start_weight_update", "/update_weights", "/finish_weight_update",
         "/reset_prefix_cache"]


def completions(ids, count, longest):
    for index in range(count):
        tokens = (list(reversed(ids)) + [7] * index)[:longest]
        yield tokens, [-t / 1000.0 for t in tokens], (
            "length" if len(tokens) == longest else "stop")


def vllm(body):
    choices = []
    # the last sample first: an index says which one it is
    for index, (tokens, logprobs, finish) in reversed(list(enumerate(
            completions(body["prompt"], body["n"], body["max_tokens"])))):
        choice = {"index": index, "text": "?", "finish_reason": finish,
                  "logprobs": {"token_logprobs": logprobs}}
        if FAULT != "text-only":
            choice["token_ids"] = tokens
        choices.append(choice)
    return {"choices": choices}


def sglang(body):
    how = body["sampling_params"]
    answers = []
    for tokens, logprobs, finish in completions(
            body["input_ids"], how["n"], how["max_new_tokens"]):
        meta = {"finish_reason": {"type": finish}}
        if FAULT != "text-only":
            meta["output_token_logprobs"] = [
                [p, t, "?"] for p, t in zip(logprobs, tokens)]
        answers.append({"text": "?", "meta_info": meta})
    return answers if len(answers) > 1 else answers[0]


# ---- SGLang's workers --------------------------------------------------------

HELD = {}  # rank: (options of its session, version)
PLACE = threading.local()


class Session:
    """Of a worker: what it was told."""

    def __init__(self, role, **options):
        assert role == "receiver" and options["job"] == "job", options
        assert options["address"] == "unix:/nowhere", options
        assert options["size"] == 2 and options["replica"] in (0, 1), options
        self.rank, self.options = options["rank"], options

    def publish(self, rows, rules=None):
        assert [row.name for row in rows] == ["model.norm.weight"]

    def receive(self, version):
        if FAULT == "refuses":
            raise RuntimeError("version refused")
        HELD[self.rank] = version

    def close(self):
        pass


class Model:
    """As much of a worker's model as the hook looks at."""

    class config:
        model_type, hidden_size, num_attention_heads = "llama", 8, 4

        @staticmethod
        def to_dict():
            return {"hidden_size": 8}

    @staticmethod
    def named_modules(remove_duplicate=True):
        return [("model.norm", types.SimpleNamespace())]

    @staticmethod
    def named_parameters(remove_duplicate=True):
        weight = types.SimpleNamespace(data_ptr=lambda: 64, data=None,
                                       numel=lambda: 1)
        return [("model.norm.weight", weight)]


def sglang_double():
    root = pathlib.Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / "python"), str(root / "tests/python")]
    import dynatrain.sglang as hook
    import sglang_double as double
    states = types.SimpleNamespace(
        get_tp_group=lambda: types.SimpleNamespace(rank_in_group=PLACE.rank,
                                                   world_size=2),
        get_pp_group=lambda: types.SimpleNamespace(rank_in_group=0,
                                                   world_size=1))
    for name in ("sglang", "sglang.srt"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["sglang.srt.distributed"] = types.SimpleNamespace(
        parallel_state=states)
    hook.Session = Session
    hook._server.rules_of = lambda given, model_type: model_type
    models = [Model(), Model()]

    def update(rank, rows, load_format):
        PLACE.rank = rank
        assert load_format == double.FORMAT, load_format
        updater = types.SimpleNamespace(get_model=lambda: models[rank])
        return hook._around(None, updater, rows, load_format=load_format)

    return double.Double(2, update)


SGLANG = sglang_double() if KIND == "sglang" else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def samples(self, body):
        STATE["asked"] += 1
        if FAULT == "dies" and STATE["asked"] == 2:
            os._exit(0)
        if FAULT == "once-500" and STATE["asked"] == 2:
            return self.answer(500, {"error": "out of luck"})
        if FAULT == "holds" and STATE["updates"] > 0:
            UPDATED_TWICE.wait()
        try:
            self.answer(200, vllm(body) if KIND == "vllm" else sglang(body))
        except ConnectionError:  # who asked has hung up
            self.close_connection = True

    def weights(self, path, body):
        if not STATE["paused"] or path != ORDER[STATE["step"]]:
            return self.answer(400, {"error": "%s at this moment" % path})
        if FAULT == "refuses" and path == "/update_weights":
            STATE["step"] = 0
            return self.answer(500, {"error": "version refused"})
        STATE["step"] = (STATE["step"] + 1) % len(ORDER)
        STATE["updates"] += STATE["step"] == 0
        if STATE["updates"] == 2:
            UPDATED_TWICE.set()
        return self.answer(200, {})

    def do_POST(self):
        path = self.path.split("?")[0]
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        if path in ("/v1/completions", "/generate"):
            return self.samples(body)
        if KIND == "sglang":
            return self.sglang(*SGLANG.post(path, body))
        if path in ("/pause", "/resume"):
            STATE["paused"] = path == "/pause"
            return self.answer(200, {})
        if path in ORDER:
            return self.weights(path, body)
        known = ("/init_weight_transfer_engine",)
        return self.answer(200 if path in known else 404, {})

    def do_GET(self):
        if KIND != "sglang":
            return self.answer(404, {})
        if self.path == "/versions_of_workers":  # for the test alone
            return self.answer(200, HELD)
        return self.sglang(*SGLANG.get(self.path))

    def sglang(self, status, body):
        if status == 0:
            sys.stderr.write(SGLANG.dead + "\n")
            os._exit(1)
        return self.answer(status, body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
