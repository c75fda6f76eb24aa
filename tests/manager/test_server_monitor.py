"""An API server that stands still: one line when it does, one when it is back."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from appsdk_operator.app import App
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.manager import Manager
from appsdk_operator.manager._core.server_monitor import ServerMonitor
from appsdk_operator.resource import Kind, Object, kinds
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, system_clock
from appsdk_operator.testing import APIServer, FaultProxy, FaultRule, World
from tests.manager.manager_parts import runs as runs_of
from tests.runs import Run
from tests.waiting import eventually

runs = pytest.fixture(runs_of)
THINGS = [
    Kind(group="example.com", version="v1", kind=name) for name in ("Thing", "Other", "Third")
]
CONTACT = "appsdk_operator.client._transport.contact"
Lines = Callable[[], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO, "appsdk_operator")

    def present() -> list[str]:
        words = ("API server", "informer of", "watches again", "ailed")
        texts = [record.getMessage() for record in caplog.records]
        return [text for text in texts if any(word in text for word in words)]

    return present


def _app(**options: Any) -> App:
    app = App("shop", **options)
    for kind in THINGS:
        app.own(kind)

        @app.on_add(kind)
        def greet(obj: Object) -> None:
            pass

    return app


def _version_requests(world: World) -> int:
    return sum(request.path == "/version" for request in world.server.api.requests)


def _freeze(world: World, is_frozen: bool) -> None:
    """Have the server take connections and send nothing, as a stopped process does."""
    world.server.api.stall_watches(is_frozen)
    if is_frozen:
        world.server.begin = _nothing  # type: ignore[method-assign]
    else:
        del world.server.begin


def _nothing(exchange: object) -> None:
    pass


@pytest.mark.parametrize("seconds", [16.0, 80.0, 600.0, 7200.0])
def test_a_frozen_server_is_one_line_whatever_the_number_of_kinds(
    lines: Lines, seconds: float
) -> None:
    with World(_app(probe_server=True)) as world:
        world.run(60.0)
        _freeze(world, True)
        world.run(seconds)
        [lost] = lines()
        assert lost == (
            "shop: the API server http://memory has not answered for 10 s. The cache can still "
            "be read. Other requests wait, or fail and are retried. The operator handles changes "
            "after the outage"
        )
        _freeze(world, False)
        world.run(300.0)
        [_, back] = lines()
        assert back.startswith("shop: the API server http://memory answers again, after ")


def test_the_line_about_a_frozen_server_comes_within_fifteen_seconds(lines: Lines) -> None:
    with World(_app(probe_server=True)) as world:
        world.run(61.3)
        _freeze(world, True)
        world.run(4.9)  # it was heard at most five seconds ago
        assert lines() == []
        world.run(10.2)
        assert len(lines()) == 1


def test_a_quiet_server_is_asked_every_five_seconds_and_never_said_to_be_away(
    lines: Lines,
) -> None:
    with World(_app(probe_server=True)) as world:
        world.run(3600.0)
        assert lines() == []
        assert 500 <= _version_requests(world) <= 720


def test_a_server_with_traffic_is_not_asked() -> None:
    with World(_app(probe_server=True)) as world:
        world.run(5.0)
        before = _version_requests(world)
        for number in range(100):
            world.create(f"thing-{number}")
            world.run(4.0)
        assert _version_requests(world) == before


def test_a_kind_without_events_is_no_line_while_the_server_answers(lines: Lines) -> None:
    with World(_app(probe_server=True)) as world:
        world.run(1.0)
        # A real server sends no bookmarks of a kind that nobody has changed since its start.
        world.server.api.stall_watches()
        world.run(200.0)
        assert lines() == []


def test_of_a_server_that_nobody_asks_a_silent_watch_is_a_line(lines: Lines) -> None:
    with World(_app(probe_server=False)) as world:
        world.run(1.0)
        world.server.api.stall_watches()
        world.run(100.0)
        assert lines()[0].startswith("the informer of ")


def test_watches_that_are_cut_and_come_back_at_once_are_no_line(lines: Lines) -> None:
    with World(_app(probe_server=True)) as world:
        world.run(60.0)
        world.cut()
        world.run(60.0)
        assert lines() == []


def test_an_informer_logs_what_befalls_it_alone(lines: Lines) -> None:
    with World(_app(probe_server=True)) as world:
        world.run(60.0)
        world.server.api.inject([FaultRule.drop(kind=THINGS[0])])
        world.cut()
        world.run(14.0)
        assert lines() == []
        world.run(40.0)
        [lost] = lines()
        assert lost.startswith("the informer of things.example.com: ")
        world.server.api.clear_faults()
        world.run(60.0)
        found = re.fullmatch(
            "things.example.com: watches again, after an outage of (.*) s", lines()[1]
        )
        assert found
        assert float(found[1]) >= 54.0  # from the first failure, not from its line


def test_a_first_list_that_fails_is_a_line_at_once(lines: Lines) -> None:
    world = World(_app(probe_server=True))
    world.server.api.inject([FaultRule.drop(kind=THINGS[0])])
    with world:
        world.run(3.0)
        assert lines()[0].startswith("the informer of things.example.com: ")


def test_a_world_asks_nothing_by_itself() -> None:
    with World(_app()) as world:
        world.run(3600.0)
        assert _version_requests(world) == 0


def test_a_lost_server_is_a_gauge_and_a_counter_from_the_start(lines: Lines) -> None:
    with World(_app(probe_server=True)) as world:
        metrics = world.replicas[0].metrics

        def shown() -> tuple[float | None, float | None]:
            of_server = {"server": "http://memory"}
            return (
                metrics.value("api_server_unreachable_seconds", **of_server),
                metrics.value("api_server_outages_total", **of_server),
            )

        world.run(60.0)
        assert shown() == (0.0, 0.0)
        for outage in (1.0, 2.0):
            _freeze(world, True)
            world.run(100.0)
            seconds, outages = shown()
            assert seconds is not None
            assert 95.0 <= seconds <= 105.0
            assert outages == outage
            _freeze(world, False)
            world.run(60.0)
            assert shown() == (0.0, outage)
    assert shown() == (None, 2.0), "a stop removes gauges and keeps counts"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASK_AFTER", "_ASK_AGAIN", "_ASK_LOST"):
        monkeypatch.setattr(f"{CONTACT}.{name}", 0.05)
    monkeypatch.setattr(f"{CONTACT}.LOST_AFTER", 0.5)
    monkeypatch.setattr("appsdk_operator.manager._core.server_monitor.ANSWER_WITHIN", 0.4)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("refused", [False, True], ids=["frozen", "refused"])
def test_a_server_that_is_frozen_on_sockets(
    lines: Lines, runs: Callable[[Manager], Run], refused: bool
) -> None:
    with APIServer() as server, FaultProxy(server.client_config()) as proxy:
        manager = Manager(proxy.client_config(), name="shop", metrics=Metrics())
        manager.cache.add(kinds.core.v1.ConfigMap)
        run = runs(manager)
        assert manager.elected.wait(20.0)
        if refused:
            proxy.refuse()
            proxy.cut()
        else:
            proxy.stall()
        eventually(lambda: any("API server" in line for line in lines()))
        state = manager.debug_state()
        assert state["operator"]["server_lost_for"] >= 0.5
        assert "the API server has been out of reach" in state["verdict"][0]["text"]
        (proxy.refuse if refused else proxy.stall)(False)
        eventually(lambda: any("answers again" in line for line in lines()))
        about_server = [line for line in lines() if "API server" in line]
        assert len(about_server) == 2
        why = r" \(.*Connection refused; .*\)" if refused else ""
        line = rf"shop: the API server {proxy.url} has not answered for [\d.]+ m?s{why}\. The cache"
        assert re.match(line, about_server[0])
        assert manager.debug_state()["operator"]["server_lost_for"] is None
        assert run.end() == []


@pytest.mark.usefixtures("quick")
def test_a_stop_does_not_wait_for_an_answer(
    runs: Callable[[Manager], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appsdk_operator.manager._core.server_monitor.ANSWER_WITHIN", 1000.0)
    with APIServer() as server, FaultProxy(server.client_config(read_timeout=1000.0)) as proxy:
        manager = Manager(proxy.client_config(), metrics=Metrics())
        run = runs(manager)
        assert manager.elected.wait(20.0)
        eventually(lambda: any(one.path == "/version" for one in server.requests))
        proxy.stall()
        before = proxy.connections
        contact = cast("Client", manager._cluster.raw_client).contact
        eventually(lambda: system_clock.monotonic() - contact.heard_at > 0.2)
        assert proxy.connections <= before + 1
        assert run.end() == []


@pytest.mark.usefixtures("quick")
def test_a_refusal_is_an_answer() -> None:
    stop = StopSignal()
    with APIServer() as server, Client(ClientConfig(server=f"{server.url}/elsewhere")) as client:
        monitor = ServerMonitor(client, clock=system_clock, metrics=Metrics())
        thread = threading.Thread(target=monitor.run, args=(stop,))
        thread.start()
        eventually(lambda: len(server.requests) >= 5)
        began = system_clock.monotonic()
        eventually(lambda: len(server.requests) >= 15)
        assert system_clock.monotonic() - began > 0.3  # an answer ends the silence: a pause follows
        stop.set()
        thread.join()
        assert {request.status for request in server.requests} == {404}
        assert monitor.lost_for is None


@pytest.mark.usefixtures("quick")
def test_each_manager_of_a_client_logs_a_loss_and_the_return(lines: Lines) -> None:
    names, stops = ("one", "two"), (StopSignal(), StopSignal())
    with (
        APIServer() as server,
        FaultProxy(server.client_config()) as proxy,
        Client(proxy.client_config()) as client,
    ):
        threads = []
        for name, stop in zip(names, stops, strict=True):
            monitor = ServerMonitor(client, clock=system_clock, metrics=Metrics())
            monitor.name = name
            threads.append(threading.Thread(target=monitor.run, args=(stop,)))
            threads[-1].start()
        for refuse, text, count in ((True, "has not answered", 2), (False, "again", 4)):
            proxy.refuse(refuse)
            if refuse:
                proxy.cut()
            eventually(lambda count=count: len(lines()) == count)
            told = sorted(line for line in lines() if text in line)
            assert [line.partition(":")[0] for line in told] == ["one", "two"]
        stops[0].set()
        threads[0].join()
        assert client.contact.is_watched
        stops[1].set()
        threads[1].join()
        assert not client.contact.is_watched


@pytest.mark.usefixtures("quick")
def test_credentials_that_cannot_be_read_say_nothing_of_the_server(lines: Lines) -> None:
    stop, tries = StopSignal(), []

    def token() -> str:
        tries.append(monitor.lost_for)
        if len(tries) > 20:
            stop.set()
        raise OSError("the file is away")

    with Client(ClientConfig(server="http://localhost:1", token_provider=token)) as client:
        monitor = ServerMonitor(client, clock=system_clock, metrics=Metrics())
        monitor.run(stop)
        assert not client.contact.is_watched
    assert tries == [None] * 21
    assert lines() == []


def test_credentials_that_cannot_be_read_end_no_loss(
    quick: None, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    asked = threading.Semaphore(0)
    is_lost = False

    def token() -> str:
        if is_lost:
            asked.release()
            raise OSError("the token endpoint is in the same outage")
        return "t"

    stop = StopSignal()
    with Client(ClientConfig(server="http://localhost:1", token_provider=token)) as client:
        monitor = ServerMonitor(client, clock=system_clock, metrics=Metrics())
        thread = threading.Thread(target=monitor.run, args=(stop,))
        thread.start()
        eventually(lambda: monitor.lost_for is not None)
        is_lost = True
        for _ in range(3):
            assert asked.acquire(timeout=10)
        stop.set()
        thread.join(10)
    assert not [line for line in lines() if "answers again" in line]


def test_on_a_manual_clock_nothing_is_asked_unless_it_was_said() -> None:
    clock = ManualClock()
    with Client(ClientConfig(server="http://localhost:1"), clock=clock) as client:
        for enabled, expected in ((None, False), (True, True), (False, False)):
            monitor = ServerMonitor(client, clock=clock, metrics=Metrics(), enabled=enabled)
            assert monitor.is_enabled is expected


def test_the_time_before_a_run_is_no_silence() -> None:
    clock, stop = ManualClock(), StopSignal()
    with Client(ClientConfig(server="http://localhost:1"), clock=clock) as client:
        clock.advance(3600.0)
        stop.set()
        ServerMonitor(client, clock=clock, metrics=Metrics(), enabled=True).run(stop)
        assert client.contact.heard_at == 3600.0
