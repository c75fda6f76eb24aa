from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from appsdk_operator import client as c
from appsdk_operator.cache import (
    Cache,
    EventSource,
    Informer,
    Lister,
    Overflow,
    drop_managed_fields,
)
from appsdk_operator.client import Request
from appsdk_operator.resource import Kind, Object, SelectorError, kinds
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.testing import MemoryServer, running
from tests.cache.conftest import (
    PATIENCE,
    PLACE,
    THING,
    BatchRecorder,
    Hang,
    NoJitter,
    Recorder,
    ScriptedClient,
    Stream,
    bookmark,
    check_history,
    data,
    error_line,
    line,
    page,
    thing,
)
from tests.simulations import no_client
from tests.waiting import eventually

ConfigMap = kinds.core.v1.ConfigMap


def status(code, **more):
    return c.error_from_status({"code": code, **more})


def forbidden(verb="list"):
    path = THING.path("x")
    request = Request(
        method="GET", path=path, verb=verb, resource="things.example.com", namespace="x"
    )
    return c.error_from_status({"code": 403, "reason": "Forbidden"}, request=request)


# What handlers are told.


def test_handlers_are_told_of_what_is_there_and_of_what_happens(make):
    stream = Stream(then=None)
    running = make(page(thing("a", 1)), stream)
    recorder = Recorder()
    registration = running.informer.add_event_handler(recorder)
    running.start().sync()
    stream.send(line("ADDED", thing("b", 11)), line("MODIFIED", thing("a", 12)))
    stream.send(line("DELETED", thing("b", 13)), bookmark(20))
    recorder.wait_for("delete b@13")
    assert recorder.calls == ["add a@1 initial", "add b@11", "update a@1->12", "delete b@13"]
    assert registration.has_synced
    assert running.errors == []
    assert running.informer.health().text == "informer of things.example.com: ok, 1 object"


def test_the_store_is_updated_before_handlers_run(make):
    stream = Stream(then=None)
    running = make(page(thing("a", 1)), stream)
    seen = []
    recorder = Recorder()

    def look(_):
        found = running.informer.store.get("a", "x")
        seen.append(found.resource_version if found else None)

    recorder.hook = look
    running.informer.add_event_handler(recorder)
    running.start()
    recorder.wait_for_count(1)
    for number, text in enumerate(
        [line("MODIFIED", thing("a", 11)), line("DELETED", thing("a", 12))], 2
    ):
        stream.send(text)
        recorder.wait_for_count(number)
    assert seen == ["1", "11", None]


def test_a_late_handler_gets_what_is_there_as_initial_and_then_what_happens(make):
    stream = Stream(then=None)
    running = make(page(thing("a", 1), thing("b", 2)), stream).start().sync()
    late = Recorder()
    registration = running.informer.add_event_handler(late)
    late.wait_for_count(2)
    stream.send(line("MODIFIED", thing("a", 11)))
    late.wait_for("update a@1->11")
    assert sorted(late.calls[:2]) == ["add a@1 initial", "add b@2 initial"]
    assert registration.has_synced


@pytest.mark.stress
def test_handlers_that_are_added_while_a_writer_writes_miss_nothing_and_get_nothing_twice(make):
    stream = Stream(then=None)
    running = make(page(version=1), stream).start().sync()
    handlers = [BatchRecorder() for _ in range(12)]
    room, done = threading.Semaphore(100), threading.Event()

    class Pacer(BatchRecorder):
        def on_events(self, events):
            super().on_events(events)
            room.release(len(events))

    pacer = Pacer()
    running.informer.add_event_handler(pacer)

    def write():
        version = 1
        present = set()
        while not done.is_set():
            version += 1
            name = f"o{version % 11}"
            is_delete = name in present and version % 5 == 0
            (present.discard if is_delete else present.add)(name)
            assert room.acquire(timeout=PATIENCE)
            stream.send(line("DELETED" if is_delete else "MODIFIED", thing(name, version)))
        stream.end()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for handler in handlers:
            before = len(pacer.events)
            eventually(lambda before=before: len(pacer.events) > before + 20)
            running.informer.add_event_handler(handler)
    finally:
        done.set()
        writer.join()
    running.client.wait_for_requests(3)
    running.end()
    held = {obj.key: obj.resource_version for obj in running.informer.store}
    for handler in handlers:
        left = check_history(handler.events)
        assert {key: obj.resource_version for key, obj in left.items()} == held
        assert handler.ends == 1
    assert len({len(handler.events) for handler in handlers}) > 1


