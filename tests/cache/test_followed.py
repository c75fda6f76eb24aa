"""The attachment of an event source to a cache's kind or to an informer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from appsdk_operator.cache import Cache, Delivery, Followed, Informer
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import PATIENCE, THING, NoJitter, ScriptedClient, thing

BOTH = pytest.mark.parametrize("is_cache", [False, True], ids=["informer", "cache"])


def followed(*, is_cache: bool) -> Followed:
    clock = ManualClock()
    client = ScriptedClient()
    origin: Cache | Informer
    if is_cache:
        origin = Cache(client, clock=clock, metrics=Metrics())
    else:
        origin = Informer(THING, client, clock=clock, metrics=Metrics(), rng=NoJitter())
    source = Delivery("d", lambda key, event: None, clock=clock).source("things")
    return Followed(origin, THING, source, clock=clock)


@BOTH
def test_what_is_detached_while_it_is_attached_stays_detached(
    is_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = followed(is_cache=is_cache)
    add_event_handler = it.origin.add_event_handler

    def add_while_another_detaches(*arguments: Any, **options: Any) -> Any:
        registration = add_event_handler(*arguments, **options)
        it.detach()
        return registration

    monkeypatch.setattr(it.origin, "add_event_handler", add_while_another_detaches)
    it.attach()
    (informer,) = it.informers
    assert informer._access.registrations == ()
    assert it.wait_for_sync(StopSignal()) is False


@BOTH
def test_a_source_is_paused_with_what_it_was_sent(is_cache: bool) -> None:
    one, other = followed(is_cache=is_cache), followed(is_cache=is_cache)
    other.origin = one.origin
    other.attach()
    (informer,) = one.informers
    informer._store.upsert([thing("a")], is_initial=True)

    def sent() -> list[str]:
        with one.paused() as present:
            return [obj.name for obj in present]

    assert sent() == [], "not attached yet"
    one.attach()
    assert sent() == ["a"]
    one.detach()
    assert sent() == []
    other.detach()


@BOTH
def test_while_a_source_is_paused_nothing_changes(is_cache: bool) -> None:
    one = followed(is_cache=is_cache)
    one.attach()
    (informer,) = one.informers
    locks = [informer._access.lock]
    if isinstance(one.origin, Cache):
        locks.append(one.origin._lock)
    free: list[bool] = []
    thread = threading.Thread(
        target=lambda: free.extend(lock.acquire(blocking=False) for lock in locks)
    )
    with one.paused():
        thread.start()
        thread.join()
    assert free == [False] * len(locks)
    one.detach()


@BOTH
def test_a_wait_for_what_is_never_attached_ends_when_it_is_detached(is_cache: bool) -> None:
    it = followed(is_cache=is_cache)
    outcome: list[bool] = []
    waiting = threading.Thread(target=lambda: outcome.append(it.wait_for_sync(StopSignal())))
    waiting.start()
    while not it._attached.waiting:
        threading.Event().wait(0.001)
    it.detach()
    waiting.join(PATIENCE)
    assert outcome == [False]
