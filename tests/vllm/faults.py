"""What goes wrong while a real server gets weights, and what must be true
afterwards.  The counts of these faults are run on a small engine in C; here
each is tried once in each mode.  Nothing is left to luck: whoever is to die
has stopped at a named point of the update before."""

import concurrent.futures
import os
import signal

from served import WAYS
from servers import KINDS, Trainer

from dynatrain import Session, errors
from dynatrain.vllm_http import Servers, request

# Whoever is there has done its part of the transfer, and has not voted.
MIDDLE = "transferred"


def trainer_of(site, **job):
    return Trainer(site.folder, site.models, KINDS[site.kind][0],
                   **{**site.job, **job})


def second_trainer(checks, site):
    with checks.one(f"{site.name}: a second trainer is refused") as notes:
        try:
            Session("trainer", size=2, **site.job).close()
        except errors.BusyError as problem:
            notes.append(str(problem).splitlines()[0][:100])
            return
        raise AssertionError("two trainers are in one job")


def second_job(checks, site, trainer):
    """Both servers of a host get other weights at the same time."""
    other = {"job": "check-other", "address": f"unix:{site.folder}/other.sock"}
    with checks.one(f"{site.name}: a second job on the host"), \
            trainer_of(site, **other) as second:
        second.ready()
        first = site.client(site.servers[:1])
        beside = Servers([site.servers[1].url], timeout=600)
        beside.init(**{**site.job, **other})
        version, name = site.next()
        rest = "AB"[name == "A"]
        trainer.offer(version, name)
        second.offer(1, rest)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for done in (pool.submit(first.update, version),
                         pool.submit(beside.update, 1)):
                done.result()
        trainer.done()
        second.done()
        site.same(name, site.servers[:1])
        site.same(rest, site.servers[1:])


def in_the_middle(client, version, points, kill):
    """An update in which somebody stops at each point, and then there is a
    kill(the processes that have stopped).  It must fail."""
    for point in points:
        point.order(MIDDLE)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.update, version)
        stopped = [point.reached(call) for point in points]
        kill(*stopped)
        problem = call.exception()
    assert isinstance(problem, errors.Error), problem


def outcome(site, server, client, old, before, notes):
    """Of a server whose trainer has died."""
    if client.commit == "in_place":
        assert request(server.url + "/is_paused")["is_paused"]
        notes.append("nothing is answered")
    else:
        assert client.versions() == [before]
        site.same(old, [server])
        notes.append("the whole old one answers")


def trainer_killed(checks, site, trainer, way):
    """Both sides have stopped in the middle when it is killed.  Returns the
    trainer that comes after."""
    server = site.servers[1]
    with checks.one(f"{site.name}, {way}: trainer killed in an update"
                    ) as notes:
        trainer.ready()
        client = site.client([server], **WAYS[way])
        old, _ = site.update(trainer, client)
        before = str(site.version)
        version, name = site.next()
        trainer.offer(version, name)

        def kill(_, worker):
            trainer.kill()
            os.kill(worker, signal.SIGCONT)

        in_the_middle(client, version, [site.trainer_point, site.point], kill)
        outcome(site, server, client, old, before, notes)
        trainer = trainer_of(site, point=site.trainer_point)
        trainer.ready()
        client = site.client([server], **WAYS[way])
        name, _ = site.update(trainer, client)
        site.same(name, [server])
        notes.append("the next trainer's version came")
    return trainer


def server_killed(checks, site, trainer, way, again=False):
    """One of two servers is killed in the middle: the other one gets the
    version, and the trainer goes on.  Started again, it has that version before
    it answers."""
    with checks.one(f"{site.name}, {way}: server killed in an update"
                    + (", and started again" if again else "")) as notes:
        client = site.client(**WAYS[way])
        site.update(trainer, client)
        version, name = site.next()
        trainer.offer(version, name)
        in_the_middle(client, version, [site.point],
                      lambda worker: site.servers[1].stop(signal.SIGKILL))
        trainer.done()
        site.same(name, site.servers[:1])
        notes.append("the other one has it")
        if not again:
            site.servers.pop()
            client = site.client(**WAYS[way])
            name, _ = site.update(trainer, client)
            site.same(name)
            notes.append("and the next")
            return
        site.servers[1].model = site.models["AB"[name == "A"]]
        site.servers[1].start()
        client.urls[1] = site.servers[1].wait().url
        client.rejoin(1)
        assert client.versions() == [str(version)] * 2
        site.same(name)
        name, _ = site.update(trainer, client)
        site.same(name)
        notes.append("so has the one started again, and both the next")


def killed(checks, site, full):
    """Trainers and servers, in the middle."""
    trainer = trainer_of(site, point=site.trainer_point)
    try:
        for way in WAYS if full else ("staged", "in place"):
            trainer = trainer_killed(checks, site, trainer, way)
        if full:
            server_killed(checks, site, trainer, "staged", again=True)
        server_killed(checks, site, trainer, "in place")
    finally:
        trainer.close()