def test_a_slow_handler_holds_up_neither_the_copy_nor_other_handlers(make):
    stream = Stream(then=None)
    running = make(page(thing("a", 1)), stream)
    gate, entered = threading.Event(), threading.Event()
    slow, fast = Recorder(), Recorder()
    slow.hook = lambda _: (entered.set(), gate.wait(PATIENCE))
    registration = running.informer.add_event_handler(slow, max_pending=1)
    running.informer.add_event_handler(fast)
    running.start().sync()
    assert entered.wait(PATIENCE)
    for version in range(11, 200):
        stream.send(line("MODIFIED", thing("a", version)))
    fast.wait_for("update a@198->199")
    assert running.informer.store.get("a", "x").resource_version == "199"
    assert slow.calls == []
    assert not registration.has_synced
    gate.set()
    slow.wait_for_count(2)
    assert len(fast.calls) == 190
    assert slow.calls[0] == "add a@1 initial"
    assert slow.calls[-1].endswith("->199")
    assert len(slow.calls) <= 3
    check_history(slow.events)


def test_a_handler_that_raises_is_told_and_goes_on_and_so_do_the_others(make):
    running = make(page(thing("a"), thing("b")), Hang)
    bad, good = Recorder(), Recorder()

    def fail(text):
        if " a@" in text:
            raise KeyError("a")

    bad.hook = fail
    running.informer.add_event_handler(bad)
    running.informer.add_event_handler(good)
    running.start()
    bad.wait_for_count(1)
    good.wait_for_count(2)
    assert bad.calls == ["add b@1 initial"]
    assert [repr(error) for error in running.errors] == ["KeyError('a')"]


def test_the_failure_of_a_handler_is_logged_with_its_traceback(make, caplog):
    running = make(page(thing("a"), thing("b")), Hang, on_error=None)
    bad = Recorder()
    bad.hook = lambda text: 1 / 0 if " a@" in text else None
    running.informer.add_event_handler(bad)
    running.start()
    bad.wait_for_count(1)
    (record,) = [r for r in caplog.records if "handler" in r.message]
    assert "failed for <CREATE <Thing x/a" in record.message
    assert record.exc_info[0] is ZeroDivisionError


def test_a_batch_handler_that_raises_ends_neither_the_informer_nor_other_handlers(make):
    class Bad(BatchRecorder):
        def on_events(self, events):
            raise RuntimeError("no")

        on_initial_list_end = on_events  # type: ignore[assignment]

    stream = Stream(then=None)
    running = make(page(thing("a")), stream)
    good = Recorder()
    running.informer.add_event_handler(Bad())
    running.informer.add_event_handler(good)
    running.start().sync()
    stream.send(line("ADDED", thing("b", 11)))
    good.wait_for("add b@11")
    assert {type(error) for error in running.errors} == {RuntimeError, TypeError}


def test_a_batch_handler_that_removes_itself_takes_nothing_from_the_next(make):
    class Once(BatchRecorder):
        def on_events(self, events):
            registration.remove()

    running = make(page(thing("a")), Stream(then=None))
    after = BatchRecorder()
    registration = running.informer.add_event_handler(Once())
    running.informer.add_event_handler(after)
    running.start().sync()
    running.end()
    assert after.calls == ["add a@1 initial"]
    assert after.ends == 1


def test_a_removed_handler_is_called_no_more_and_removal_is_harmless_twice(make):
    stream = Stream(then=None)
    running = make(page(thing("a")), stream)
    gone, stays = Recorder(), Recorder()
    registration = running.informer.add_event_handler(gone)
    running.informer.add_event_handler(stays)
    running.start()
    gone.wait_for_count(1)
    registration.remove()
    registration.remove()
    stream.send(line("ADDED", thing("b", 11)))
    stays.wait_for("add b@11")
    assert gone.calls == ["add a@1 initial"]


def test_a_handler_may_remove_itself(make):
    running = make(page(thing("a"), thing("b")), Hang)
    recorder = Recorder()
    recorder.hook = lambda _: registration.remove()
    registration = running.informer.add_event_handler(recorder)
    running.start()
    recorder.wait_for_count(1)
    running.end()
    assert len(recorder.calls) == 1


def test_a_handler_of_async_functions_is_awaited_and_its_failures_are_reported(make):
    class Handler:
        async def on_add(self, obj, *, is_initial):
            await asyncio.sleep(0)
            recorder.on_add(obj, is_initial=is_initial)

        async def on_update(self, old, new):
            await asyncio.sleep(0)
            raise KeyError(new.resource_version)

        async def on_delete(self, obj, *, is_final_state_unknown):
            await asyncio.sleep(0)
            recorder.on_delete(obj, is_final_state_unknown=is_final_state_unknown)

    recorder = Recorder()
    changes = [line("MODIFIED", thing("a", 11)), line("DELETED", thing("a", 12))]
    running = make(page(thing("a")), Stream(changes, then=None))
    running.informer.add_event_handler(Handler())
    running.start()
    recorder.wait_for_count(2)
    assert recorder.calls == ["add a@1 initial", "delete a@12"]
    assert [repr(error) for error in running.errors] == ["KeyError('11')"]


