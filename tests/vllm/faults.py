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
    server = site.servers[-1]
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
            version, name = site.next()
            trainer.offer(version, name)
            try:
                client.update(version)
            except errors.Error:
                trainer.done()
                site.same(name, site.servers[:1])
                site.servers.pop()
                notes.append("and the next, though the dead one is asked, too")
                return
            raise AssertionError("a dead server has taken a version")
        start_again(site, name)
        client.rejoin(1)
        assert client.versions() == [str(version)] * 2
        site.same(name)
        name, _ = site.update(trainer, client)
        site.same(name)
        notes.append("so has the one started again, and both the next")


def start_again(site, name):
    """The last server, with another set of weights on its disk than this."""
    server = site.servers[-1]
    server.model = site.models["AB"[name == "A"]]
    server.start()
    server.wait()


# Who of the only server of a job is killed.
WHO = {"server killed": lambda server, worker: server.stop(signal.SIGKILL),
       "one of its ranks killed":
           lambda server, worker: os.kill(worker, signal.SIGKILL)}


def alone_killed(checks, site, trainer, way, who):
    """The job's only server is killed in the middle, all of it, or one of its
    ranks, with which vLLM ends: nobody is answered any more.  The trainer's
    offer stays open for who comes later: has_it() with the client that this
    returns."""
    with checks.one(f"{site.name}, {way}: {who} in an update") as notes:
        trainer.ready()
        server = site.servers[-1]
        client = site.client([server], **WAYS[way])
        version, name = site.next()
        trainer.offer(version, name)
        in_the_middle(client, version, [site.point],
                      lambda worker: WHO[who](server, worker))
        server.ended()
        server.stop()
        notes.append("nothing is answered")
    return client


def has_it(checks, site, trainer, client):
    """A server that was started after another one died, or that one again, has
    the version that was offered to it before it answers."""
    with checks.one(f"{site.name}: the next server has that version before it "
                    "answers") as notes:
        server = site.servers[-1]
        client.urls = [server.wait().url]
        client.rejoin(0)
        trainer.done()
        assert client.versions() == [str(site.version)]
        site.same("AB"[site.version % 2], [server])
        notes.append("all answers bit for bit")


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


def killed_alone(checks, site, trainer):
    """Of a job with one server that has several ranks."""
    for way in WAYS:
        trainer = trainer_killed(checks, site, trainer, way)
    for who in WHO:
        client = alone_killed(checks, site, trainer, "staged", who)
        start_again(site, "AB"[site.version % 2])
        has_it(checks, site, trainer, client)
    return trainer
