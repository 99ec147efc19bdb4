"""What the workers of servers say of a model, by doubles of its modules: rows,
places in the replica, and what is refused by name; and who asks servers that
die.  No framework is needed."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading

import support  # noqa: F401  (finds the package)

from dynatrain import _server, errors, vllm_http


class Parameter:
    """What of a tensor is looked at."""

    def __init__(self, address, *shape):
        self.address, self.shape = address, shape
        self.dtype = "torch.bfloat16"
        self.data = self

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    def data_ptr(self):
        return self.address

    def stride(self):
        return (self.shape[-1], 1)[-len(self.shape):]


class UnquantizedLinearMethod:
    pass


class Fp8LinearMethod:
    pass


class Module:
    def __init__(self, method=None, **more):
        if method is not None:
            self.quant_method = method()
        vars(self).update(more)


class Map:
    """An expert map: this rank's place of each expert, or -1."""

    def __init__(self, *places):
        self.places = places

    def tolist(self):
        return list(self.places)


class Model:
    def __init__(self, modules, parameters=()):
        self._modules, self._parameters = modules, parameters

    def modules(self):
        return list(self._modules.values())

    def named_modules(self, remove_duplicate=True):
        return list(self._modules.items())

    def named_parameters(self, remove_duplicate=True):
        return list(self._parameters)


class Group:
    def __init__(self, rank, size):
        self.rank_in_group, self.world_size = rank, size


def plain_layers_are_taken():
    _server.refuse(Model({"": Module(),
                          "a": Module(UnquantizedLinearMethod)}))


def quantised_layers_and_adapters_are_named():
    model = Model({"": Module(), "a.qkv_proj": Module(Fp8LinearMethod),
                   "a.o_proj": Module(UnquantizedLinearMethod),
                   "a.down_proj": Module(Fp8LinearMethod)})
    said = support.raises(
        errors.UnsupportedError, lambda: _server.refuse(model, lora=True),
        "3 layers", "a.qkv_proj (Fp8LinearMethod)", "a.down_proj", "LoRA")
    assert "o_proj" not in str(said), said


def packed_rows_are_lent_memory():
    layer = Module(output_partition_sizes=[4, 2, 2], input_size_per_partition=3)
    rows, of = _server.rows(Model(
        {"": Module(), "l": layer}, [("l.weight", Parameter(0, 0))]))
    assert rows[0].staged and tuple(rows[0].shape) == (8, 3), rows
    assert rows[0].dtype == "bfloat16" and of == [(0, layer)]


def tied_rows_are_one():
    head, embed = Module(), Module()
    rows, of = _server.rows(Model({"": Module(), "embed": embed, "head": head}, [
        ("embed.weight", Parameter(64, 5, 2)),
        ("norm", Parameter(256, 2)),
        ("head.weight", Parameter(64, 5, 2))]))
    assert [row.alias for row in rows] == [False, False, True], rows
    assert [first for first, _ in of] == [0, 1, 0] and of[2][1] is head


def places_count_stages_first():
    where = _server.place(Group(2, 3), Group(1, 2),
                          {"layers": 30, "bias": False, "type": "llama"}, 64)
    assert where == {"rank": 5, "size": 6, "tp": (2, 3), "pp": (1, 2),
                     "attributes": {"layers": 30, "head_dim": 64}}, where


def experts_are_those_of_the_map():
    moe = Module(expert_map=Map(-1, 1, -1, 0, 2))
    model = Model({"": Module(), "moe": moe})
    where = _server.place(Group(0, 2), Group(0, 1), {}, 8, Group(1, 2), model)
    assert where["ep"] == (1, 2) and where["experts"] == [3, 1, 4], where
    assert _server.experts(Model({"": Module()})) is None


def tied_to_another_model():
    """What a draft has of the policy comes with the policy."""
    both, own = Parameter(64, 5, 2), Parameter(256, 2)
    policy = Model({"": Module()}, [("embed", both)])
    draft = Model({"": Module()}, [("embed", both), ("fc", own)])
    rows, of = _server.rows(draft, policy)
    assert [row.name for row in rows] == ["fc"] and of[0][0] == 0, rows


def a_draft_has_a_job_of_its_own():
    given = {"address": "unix:/a", "job": "policy", "rules": "r", "replica": 2,
             "timeout": 5.0}
    for draft in ({}, {"draft": {}}, {"draft": {"commit": "in_place"}}):
        support.raises(errors.UnsupportedError,
                       lambda more=draft: _server.draft_options(
                           {**given, **more}),
                       "draft model", "another job", '"draft": {"address"')
    assert _server.draft_options({**given, "draft": {"address": "unix:/b"}}) == {
        "pool": "draft", "replica": 2, "timeout": 5.0, "address": "unix:/b"}


class Forgetful(http.server.BaseHTTPRequestHandler):
    """Answers when it has been asked for its health, or never, and says of
    itself that it has died."""

    health, answers = 200, True
    asked, hung_up = threading.Event(), threading.Event()

    def do_GET(self):
        self.send_response(self.health)
        self.end_headers()
        self.asked.set()

    def do_POST(self):
        assert self.asked.wait(60)
        if self.answers:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"success": true}')
        else:
            self.rfile.read()  # until the client has hung up
            self.hung_up.set()

    def log_message(self, *about):
        pass


