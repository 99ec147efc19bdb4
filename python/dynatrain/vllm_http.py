"""The other end of vLLM's HTTP routes for updates (VLLM_SERVER_DEV_MODE=1), in
the order that works: pause, start, update, finish, reset of the prefix cache,
resume.  Standard library only.

    servers = Servers(["http://localhost:8000"])
    servers.init(address=trainer.session.address)
    with trainer.offered(version):
        servers.update(version)
"""

import contextlib
import http.client
import json
import re
import select
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import (Any, Callable, Dict, Iterable, List, Optional, Sequence, Set,
                    Tuple)

from dynatrain import errors

# What becomes of requests that run while weights change.
IN_FLIGHT = {"wait": "wait", "abort": "abort", "continue": "keep"}


SESSION_TIMEOUT = 60.0  # of a join that was given none
GRACE = 10.0  # that an answer may take beyond the deadline that it is about


class ServerError(errors.Error):
    """A server refused; the text has what it said."""

    status, name = errors.PeerError.status, errors.PeerError.name


def refusal(where: str, status: int, text: str) -> ServerError:
    """What a server said, without what it wraps around a worker's error."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text)["error"]["message"])
    inner = re.search(r"Worker failed with error '(.*)', please check", text,
                      re.DOTALL)
    return ServerError(
        f"{where}: {status}: {(inner.group(1) if inner else text)[:4000]}")


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
        raise refusal(url, problem.code, said) from None
    except OSError as problem:
        raise ServerError(f"{url}: {problem}") from None
    return json.loads(text) if text.startswith(("{", "[")) else text


def is_gone(url: str, timeout: float) -> Optional[str]:
    """Why a server is to be given up: its port is closed, or it says itself
    that its engine has died."""
    try:
        urllib.request.urlopen(url + "/health", timeout=timeout).close()
    except urllib.error.HTTPError as problem:
        return "its engine has died" if problem.code == 503 else None
    except OSError as problem:
        return str(problem)
    return None


def watched(url: str, path: str, body: Dict[str, Any], timeout: float) -> Any:
    """POST of JSON to a server that may die meanwhile.  One whose engine has
    never answers what it had been asked, and does not end before whoever asked
    has hung up."""
    at = urllib.parse.urlsplit(url)
    kind = (http.client.HTTPSConnection if at.scheme == "https"
            else http.client.HTTPConnection)
    line = kind(at.hostname or "", at.port, timeout=timeout)
    until = time.monotonic() + timeout
    try:
        line.request("POST", at.path + path, json.dumps(body).encode(),
                     {"Content-Type": "application/json"})
        reply_is_there = select.poll()
        reply_is_there.register(line.sock, select.POLLIN)
        while not reply_is_there.poll(1000):
            why = is_gone(url, timeout)
            if why is None and time.monotonic() > until:
                why = f"no answer within {timeout:g} s"
            # It may have answered before it went.
            if why is not None and not reply_is_there.poll(0):
                raise ServerError(f"{url}{path}: {why}")
        reply = line.getresponse()
        text = reply.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as problem:
        raise ServerError(f"{url}{path}: {problem or 'it hung up'}") from None
    finally:
        line.close()
    if reply.status >= 400:
        if reply.status == 404:
            text += (": was it started with VLLM_SERVER_DEV_MODE=1, and is its "
                     "URL without a path?")
        raise refusal(url + path, reply.status, text)
    return json.loads(text) if text.startswith(("{", "[")) else text


class Servers:
    """Servers that get the same versions; each is a replica."""

    def __init__(self, urls: Sequence[str], in_flight: str = "wait",
                 kv: str = "recompute", timeout: float = 300.0) -> None:
        if in_flight not in IN_FLIGHT or kv not in ("recompute", "keep"):
            raise errors.InvalidError(
                f"in_flight {in_flight!r} is one of {', '.join(IN_FLIGHT)}; "
                f"kv {kv!r} is recompute or keep")
        wrong = [url for url in urls
                 if not url.startswith(("http://", "https://"))]
        if not urls or wrong or isinstance(urls, str) or \
                len(set(urls)) != len(urls):
            raise errors.InvalidError(
                f"urls {urls!r}: a list of servers, each once, as "
                "http://HOST:PORT")
        self.urls = [url.rstrip("/") for url in urls]
        self.in_flight, self.kv, self.timeout = in_flight, kv, timeout
        self.options: Dict[str, Any] = {}
        self.version = 0  # what they were told to take
        self.draft: Optional[int] = None
        self.told: Tuple[Optional[int], Optional[int]] = (None, None)
        # In place: whose weights are not whole, and which.
        self.broken: Set[Tuple[int, str]] = set()

    def each(self, call: Callable[[int, str], Any]) -> List[Any]:
        """Of every server at once; the first failure is raised when all have
        ended.  A process that is interrupted meanwhile ends without them."""
        answers: Dict[int, Any] = {}
        failures: Dict[int, BaseException] = {}

        def one(index: int, url: str) -> None:
            try:
                answers[index] = call(index, url)
            except BaseException as problem:
                failures[index] = problem

        threads = [threading.Thread(target=one, args=place, daemon=True)
                   for place in enumerate(self.urls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[min(failures)]
        return [answers[index] for index in range(len(self.urls))]

    def _tried(self, call: Callable[[int, str], Any],
               but: Iterable[int] = ()) -> Dict[int, errors.Error]:
        """Of every server but some: what was raised, by server."""
        found: Dict[int, errors.Error] = {}

        def one(index: int, url: str) -> None:
            try:
                call(index, url)
            except errors.Error as problem:
                found[index] = problem

        self.each(lambda index, url: None if index in but else one(index, url))
        return found

    def post(self, url: str, path: str, within: float = 0.0, **body: Any
             ) -> Any:
        """One that dies meanwhile does not hold up the others.  `within`: the
        server's own deadline, after which it says itself what was late."""
        return watched(url, path, body, self.patience(within))

    def patience(self, within: float) -> float:
        return max(self.timeout, within + GRACE) if within else self.timeout

    def init(self, **options: Any) -> None:
        """Make the servers' workers join the job.  They must have been started
        with --weight-transfer-config '{"backend": "dynatrain"}'.  `draft` has
        the options of a speculative draft model's job."""
        self.options = options
        self.each(self._join)

    @property
    def commit(self) -> str:
        return str(self.options.get("commit", "staged"))

    def commit_of(self, draft: bool) -> str:
        own: Dict[str, Any] = self.options.get("draft") or {}
        return str(own.get("commit", self.commit)) if draft else self.commit

    def _join(self, index: int, url: str) -> None:
        first = self.options.get("replica", 0)
        try:
            self.post(
                url, "/init_weight_transfer_engine",
                within=float(self.options.get("timeout") or SESSION_TIMEOUT),
                init_info={**self.options, "replica": first + index})
        except ServerError as problem:  # vLLM hides paths in what it answers
            raise ServerError(
                f"{problem} (address {self.options.get('address')}, job "
                f"{self.options.get('job', 'default')})") from None

    def rejoin(self, index: int, version: Optional[int] = None) -> None:
        """A server that was started again gets what the others have before it
        answers anything; or a version that the trainer offers meanwhile, where
        it is the only one."""
        url = self.urls[index]
        self.version = self.version if version is None else version
        self.post(url, "/pause?mode=abort")
        self._join(index, url)
        self._transfer(url, self.version)
        if self.draft is not None:
            self._transfer_draft(url, self.draft)
        self.broken -= {(index, "policy"), (index, "draft")}
        self.post(url, "/resume")

    def pause(self) -> None:
        self.each(lambda index, url: self._pause(url))

    def _pause(self, url: str) -> None:
        self.post(url, f"/pause?mode={IN_FLIGHT[self.in_flight]}")

    def resume(self) -> None:
        """All of them but those whose weights are not whole."""
        self.each(self._resume_whole)

    def _resume_whole(self, index: int, url: str) -> None:
        if not self.broken & {(index, "policy"), (index, "draft")}:
            self._resume(url)

    def _resume(self, url: str) -> None:
        self.post(url, "/resume")

    def transfer(self, version: Optional[int],
                 draft: Optional[int] = None) -> None:
        """Of paused servers: the weights, then the caches that they fill."""
        self._told(version, draft)
        self.each(self._take_all)

    def _told(self, version: Optional[int], draft: Optional[int]) -> None:
        self.told = version, draft
        self.version = self.version if version is None else version
        self.draft = self.draft if draft is None else draft

    def _take_all(self, index: int, url: str) -> None:
        version, draft = self.told
        if version is not None:
            self._take(index, "policy", self._transfer, url, version)
        if draft is not None:
            self._take(index, "draft", self._transfer_draft, url, draft)

    def _take(self, index: int, what: str, call: Callable[[str, int], None],
              url: str, version: int) -> None:
        if self.commit_of(what == "draft") == "in_place":
            self.broken.add((index, what))
        call(url, version)
        self.broken.discard((index, what))

    def _transfer(self, url: str, version: int) -> None:
        self._receive(url, "/start_weight_update", version)
        self.post(url, "/finish_weight_update", weight_version=str(version))
        self.reset(url)

    def _transfer_draft(self, url: str, version: int) -> None:
        self._receive(url, "/start_draft_weight_update", version)
        self.post(url, "/finish_weight_update")
        self.reset(url)

    def _receive(self, url: str, start: str, version: int) -> None:
        self.post(url, start)
        try:
            self.post(
                url, "/update_weights", within=self.timeout, update_info={
                    "version": version, "timeout": self.timeout})
        except errors.Error:
            with contextlib.suppress(errors.Error):  # ends it on all ranks
                self.post(url, "/finish_weight_update")
            raise

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

    def update(self, version: Optional[int],
               draft: Optional[int] = None) -> None:
        """A whole update, of the policy, of its draft model, or of both within
        one pause.  Servers that fail, or have died, hold up nobody: they go on
        with what they had, the others with the new version, and then the first
        failure is raised.  In commit mode in_place those that fail stay paused
        until an update has worked, as their weights are not whole."""
        self._told(version, draft)
        failed = self._tried(lambda index, url: self._pause(url))
        failed.update(self._tried(self._take_all, but=failed))
        resumed = self._tried(self._resume_whole)
        for _, problem in sorted({**resumed, **failed}.items()):
            raise problem

    def versions(self) -> List[str]:
        return [str(request(url + "/weight_info")["weight_version"])
                for url in self.urls]