def test_a_replay_shows_one_handler_everything_once_more(make):
    running = make(page(thing("a")), Hang)
    one, other = Recorder(), Recorder()
    registration = running.informer.add_event_handler(one)
    running.informer.add_event_handler(other)
    running.start()
    one.wait_for_count(1)
    other.wait_for_count(1)
    registration.replay()
    one.wait_for("resync a@1")
    assert other.calls == ["add a@1 initial"]
    registration.remove()
    registration.replay()
    assert len(one.calls) == 2


def test_resyncs_show_the_local_copy_without_asking_the_server(make):
    running = make(page(thing("a")), Hang, resync=100.0)
    recorder, never = Recorder(), Recorder()
    running.informer.add_event_handler(recorder)
    running.informer.add_event_handler(never, resync=0)
    running.start()
    recorder.wait_for_count(1)
    for count in (1, 2):
        running.clock.block_until_waiting(1)
        running.clock.advance(110.0)
        recorder.wait_for("resync a@1", count)
    running.client.wait_for_requests(2)
    assert running.client.verbs == ["list", "watch"]
    assert "resync a@1" not in never.calls


def test_a_batch_handler_has_no_thread_for_resyncs_and_is_told_so(make):
    running = make(resync=10.0)
    running.informer.add_event_handler(BatchRecorder())
    with pytest.raises(ValueError, match=r"call replay\(\) of the registration"):
        running.informer.add_event_handler(BatchRecorder(), resync=5.0)


# Syncing.


def test_synced_means_complete_across_all_pages(make):
    """A peer called itself synced with the first 500 of 20,000 objects."""
    gate = threading.Event()

    def second_page(**_):
        assert gate.wait(PATIENCE)
        return page(thing("b"))

    running = make(page(thing("a"), token="t"), second_page, page_size=1)
    recorder = Recorder()
    registration = running.informer.add_event_handler(recorder)
    running.start()
    recorder.wait_for("add a@1 initial")
    running.client.wait_for_requests(2)
    assert not running.informer.has_synced
    assert not registration.has_synced
    assert not running.informer.wait_for_sync(running.stop, 0.0)
    gate.set()
    running.sync()
    assert len(running.informer.store) == 2


def test_a_handler_has_synced_when_it_has_handled_what_was_there(make):
    running = make(page(thing("a")), Hang)
    gate, entered = threading.Event(), threading.Event()
    recorder = Recorder()
    recorder.hook = lambda _: (entered.set(), gate.wait(PATIENCE))
    registration = running.informer.add_event_handler(recorder)
    running.start().sync()
    assert entered.wait(PATIENCE)
    assert not registration.has_synced
    gate.set()
    recorder.wait_for_count(1)
    assert registration.own_delivery.wait_idle(None)
    assert registration.has_synced


def test_whoever_finds_the_copy_complete_finds_its_version_and_who_waits_finds_handlers_told(make):
    seen = []

    class Looks(BatchRecorder):
        def on_initial_list_end(self):
            is_reported = informer.wait_for_sync(StopSignal(), 0.0)
            seen.append((informer.has_synced, informer.resource_version))
            seen.append((is_reported, registration.has_synced))
            super().on_initial_list_end()

    running = make(page(thing("a"), version=10))
    informer = running.informer
    registration = informer.add_event_handler(Looks())
    informer.step(running.stop)
    assert seen == [(True, "10"), (False, False)]
    assert informer.wait_for_sync(StopSignal(), 0.0)
    assert registration.has_synced


def test_whoever_is_told_that_the_history_went_back_finds_the_older_version(make):
    running = make(page(version=10), Stream([error_line(410, "Expired")]), page(version=5))
    informer = running.informer
    seen, wake = [], informer._waiters.wake

    def look():
        seen.append((informer.rewinds, informer.resource_version))
        wake()

    informer._waiters.wake = look
    for _ in range(3):
        informer.step(running.stop)
    assert seen == [(0, "10"), (1, "5")]


def test_a_source_that_informers_share_has_synced_only_when_both_have(make):
    from appsdk_operator.cache import Delivery

    one, other = make(page(thing("a"))), make(page(thing("b")))
    delivery = Delivery("d", lambda key, event: None)
    source: EventSource = delivery.source("things")
    first = one.informer.add_event_handler(source)
    second = other.informer.add_event_handler(source)
    one.informer.step(one.stop)
    while delivery.step():
        pass
    assert (first.has_synced, second.has_synced) == (True, False)
    other.informer.step(other.stop)
    assert not second.has_synced
    while delivery.step():
        pass
    assert second.has_synced
    delivery.stop()


