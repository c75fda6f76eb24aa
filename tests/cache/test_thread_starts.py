"""A thread of a cache that cannot be started: the call can be repeated, or the run says so."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from appsdk_operator import kinds
from appsdk_operator.cache import Cache, NotSyncedError
from appsdk_operator.client import Client
from appsdk_operator.resource import MutableObject
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import MemoryServer, running
from tests.cache.conftest import PATIENCE, Recorder
from tests.waiting import eventually

ConfigMap = kinds.core.v1.ConfigMap


class Starts:
    """Makes one start of the thread of one informer fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, namespace: str, *, number: int = 1) -> None:
        start = threading.Thread.start
        self.threads: list[threading.Thread] = []

        def start_others(thread: threading.Thread) -> None:
            if "configmaps" in thread.name and "worker" not in thread.name:
                self.threads.append(thread)
                names = [each.name for each in self.threads]
                if thread.name.endswith(f"/{namespace}") and names.count(thread.name) == number:
                    raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_others)

    @property
    def alive(self) -> list[str]:
        return [thread.name for thread in self.threads if thread.is_alive()]


@pytest.fixture
def client() -> Iterator[Client]:
    with MemoryServer() as server, server.client() as client:
        for name in "abc":
            client.create(MutableObject.new(kinds.core.v1.Namespace, name))
            client.create(MutableObject.new(ConfigMap, "one", namespace=name))
        yield client


def test_a_kind_of_which_one_informer_cannot_start_can_be_added_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(monkeypatch, "b")
    cache = Cache(client, namespaces=["a", "b"], metrics=Metrics())
    with running(cache) as stop:
        with pytest.raises(RuntimeError, match="can't start"):
            cache.add(ConfigMap)
        assert ConfigMap not in cache.kinds
        eventually(lambda: not starts.alive)
        cache.add(ConfigMap)
        assert cache.wait_for_sync(stop, PATIENCE)
        assert len(cache.list(ConfigMap)) == 2


class Run:
    """A run of a cache in a thread, and its error."""

    def __init__(self, cache: Cache) -> None:
        self.stop = StopSignal()
        self.errors: list[RuntimeError] = []
        self._thread = threading.Thread(target=self._run, args=(cache,))
        self._thread.start()
        assert cache.wait_for_sync(self.stop, PATIENCE)

    def _run(self, cache: Cache) -> None:
        try:
            cache.run(self.stop)
        except RuntimeError as error:
            self.errors.append(error)

    def end(self) -> str:
        """Wait for its own end, and return its error."""
        self._thread.join(PATIENCE)
        has_ended = not self._thread.is_alive()
        self.stop.set()
        self._thread.join()
        assert has_ended, "it has not ended by itself"
        return str(self.errors[0])


def test_a_new_namespace_whose_informer_cannot_start_ends_the_run(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(monkeypatch, "b")
    cache = Cache(client, namespaces=["a"], metrics=Metrics())
    cache.add(ConfigMap)
    run = Run(cache)
    with pytest.raises(RuntimeError, match="can't start"):
        cache.set_namespaces(["a", "b", "c"])
    assert "can't start new thread" in run.end()
    assert not starts.alive
    for name in "bc":
        with pytest.raises(NotSyncedError):
            cache.get(ConfigMap, "one", namespace=name)


def test_a_switchover_whose_informer_cannot_start_again_ends_the_run(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(monkeypatch, "a", number=2)
    cache = Cache(client, metrics=Metrics(), on_error=lambda _: None)
    cache.add(ConfigMap)
    cache.add_event_handler(ConfigMap, Recorder())
    run = Run(cache)
    # Both that follow are behind what they are to replace, and list again.
    (old,) = cache.informers(ConfigMap)
    monkeypatch.setattr(old, "_reached", "1000000")
    with contextlib.suppress(RuntimeError):  # of this thread, if both have synced by then
        cache.set_namespaces(["a", "b"])
    assert "can't start new thread" in run.end()
    assert not starts.alive
