"""Sources of every form, and a controller that waits for them."""

from __future__ import annotations

import threading

from appsdk_operator.cache import Cache
from appsdk_operator.controllers import (
    ChannelSource,
    Controller,
    KindSource,
    PollingSource,
    Request,
    for_object,
    map_objects,
)
from appsdk_operator.runtime import Metrics, StopSignal
from tests.cache.conftest import PATIENCE, THING, ScriptedClient, Stream, page, thing
from tests.controllers.test_sources import NO_STREAM


def test_no_reconcile_begins_before_every_handler_has_handled_what_was_there():
    """A map function is held up: the objects of the other sources wait with it."""
    entered, opened, done = threading.Event(), threading.Event(), threading.Event()
    reconciled = []

    def slow(it):
        entered.set()
        assert opened.wait(PATIENCE)
        return [Request("mapped", it.name)]

    def reconcile(request):
        reconciled.append(str(request))
        if len(reconciled) == 4:
            done.set()

    metrics, stop = Metrics(), StopSignal()
    cache = Cache(ScriptedClient(NO_STREAM, page(thing("a")), Stream(then=None)), metrics=metrics)
    channel = ChannelSource(for_object(), metrics=metrics)
    channel.push(thing("pushed"))
    controller = Controller("c", reconcile, metrics=metrics)
    controller.watch(KindSource(cache, THING, for_object(), metrics=metrics))
    controller.watch(KindSource(cache, THING, map_objects(slow), metrics=metrics))
    controller.watch(channel)
    controller.watch(
        PollingSource(60.0, lambda: {Request("", "polled"): 1}, name="p", metrics=metrics)
    )
    threads = [threading.Thread(target=it.run, args=(stop,)) for it in (cache, controller)]
    for thread in threads:
        thread.start()
    try:
        assert entered.wait(PATIENCE)
        assert reconciled == []
        opened.set()
        assert done.wait(PATIENCE)
    finally:
        opened.set()
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert sorted(reconciled) == ["mapped/a", "polled", "x/a", "x/pushed"]
