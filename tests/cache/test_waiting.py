"""Waiting until a handler has handled the initial objects."""

from __future__ import annotations

import asyncio
import threading

import pytest

from appsdk_operator import client as c
from appsdk_operator.cache import Cache, Delivery, EventSource, Informer
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import (
    PATIENCE,
    THING,
    BatchRecorder,
    Hang,
    Recorder,
    ScriptedClient,
    Stream,
    error_line,
    line,
    page,
    thing,
)
from tests.waiting import eventually


class Waiter:
    """A call in a thread of its own."""

    def __init__(self, call):
        self.result = None
        self.thread = threading.Thread(target=self._run, args=(call,))
        self.thread.start()

    def _run(self, call):
        self.result = call()

    def end(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.result


class ByNamespace:
    """A client with fixed objects."""

    def __init__(self, *objects):
        self.objects = objects

    def list_page(self, kind, *, namespace, **options):
        return page(*(o for o in self.objects if namespace in ("", o.namespace)))

    def watch(self, kind, *, send_initial_events, stop, **options):
        if send_initial_events:
            raise c.error_from_status({"code": 422})
        stream = Stream(then=None)
        stop.on_set(stream.close)
        return stream


def test_waiting_ends_when_the_handler_has_handled_what_was_there(make):
    running = make(page(thing("a")), Stream(then=None))
    gate, entered = threading.Event(), threading.Event()
    recorder = Recorder()
    recorder.hook = lambda _: (entered.set(), gate.wait(PATIENCE))
    registration = running.informer.add_event_handler(recorder)
    running.start().sync()
    assert entered.wait(PATIENCE)
    waiter = Waiter(lambda: registration.wait_for_sync(StopSignal()))
    assert waiter.result is None
    assert not registration.has_synced
    gate.set()
    assert waiter.end() is True
    assert registration.has_synced
    assert recorder.calls == ["add a@1 initial"]


def test_waiting_for_the_list_ends_with_the_stop_and_with_the_time_of_the_clock(make):
    running = make(Hang)
    registration = running.informer.add_event_handler(Recorder())
    running.start()
    stop = StopSignal()
    stopped = Waiter(lambda: registration.wait_for_sync(stop))
    late = Waiter(lambda: registration.wait_for_sync(StopSignal(), 5.0))
    while late.thread.is_alive():
        running.clock.advance(1.0)
        late.thread.join(0.01)
    assert late.end() is False
    stop.set()
    assert stopped.end() is False


def test_waiting_for_the_handler_ends_with_the_stop_the_time_and_its_removal(make):
    running = make(page(thing("a")), Stream(then=None))
    gate, entered = threading.Event(), threading.Event()
    recorder = Recorder()
    recorder.hook = lambda _: (entered.set(), gate.wait(PATIENCE))
    registration = running.informer.add_event_handler(recorder)
    running.start().sync()
    assert entered.wait(PATIENCE)
    assert registration.wait_for_sync(StopSignal(), 0.0) is False
    stop = StopSignal()
    stopped = Waiter(lambda: registration.wait_for_sync(stop))
    stop.set()
    assert stopped.end() is False
    removed = Waiter(lambda: registration.wait_for_sync(StopSignal()))
    remover = Waiter(registration.remove)
    assert removed.end() is False
    gate.set()
    remover.end()


def test_waiting_for_a_handler_of_an_informer_that_has_not_listed_ends_with_its_removal():
    informer = Informer(THING, ScriptedClient(), clock=ManualClock(), metrics=Metrics())
    registration = informer.add_event_handler(Recorder())
    removed = Waiter(lambda: registration.wait_for_sync(StopSignal()))
    registration.remove()
    assert removed.end() is False
    with pytest.raises(TypeError, match="StopSignal"):
        registration.wait_for_sync(None)


def test_what_queues_has_handled_what_was_handed_to_it(make):
    running = make(page(thing("a")), Stream(then=None))
    recorder = BatchRecorder()
    registration = running.informer.add_event_handler(recorder)
    running.start()
    assert registration.wait_for_sync(StopSignal(), None)
    assert (recorder.calls, recorder.ends) == (["add a@1 initial"], 1)


def test_the_handler_of_a_cache_is_waited_for_in_all_namespaces():
    client = ByNamespace(thing("a"), thing("b", namespace="y"))
    cache = Cache(client, namespaces=["x", "y"], clock=ManualClock(), metrics=Metrics())
    cache.add(THING)
    recorder, gate = Recorder(), threading.Event()
    recorder.hook = lambda _: gate.wait(PATIENCE)
    registration = cache.add_event_handler(THING, recorder)
    assert registration.wait_for_sync(StopSignal(), 0.0) is False
    stop = StopSignal()
    thread = threading.Thread(target=cache.run, args=(stop,))
    thread.start()
    assert cache.wait_for_sync(stop)
    assert not registration.has_synced
    waiter = Waiter(lambda: registration.wait_for_sync(stop))
    gate.set()
    assert waiter.end() is True
    assert sorted(recorder.calls) == ["add a@1 initial", "add b@1 initial"]
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("how", ["remove", "stop"])
def test_the_wait_for_a_cache_ends_with_the_handler(how):
    cache = Cache(ScriptedClient(Hang), clock=ManualClock(), metrics=Metrics())
    cache.add(THING)
    registration = cache.add_event_handler(THING, Recorder())
    stop, running = StopSignal(), StopSignal()
    thread = threading.Thread(target=cache.run, args=(running,))
    thread.start()
    waiter = Waiter(lambda: registration.wait_for_sync(stop))
    if how == "stop":
        stop.set()
        assert waiter.end() is False
    running.set()
    thread.join(PATIENCE)
    assert waiter.end() is False


def test_a_source_that_several_share_is_waited_for_as_one(make):
    delivery = Delivery("d", lambda key, event: None, clock=ManualClock())
    source = delivery.source("things")
    assert isinstance(source, EventSource)
    client = ScriptedClient(page(thing("a")), Stream())
    informer = Informer(
        THING, client, stream_first_sync=False, clock=ManualClock(), metrics=Metrics()
    )
    registration = informer.add_event_handler(source)
    informer.step(StopSignal())
    assert registration.wait_for_sync(StopSignal(), 0.0) is False
    while delivery.step():
        pass
    assert registration.wait_for_sync(StopSignal(), 0.0) is True
    delivery.remove(source)
    delivery.stop()


def test_a_handler_that_does_not_end_its_call_holds_its_removal_up_for_so_long_only(make):
    running = make(page(thing("a")), Stream(then=None))
    gate, entered = threading.Event(), threading.Event()
    recorder = Recorder()
    recorder.hook = lambda _: (entered.set(), gate.wait(PATIENCE))
    registration = running.informer.add_event_handler(recorder)
    running.start().sync()
    assert entered.wait(PATIENCE)
    with pytest.raises(TimeoutError, match=r"a handler of things.*still run: informer/things"):
        registration.remove(timeout=0.05)
    gate.set()
    registration.remove()


def test_a_kind_whose_handler_does_not_end_is_removed_after_the_time_all_the_same():
    cache = Cache(ByNamespace(thing("a")), metrics=Metrics())
    cache.add(THING)
    gate, entered = threading.Event(), threading.Event()
    recorder = Recorder()
    recorder.hook = lambda _: (entered.set(), gate.wait(PATIENCE))
    registration = cache.add_event_handler(THING, recorder)
    stop = StopSignal()
    thread = threading.Thread(target=cache.run, args=(stop,))
    thread.start()
    assert entered.wait(PATIENCE)
    with pytest.raises(TimeoutError, match="still run: cache/things"):
        cache.remove(THING, timeout=0.05)
    assert list(cache.kinds) == []
    gate.set()
    registration.remove()
    stop.set()
    thread.join(PATIENCE)


def test_async_handlers_have_one_loop_for_all_calls(make):
    loops = []

    class Handler(Recorder):
        async def on_add(self, obj, *, is_initial):
            loops.append(asyncio.get_running_loop())
            super().on_add(obj, is_initial=is_initial)

    running = make(page(thing("a"), thing("b")), Stream(then=None))
    handler = Handler()
    running.informer.add_event_handler(handler)
    running.start()
    handler.wait_for_count(2)
    assert loops[0] is loops[1]


def test_a_client_waits_for_a_version_but_not_for_one_that_never_comes(make):
    stream = Stream(then=None)
    running = make(page(thing("a"), version=10), stream)
    running.start().sync()
    assert running.informer.wait_for_version("10", StopSignal())
    waiter = Waiter(lambda: running.informer.wait_for_version("12", StopSignal()))
    stream.send(line("MODIFIED", thing("a", 12)))
    assert waiter.end() is True
    future = Waiter(lambda: running.informer.wait_for_version("99", StopSignal()))
    # Only a wait that has begun is ended by a history that goes back.
    eventually(lambda: running.informer._waiters.waiting)
    running.client.then(page(version=5), Stream(then=None))
    stream.send(error_line(410, "Expired"))
    while future.thread.is_alive():
        running.clock.advance(1.0)
        future.thread.join(0.01)
    assert future.end() is True
    assert (running.informer.rewinds, running.informer.resource_version) == (1, "5")
