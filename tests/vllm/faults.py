"""What goes wrong while a real server gets weights, and what must be true
afterwards.  The counts of these faults are run on a small engine in C; here
each is tried once."""

import concurrent.futures
import os
import signal
import time

from served import WAYS
from servers import KINDS, Server, Trainer

from dynatrain import Session, errors
from dynatrain.vllm_http import Servers, request


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
    site.client()  # all of them are in the first job again


def broken(client, version, after, break_it):
    """An update, and a fault `after` seconds; True where it worked anyway."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.update, version)
        time.sleep(after)  # the fault's moment, not a way to synchronise
        break_it()
        try:
            call.result()
        except errors.Error:
            return False
    return True


def outcome(site, client, old, name, worked, notes):
    """After a trainer's death: all of the new version, or what the mode says.
    A replica that had all of it before the other one failed keeps it."""
    if worked:
        notes.append("an update was through when it died")
        site.same(name)
    elif client.commit != "in_place":
        for server, held in zip(site.servers, client.versions()):
            came = held == str(site.version)
            site.same(name if came else old, [server])
            notes.append("a whole new one answers" if came else
                         "a whole old one answers")
    else:
        for server in site.servers:
            assert request(server.url + "/is_paused")["is_paused"]
        notes.append("nothing is answered")


def trainer_killed(checks, site, trainer, way):
    """Killed in the middle: the old version is whole, or in place nothing is
    answered until the next one came.  Returns the trainer that comes after."""
    with checks.one(f"{site.name}, {way}: trainer killed in an update"
                    ) as notes:
        for held in (False, True):
            client = site.client(**WAYS[way])
            for _ in range(2):  # the first one plans
                old, took = site.update(trainer, client)
            version, name = site.next()
            trainer.offer(version, name)
            if held:  # its manager's rank stands still: it cannot get through
                os.kill(trainer.ranks[0].pid, signal.SIGSTOP)
            worked = broken(client, version, took * 0.3, trainer.kill)
            outcome(site, client, old, name, worked, notes)
            trainer = trainer_of(site)
            if not worked:
                break
        assert not worked, "an update went through without a trainer"
        client = site.client(**WAYS[way])
        name, _ = site.update(trainer, client)
        site.same(name)
        notes.append("the next trainer's version came")
    return trainer


def server_killed(checks, site, trainer):
    """One of two servers is killed in the middle and started again: the other
    one got the version, and it has it before it answers."""
    with checks.one(f"{site.name}: server killed in an update, and started "
                    "again") as notes:
        client = site.client()
        for _ in range(2):  # the first one plans
            _, took = site.update(trainer, client)
        version, name = site.next()
        trainer.offer(version, name)
        worked = broken(client, version, took * 0.3,
                        lambda: site.servers[1].stop(signal.SIGKILL))
        notes.append("it was through" if worked else "it was in the middle")
        trainer.done()
        request(site.servers[0].url + "/resume", {})
        site.same(name, site.servers[:1])
        notes.append("the other one answers")
        site.servers[1] = Server(site.models["A"], site.tp, site.kind,
                                 site.folder / "server-again.log").wait()
        client.urls[1] = site.servers[1].url
        client.rejoin(1)
        assert client.versions() == [str(version)] * 2
        site.same(name)
        name, _ = site.update(trainer, client)
        site.same(name)
        notes.append("the one started again got its version, and the next")