def test_waiting_for_the_sync_ends_with_a_stop_in_time_and_with_the_informer(make):
    running = make(Hang).start()
    assert not running.informer.wait_for_sync(StopSignal(), 0.0)
    results = []
    stop = StopSignal()
    waiters = [
        threading.Thread(target=lambda s=s: results.append(running.informer.wait_for_sync(s)))
        for s in (stop, StopSignal())
    ]
    for waiter in waiters:
        waiter.start()
    stop.set()
    waiters[0].join(PATIENCE)
    running.end()
    waiters[1].join(PATIENCE)
    assert results == [False, False]


def test_what_is_listed_first_but_gone_in_the_end_is_deleted_before_the_sync(make):
    expired = status(410, reason="Expired")
    running = make(page(thing("a"), token="t"), expired, page(thing("b"), version=12), page_size=1)
    handler = BatchRecorder()
    running.informer.add_event_handler(handler)
    for _ in range(3):
        running.informer.step(running.stop)
    assert handler.calls == ["add a@1 initial", "add b@1 initial", "delete a@1 unknown"]
    assert handler.ends == 1


# Requests.


def test_lists_and_watches_carry_what_was_asked_for(make):
    running = make(
        page(),
        Stream(),
        namespace="x",
        label_selector="app=web",
        field_selector="metadata.name=a",
        page_size=7,
        watch_timeout=(11.0, 12.0),
    )
    for _ in range(2):
        running.informer.step(running.stop)
    listed, watched = running.client.requests
    for request in (listed, watched):
        assert (request.namespace, request.label_selector) == ("x", "app=web")
        assert (request.field_selector, request.kind) == ("metadata.name=a", THING)
    assert (listed.limit, listed.retry) == (7, False)
    assert (watched.resource_version, watched.timeout) == ("10", 11.0)


def test_waits_are_on_the_clock_of_the_informer_whatever_signal_stops_it(make):
    running = make(status(500), page(thing("a")), Hang).start()
    running.clock.block_until_waiting(1)
    assert running.client.verbs == ["list"]
    running.clock.advance(1.0)
    running.sync()


@pytest.mark.parametrize(
    "answers",
    [
        [status(403)] * 100,
        [status(500)] * 100,
        [c.ConnectFailed("refused")] * 100,
        [page(), *[Stream() for _ in range(100)]],
        [page(), *[Stream([bookmark(11)]) for _ in range(100)]],
    ],
)
def test_a_server_that_refuses_or_hangs_up_is_not_flooded(answers):
    """Peers made 1,400 to 3,800 requests a second of these; without jitter these are the most."""
    clock, stop = ManualClock(), StopSignal()
    client = ScriptedClient(*answers)
    informer = Informer(
        THING,
        client,
        stream_first_sync=False,
        clock=clock,
        metrics=Metrics(),
        on_error=lambda _: None,
        rng=NoJitter(),
    )
    while clock.monotonic() < 180.0:
        clock.advance(informer.step(stop))
    assert len(client.requests) <= 80


def test_an_event_of_another_kind_is_told_and_the_stream_goes_on(make):
    other = {"kind": "Other", "apiVersion": "v1", "metadata": {"name": "a"}}
    stream = Stream([line("ADDED", other), line("ADDED", thing("a", 11))])
    running = make(page(), stream)
    for _ in range(2):
        running.informer.step(running.stop)
    assert [type(error).__name__ for error in running.errors] == ["WrongKindError"]
    assert running.informer.store.get("a", "x") is not None
    assert running.informer.resource_version == "11"


def test_garbage_leads_to_a_list_and_nothing_before_or_after_it_is_lost(make):
    stream = Stream([line("ADDED", thing("a", 11)), b"{garbage", line("ADDED", thing("b", 12))])
    running = make(page(), stream, page(thing("a", 11), thing("b", 12), version=12))
    handler = BatchRecorder()
    running.informer.add_event_handler(handler)
    for _ in range(3):
        running.informer.step(running.stop)
    assert handler.calls == ["add a@11", "add b@12"]
    assert stream.is_closed


def test_an_error_that_no_client_documents_is_an_error_like_any_other(make):
    """Credentials come from code of other people, and that may raise anything."""
    running = make(
        OSError("plugin"), page(), RuntimeError("session is closed"), Stream(then=KeyError("x"))
    )
    for _ in range(6):
        running.informer.step(running.stop)
    kinds = [type(error) for error in running.errors]
    assert kinds == [OSError, RuntimeError, KeyError]


# Errors and health.


