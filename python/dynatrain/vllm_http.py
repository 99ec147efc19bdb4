"""The other end of vLLM's HTTP routes for updates (VLLM_SERVER_DEV_MODE=1), in
the order that works: pause, start, update, finish, reset of the prefix cache,
resume.  Standard library only.

    servers = Servers(["http://localhost:8000"])
    servers.init(address=trainer.session.address)
    with trainer.offered(version):
        servers.update(version)
"""

import concurrent.futures
import contextlib
import json
import urllib.error
import urllib.request
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

from dynatrain import errors

# What becomes of requests that run while weights change.
IN_FLIGHT = {"wait": "wait", "abort": "abort", "continue": "keep"}


class ServerError(errors.Error):
    """A server refused; the text has what it said."""

    status, name = errors.PeerError.status, errors.PeerError.name


def request(url: str, body: Optional[Dict[str, Any]] = None,
            timeout: float = 300.0) -> Any:
    """POST of JSON (GET without a body)."""
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(
        url, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(call, timeout=timeout) as reply:
            text = reply.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as problem:
        said = problem.read().decode("utf-8", "replace")
        raise ServerError(f"{url}: {problem.code}: {said[:4000]}") from None
    except OSError as problem:
        raise ServerError(f"{url}: {problem}") from None
    return json.loads(text) if text.startswith(("{", "[")) else text


class Servers:
    """Servers that get the same versions; each is a replica."""

    def __init__(self, urls: Sequence[str], in_flight: str = "wait",
                 kv: str = "recompute", timeout: float = 300.0) -> None:
        if in_flight not in IN_FLIGHT or kv not in ("recompute", "keep"):
            raise errors.InvalidError(
                f"in_flight {in_flight!r} is one of {', '.join(IN_FLIGHT)}; "
                f"kv {kv!r} is recompute or keep")
        self.urls = [url.rstrip("/") for url in urls]
        self.in_flight, self.kv, self.timeout = in_flight, kv, timeout
        self.options: Dict[str, Any] = {}
        self.version = 0  # what they were told to take
        self.broken: Set[int] = set()  # in place: weights that are not whole

    def each(self, call: Callable[[int, str], Any]) -> List[Any]:
        """Of every server at once; the first failure is raised when all have
        ended."""
        with concurrent.futures.ThreadPoolExecutor(len(self.urls)) as pool:
            calls = [pool.submit(call, index, url)
                     for index, url in enumerate(self.urls)]
        return [done.result() for done in calls]

    def post(self, url: str, path: str, **body: Any) -> Any:
        return request(url + path, body, self.timeout)

    def init(self, **options: Any) -> None:
        """Make the servers' workers join the job.  They must have been started
        with --weight-transfer-config '{"backend": "dynatrain"}'."""
        self.options = options
        self.each(self._join)

    @property
    def commit(self) -> str:
        return str(self.options.get("commit", "staged"))

    def _join(self, index: int, url: str) -> None:
        first = self.options.get("replica", 0)
        self.post(url, "/init_weight_transfer_engine",
                  init_info={**self.options, "replica": first + index})

    def rejoin(self, index: int) -> None:
        """A server that was started again gets what the others have before it
        answers anything."""
        url = self.urls[index]
        self.post(url, "/pause?mode=abort")
        self._join(index, url)
        self._transfer(url, self.version)
        self.broken.discard(index)
        self.post(url, "/resume")

    def pause(self) -> None:
        mode = IN_FLIGHT[self.in_flight]
        self.each(lambda index, url: self.post(url, f"/pause?mode={mode}"))

    def resume(self) -> None:
        """All of them but those whose weights are not whole."""
        self.each(lambda index, url: None if index in self.broken
                  else self._resume(url))

    def _resume(self, url: str) -> None:
        self.post(url, "/resume")

    def transfer(self, version: int) -> None:
        """Of paused servers: the weights, then the caches that they fill."""
        self.version = version
        self.each(lambda index, url: self._take(index, url, version))

    def _take(self, index: int, url: str, version: int) -> None:
        if self.commit == "in_place":
            self.broken.add(index)
        self._transfer(url, version)
        self.broken.discard(index)

    def _transfer(self, url: str, version: int) -> None:
        self.post(url, "/start_weight_update")
        try:
            self.post(url, "/update_weights", update_info={
                "version": version, "timeout": self.timeout})
        except errors.Error:
            with contextlib.suppress(errors.Error):  # ends it on all ranks
                self.post(url, "/finish_weight_update")
            raise
        self.post(url, "/finish_weight_update", weight_version=str(version))
        self.reset(url)

    def reset(self, url: str) -> None:
        """Keys and values of old weights are never read again, except by
        requests that go on with kv = "keep"."""
        keeps = self.in_flight == "continue" and self.kv == "keep"
        running = "false" if keeps else "true"
        reply = self.post(
            url, f"/reset_prefix_cache?reset_running_requests={running}")
        done = not isinstance(reply, dict) or reply.get("success", True)
        if not done and not keeps:
            raise ServerError(f"{url}: its prefix cache was not reset")

    def update(self, version: int) -> None:
        """A whole update.  Servers that fail go on with what they had, the
        others with the new version; in commit mode in_place those that fail
        stay paused until an update has worked, as their weights are not
        whole."""
        try:
            self.pause()
            self.transfer(version)
        except errors.Error:
            with contextlib.suppress(errors.Error):  # one that died
                self.resume()
            raise
        self.resume()

    def versions(self) -> List[str]:
        return [str(request(url + "/weight_info")["weight_version"])
                for url in self.urls]
