"""The other end of SGLang's HTTP routes for updates: pause, begin, update, end,
resume.  Standard library only.

    servers = Servers(["http://localhost:30000"])
    servers.init(address=trainer.session.address)
    with trainer.offered(version):
        servers.update(version)

The body of an update is what SGLang takes from anybody: a pickle of (name,
tensor) rows for each tensor-parallel worker; ours are made without torch.
"""

import base64
import contextlib
import json
import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple

from dynatrain import errors, vllm_http
from dynatrain.sglang import FORMAT, INIT, VERSION
from dynatrain.vllm_http import ServerError, request

# What becomes of requests that run while weights change: the mode of
# /pause_generation.  Without one an update waits for those that run, and those
# that come wait for it.
MODES: Dict[Tuple[str, str], Optional[str]] = {
    ("wait", "recompute"): None, ("wait", "keep"): None,
    ("abort", "recompute"): "abort", ("abort", "keep"): "abort",
    ("continue", "recompute"): "retract", ("continue", "keep"): "in_place"}


def pickled(rows: Sequence[Tuple[str, int]]) -> bytes:
    """[(name, torch.LongTensor([number])), …], protocol 2."""
    out = [b"\x80\x02]("]
    for name, number in rows:
        text = name.encode()
        out += [b"X", struct.pack("<I", len(text)), text,
                b"ctorch\nLongTensor\n]\x8a\x08", struct.pack("<q", number),
                b"a\x85R\x86"]
    return b"".join(out) + b"e."


def update_body(workers: int, rows: Sequence[Tuple[str, int]],
                **more: Any) -> Dict[str, Any]:
    """Of /update_weights_from_tensor."""
    text = base64.b64encode(pickled(rows)).decode()
    return {"serialized_named_tensors": [text] * workers,
            "load_format": FORMAT, "selector": "target", **more}


class Servers(vllm_http.Servers):
    """Servers that get the same versions; each is a replica."""

    def __init__(self, urls: Sequence[str], in_flight: str = "wait",
                 kv: str = "recompute", timeout: float = 300.0) -> None:
        super().__init__(urls, in_flight, kv, timeout)
        self.workers: Dict[str, int] = {}

    def post(self, url: str, path: str, within: float = 0.0, **body: Any
             ) -> Any:
        """Its /health generates, which waits for an update: not asked."""
        return request(url + path, body, self.patience(within))

    def _tensors(self, url: str, rows: Sequence[Tuple[str, int]],
                 **more: Any) -> None:
        if url not in self.workers:
            about = request(url + "/server_info", timeout=self.timeout)
            self.workers[url] = int(about.get("tp_size", 1))
        self._begin(url)
        try:
            self._done(self.post(
                url, "/update_weights_from_tensor",
                **update_body(self.workers[url], rows, **more)), url)
        except errors.Error:
            with contextlib.suppress(errors.Error):
                self._session(url, "/end_weight_update")
            raise
        self._session(url, "/end_weight_update")

    def _begin(self, url: str) -> None:
        """A session that somebody left open is ended."""
        try:
            self._session(url, "/begin_weight_update", selector="target")
        except errors.Error:
            self._session(url, "/end_weight_update")
            self._session(url, "/begin_weight_update", selector="target")

    def _session(self, url: str, path: str, **body: Any) -> None:
        """Older ones have no session for updates, and need none."""
        try:
            self._done(self.post(url, path, **body), url + path)
        except ServerError as problem:
            if ": 404: " not in str(problem):
                raise

    @staticmethod
    def _done(reply: Any, what: str) -> None:
        if isinstance(reply, dict) and not reply.get("success", True):
            raise ServerError(f"{what}: {reply.get('message')}")

    def _join(self, index: int, url: str) -> None:
        """Its workers load this package's plugin by themselves where it is
        installed."""
        options = {**self.options,
                   "replica": self.options.get("replica", 0) + index}
        self._tensors(url, [(INIT + json.dumps(options), 0)],
                      flush_cache=False)

    def rejoin(self, index: int, version: Optional[int] = None) -> None:
        """A server that was started again gets what the others have before it
        answers anything; or a version that the trainer offers meanwhile, where
        it is the only one."""
        url = self.urls[index]
        self.version = self.version if version is None else version
        self.workers.pop(url, None)
        self.post(url, "/pause_generation", mode="abort")
        self._join(index, url)
        self._transfer(url, self.version)
        self.broken.discard((index, "policy"))
        self.post(url, "/continue_generation")

    def _pause(self, url: str) -> None:
        mode = MODES[self.in_flight, self.kv]
        if mode is not None:
            self.post(url, "/pause_generation", mode=mode)

    def _resume(self, url: str) -> None:
        if MODES[self.in_flight, self.kv] is not None:
            self.post(url, "/continue_generation")

    def _transfer(self, url: str, version: int) -> None:
        """The weights; keys and values of old ones are dropped with them,
        except where requests go on with theirs."""
        keeps = MODES[self.in_flight, self.kv] == "in_place"
        self._tensors(url, [(VERSION, version)], flush_cache=not keeps,
                      weight_version=str(version))

    def _transfer_draft(self, url: str, version: int) -> None:
        raise errors.UnsupportedError(
            f"{url}: a draft model of SGLang gets no weights of its own here")

    def versions(self) -> List[str]:
        return [str(request(url + "/model_info")["weight_version"])
                for url in self.urls]
