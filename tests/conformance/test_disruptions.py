"""Convergence: whatever broke on the way, every watcher's last seen state is the server's."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.client import ApiError, ClientError, Conflict, NotFound
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import StopSignal
from tests.conformance.conftest import (
    CONFIG_MAP,
    TIMEOUT,
    WIDGET,
    Impatient,
    Recorder,
    World,
)
from tests.waiting import eventually

WRITERS = 3
OBJECTS = 12  # a writer


class Writers:
    """Threads that create, change and delete objects, and try again what failed."""

    def __init__(self, world: World, kind: Kind, *, seed: int) -> None:
        self._world = world
        self._kind = kind
        self._seed = seed
        self._condition = threading.Condition()
        self._stop = StopSignal()
        self.done = 0
        self._threads = [
            threading.Thread(target=self._write, args=(number,), name=f"writer-{number}")
            for number in range(WRITERS)
        ]
        world.at_end(self.stop)
        for thread in self._threads:
            thread.start()

    def wait_for_more(self, count: int) -> None:
        """Wait until ``count`` more writes succeeded."""
        with self._condition:
            wanted = self.done + count
            assert self._condition.wait_for(lambda: self.done >= wanted, TIMEOUT)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()

    def _write(self, number: int) -> None:
        rng = random.Random(self._seed + number)
        while not self._stop.is_set():
            name = f"w{number}-{rng.randrange(OBJECTS)}"
            try:
                self._change(rng, name)
            except ClientError:
                self._stop.wait(0.05)
                continue
            with self._condition:
                self.done += 1
                self._condition.notify_all()
            self._stop.wait(0.002)

    def _change(self, rng: random.Random, name: str) -> None:
        if rng.random() < 0.15:
            self._world.delete(self._kind, name)
            return
        try:
            self._world.resize(self._kind, name, rng.randrange(10**9))
        except NotFound:
            self._world.create(self._kind, name, rng.randrange(10**9))


def sometimes(rng: random.Random, share: float) -> Callable[[str, Object], None]:
    lock = threading.Lock()

    def fail(action: str, obj: Object) -> None:
        with lock:
            failed = rng.random() < share
        if failed:
            raise RuntimeError("sometimes")

    return fail


def converge(world: World, kind: Kind, *recorders: Recorder) -> None:
    state = {(o.name, o.uid, o.resource_version) for o in world.objects(kind)}

    def seen_by(recorder: Recorder) -> set[tuple[str, str, str]]:
        objects = [o for o in recorder.seen.values() if o.name != "kube-root-ca.crt"]
        return {(o.name, o.uid, o.resource_version) for o in objects}

    for recorder in recorders:
        assert recorder.wait(lambda r: seen_by(r) == state), [
            (name, uid, version, recorder.actions(name))
            for name, uid, version in seen_by(recorder) ^ state
        ]
        assert not recorder.wrong


@pytest.mark.stress
@pytest.mark.long
def test_nothing_is_lost_when_the_server_is_killed_under_load(mortal_world: World) -> None:
    world = mortal_world
    steady = Recorder()
    failing = Recorder(sometimes(random.Random(1), 0.2))
    running = world.operate(CONFIG_MAP, steady, failing, workers=3)
    running.wait_for_sync()
    writers = Writers(world, CONFIG_MAP, seed=2)
    writers.wait_for_more(50)
    world.server.kill()
    world.server.restart()
    writers.wait_for_more(50)
    writers.stop()
    converge(world, CONFIG_MAP, steady, failing)


@pytest.mark.stress
@pytest.mark.long
def test_nothing_is_lost_when_history_expires_under_load(world: World) -> None:
    steady = Recorder()
    failing = Recorder(sometimes(random.Random(3), 0.2))
    running = world.operate(WIDGET, steady, failing, workers=3)
    running.wait_for_sync()
    writers = Writers(world, WIDGET, seed=4)
    writers.wait_for_more(50)
    world.server.forget_history()
    writers.wait_for_more(50)
    writers.stop()
    converge(world, WIDGET, steady, failing)


@pytest.mark.stress
@pytest.mark.long
def test_nothing_is_lost_when_connections_are_cut_stalled_and_slow(world: World) -> None:
    steady = Recorder()
    failing = Recorder(sometimes(random.Random(5), 0.2))
    with world.proxy() as proxy:
        client = world.new_client(server=proxy.url, read_timeout=2.0, connect_timeout=2.0)
        running = world.operate(WIDGET, steady, failing, client=Impatient(client, 1.0), workers=3)
        running.wait_for_sync()
        writers = Writers(world, WIDGET, seed=6)
        writers.wait_for_more(30)
        accepted = proxy.accepted
        proxy.stall()
        # Only an impatient watch comes back; a connection that is not broken breaks nobody's wait.
        assert proxy.wait_for(lambda proxy: proxy.accepted > accepted, TIMEOUT)
        proxy.clear()
        proxy.cut()
        writers.wait_for_more(30)
        proxy.cut_after(3000, times=2)
        writers.wait_for_more(30)
        proxy.throttle(50_000)
        proxy.delay(0.02)
        writers.wait_for_more(30)
        proxy.clear()
        writers.stop()
        converge(world, WIDGET, steady, failing)


def test_errors_of_the_server_lead_to_retries_and_to_convergence(embedded: Any) -> None:
    world = World(embedded)
    try:
        recorder = Recorder()
        with world.proxy() as proxy:
            running = world.operate(WIDGET, recorder, client=world.new_client(server=proxy.url))
            running.wait_for_sync()
            for status in (410, 500):
                embedded.server.fail(verb="watch", kind=WIDGET, status=status)
                proxy.cut()
                world.create(WIDGET, f"after-{status}")
            embedded.server.fail(verb="list", kind=WIDGET, status=429, retry_after=1)
            converge(world, WIDGET, recorder)
    finally:
        embedded.server.clear_faults()
        world.close()


def test_an_operator_that_starts_while_the_server_is_down_catches_up(world: World) -> None:
    world.create(WIDGET, "before")
    recorder = Recorder()
    with world.proxy() as proxy:
        proxy.refuse()
        client = world.new_client(server=proxy.url, max_retries=0)
        errors: list[Exception] = []
        failed = threading.Event()

        def note(error: Exception) -> None:
            errors.append(error)
            failed.set()

        running = world.operate(
            WIDGET, recorder, client=client, informer_options={"on_error": note}
        )
        assert failed.wait(TIMEOUT)
        assert not running.controller.health().is_ready
        assert not running.controller.has_synced
        proxy.clear()
        assert recorder.wait(lambda r: r.succeeded("add") == ["before"])
        running.wait_for_sync()
        assert running.controller.health().is_ready


def test_writes_through_retries_are_done_once(world: World) -> None:
    """A create whose answer is lost is not repeated by the client, which cannot know."""
    with world.proxy() as proxy:
        client = world.new_client(server=proxy.url)
        client.get(WIDGET, world.create(WIDGET, "warm").name, namespace=world.namespace)
        proxy.cut_after(0)
        with pytest.raises(ClientError) as caught:
            client.create(world.draft(WIDGET, "lost"))
        assert not isinstance(caught.value, ApiError)
        assert eventually(lambda: world.find(WIDGET, "lost") is not None)
        # Over an open connection: a handshake that is cut is no answer that is lost.
        client.get(WIDGET, "warm", namespace=world.namespace)
        proxy.cut_after(0)
        draft = world.get(WIDGET, "warm").mutable_copy()
        draft.spec["size"] = 5
        # Repeated, and the first try had been carried out.
        with pytest.raises(Conflict):
            client.update(draft)
        assert world.get(WIDGET, "warm").generation == 2
