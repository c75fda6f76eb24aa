"""A forked child has copies of informers, electors and queues, but not their threads."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import warnings

import pytest

from appsdk_operator.cache import Cache, CachedClient
from appsdk_operator.cache._informer.informer import access_to
from appsdk_operator.manager import Elector, LeaderElection
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import ForkedError, ManualClock, Metrics, StopSignal, WorkQueue
from appsdk_operator.testing import MemoryServer, running
from tests.cache.conftest import page, thing
from tests.simulations import no_client

ConfigMap = kinds.core.v1.ConfigMap

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_a_child(check):
    """What ``check`` returns in a forked child, as text."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads
        child = os.fork()
    if not child:
        signal.alarm(10)  # one that hangs ends without a word
        with contextlib.suppress(BaseException):
            try:
                told = repr(check())
            except BaseException as error:
                told = f"{type(error).__name__}: {error}"
            os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        told = answer.read().decode()
    os.waitpid(child, 0)
    return told


def test_a_queue_of_the_parent_says_so_even_where_a_thread_holds_its_lock():
    queue = WorkQueue("q", metrics=Metrics())
    queue.add("a")
    held, done = threading.Event(), threading.Event()

    def hold():
        with queue._lock:
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    try:
        for use in (lambda: queue.add("b"), queue.get, lambda: len(queue)):
            assert in_a_child(use).startswith("ForkedError: the queue 'q' belongs to process")
    finally:
        done.set()
        thread.join(10)
    assert len(queue) == 1
    assert queue._samples()


def test_an_informer_of_the_parent_says_so(make):
    running = make(page(thing("a")))
    running.informer.step(running.stop)
    informer = running.informer
    for use in (
        lambda: informer.store.get("a", "x"),
        lambda: informer.run(StopSignal()),
        lambda: informer.wait_for_sync(StopSignal(), 0.0),
    ):
        told = in_a_child(use)
        assert told.startswith("ForkedError: the informer of things.example.com"), told
        assert "make and run one in the child" in told
    assert informer.store.get("a", "x") is not None
    assert informer.health().is_ready
    assert "the parent of this forked process" in in_a_child(informer.health)
    assert "False" in in_a_child(lambda: informer.health().is_ready)


def test_a_cache_of_the_parent_says_so_even_where_a_thread_holds_its_locks():
    server = MemoryServer()
    cache = Cache(server.client(), metrics=Metrics())
    cache.add(ConfigMap)
    client = CachedClient(server.client(), cache, metrics=Metrics())
    held, done = threading.Event(), threading.Event()

    def hold():
        (informer,) = cache.informers(ConfigMap)
        with (
            cache._lock,
            access_to(informer).lock,
            access_to(informer)._counting,
            client._overlay._lock,
        ):
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    with running(cache):
        assert cache.wait_for_sync(StopSignal(), 10)
        thread.start()
        held.wait(10)
        try:
            for use in (
                lambda: cache.get(ConfigMap, "a", namespace="x"),
                lambda: cache.list(ConfigMap),
                lambda: client.get(ConfigMap, "a", namespace="x"),
                lambda: list(client.list(ConfigMap)),
                lambda: client.by_index(ConfigMap, "a", "b"),
            ):
                assert in_a_child(use).startswith("ForkedError: the informer of configmaps"), use
            assert "is_ready=False" in in_a_child(cache.health)
        finally:
            done.set()
            thread.join(10)


def test_the_child_of_a_leader_does_not_lead():
    clock = ManualClock()
    elector = Elector(
        no_client(),
        LeaderElection(id="e", namespace="x"),
        clock=clock,
        metrics=Metrics(),
    )
    elector._state.held_until = math.inf
    assert elector.is_leader
    assert in_a_child(lambda: elector.is_leader) == "False"
    told = in_a_child(lambda: elector.run(StopSignal(), lambda: None))
    assert told.startswith("ForkedError: <Elector")
    assert elector.is_leader
    assert issubclass(ForkedError, RuntimeError)