def test_errors_are_told_counted_by_cause_and_kept(make):
    gone = status(410, reason="Expired")
    running = make(forbidden(), gone, c.ConnectionLost("x"), page(), Stream([b"{"]), page())
    metrics, labels = running.metrics, {"kind": str(THING), "namespace": ""}

    def count(cause):
        return metrics.value("informer_errors_total", cause=cause, **labels)

    running.start()
    for _ in range(3):
        running.clock.block_until_waiting(1)
        running.clock.advance(30.0)
    running.client.wait_for_requests(7)
    assert [count(cause) for cause in ("Forbidden", "Expired", "transport", "decode")] == [1] * 4
    assert [count(cause) for cause in ("other", "api", "TooManyRequests", "Unauthorized")] == [
        0
    ] * 4
    assert metrics.value("informer_lists_total", **labels) == 2
    assert metrics.value("informer_synced", **labels) == 1
    assert running.informer.last_error is running.errors[-1]
    assert garbled(running) == 1


def test_the_events_of_its_watches_are_counted_by_type(make):
    first, second = thing("a", 2), thing("b", 3)
    batch = [line("ADDED", first), line("ADDED", second), line("DELETED", thing("a", 4))]
    running = make(page(), Stream(batch), Hang).start()
    running.client.wait_for_requests(3)
    assert [watched(running, each) for each in ("ADDED", "DELETED", "MODIFIED")] == [2, 1, 0]


def test_every_series_is_there_at_0_from_the_start(make):
    running = make(Hang).start()
    running.client.wait_for_requests(1)
    labels = {"kind": str(THING), "namespace": ""}
    for name in ("objects", "object_bytes", "synced", "lists_total"):
        assert running.metrics.value(f"informer_{name}", **labels) == 0
    for cause in ("Forbidden", "NotFound", "Gone", "transport", "decode", "api", "other"):
        assert running.metrics.value("informer_errors_total", cause=cause, **labels) == 0
    for event_type in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"):
        assert watched(running, event_type) == 0
    assert garbled(running) == 0


def watched(running, event_type):
    return running.metrics.value(
        "kubernetes_client_watch_events_total", event_type=event_type, kind="things"
    )


def garbled(running):
    return running.metrics.value(
        "kubernetes_client_watch_errors_total", error_type="unparseable_object", kind="things"
    )


def test_the_size_of_the_copy_is_a_metric(make):
    obj = thing("a")
    running = make(page(obj), Hang).start().sync()
    labels = {"kind": str(THING), "namespace": ""}
    assert running.metrics.value("informer_objects", **labels) == 1
    assert running.metrics.value("informer_object_bytes", **labels) == len(obj.raw)


def test_on_error_may_raise(make, caplog):
    def fail(error):
        raise RuntimeError("no")

    running = make(status(500), page(), on_error=fail)
    for _ in range(3):
        running.informer.step(running.stop)
    assert running.informer.has_synced
    assert "on_error failed" in caplog.text


def test_problems_are_logged_when_nobody_asked_for_them(make, caplog):
    running = make(status(500), ValueError("odd"), on_error=None)
    for _ in range(3):
        running.informer.step(running.stop)
    expected, odd = caplog.records
    assert expected.exc_info is None
    assert expected.kind == str(THING)
    assert odd.exc_info


def test_health_says_what_is_wrong_and_what_to_do(make):
    running = make(forbidden(), namespace="x")
    informer = running.informer
    assert informer.health().text == (
        "informer of things.example.com in x: not synced yet (it was not started)"
    )
    running.start()
    running.clock.block_until_waiting(1)
    health = informer.health()
    assert not health.is_ready
    for part in (
        "not synced yet",
        "verbs 'list' and 'watch'",
        "things.example.com",
        "namespace 'x'",
        "Role",
    ):
        assert part in health.text
    running.end()
    assert informer.health().text == "informer of things.example.com in x: stopped"


def test_health_turns_unready_when_the_watch_fails_for_long_and_back(make):
    """A watch that may be listed but not watched is never silently stale."""
    running = make(page(), Stream(then=c.ConnectionLost("x")), forbidden("watch"))
    informer, clock = running.informer, running.clock
    informer.step(running.stop)
    informer.step(running.stop)
    assert informer.health().is_ready
    informer.step(running.stop)
    informer.step(running.stop)
    clock.advance(9.0)
    assert informer.health().is_ready
    clock.advance(2.0)
    health = informer.health()
    assert not health.is_ready
    assert "has not reached the server for 11 s" in health.text
    assert "verbs 'list' and 'watch'" in health.text
    running.client.then(Stream([bookmark(11)]))
    informer.step(running.stop)
    informer.step(running.stop)
    assert informer.health().is_ready


def test_a_server_that_accepts_every_watch_and_cuts_it_is_out_of_touch_all_the_time(make):
    running = make(page(), *[Stream(then=c.ConnectionLost("x")) for _ in range(60)])
    seen, clock = [], running.clock
    while clock.monotonic() < 60.0:
        wait = running.informer.step(running.stop)
        clock.advance(wait)
        if clock.monotonic() > 15.0:
            seen.append(running.informer.health().is_ready)
    assert len(seen) > 3
    assert not any(seen)


