"""A thread that cannot be started, whichever it is: work is done later, or the run says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator import (
    Manager,
    MutableObject,
    Object,
    Request,
    ResourceAction,
    StopSignal,
    controller_for,
    kinds,
)
from appsdk_operator.cache import Event
from appsdk_operator.controllers import (
    ChannelSource,
    ControllerOptions,
    HandlerFunctions,
    PollingSource,
    TimerSource,
)
from appsdk_operator.manager import HealthServerOptions, LeaderElection, Operator
from appsdk_operator.runtime import ItemExponential, Metrics
from appsdk_operator.testing import MemoryServer

ConfigMap = kinds.core.v1.ConfigMap
NAMES = {"object", "channel", "poll", "timer"}
PATIENCE = 30.0


class Starts:
    """Makes the first start of a thread of one name fail."""

    def __init__(self, failing: str) -> None:
        self.failing = failing
        self.names: set[str] = set()
        self._lock = threading.Lock()

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        start = threading.Thread.start

        def start_others(thread: threading.Thread) -> None:
            with self._lock:
                is_first = thread.name not in self.names
                self.names.add(thread.name)
            if is_first and thread.name == self.failing:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_others)


@pytest.fixture
def client() -> Iterator[Any]:
    with MemoryServer() as server, server.client() as client:
        client.create(MutableObject.new(ConfigMap, "object", namespace="default"))
        yield client


class Subject:
    """A manager with what starts threads: async callbacks, sources, an election."""

    def __init__(self, client: Any) -> None:
        self.seen: set[str] = set()
        self.is_done = StopSignal()
        self.manager = mgr = Manager(
            client,
            metrics=Metrics(),
            health_server=HealthServerOptions(address="127.0.0.1:0"),
            leader_election=LeaderElection(
                id="x", namespace="default", retry_period=0.05, release_on_cancel=True
            ),
            graceful_shutdown_timeout=20.0,
        )

        async def queue(event: Event, queue: Any) -> None:
            await asyncio.sleep(0)
            queue.add(Request("default", event.object.name))

        async def poll() -> dict[Request, int]:
            return {Request("default", "poll"): 1}

        async def timer() -> list[Request]:
            return [Request("default", "timer")]

        channel = ChannelSource[Request](HandlerFunctions(generic=queue))
        obj = {"metadata": {"name": "channel", "namespace": "default"}}
        channel.push(Event(ResourceAction.GENERIC, Object.from_dict(ConfigMap, obj)))
        (
            controller_for(mgr)
            .named("starts")
            .watches(ConfigMap, HandlerFunctions(create=queue))
            .watches_raw_source(channel)
            .watches_raw_source(PollingSource(1.0, poll))
            .watches_raw_source(TimerSource(0.1, timer))
            .with_options(
                ControllerOptions(
                    reconcile_timeout=60.0,
                    max_concurrent_reconciles=2,
                    rate_limiter=lambda: ItemExponential(base=0.001, jitter=0.0),
                )
            )
            .complete(self.reconcile)
        )
        mgr.add(Operator())

    async def reconcile(self, request: Request) -> None:
        await asyncio.sleep(0)
        self.seen.add(request.name)
        if self.seen >= NAMES:
            self.is_done.set()


def run(failing: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Run the subject without one thread; returns the names of all threads."""
    subject, starts, stop = Subject(client), Starts(failing), StopSignal()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            subject.manager.run(stop)
        except BaseException as error:
            raised.append(error)
        subject.is_done.set()

    thread = threading.Thread(target=work, name="the run")
    starts.names.add(thread.name)
    with monkeypatch.context() as patch:
        starts.patch(patch)
        thread.start()
        is_done = subject.is_done.wait(PATIENCE)
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive(), f"the run does not end without {failing}"
    assert is_done, f"without {failing} {NAMES - subject.seen} are not handled, silently"
    assert subject.seen >= NAMES or raised, f"{NAMES - subject.seen} are lost without {failing}"
    return starts.names


def test_a_start_of_a_thread_that_fails_is_made_up_for_or_raised_by_the_run(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, failed = run("", client, monkeypatch), {"the run"}
    while left := sorted(names - failed):
        failed.add(left[0])
        names |= run(left[0], client, monkeypatch)
    assert {
        "elector/request",
        "source/channel/worker-0",
        "source/channel/loop",
        "starts/loop",
        "starts/worker/1",
    } <= failed
