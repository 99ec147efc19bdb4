"""SGLang's routes for updates as 0.5.23 has them: what its server accepts and
answers, as read in its source, for tests of the two ends that meet there."""

import base64
import io
import pickle
import threading

FORMAT = "dynatrain.sglang.load"


class LongTensor:
    """torch's, as far as an update of ours goes through it."""

    def __init__(self, values):
        self.values = list(values)

    def to(self, device):
        return self

    def __int__(self):
        assert len(self.values) == 1
        return int(self.values[0])


class SafeUnpickler(pickle.Unpickler):
    """SGLang's unpickles names from a list alone; ours needs one of them."""

    def find_class(self, module, name):
        if (module, name) == ("torch", "LongTensor"):
            return LongTensor
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def unpickled(payload):
    """From JSON to what a worker sees."""
    data = base64.b64decode(payload, validate=True)
    assert data[0] == 0x80, "taken for base64 a second time"
    return SafeUnpickler(io.BytesIO(data)).load()


class Double:
    """One server.  `update(rank, named_tensors, load_format)` is what its
    workers do, each in a thread; it gives (success, message)."""

    def __init__(self, workers, update, plugin=True):
        self.workers, self.update, self.plugin = workers, update, plugin
        self.paused = None  # the mode of /pause_generation
        self.session = False
        self.running = 0  # requests
        self.dead = ""
        self.version = "default"
        self.flushes = 0
        self.seen = []

    def get(self, path):
        if path == "/server_info":
            return 200, {"tp_size": self.workers, "version": "0.5.23"}
        if path == "/model_info":
            return 200, {"weight_version": self.version}
        return 404, {"detail": "Not Found"}

    def post(self, path, body):
        """(status, JSON); a dead server gives (0, None)."""
        if self.dead:
            return 0, None
        self.seen.append(path)
        call = {"/pause_generation": self.pause,
                "/continue_generation": self.resume,
                "/begin_weight_update": self.begin,
                "/end_weight_update": self.end,
                "/update_weights_from_tensor": self.tensors,
                "/flush_cache": self.flush}.get(path)
        return call(body) if call else (404, {"detail": "Not Found"})

    def pause(self, body):
        mode = body.get("mode", "abort")
        if mode not in ("abort", "retract", "in_place"):
            return 422, {"detail": mode}
        if mode == "abort":
            self.running = 0
        self.paused = mode
        return 200, {"message": "", "status": "ok"}

    def resume(self, body):
        self.paused = None
        return 200, {"message": "", "status": "ok"}

    @staticmethod
    def said(success, message):
        return (200 if success else 400), {"success": success,
                                           "message": message}

    def begin(self, body):
        if self.session:
            return self.said(False, "a weight-update session is already open")
        self.session = True
        return self.said(True, "Success")

    def end(self, body):
        if not self.session:
            return self.said(False, "no weight-update session is open")
        self.session = False
        return self.said(True, "Success")

    def flush(self, body):
        if self.running and self.paused != "retract":
            return 400, {"message": "requests are running"}
        self.flushes += 1
        return 200, {}

    def tensors(self, body):
        if not self.session:
            return self.said(False, "update_weights_from_tensor must run "
                             "between begin_weight_update() and "
                             "end_weight_update()")
        if not self.paused:
            self.running = 0  # the writer's lock waits for them
        payloads = body["serialized_named_tensors"]
        found = [None] * self.workers

        def worker(rank):
            try:
                rows = unpickled(payloads[rank])
                found[rank] = self.update(rank, rows, body.get("load_format"))
            except BaseException as problem:  # ends the scheduler's process
                self.dead = f"{type(problem).__name__}: {problem}"

        threads = [threading.Thread(target=worker, args=(rank,))
                   for rank in range(self.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.dead:
            return 0, None
        success, message = found[0]
        if success and body.get("flush_cache", True):
            if self.flush({})[0] != 200:
                success, message = False, "the cache was not flushed"
        if success and body.get("weight_version") is not None:
            self.version = body["weight_version"]
        return self.said(success, message)
