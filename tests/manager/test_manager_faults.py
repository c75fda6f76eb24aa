"""Managers and signals at awkward moments: nothing is lost, leaked, or waits for ever."""

from __future__ import annotations

import http.client
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator.cache import Cache, Health
from appsdk_operator.client import Client, ClientConfig, JsonPatch
from appsdk_operator.manager import (
    Cluster,
    HealthServerOptions,
    LeaderElection,
    LeadershipLost,
    Manager,
    RunnableGroup,
)
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer

TIMEOUT = 20.0
NOWHERE = ClientConfig(server="http://127.0.0.1:1", token="let-me-in")
CONFIG_MAP = kinds.core.v1.ConfigMap
EVENT = kinds.events.v1.Event


@pytest.fixture
def make() -> Iterator[Callable[..., Manager]]:
    managers: list[Manager] = []

    def make(server: Any = NOWHERE, **options: Any) -> Manager:
        manager = Manager(server, **{"metrics": Metrics(), **options})
        managers.append(manager)
        return manager

    yield make
    for manager in managers:
        manager.close()


@attrs.define(slots=False, eq=False)
class WebhookServer:
    """One that knows whether it was closed."""

    name: str = "webhooks"
    is_closed: bool = False

    def run(self, stop: StopSignal) -> None:
        stop.wait()

    def close(self) -> None:
        self.is_closed = True


class TestWebhookFactory:
    """User code that makes the webhook server, once, whoever asks."""

    def test_all_who_ask_while_it_is_made_get_the_same(self, make: Callable[..., Manager]) -> None:
        may_end, is_making = threading.Event(), threading.Event()
        made: list[WebhookServer] = []

        def new_server() -> WebhookServer:
            is_making.set()
            assert may_end.wait(TIMEOUT)
            made.append(WebhookServer())
            return made[-1]

        manager = make(webhook_server=new_server)
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda: found.append(manager.webhook_server)) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        assert is_making.wait(TIMEOUT)
        may_end.set()
        for thread in threads:
            thread.join(TIMEOUT)
        assert found == made * 4
        assert len(made) == 1

    def test_one_that_asks_for_itself_is_told(self, make: Callable[..., Manager]) -> None:
        manager = make(webhook_server=lambda: manager.webhook_server)
        with pytest.raises(RuntimeError, match="asks for the value that it makes"):
            _ = manager.webhook_server

    def test_one_that_failed_is_asked_again(self, make: Callable[..., Manager]) -> None:
        outcomes: list[Any] = [OSError("address in use"), WebhookServer()]

        def new_server() -> Any:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        manager = make(webhook_server=new_server)
        with pytest.raises(OSError, match="address in use"):
            _ = manager.webhook_server
        assert manager.webhook_server.run is not None

    def test_what_is_made_too_late_lets_go_of_its_port(self, make: Callable[..., Manager]) -> None:
        server = WebhookServer()
        manager = make(webhook_server=lambda: server)
        manager.close()
        with pytest.raises(RuntimeError, match="already engaged"):
            _ = manager.webhook_server
        assert server.is_closed


