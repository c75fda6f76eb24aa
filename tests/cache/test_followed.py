"""The attachment of an event source to a cache's kind or to an informer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from appsdk_operator.cache import Cache, Delivery, Followed, Informer
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import PATIENCE, THING, NoJitter, ScriptedClient

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
