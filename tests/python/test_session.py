"""A job of three processes through the library of this build: two trainer ranks
with half a tensor each, and a receiver of the whole, staged, in place and
mapped.  Standard library only.  usage: test_session.py LIBDYNATRAIN"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import support

support.use_library(sys.argv[1])
import dynatrain  # noqa: E402
from dynatrain import Piece, Row, errors, rules, tensors  # noqa: E402

ROWS, COLUMNS = 8, 6


class Array:
    """A dense array of floats by the array interface."""

    def __init__(self, *shape):
        self.shape = shape
        self.memory = (ctypes.c_float * tensors.elements(shape))()
        self.__array_interface__ = {
            "version": 3, "typestr": "<f4", "shape": shape, "strides": None,
            "data": (ctypes.addressof(self.memory), False)}


def value(version, tensor, index):
    return float(version * 1000 + tensor * 500 + index)


def fill(array, version, tensor, first):
    for index in range(len(array.memory)):
        array.memory[index] = value(version, tensor, first + index)


def holds(memory, count, version, tensor):
    found = (ctypes.c_float * count).from_address(memory.address)
    for index in range(count):
        want = value(version, tensor, index)
        assert found[index] == want, (tensor, index, found[index], want)


def say(word):
    print(word, flush=True)


def hear(word):
    line = sys.stdin.readline().strip()
    assert line == word, (line, word)


def trainer(address, rank):
    """Half of the rows of a each, b on both."""
    half = ROWS // 2
    a, b = Array(half, COLUMNS), Array(5)
    rows = [Row("a", a, global_shape=(ROWS, COLUMNS), pieces=[Piece(
        "a", (rank * half, 0), ((rank + 1) * half, COLUMNS))]), Row("b", b)]
    with dynatrain.Session("trainer", address=address, job="py", rank=rank,
                           size=2, timeout=30) as session:
        session.publish(rows)
        say("ready")
        for version in (1, 2, 3):
            session.will_write()
            fill(a, version, 0, rank * half * COLUMNS)
            fill(b, version, 1, 0)
            ticket = session.offer(version)
            support.raises(errors.StateError, session.will_write,
                           str(version))
            assert not ticket.done and not ticket.wait(0.05)
            say("offered")
            assert ticket.wait(30)
            session.will_write()
            ticket.close()
            say("done")
        support.raises(errors.StateError, lambda: session.offer(3), "3")
        hear("leave")


def receiver(address, way):
    options = {"staged": {}, "in_place": {"commit": "in_place"},
               "mapped": {"memory": "mapped", "commit": "double"}}[way]
    a, b = Array(ROWS, COLUMNS), Array(5)
    rows = [Row("server.a", a), Row("server.b", b) if way != "mapped" else
            Row("server.b", dtype="float32", shape=(5,), staged=True)]
    table = rules.from_table({"family": "py", "rule": [
        {"name": "server.{*}", "part": [{"tensor": "{*}"}]}]})
    with dynatrain.Session("receiver", address=address, job="py", timeout=30,
                           **options) as session:
        if way == "mapped":
            rows = session.map(rows)
        session.publish(rows, table)
        support.raises(errors.StateError, session.valid)
        say("ready")
        for version in (1, 2, 3):
            hear("receive")
            report = session.receive(version, timeout=30)
            assert report.committed and report.version == version, report
            assert session.valid() == version
            for index, count in ((0, ROWS * COLUMNS), (1, 5)):
                memory = tensors.memory_of(rows[index].tensor)
                if way == "mapped":
                    memory = memory._replace(address=session.row_data(index))
                holds(memory, count, version, index)
            assert sorted(session.changed()) == [0, 1]
            assert session.row_hash(0) != session.row_hash(1)
            say("received")
        interrupted(session)
        say("interrupted")


def interrupted(session):
    """A wait for an offer that never comes, ended from another thread; and by
    the keyboard, though whoever started this may ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    over = threading.Event()

    def interrupt():  # one that comes before the call begins is not for it
        while not over.wait(0.1):
            session.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    support.raises(errors.CancelledError, lambda: session.receive(9, 60))
    over.set()
    thread.join()
    begun = time.monotonic()
    try:
        threading.Timer(0.2,
                        lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        session.receive(9, 30)
    except KeyboardInterrupt:
        assert time.monotonic() - begun < 20
        return
    raise AssertionError("no KeyboardInterrupt")


class Member:
    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, __file__, sys.argv[1], *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hears(self, word):
        line = self.process.stdout.readline().strip()
        assert line == word, (line, word, self.process.poll())

    def told(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def ends(self):
        assert self.process.wait(30) == 0


def one_job(way):
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/job.sock"
        members = [Member("trainer", address, str(rank)) for rank in (0, 1)]
        try:
            for member in members:
                member.hears("ready")
            members.append(Member("receiver", address, way))
            members[2].hears("ready")
            for version in (1, 2, 3):
                for member in members[:2]:
                    member.hears("offered")
                members[2].told("receive")
                members[2].hears("received")
                for member in members[:2]:
                    member.hears("done")
                states = dynatrain.job_status(address, "py")
                assert str(version) in str(states), states
            members[2].hears("interrupted")
            members[2].ends()
            for member in members[:2]:
                member.told("leave")
                member.ends()
        finally:
            for member in members:
                member.process.kill()
                member.process.wait()


def staged():
    one_job("staged")


def in_place():
    one_job("in_place")


def mapped():
    one_job("mapped")


def nobody_listens():
    with tempfile.TemporaryDirectory() as folder:
        support.raises(errors.Error, lambda: dynatrain.Session(
            "receiver", address=f"unix:{folder}/none.sock", timeout=0.3))


class Early:
    """A session whose call begins only after the first interrupt has come,
    which is not for it then."""

    blocking = dynatrain.Session.blocking

    def __init__(self):
        self.interrupts = 0

    def interrupt(self):
        self.interrupts += 1

    def call(self):
        os.kill(os.getpid(), signal.SIGINT)
        until = time.monotonic() + 20
        while self.interrupts < 3 and time.monotonic() < until:
            time.sleep(0.01)
        return errors.CancelledError.status if self.interrupts >= 3 else 0


def an_early_interrupt_ends_the_call_too():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    session = Early()
    try:
        session.blocking(session.call)
    except KeyboardInterrupt:
        assert session.interrupts >= 3
        return
    raise AssertionError("no KeyboardInterrupt")


def a_join_ends_at_an_interrupt_too():
    """Long before its deadline, and leaves when it should get in after all."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        try:
            threading.Timer(0.2, lambda: os.kill(os.getpid(),
                                                 signal.SIGINT)).start()
            dynatrain.Session("receiver", address=f"unix:{folder}/none.sock",
                              timeout=60)
        except KeyboardInterrupt:
            assert time.monotonic() - begun < 30
        else:
            raise AssertionError("no KeyboardInterrupt")
    from dynatrain import _abi
    go, late = threading.Event(), []

    def call():
        os.kill(os.getpid(), signal.SIGINT)
        assert go.wait(20)
        return "in"

    taken = threading.Event()
    try:
        _abi.patient(call, lambda made: (late.append(made), taken.set()))
    except KeyboardInterrupt:
        go.set()
    assert taken.wait(20) and late == ["in"]


def a_session_is_its_process_s_alone():
    import copy
    import gc
    import pickle
    import weakref
    with tempfile.TemporaryDirectory() as folder:
        tensor = Array(2)
        there = weakref.ref(tensor)
        session = dynatrain.Session("trainer", address=f"unix:{folder}/s.sock",
                                    timeout=30)
        with session:
            session.publish([Row("a", tensor)])
            del tensor
            for take in (pickle.dumps, copy.copy, copy.deepcopy):
                support.raises(TypeError, lambda by=take: by(session),
                               "Session")
            gc.collect()
            assert there() is not None and "trainer 0 of 1" in repr(session)
            ticket = session.offer(1)
            support.raises(TypeError, lambda: pickle.dumps(ticket), "Ticket")
            del ticket
        gc.collect()
        assert there() is None and "closed" in repr(session)
        support.raises(errors.StateError, session.__enter__, "closed")
        for wrong in ({"quorum": -1}, {"cap_bytes": "1GB"}, {"timeout": "3"},
                      {"attributes": {"a": "b"}}, {"experts": [1 << 40]},
                      {"attributes": {"a": 1 << 70}}, {"pool": "a\0b"}):
            support.raises(errors.InvalidError, lambda w=wrong: dynatrain.Session(
                "trainer", address=f"unix:{folder}/t.sock", **w))
        support.raises(errors.InputOutputError, lambda: dynatrain.Session(
            "trainer", address="unix:/proc/none/s.sock"), "/proc/none")


def a_hook_s_own_failure_is_told():
    def refuses():
        raise KeyError("no room")

    with tempfile.TemporaryDirectory() as folder:
        options = {"address": f"unix:{folder}/s.sock", "timeout": 30}
        with dynatrain.Session("trainer", **options) as trainer, \
                dynatrain.Session("receiver", **options) as receiver:
            trainer.publish([Row("a", Array(2))])
            receiver.publish([Row("a", Array(2))])
            receiver.set_hooks(pause=refuses)
            ticket = trainer.offer(1)
            problem = support.raises(
                errors.StateError, lambda: receiver.receive(1, 30), "pause hook")
            assert isinstance(problem.__cause__, KeyError), problem.__cause__
            receiver.set_hooks()
            receiver.receive(1, 30)
            assert ticket.wait(30)


def rows_are_named_by_what_is_wrong_with_them():
    from array import array

    from dynatrain.session import ViewBuffer
    for row, words in [
            (dynatrain.Row("wq", "no tensor"), ("row wq", "data_ptr")),
            (dynatrain.Row("wk", array("d", [1.0])), ("row wk", "float32")),
            (dynatrain.Row("wv", array("f", [1.0]), global_shape=(1, 1)),
             ("row wv", "global_shape")),
            (dynatrain.Row("wo", array("f", [1.0]), kind="weights"),
             ("row wo", "exp_avg"))]:
        try:
            ViewBuffer([row])
        except errors.Error as problem:
            for word in words:
                assert word in str(problem), str(problem)
        else:
            raise AssertionError(row.name)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        {"trainer": lambda: trainer(sys.argv[3], int(sys.argv[4])),
         "receiver": lambda: receiver(*sys.argv[3:])}[sys.argv[2]]()
    else:
        from dynatrain import _abi
        if not hasattr(_abi.lib(), "dyt_session_join"):
            support.skip("this library has no sessions")
        support.run(nobody_listens, an_early_interrupt_ends_the_call_too,
                    a_join_ends_at_an_interrupt_too,
                    a_session_is_its_process_s_alone,
                    a_hook_s_own_failure_is_told,
                    rows_are_named_by_what_is_wrong_with_them,
                    staged, in_place, mapped)