class TestEnd:
    """What is closed last, and what comes after that."""

    def test_events_are_written_when_the_run_fails_before_the_caches_start(self) -> None:
        with APIServer() as api, Client(ClientConfig(server=api.url), metrics=Metrics()) as client:
            client.create(MutableObject.new(CONFIG_MAP, "settings", namespace="default"))
            about = client.get(CONFIG_MAP, "settings", namespace="default")
            with Manager(ClientConfig(server=api.url), metrics=Metrics()) as manager:

                class Server:
                    runnable_group = RunnableGroup.HTTP_SERVERS

                    def wait_until_ready(self, stop: StopSignal, timeout: float | None) -> bool:
                        return stop.wait(timeout)

                    def run(self, stop: StopSignal) -> None:
                        recorder = manager.event_recorder("server")
                        # What comes after the second waits, to be written at the end.
                        for _ in range(5):
                            recorder.event(about, "Warning", "Broken", "Serve")
                        raise OSError("broken")

                manager.add(Server())
                with pytest.raises(OSError, match="broken"):
                    manager.run()
            [event] = client.list(EVENT, namespace="default")
            assert event["reason"] == "Broken"
            assert event["series"]["count"] == 5

    def test_events_after_the_end_start_no_thread(self, make: Callable[..., Manager]) -> None:
        manager = make()
        manager.close()
        about = MutableObject.new(CONFIG_MAP, "settings", namespace="default")
        manager.event_recorder("late").event(about, "Normal", "Late", "Work")
        assert not [t for t in threading.enumerate() if t.name.startswith("events")]

    def test_a_cluster_that_is_added_while_the_manager_ends_is_closed(
        self, make: Callable[..., Manager], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed: list[str] = []

        class Raw(Client):
            def close(self) -> None:
                closed.append("client")
                super().close()

        manager = make()
        cluster = Cluster(
            NOWHERE, new_client=lambda config: Raw(config, metrics=Metrics()), metrics=Metrics()
        )
        groups = manager._lifecycle.groups
        add = groups.add

        def add_and_end(runnable: Any, **options: Any) -> None:
            add(runnable, **options)
            manager.close()

        monkeypatch.setattr(groups, "add", add_and_end)
        manager.add(cluster)
        assert closed

    def test_what_a_close_raises_keeps_nothing_else_open(
        self, make: Callable[..., Manager], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = make(health_server=HealthServerOptions(address="127.0.0.1:0"))
        manager.event_recorder("worker")
        events = manager._events
        assert events is not None

        def close(timeout: float) -> bool:
            raise OSError("events")

        with monkeypatch.context() as patch:
            patch.setattr(type(events), "close", lambda self, timeout: close(timeout))
            with pytest.raises(OSError, match="events"):
                manager.close()
        events.close()
        with pytest.raises(ConnectionRefusedError):
            http.client.HTTPConnection(manager.addresses["health"]).connect()

    def test_what_an_election_publishes_ends_with_the_manager(self) -> None:
        metrics = Metrics()
        for _ in range(2):
            election = LeaderElection(id="test", namespace="default")
            with Manager(NOWHERE, leader_election=election, metrics=metrics):
                assert metrics.value("leader_election_master_status", name="test") == 0.0
        assert metrics.value("leader_election_master_status", name="test") is None


@pytest.mark.parametrize("which", ["client", "live_client"])
def test_every_way_to_write_is_behind_the_fence(make: Callable[..., Manager], which: str) -> None:
    class Lost:
        identity, leader, is_leader = "me", "you", False

        def check_write(self) -> None:
            raise LeadershipLost("leader election lost")

        def health(self) -> Health:
            return Health(True, "")

    election = LeaderElection(id="test", namespace="default")
    manager = make(leader_election=election, new_elector=lambda *_: Lost())
    client: Any = getattr(manager, which)
    obj = MutableObject.new(CONFIG_MAP, "settings", namespace="default")
    patch = JsonPatch([])
    writes: list[Callable[[], object]] = [
        lambda: client.create(obj),
        lambda: client.update(obj),
        lambda: client.apply(obj, field_manager="me"),
        lambda: client.patch(CONFIG_MAP, "settings", patch, namespace="default"),
        lambda: client.delete(CONFIG_MAP, "settings", namespace="default"),
        lambda: client.delete_collection(CONFIG_MAP, namespace="default"),
    ]
    for sub in (client.status, client.subresource("scale")):
        writes += [
            lambda sub=sub: sub.create(obj),
            lambda sub=sub: sub.update(obj),
            lambda sub=sub: sub.apply(obj, field_manager="me"),
            lambda sub=sub: sub.patch(CONFIG_MAP, "settings", patch, namespace="default"),
        ]
    for write in writes:
        with pytest.raises(LeadershipLost):
            write()


class TestReadiness:
    """What the manager says of itself."""

    def test_a_cache_of_its_own_is_not_ready_before_it_has_synced(
        self, make: Callable[..., Manager]
    ) -> None:
        manager = make()
        assert manager._caches_health().is_ready
        with Client(NOWHERE, metrics=Metrics()) as client:
            cache = Cache(client, metrics=Metrics())
            cache.add(CONFIG_MAP)
            manager.add(cache)
            health = manager._caches_health()
        assert not health.is_ready
        assert "ConfigMap" in health.text or "configmaps" in health.text

    def test_what_is_wrong_with_a_cache_that_is_ready_is_in_the_text(
        self, make: Callable[..., Manager]
    ) -> None:
        class Noted:
            runnable_group = RunnableGroup.CACHES

            def run(self, stop: StopSignal) -> None:
                stop.wait()

            def health(self) -> Health:
                return Health(True, "2 informers ok", "one namespace cannot be listed")

        manager = make()
        manager.add(Noted())
        health = manager._caches_health()
        assert health.is_ready
        assert health.text.endswith("2 informers ok; one namespace cannot be listed")

    def test_a_cache_without_a_word_of_its_health_is_none_of_the_checks(
        self, make: Callable[..., Manager]
    ) -> None:
        class Own:
            runnable_group = RunnableGroup.CACHES

            def run(self, stop: StopSignal) -> None: ...

            def health(self) -> str:
                return "fine"

        manager = make()
        manager.add(Own())
        assert isinstance(manager.health(), Health)
        assert manager.health().is_ready


SIGNALS = """
import logging, signal, sys, threading
from appsdk_operator.manager._core.signals import stop_on_signals
from appsdk_operator.runtime import StopSignal

lock = threading.Lock()

class Locked(logging.Handler):
    def emit(self, record):
        with lock:
            pass

logging.basicConfig(level=logging.INFO, handlers=[Locked()])
stop = StopSignal()
with stop_on_signals(stop, [].append):
    with {lock}:
        signal.raise_signal(signal.SIGTERM)
        {second}
    assert stop.wait(10)
print("ended", flush=True)
"""


@pytest.mark.parametrize("lock", ["threading._active_limbo_lock", "lock"])
@pytest.mark.parametrize("second", [False, True])
def test_a_signal_comes_through_whatever_the_main_thread_holds(lock: str, *, second: bool) -> None:
    again = "signal.raise_signal(signal.SIGINT)" if second else "pass"
    code = textwrap.dedent(SIGNALS).format(lock=lock, second=again)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    if second:
        assert done.returncode == -2
        assert "second signal SIGINT: ending at once" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


class MuteExit(BaseException):
    """Ends a program, and has no text."""

    def __repr__(self) -> str:
        raise RuntimeError("nobody may ask")

    __str__ = __repr__


def test_an_election_that_ends_stops_the_manager_whatever_ended_it(
    make: Callable[..., Manager],
) -> None:
    class Broken:
        identity, leader, is_leader = "me", "", False

        def run(self, stop: StopSignal, on_started: Callable[[], None]) -> None:
            raise MuteExit

        def check_write(self) -> None: ...

        def keep_lease(self) -> None: ...

        def health(self) -> Health:
            return Health(True, "")

    election = LeaderElection(id="x", namespace="default")
    manager = make(leader_election=election, new_elector=lambda client, options: Broken())
    raised: list[BaseException] = []

    def run() -> None:
        try:
            manager.run(StopSignal())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(TIMEOUT)
    manager.close()
    thread.join(TIMEOUT)
    assert [type(error) for error in raised] == [RuntimeError]


def test_a_runnable_that_cannot_be_announced_leaves_nothing_open(
    make: Callable[..., Manager],
) -> None:
    class Odd:
        def run(self, stop: StopSignal) -> None: ...

        @property
        def watched_kinds(self) -> tuple[str, ...]:
            raise LookupError("nobody knows")

    manager, closed = make(), []
    manager._closing.callback(lambda: closed.append(1))
    manager.add(Odd())
    with pytest.raises(LookupError):
        manager.run(StopSignal())
    assert closed


def test_ctrl_c_in_what_a_part_says_of_itself_reaches_the_main_thread(
    make: Callable[..., Manager],
) -> None:
    class Interrupted:
        def run(self, stop: StopSignal) -> None:
            stop.wait()

        def debug_snapshot(self) -> dict[str, Any]:
            raise KeyboardInterrupt

    manager = make()
    manager.add(Interrupted())
    for ask in (manager.debug_snapshot, manager.debug_state):
        with pytest.raises(KeyboardInterrupt):
            ask()
