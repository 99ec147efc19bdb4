"""Servers that loaded a set of weights each, what they answered before anything
was given to them, and updates that must make them answer the same."""

import collections
import concurrent.futures
import contextlib
import time

from engines import differs
from servers import PROMPTS, Point, Server

from dynatrain import errors
from dynatrain.vllm_http import Servers

# The ways to commit.
WAYS = {"staged": {}, "in place": {"commit": "in_place"},
        "mapped": {"memory": "mapped", "commit": "in_place"},
        "mapped, double": {"memory": "mapped", "commit": "double"}}


class Checks:
    """A line for each, and how many there were."""

    def __init__(self):
        self.count, self.updates, self.begun = 0, 0, time.monotonic()

    @contextlib.contextmanager
    def one(self, name):
        begun, notes = time.monotonic(), []
        try:
            yield notes
        except BaseException as problem:
            print(f"FAILED {name}: {type(problem).__name__}: {problem}",
                  flush=True)
            raise
        self.count += 1
        told = f": {', '.join(notes)}" if notes else ""
        print(f"ok {self.count} {name}{told} "
              f"({time.monotonic() - begun:.0f} s)", flush=True)


class Site:
    """One server for each set of weights, at one TP and kind.  `want` has what
    they answered when they had loaded it from disk, `compared` how many answers
    were the same, bit for bit, by TP."""

    compared = collections.Counter()

    def __init__(self, models, tp, kind, folder, library=None, stay=False,
                 alone=False):
        """Both stay, or the one of B has gone when that of A starts.  With the
        `library` of a test build the last one that is there stops at points.
        Alone: there is none for B, whose answers must be others than A's."""
        self.models, self.tp, self.kind, self.folder = models, tp, kind, folder
        self.name, self.stay = f"TP {tp}, {kind}", stay
        tag = f"{tp}-{kind.replace(' ', '-')}"
        self.job = {"job": f"check-{tag}", "timeout": 600.0,
                    "address": f"unix:{folder}/{tag}.sock"}
        self.servers, self.version, self.want = [], 0, {}
        # Every step of three ranks on two cores waits for each of them often.
        self.tokens = 16 if tp == 1 else 6
        self.point = self.trainer_point = None
        if library:
            self.point = Point(library, folder / "fault-server")
            self.trainer_point = Point(library, folder / "fault-trainer")
        self.names = "A" if alone else "AB"
        if self.stay:
            self.start(self.names)

    def start(self, names):
        """Servers that load these sets."""
        tag = f"{self.tp}-{self.kind.replace(' ', '-')}"
        try:
            for name in names:
                self.servers.append(Server(
                    self.models[name], self.tp, self.kind,
                    self.folder / f"server-{tag}-{name}.log",
                    self.point if name == names[-1] else None))
        except BaseException:
            self.stop()
            raise

    def answer(self, checks, last=None):
        """What they say when they have loaded it from disk.  One that does not
        stay is there for a last() thing to be done to it; what that returns."""
        found = None
        if not self.stay:  # one at a time, as memory is short
            for name in self.names[:0:-1]:
                self.start(name)
                self.fresh(checks, name, self.servers[0])
                if last:
                    found = last()
                self.servers.pop().stop()
            self.start(self.names[0])
        for name, server in zip(self.names, self.servers):
            self.fresh(checks, name, server)
        assert ("B" not in self.want
                or differs(self.want["A"], self.want["B"])), "all alike"
        return found

    def fresh(self, checks, name, server):
        with checks.one(f"{self.name}: a fresh server of {name}") as notes:
            self.want[name] = self.answers_of(server.wait())
            notes.append(f"{len(PROMPTS)} answers")

    def answers_of(self, server, prompts=PROMPTS):
        return server.answers(prompts, self.tokens)

    def stop(self):
        for server in self.servers:
            server.stop()

    def __enter__(self):
        return self

    def __exit__(self, *about):
        self.stop()

    def client(self, servers=None, **options):
        """Of all servers, or of some: they join the job with these options,
        each as the same replica every time."""
        servers = servers or self.servers
        client = Servers([server.url for server in servers], timeout=600)
        client.init(**{**self.job, **options,
                       "replica": self.servers.index(servers[0])})
        return client

    def next(self):
        """The next version, and the set of weights that it is."""
        self.version += 1
        return self.version, "BA"[self.version % 2 == 0]

    def update(self, trainer, client):
        """One version into the client's servers; (set, seconds)."""
        version, name = self.next()
        trainer.offer(version, name)
        begun = time.monotonic()
        client.update(version)
        took = time.monotonic() - begun
        trainer.done()
        return name, took

    def same(self, name, servers=None, part=slice(None)):
        """They answer as those that loaded that set from disk."""
        for server in servers or self.servers:
            have = self.answers_of(server, PROMPTS[part])
            if name not in self.want:
                assert differs(have, self.want["A"][part]), "still A's"
                continue
            wrong = differs(have, self.want[name][part])
            assert not wrong, f"{server.url}, version {self.version}: {wrong}"
            self.compared[self.tp] += len(have)


