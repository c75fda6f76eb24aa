from __future__ import annotations

import gc
import os
import threading

import pytest

from appsdk_operator.runtime import (
    ForkedError,
    LimitedCall,
    Metrics,
    OneProcess,
    StopSignal,
    TokenBucket,
    after_fork,
    fork_safe,
    system_clock,
)
from appsdk_operator.runtime import _fork as fork_module
from appsdk_operator.runtime._threading import limited_calls
from tests.forking import in_child


class Journal:
    def __init__(self, name="", to=None):
        self.name, self.calls = name, [] if to is None else to
        after_fork(self.forked)

    def forked(self):
        self.calls.append(self.name)


def test_a_lock_that_another_thread_held_is_free_in_the_child():
    for lock in (fork_safe(threading.Lock()), fork_safe(threading.RLock())):
        held, done = threading.Event(), threading.Event()

        def hold(lock=lock, held=held, done=done):
            with lock:
                held.set()
                done.wait(10)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(10)
        assert in_child(lambda lock=lock: lock.acquire(timeout=1.0)) == "True"
        assert not lock.acquire(blocking=False)
        done.set()
        thread.join(10)


def test_methods_are_called_in_the_child_alone_and_in_the_order_they_were_added():
    calls = []
    journals = [Journal(name, calls) for name in "abc"]
    assert in_child(lambda: "".join(calls)) == "abc"
    assert calls == []
    assert len(journals) == 3


def test_a_method_that_raises_keeps_no_other_from_running():
    class Broken:
        def fail(self):
            raise RuntimeError("no")

    broken = Broken()
    after_fork(broken.fail)
    journal = Journal("b")
    assert in_child(lambda: len(journal.calls)) == "1"


@pytest.fixture
def gate(monkeypatch):
    """A gate that no fork of this process knows."""
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    return fork_module._ForkGate()


def test_a_fork_waits_for_the_sections_that_have_begun_and_later_ones_for_it(gate, monkeypatch):
    monkeypatch.setattr(gate, "_PATIENCE", 60.0)
    seen = []

    def fork():
        gate._before()
        seen.append(("fork", gate._inside))

    def enter():
        with gate:
            seen.append(("section", gate._forks))

    forking, late = threading.Thread(target=fork), threading.Thread(target=enter)
    with gate:
        with gate:
            forking.start()
            while not gate._forks:
                forking.join(0.001)
            late.start()
        assert seen == []
    forking.join(10)
    assert seen == [("fork", 0)]
    gate._after()
    late.join(10)
    assert seen == [("fork", 0), ("section", 0)]
    assert (gate._inside, gate._forks) == (0, 0)


def test_a_child_may_enter_sections_and_fork():
    def use():
        with fork_module.forks_wait:
            pass
        return in_child(lambda: fork_module.forks_wait._inside)

    with fork_module.forks_wait:
        pass
    assert in_child(use) == "0"


def test_a_fork_within_a_section_goes_on_after_a_while(monkeypatch):
    """As that of a signal handler, for which the section waits that it has interrupted."""
    gate = fork_module.forks_wait
    monkeypatch.setattr(gate, "_PATIENCE", 0.01)
    with gate:
        assert in_child(lambda: gate._inside) == "0"
    with gate._changed:
        assert in_child(lambda: gate._changed.acquire(timeout=1.0)) == "True"
    with gate:
        assert gate._inside == 1
    assert (gate._inside, gate._forks) == (0, 0)


def test_what_is_gone_is_not_kept():
    gc.collect()
    before = len(fork_module._methods), len(fork_module._locks)
    for _ in range(100):
        Journal()
        OneProcess("a", "b")
        fork_safe(threading.Lock())
    gc.collect()
    now = len(fork_module._methods), len(fork_module._locks)
    # What other tests left may go meanwhile.
    assert now[0] <= before[0]
    assert now[1] <= before[1]


def test_an_object_of_one_process_says_in_another_what_to_do():
    process = OneProcess("this queue", "make it in the child")
    process.check()
    assert not process.inherited

    def use():
        try:
            process.check()
        except ForkedError as error:
            return str(error)

    text = in_child(use)
    assert text.startswith(f"this queue belongs to process {os.getpid()}, which made it, and")
    assert text.endswith("got a copy by fork() that cannot work: make it in the child")
    assert in_child(lambda: process.inherited) == "True"
    process.check()


def test_a_grandchild_is_a_child_too():
    process = OneProcess("this queue", "make it in the child")
    assert in_child(lambda: in_child(lambda: process.inherited)) == "True"


def test_what_is_made_in_the_child_is_its_own():
    assert in_child(lambda: OneProcess("a", "b").inherited) == "False"


@pytest.mark.parametrize("what", ["stop", "metrics", "bucket", "call"])
def test_signals_metrics_and_limits_work_in_the_child_whoever_held_their_locks(what):
    stop, metrics, bucket = StopSignal(), Metrics(), TokenBucket()
    call = LimitedCall(0.0, None, stop, system_clock)
    locks = [stop._lock, stop._waiters._lock, metrics._lock, bucket._lock, limited_calls._stop_lock]
    held, done = threading.Event(), threading.Event()

    def hold():
        for lock in locks:
            lock.acquire()
        held.set()
        done.wait(10)
        for lock in locks:
            lock.release()

    def use():
        match what:
            case "stop":
                child = stop.child()
                stop.set()
                return child.wait(1.0)
            case "metrics":
                metrics.counter("forks_total", "Forks.").inc()
                return metrics.value("forks_total")
            case "call":
                call.end()
                return call.stop.is_set()
            case _:
                return bucket.reserve()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    got = in_child(use)
    done.set()
    thread.join(10)
    assert got == {"stop": "True", "metrics": "1.0", "bucket": "0.0", "call": "True"}[what]