def test_a_watch_that_stands_open_for_the_grace_ends_a_problem_without_an_event(make):
    stream = Stream(then=None)
    lost = [Stream(then=c.ConnectionLost("x")) for _ in range(8)]
    running = make(page(), *lost, stream)
    informer, clock = running.informer, running.clock
    while running.client.verbs.count("watch") < 8:
        clock.advance(informer.step(running.stop))
    clock.advance(informer.step(running.stop))
    running.start()
    eventually(lambda: informer._contact._open_since is not None)
    assert not informer.health().is_ready
    clock.advance(9.0)
    assert not informer.health().is_ready
    clock.advance(1.5)
    assert informer.health().is_ready
    stream.end(c.ConnectionLost("x"))
    eventually(lambda: informer._contact._open_since is None)
    assert informer.health().is_ready  # a new problem, with a grace of its own


def test_an_informer_that_waits_long_for_a_slow_handler_is_not_ready_and_says_so(make):
    stream = Stream([line("ADDED", thing("c", 11))], then=None)
    running = make(page(thing("a"), thing("b")), stream)
    gate = threading.Event()
    recorder = Recorder()
    recorder.hook = lambda _: gate.wait(PATIENCE)
    registration = running.informer.add_event_handler(
        recorder, max_pending=1, overflow=Overflow.BLOCK
    )
    running.start()
    running.client.wait_for_requests(2)
    eventually(lambda: registration.own_delivery._room.waiting)
    assert running.informer.health().is_ready
    running.clock.advance(11.0)
    health = running.informer.health()
    assert not health.is_ready
    assert "waited for a slow handler for 11 s" in health.text
    gate.set()
    recorder.wait_for("add c@11")
    assert running.informer.health().is_ready


def test_a_list_that_gets_no_further_than_its_first_page_is_out_of_touch(make):
    running = make(page(), Stream([error_line(410, "Expired")]), page_size=1)
    for _ in range(8):
        running.client.then(page(thing("a"), token="t"), status(500))
    for _ in range(23):
        running.clock.advance(running.informer.step(running.stop))
    assert running.clock.monotonic() > 10.0
    assert not running.informer.health().is_ready


# Transforms.


