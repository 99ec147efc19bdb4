"""A server that answers as vLLM or SGLang would, and misbehaves on request.

usage: fake_llm_server.py KIND [FAULT]

Prints its port.  The completion of a prompt is its ids, reversed, each sample
one token longer than the one before; a log-probability is -id / 1000.  Faults:
  once-500     the first request for samples gets a 500
  dies         the second one gets no answer, and the server is gone
  text-only    answers hold text and no ids
  refuses      a version is not taken
Weights: /start_weight_update, /update_weights, /finish_weight_update and
/reset_prefix_cache must come in this order while paused.
"""
import http.server
import json
import os
import sys

KIND = sys.argv[1]
FAULT = sys.argv[2] if len(sys.argv) > 2 else ""
STATE = {"paused": False, "step": 0, "asked": 0, "version": None}
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
        return self.answer(200, vllm(body) if KIND == "vllm" else sglang(body))

    def weights(self, path, body):
        if not STATE["paused"] or path != ORDER[STATE["step"]]:
            return self.answer(400, {"error": "%s at this moment" % path})
        if FAULT == "refuses" and path == "/update_weights":
            STATE["step"] = 0
            return self.answer(500, {"error": "version refused"})
        STATE["step"] = (STATE["step"] + 1) % len(ORDER)
        return self.answer(200, {})

    def do_POST(self):
        path = self.path.split("?")[0]
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        if path in ("/v1/completions", "/generate"):
            return self.samples(body)
        if path in ("/pause", "/pause_generation"):
            STATE["paused"] = True
            return self.answer(200, {})
        if path in ("/resume", "/continue_generation"):
            STATE["paused"] = False
            return self.answer(200, {})
        if path in ORDER:
            return self.weights(path, body)
        known = ("/init_weight_transfer_engine", "/dynatrain_init",
                 "/dynatrain_update", "/flush_cache")
        return self.answer(200 if path in known else 404, {})


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