def a_server_that_dies_holds_up_nobody():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forgetful)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    servers = vllm_http.Servers([url], timeout=120)
    assert servers.post(url, "/resume") == {"success": True}
    Forgetful.health, Forgetful.answers = 503, False
    support.raises(errors.Error, lambda: servers.post(url, "/resume"),
                   "its engine has died")
    assert Forgetful.hung_up.wait(60)
    Forgetful.health = 404  # a proxy that has no such route: not gone
    short = vllm_http.Servers([url], timeout=1)
    support.raises(errors.Error, lambda: short.post(url, "/resume"),
                   "no answer within 1 s")
    server.shutdown()
    server.server_close()
    support.raises(errors.Error, lambda: servers.post(url, "/resume"),
                   "refused")


class Holding(http.server.BaseHTTPRequestHandler):
    """Is well, and does not answer before it is told to."""

    was_asked, may_answer = threading.Event(), threading.Event()

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        self.was_asked.set()
        self.may_answer.wait(300)
        self.close_connection = True

    def log_message(self, *about):
        pass


def an_interrupted_trainer_waits_for_no_server():
    """It ends by the interrupt, whatever it has asked of a server."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Holding)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    trainer = subprocess.Popen(
        [sys.executable, "-c", "import signal, sys, dynatrain.vllm_http as v\n"
         "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
         "v.Servers(sys.argv[1:]).update(1)", url], stderr=subprocess.PIPE,
        text=True, env={**os.environ,
                        "PYTHONPATH": str(support.ROOT / "python")})
    try:
        assert Holding.was_asked.wait(60)
        trainer.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in trainer.communicate(timeout=120)[1]
    finally:
        trainer.kill()
        trainer.communicate()
        Holding.may_answer.set()
        server.shutdown()
        server.server_close()


def what_servers_say_is_unwrapped():
    said = json.dumps({"error": {"message": "Call to collective_rpc method "
                                 "failed: Worker failed with error 'a 'b' c', "
                                 "please check the stack trace above"}})
    assert str(vllm_http.refusal("http://h/p", 500, said)) == \
        "http://h/p: 500: a 'b' c"
    for text in ("plain", "[1]", '{"error": 1}'):
        assert str(vllm_http.refusal("u", 404, text)) == f"u: 404: {text}"
    for urls in ([], ["localhost:1"], "http://h", ["http://h", "http://h"]):
        support.raises(errors.InvalidError,
                       lambda given=urls: vllm_http.Servers(given), "HOST:PORT")


def options_of_the_environment_are_read():
    variable = "DYNATRAIN_SGLANG"
    try:
        for text, want in (("", {"job": "a"}), ('{"job": "b", "rules": "r"}',
                                                {"job": "a", "rules": "r"})):
            os.environ[variable] = text
            assert _server.options(variable, {"job": "a"}) == want
        for text in ("job=b", "[1]", '"x"'):
            os.environ[variable] = text
            support.raises(errors.ConfigError,
                           lambda: _server.options(variable, {}), variable,
                           text, "JSON object")
    finally:
        del os.environ[variable]


def options_that_nobody_knows_are_named():
    _server.known({"commit": "staged", "rules": "r", "draft": {}})
    support.raises(errors.ConfigError, lambda: _server.known(
        {"comit": "staged"}), "comit", "commit", "max_version_skew")


class Routes(http.server.BaseHTTPRequestHandler):
    """Says yes to everything; `seen` has (path, body)."""

    seen = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path.partition("?")[0], json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *about):
        pass


def of_updates(call):
    """What the one server that is alive was asked, beside a dead one."""
    alive, dead = (http.server.ThreadingHTTPServer(("127.0.0.1", 0), Routes)
                   for _ in range(2))
    threading.Thread(target=alive.serve_forever, daemon=True).start()
    dead.server_close()
    Routes.seen.clear()
    servers = vllm_http.Servers([f"http://127.0.0.1:{one.server_address[1]}"
                                 for one in (dead, alive)], timeout=60)
    support.raises(errors.Error, lambda: call(servers), "refused")
    alive.shutdown()
    alive.server_close()
    return Routes.seen


def a_dead_server_fails_nobody_else():
    seen = of_updates(lambda servers: servers.update(7))
    assert [path for path, _ in seen] == [
        "/pause", "/start_weight_update", "/update_weights",
        "/finish_weight_update", "/reset_prefix_cache", "/resume"], seen
    assert seen[2][1]["update_info"]["version"] == 7
    assert seen[3][1] == {"weight_version": "7"}


def a_draft_is_updated_by_itself_or_within_one_pause():
    seen = of_updates(lambda servers: servers.update(7, draft=3))
    assert [path for path, _ in seen] == [
        "/pause", "/start_weight_update", "/update_weights",
        "/finish_weight_update", "/reset_prefix_cache",
        "/start_draft_weight_update", "/update_weights",
        "/finish_weight_update", "/reset_prefix_cache", "/resume"], seen
    assert [body["update_info"]["version"] for path, body in seen
            if path == "/update_weights"] == [7, 3], seen
    assert [body for path, body in seen if path == "/finish_weight_update"] == [
        {"weight_version": "7"}, {}], seen
    seen = of_updates(lambda servers: servers.update(None, draft=4))
    assert "/start_weight_update" not in dict(seen), seen


if __name__ == "__main__":
    support.run(plain_layers_are_taken, quantised_layers_and_adapters_are_named,
                packed_rows_are_lent_memory, tied_rows_are_one,
                places_count_stages_first, experts_are_those_of_the_map,
                tied_to_another_model,
                an_interrupted_trainer_waits_for_no_server,
                what_servers_say_is_unwrapped,
                options_of_the_environment_are_read,
                options_that_nobody_knows_are_named,
                a_draft_has_a_job_of_its_own, a_server_that_dies_holds_up_nobody,
                a_dead_server_fails_nobody_else,
                a_draft_is_updated_by_itself_or_within_one_pause)