def test_a_transform_decides_what_is_kept(make):
    managed = data("a")
    managed["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    changed = data("a", 11)
    changed["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    running = make(
        page(Object.from_dict(THING, managed)),
        Stream([line("MODIFIED", changed)]),
        transform=drop_managed_fields,
    )
    handler = BatchRecorder()
    running.informer.add_event_handler(handler)
    for _ in range(2):
        running.informer.step(running.stop)
    assert handler.calls == ["add a@1 initial", "update a@1->11"]
    assert all(b"managedFields" not in e.object.raw for e in handler.events)
    assert running.informer.store.json_bytes == len(handler.events[-1].object.raw)


@pytest.mark.parametrize(
    "transform",
    [
        lambda obj: 1 / 0,
        lambda obj: None,
        lambda obj: thing("other", 1),
        lambda obj: thing("a", 1, uid="other"),
        lambda obj: thing("a", 99),
    ],
)
def test_a_transform_that_fails_or_changes_who_it_is_is_told_and_the_object_kept(make, transform):
    running = make(page(thing("a", 1), thing("b", 1)), transform=transform)
    running.informer.step(running.stop)
    assert running.informer.has_synced
    assert len(running.informer.store) == 2
    assert len(running.errors) == 2


# Life.


def test_an_informer_runs_once_and_takes_no_handlers_afterwards(make):
    running = make(page()).start().sync()
    with pytest.raises(RuntimeError, match="was run before"):
        running.informer.run(StopSignal())
    running.end()
    with pytest.raises(RuntimeError, match="has stopped: add handlers earlier"):
        running.informer.add_event_handler(Recorder())
    assert running.metrics.value("informer_objects", kind=str(THING), namespace="") is None


def test_a_handler_that_never_ends_does_not_hold_up_the_end_for_ever_and_is_named(make):
    running = make(page(thing("a")))
    gate, entered = threading.Event(), threading.Event()
    recorder = Recorder()
    recorder.hook = lambda _: (entered.set(), gate.wait(PATIENCE))
    running.informer.add_event_handler(recorder)
    stopper = threading.Thread(target=lambda: (entered.wait(PATIENCE), running.stop.set()))
    stopper.start()
    name = r"informer/things.v1.example.com/worker-0"
    with pytest.raises(TimeoutError, match=rf"after 0.01 s these threads still run: {name}"):
        running.informer.run(running.stop, stop_timeout=0.01)
    gate.set()
    stopper.join(PATIENCE)


@pytest.mark.parametrize("phase", ["listing", "watching", "waiting", "blocked", "opening"])
def test_a_stop_is_prompt_in_every_phase(make, phase):
    script = {
        "listing": [Hang],
        "opening": [page(), Hang],
        "watching": [page(), Stream(then=None)],
        "waiting": [status(500)],
        "blocked": [
            page(thing("a"), thing("b")),
            Stream([line("ADDED", thing("c", 11))], then=None),
        ],
    }[phase]
    running = make(*script)
    gate = threading.Event()
    recorder = Recorder()
    if phase == "blocked":
        recorder.hook = lambda _: gate.wait(PATIENCE)
        running.informer.add_event_handler(recorder, max_pending=1, overflow=Overflow.BLOCK)
    running.start()
    running.client.wait_for_requests(len(script))
    if phase == "waiting":
        running.clock.block_until_waiting(1)
    running.stop.set()
    gate.set()
    running.end()


def test_an_informer_that_is_blocked_by_a_foreign_delivery_stops_promptly(make):
    from appsdk_operator.cache import Delivery

    stream = Stream([line("ADDED", thing("c", 11))], then=None)
    running = make(page(thing("a"), thing("b")), stream)
    delivery = Delivery("d", lambda key, event: None, max_pending=1, overflow=Overflow.BLOCK)
    running.informer.add_event_handler(delivery.source("things"))
    running.start()
    running.client.wait_for_requests(2)
    running.end()
    delivery.stop()


def test_with_block_a_slow_handler_sees_every_event(make):
    stream = Stream(then=None)
    running = make(page(thing("a", 1)), stream)
    recorder = Recorder()
    running.informer.add_event_handler(recorder, max_pending=2, overflow=Overflow.BLOCK)
    running.start()
    for version in range(11, 311):
        stream.send(line("MODIFIED", thing("a", version)))
    recorder.wait_for("update a@309->310")
    assert len(recorder.calls) == 301


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"namespace": "x", "kind": PLACE}, "cluster-scoped"),
        ({"page_size": -1}, "page_size=-1"),
        ({"watch_timeout": (10.0, 5.0)}, "low <= high"),
        ({"watch_timeout": (0.0, 5.0)}, "1 <= low"),
        ({"resync": -1.0}, "resync=-1"),
        ({"resync": float("nan")}, "resync=nan"),
    ],
)
def test_options_are_checked(make, options, text):
    with pytest.raises(ValueError, match=text):
        make(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"transform": 5}, "transform=5: give a function"),
        ({"on_error": 7}, "on_error=7: give a function"),
        ({"indexes": {"a": 5}}, "'a': 5}: give functions by name"),
        ({"label_selector": 5}, "label_selector=5: give it as text, as a mapping or"),
        ({"field_selector": ["a=b"]}, "give it as text, as a mapping or as a FieldSelector"),
        ({"label_selector": {"matchLabels": {"a": "b"}}}, "must be text; use LabelSelector.from_o"),
    ],
)
def test_options_of_another_type_are_refused(make, options, text):
    with pytest.raises(TypeError, match=text):
        make(**options)


def test_selectors_may_be_mappings(make):
    running = make(page(), label_selector={"a": "b"}, field_selector={"metadata.name": "x"})
    running.informer.step(running.stop)
    (request,) = running.client.requests
    assert (request.label_selector, request.field_selector) == ("a=b", "metadata.name=x")


def test_a_selector_that_cannot_be_parsed_is_refused(make):
    with pytest.raises(SelectorError):
        make(label_selector="a in (")


def test_handlers_are_checked(make):
    informer = make().informer
    with pytest.raises(TypeError, match="give it on_add, on_update and on_delete"):
        informer.add_event_handler(object())
    with pytest.raises(ValueError, match="resync=-1"):
        informer.add_event_handler(Recorder(), resync=-1)
    with pytest.raises(TypeError, match=r"overflow='coalesce': use Overflow\.COALESCE"):
        informer.add_event_handler(Recorder(), overflow="coalesce")


def test_indexes_are_kept_from_the_first_list_on(make):
    running = make(page(thing("a"), thing("b")), indexes={"name": lambda obj: [obj.name]})
    running.informer.step(running.stop)
    store: Lister = running.informer.store
    assert [obj.name for obj in store.by_index("name", "b")] == ["b"]


def test_health_tells_informers_of_one_kind_apart_by_what_they_select():
    kind = Kind(group="example.com", version="v1", kind="Widget")
    server = no_client()
    texts = [
        Informer(kind, server, metrics=Metrics(), **selection).health().text
        for selection in (
            {},
            {"namespace": "a"},
            {"label_selector": {"app": "web"}},
            {"namespace": "a", "label_selector": "app=web", "field_selector": "metadata.name=x"},
        )
    ]
    name = "informer of widgets.example.com"
    assert [text.partition(": ")[0] for text in texts] == [
        name,
        f"{name} in a",
        f"{name} where app=web",
        f"{name} in a where app=web, metadata.name=x",
    ]


