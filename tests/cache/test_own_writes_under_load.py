"""Many threads that write and read through one cached client, while watches lag and namespaces
come and go."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest

from appsdk_operator.cache import (
    Cache,
    CachedClient,
    CacheOptions,
    Event,
    NamespaceOptions,
    NotCachedError,
)
from appsdk_operator.client import (
    AlreadyExists,
    Client,
    ClientConfig,
    ClientWrapper,
    Conflict,
    MergePatch,
    NotFound,
)
from appsdk_operator.resource import MutableObject, Object, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer
from tests.cache.conftest import PATIENCE
from tests.cache.test_namespace_changes import told_by

ConfigMap, Namespace = kinds.core.v1.ConfigMap, kinds.core.v1.Namespace
SECONDS = float(os.environ.get("STRESS_SECONDS", "4"))
SPACES = ("default", "other")
HELD = "example.com/held"


class Lagging(ClientWrapper):
    """A client whose watches bring their lines late."""

    def watch(self, kind: Any, **options: Any) -> Any:
        return LaggingStream(self.inner.watch(kind, **options))


class LaggingStream:
    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.never = threading.Event()

    def __enter__(self) -> Self:
        self.stream.__enter__()
        return self

    def __exit__(self, *parts: object) -> None:
        self.stream.__exit__(*parts)

    def __iter__(self) -> Iterator[list[bytes]]:
        for lines in self.stream:
            if random.random() < 0.5:
                self.never.wait(random.random() * 0.1)
            yield lines


class Writer:
    """Writes objects of its own and checks what it reads after each write."""

    def __init__(self, client: CachedClient, name: str, space: str, seed: int) -> None:
        self.client, self.name, self.space = client, name, space
        self.random = random.Random(seed)
        self.gone: set[str] = set()
        self.last: Object | None = None
        self.count = 0

    def act(self) -> None:
        self.count += 1
        what = self.random.choice(["create", "patch", "patch", "delete", "uid", "status", "all"])
        try:
            self.write(what)
        except (NotFound, AlreadyExists, Conflict):
            self.last = None  # somebody else's doing: nothing is known now
        self.check()

    def write(self, what: str) -> None:
        name, space = self.name, self.space
        if what == "create":
            made = MutableObject.new(ConfigMap, name, namespace=space, data={"n": "0"})
            if self.random.random() < 0.3:
                made.finalizers.append(HELD)
            self.last = self.client.create(made)
        elif what == "patch":
            patch = {"metadata": {"finalizers": None}, "data": {"n": str(self.count)}}
            self.wrote(self.client.patch(ConfigMap, name, MergePatch(patch), namespace=space))
        elif what in ("delete", "uid"):
            if what == "uid" and self.last is None:
                return
            uid = self.last.uid if what == "uid" and self.last else ""
            known: Object | None = None
            with contextlib.suppress(NotCachedError, NotFound):
                known = self.client.get(ConfigMap, name, namespace=space)
            answer = self.client.delete(ConfigMap, name, namespace=space, uid=uid)
            if answer is not None and answer.finalizers:
                self.last = answer
            else:
                self.gone |= {each for each in (uid, known.uid if known else "") if each}
                self.last = None

    def wrote(self, obj: Object) -> None:
        if obj.is_deleting and not obj.finalizers:
            self.gone.add(obj.uid)
            self.last = None
        else:
            self.last = obj

    def check(self) -> None:
        client, last = self.client, self.last
        try:
            try:
                shown: Object | None = client.get(ConfigMap, self.name, namespace=self.space)
            except NotFound:
                shown = None
            self.check_one(shown, last)
            for found in (
                client.list(ConfigMap, namespace=self.space),
                client.list(ConfigMap),
                client.by_index(ConfigMap, "name", self.name),
            ):
                here = [o for o in found if (o.namespace, o.name) == (self.space, self.name)]
                assert len(here) <= 1, here
                self.check_one(here[0] if here else None, last)
        except NotCachedError:
            pass  # not followed just now, or not synced

    def check_one(self, shown: Object | None, last: Object | None) -> None:
        if shown is not None:
            assert shown.uid not in self.gone, f"{shown!r} was deleted"
            if last is not None:
                assert int(shown.resource_version) >= int(last.resource_version), (shown, last)


class Told:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_events(self, events: Any) -> None:
        self.events.extend(events)

    def on_initial_list_end(self) -> None:
        pass


def meddle(live: Client, chance: random.Random) -> None:
    name, space = f"o{chance.randrange(6)}", chance.choice(SPACES)
    with contextlib.suppress(NotFound, AlreadyExists, Conflict):
        what = chance.choice(["create", "patch", "delete"])
        if what == "create":
            live.create(MutableObject.new(ConfigMap, name, namespace=space))
        elif what == "patch":
            patch = {"metadata": {"finalizers": None}, "data": {"m": str(chance.random())}}
            live.patch(ConfigMap, name, MergePatch(patch), namespace=space)
        else:
            live.delete(ConfigMap, name, namespace=space)


@pytest.mark.stress
@pytest.mark.long
@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("meddles", [False, True])
def test_reads_hold_what_they_promise_whatever_happens_at_once(
    changes: bool, meddles: bool
) -> None:
    server = APIServer().start()
    stop, failures, threads = StopSignal(), [], []
    never = threading.Event()

    def run(name: str, work: Callable[[], None], pause: float = 0.0) -> None:
        def loop() -> None:
            try:
                while not stop.is_set():
                    work()
                    if pause:
                        never.wait(pause)
            except BaseException as error:
                failures.append(error)
                stop.set()

        threads.append(threading.Thread(target=loop, name=name))

    try:
        with Client(ClientConfig(server=server.url)) as live:
            live.create(MutableObject(Namespace, {"metadata": {"name": "other"}}))
            cache = Cache(Lagging(live), metrics=Metrics(), on_error=lambda _: None)
            cache.add(ConfigMap, CacheOptions(indexes={"name": lambda obj: [obj.name]}))
            told = Told()
            cache.add_event_handler(ConfigMap, told)
            client = CachedClient(live, cache)
            cache_stop = StopSignal()
            runner = threading.Thread(target=cache.run, args=(cache_stop,))
            runner.start()
            try:
                assert cache.wait_for_sync(cache_stop, PATIENCE)
                for number in range(6):
                    for space in SPACES:
                        writer = Writer(client, f"o{number}", space, number)
                        run(f"writer-{number}", writer.act, 0.005)
                chance = random.Random(1)
                if meddles:
                    run("meddler", lambda: meddle(live, chance), 0.01)
                if changes:
                    choices: tuple[Any, ...] = (
                        [],
                        ["default"],
                        ["default", "other"],
                        {"default": None, "": None},
                    )
                    run("namespaces", lambda: change(cache, chance.choice(choices)), 0.05)
                for thread in threads:
                    thread.start()
                stop.wait(SECONDS)
                stop.set()
                for thread in threads:
                    thread.join(PATIENCE)
                if failures:
                    raise failures[0]
                cache.set_namespaces([])
                assert cache.wait_for_sync(cache_stop, PATIENCE)
                last = live.create(MutableObject.new(ConfigMap, "last", namespace="default"))
                assert client.wait_until_seen(last, cache_stop, PATIENCE)
                there = {(o.key, o.uid, o.resource_version) for o in live.list(ConfigMap)}
                shown = {(o.key, o.uid, o.resource_version) for o in client.list(ConfigMap)}
                assert shown == there
                present = told_by(told.events, None)
                assert {(uid, v) for uid, v in present.values()} == {(u, v) for _, u, v in there}
                assert client._overlay.counts().get(ConfigMap, 0) == 0
            finally:
                cache_stop.set()
                runner.join(PATIENCE)
    finally:
        server.stop()


def change(cache: Cache, choice: Any) -> None:
    if isinstance(choice, dict):
        choice = dict.fromkeys(choice, NamespaceOptions())
    cache.set_namespaces(choice)