def updates(checks, site, trainer, way, count, servers):
    """Versions one after the other: bit for bit, every time."""
    trainer.ready()
    with checks.one(f"{site.name}, {way}: {count} updates over HTTP") as notes:
        client, times = site.client(servers, **WAYS[way]), []
        for _ in range(count):
            name, took = site.update(trainer, client)
            times.append(took)
            half = site.version // 2 % 2  # of the prompts, for either set
            site.same(name, servers, slice(2 * half, 2 * half + 2))
            assert set(client.versions()) == {str(site.version)}
        checks.updates += count * len(client.urls)
        times.sort()
        notes.append("token ids and log-probabilities bit for bit")
        notes.append(f"{times[len(times) // 2]:.2f} s each")
    return client


def heard(choice):
    """(token ids, their log-probabilities) of a choice of generate()."""
    ids = choice["token_ids"] or []
    rows = (choice["logprobs"] or {}).get("content") or []
    return ids, [row["logprob"] for row in rows]


def alike(have, want, count):
    """The first tokens of two answers are the same, bit for bit."""
    return all(len(one) >= count and len(other) >= count
               and one[:count] == other[:count]
               for one, other in zip(have, want))


def during(site, trainer, client, ids, tokens):
    """An update while a request runs: (its choice, (version, tokens) spans,
    the versions before and after, what is answered without an update)."""
    server, old = site.servers[0], str(site.version)
    whole = heard(server.generate(ids, tokens))
    place = min(len(site.want["A"][0][0]), tokens)
    assert alike(whole, site.want["AB"[site.version % 2]][0], place), whole
    version, name = site.next()
    trainer.offer(version, name)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(server.generate, ids, tokens)
        while not server.running() and not call.done():
            time.sleep(0.01)
        client.update(version)
        choice = call.result()
    trainer.done()
    spans = [(span["version"], span["end"] - span["start"])
             for span in choice["weight_versions"] or []]
    site.same(name, [server], slice(None if site.tp == 1 else 1))
    return choice, spans, [old, str(version)], whole


def in_flight(checks, site, trainer, client):
    """Requests that run while weights change: waited for, aborted, or gone on
    with.  Every token says what version made it, and is what a server makes of
    that version: those of the old one as without an update, those of the new
    one, where keys and values were made anew, as for a new request that goes on
    from there."""
    tokens = 120 if site.tp == 1 else 24  # so many take seconds
    server = site.servers[0]
    ids = server.post("/tokenize", model="m", prompt=PROMPTS[0])["tokens"]
    for setting, kv in (("wait", "recompute"), ("abort", "recompute"),
                        ("continue", "recompute"), ("continue", "keep")):
        with checks.one(f"{site.name}: requests in flight, {setting}"
                        + (f", kv {kv}" if setting == "continue" else "")
                        ) as notes:
            client.in_flight, client.kv = setting, kv
            for _ in range(5):
                choice, spans, (old, new), whole = during(
                    site, trainer, client, ids, tokens)
                if setting == "wait" or spans != [(old, tokens)]:
                    break  # it had not ended before the pause
            have = heard(choice)
            made = len(have[0])
            assert sum(count for _, count in spans) == made, choice
            if setting == "abort":
                assert choice["finish_reason"] == "abort" and made < tokens
            else:
                assert choice["finish_reason"] == "length" and made == tokens
            both = [old, new] if setting == "continue" else [old]
            assert [which for which, _ in spans] in (both, both[1:]), spans
            notes.append(", ".join(f"{count} tokens of version {which}"
                                   for which, count in spans) or "no token")
            first = dict(spans).get(old, 0)
            assert alike(have, whole, first), (have, whole)
            compared = first
            if (setting, kv) == ("continue", "recompute"):
                after = heard(server.generate(ids + have[0][:first],
                                              tokens - first))
                assert alike([rows[first:] for rows in have], after,
                             tokens - first), (have, after)
                compared = tokens
            notes.append(f"{compared} bit for bit")
    client.in_flight, client.kv = "wait", "recompute"


def wrong_dialect(checks, site):
    """Rules of another family: refused, with all that does not fit."""
    with checks.one(f"{site.name}: a wrong dialect is refused") as notes:
        table = site.folder / "wrong.toml"
        table.write_text(
            'family = "wrong"\n[[rule]]\nname = "model.norm.weight"\n'
            'part = [{ tensor = "model.norm.wieght" }]\n', encoding="utf-8")
        try:
            site.client(site.servers[:1], rules=str(table))
        except errors.Error as problem:
            text = str(problem)
            for word in ("qkv_proj", "gate_up_proj", " more"):
                assert word in text, text
            notes.append(f"{text.count('unexpected: ')} rows and their "
                         "nearest names, the rest counted")
            return
        raise AssertionError("a wrong table of rules was accepted")