def test_a_problem_that_stays_the_same_is_logged_each_minute(make, caplog):
    running = make(*[status(503, message="away")] * 100, on_error=None)
    while running.clock.monotonic() < 170.0:
        running.clock.advance(running.informer.step(running.stop))
    assert [record.getMessage() for record in caplog.records] == [
        "the informer of things.example.com: 503 ServiceUnavailable: away"
    ] * 3


def test_it_says_when_it_has_synced_and_when_it_is_in_touch_again(make, caplog):
    events = [line("MODIFIED", thing("a", 11)), line("MODIFIED", thing("a", 12))]
    watches = [Stream(events[:1]), *[status(503)] * 2, Stream(events[1:])]
    running = make(page(thing("a", 1), version=5), *watches, on_error=None)
    with caplog.at_level(logging.INFO, "appsdk_operator.cache"):
        while "again" not in caplog.text:
            running.clock.advance(running.informer.step(running.stop))
    said = [record.getMessage().partition(", after ")[0] for record in caplog.records]
    assert said == [
        "things.example.com: synced, 1 object in 0 s",
        "the informer of things.example.com: 503 ServiceUnavailable",
        "things.example.com: watches again",
    ]


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_who_is_refused_one_verb_is_told_of_both(make, verb):
    running = make(forbidden(verb))
    running.informer.step(running.stop)
    text = running.informer.health().text
    assert "the account needs verbs 'list' and 'watch' on things.example.com" in text
    assert str(running.errors[0]) in text


def test_an_early_refusal_is_forgotten_once_the_server_answers(make):
    news = [line("MODIFIED", thing("a", 11))]
    running = make(forbidden("list"), page(thing("a", 1), version=5), Stream(news))
    access, seen = running.informer._access, []
    while running.informer.resource_version != "11":
        running.clock.advance(running.informer.step(running.stop))
        seen.append(access.is_refused)
    assert seen[0]
    assert not seen[-1]


def test_a_flood_of_failures_of_a_handler_is_counted(make, caplog):
    running = make(page(*(thing(f"t{n}") for n in range(50))), Hang, on_error=None)
    bad = Recorder()
    bad.hook = lambda _: 1 / 0
    last = Recorder()
    running.informer.add_event_handler(bad)
    running.informer.add_event_handler(last)
    running.start()
    last.wait_for_count(50)
    eventually(lambda: not running.informer._access.registrations[0].own_delivery.pending)
    said = [record for record in caplog.records if "handler" in record.message]
    assert len(said) == 10
    assert [record.exc_info is not None for record in said] == [True, *9 * [False]]


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("what", ["informer", "cache"])
def test_a_thread_that_cannot_start_ends_the_run_and_leaves_none_behind(monkeypatch, what, number):
    start, started = threading.Thread.start, []

    def start_others(thread):
        started.append(thread)
        if len(started) == number:
            raise RuntimeError("can't start new thread")
        start(thread)

    client = MemoryServer().client()
    if what == "informer":
        subject = Informer(ConfigMap, client, metrics=Metrics())
    else:
        subject = Cache(client, namespaces=["a", "b"], metrics=Metrics())
        subject.add(ConfigMap)
    for _ in range(3):
        kind = () if what == "informer" else (ConfigMap,)
        subject.add_event_handler(*kind, Recorder())
    stop = StopSignal()
    monkeypatch.setattr(threading.Thread, "start", start_others)
    if number <= (3 if what == "informer" else 5):
        with pytest.raises(RuntimeError, match="can't start"):
            subject.run(stop)
    else:
        stop.set()
        subject.run(stop)
    assert not any(thread.is_alive() for thread in started if thread.ident)


@pytest.mark.parametrize("what", ["informer", "cache"])
def test_a_handler_whose_thread_cannot_start_is_not_added(monkeypatch, what):
    """With a full queue that nobody empties, the informer would wait for ever."""

    def start_others(thread):
        if "worker" in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    stream = Stream([line("ADDED", thing("a")), bookmark(10, ends_initial=True)], then=None)
    if what == "informer":
        subject, kind = Informer(THING, ScriptedClient(stream), metrics=Metrics()), ()
    else:
        subject, kind = Cache(ScriptedClient(stream), metrics=Metrics()), (THING,)
        subject.add(THING)
    start = threading.Thread.start
    with running(subject):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start_others)
            with pytest.raises(RuntimeError, match="can't start"):
                subject.add_event_handler(*kind, Recorder(), max_pending=1, overflow=Overflow.BLOCK)
        other = Recorder()
        subject.add_event_handler(*kind, other)
        stream.send(line("ADDED", thing("b", 11)))
        other.wait_for("add b@11")
        stream.send(line("ADDED", thing("c", 12)))
        other.wait_for("add c@12")
