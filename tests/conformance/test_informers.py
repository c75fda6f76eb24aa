"""First sync, resumption and recovery of informers against both servers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.cache import Event, Informer, ResourceAction
from appsdk_operator.client import Client
from appsdk_operator.resource import Kind, MutableObject
from appsdk_operator.runtime import StopSignal
from tests.conformance.conftest import (
    CONFIG_MAP,
    CRD,
    TIMEOUT,
    WIDGET,
    WIDGET_CRD,
    Impatient,
    World,
)
from tests.waiting import eventually

PATIENCE = 110.0  # longer than the restart of a control plane takes
BOTH_KINDS = pytest.mark.parametrize("kind", [WIDGET, CONFIG_MAP], ids=["widget", "configmap"])


class Counted:
    """A client that remembers how it was asked, and asks the server only while its gate is open."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.lists: list[dict[str, Any]] = []
        self.watches: list[dict[str, Any]] = []
        self.gate = threading.Event()
        self.gate.set()

    def list_page(self, kind: Kind, **options: Any) -> Any:
        self.gate.wait(PATIENCE)
        self.lists.append(options)
        return self._client.list_page(kind, **options)

    def watch(self, kind: Kind, **options: Any) -> Any:
        self.gate.wait(PATIENCE)
        self.watches.append(options)
        return self._client.watch(kind, **options)


class Seen:
    """Collects the events of an informer."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.condition = threading.Condition()
        self.has_ended = False

    def on_events(self, events: Any) -> None:
        with self.condition:
            self.events += [e for e in events if e.object.name != "kube-root-ca.crt"]
            self.condition.notify_all()

    def on_initial_list_end(self) -> None:
        with self.condition:
            self.has_ended = True
            self.condition.notify_all()

    def wait(self, count: int) -> list[tuple[ResourceAction, str]]:
        """The first ``count`` events."""
        with self.condition:
            assert self.condition.wait_for(lambda: len(self.events) >= count, TIMEOUT)
            return [(e.action, e.object.name) for e in self.events]


@contextlib.contextmanager
def following(informer: Informer) -> Iterator[Seen]:
    seen, stop = Seen(), StopSignal()
    informer.add_event_handler(seen)
    thread = threading.Thread(target=informer.run, args=(stop,))
    thread.start()
    try:
        assert informer.wait_for_sync(stop, TIMEOUT), informer.health()
        yield seen
    finally:
        stop.set()
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def stored(informer: Informer) -> dict[str, str]:
    found = {obj.name: obj.resource_version for obj in informer.store.list()}
    found.pop("kube-root-ca.crt", None)
    return found


@BOTH_KINDS
def test_the_first_sync_is_complete_streamed_where_the_server_can_and_paged_where_not(
    world: World, kind: Kind
) -> None:
    for number in range(25):
        world.create(kind, f"o-{number}")
    client = Counted(world.client)
    informer = world.informer(kind, client, page_size=10)
    with following(informer) as seen:
        assert stored(informer) == world.versions(kind)
        assert {action for action, _ in seen.wait(25)} == {ResourceAction.CREATE}
        assert all(event.is_initial for event in seen.events)
        with seen.condition:
            assert seen.condition.wait_for(lambda: seen.has_ended, TIMEOUT)
        world.create(kind, "later")
        assert seen.wait(26)[-1] == (ResourceAction.CREATE, "later")
        assert not seen.events[-1].is_initial
        assert client.watches[0]["send_initial_events"]
        # Real servers stream from 1.34 on.
        assert len(client.lists) in ((0,) if world.server.name == "embedded" else (0, 3))


def test_a_watch_that_ends_is_resumed_without_a_list(world: World) -> None:
    client = Counted(world.client)
    informer = world.informer(WIDGET, client, watch_timeout=(1.0, 1.0), stream_first_sync=False)
    with following(informer) as seen:
        world.create(WIDGET, "one")
        seen.wait(1)
        while len(client.watches) < 3:
            # A watch that ends within a second and without an event would count as broken.
            count = len(seen.events) + 1
            world.resize(WIDGET, "one", count)
            seen.wait(count)
        world.create(WIDGET, "two")
        with seen.condition:
            assert seen.condition.wait_for(lambda: seen.events[-1].object.name == "two", TIMEOUT)
        assert len(client.lists) == 1
        assert stored(informer) == world.versions(WIDGET)


@BOTH_KINDS
def test_history_that_expired_meanwhile_leads_to_a_list_that_tells_what_was_missed(
    world: World, kind: Kind
) -> None:
    for name in ("changed", "gone", "kept", "replaced"):
        world.create(kind, name)
    with world.proxy() as proxy:
        client = Counted(world.new_client(server=proxy.url))
        informer = world.informer(kind, client)
        with following(informer) as seen:
            world.create(kind, "watched")  # so that there is a watch to cut
            seen.wait(5)
            client.gate.clear()
            proxy.cut()
            world.resize(kind, "changed", 2)
            world.delete(kind, "gone")
            world.delete(kind, "replaced")
            world.create(kind, "replaced")
            world.create(kind, "new")
            world.server.forget_history()
            client.gate.set()
            seen.wait(10)
            with seen.condition:
                events = seen.events[5:]
    happened = {(e.action, e.object.name) for e in events}
    assert happened == {
        (ResourceAction.UPDATE, "changed"),
        (ResourceAction.DELETE, "gone"),
        (ResourceAction.DELETE, "replaced"),
        (ResourceAction.CREATE, "replaced"),
        (ResourceAction.CREATE, "new"),
    }
    known = [
        e for e in events if e.action is ResourceAction.DELETE and not e.is_final_state_unknown
    ]
    assert not known
    assert stored(informer) == world.versions(kind)


def test_a_connection_that_falls_silent_is_replaced(world: World) -> None:
    with world.proxy() as proxy:
        client = Impatient(world.new_client(server=proxy.url, read_timeout=1.0), 1.0)
        # Bookmarks would not come: nothing does.
        informer = world.informer(WIDGET, client)
        with following(informer) as seen:
            world.create(WIDGET, "before")
            seen.wait(1)
            accepted = proxy.accepted
            proxy.stall()
            world.create(WIDGET, "meanwhile")
            assert proxy.wait_for(lambda proxy: proxy.accepted > accepted, TIMEOUT)
            proxy.clear()
            assert seen.wait(2)[-1] == (ResourceAction.CREATE, "meanwhile")
            assert stored(informer) == world.versions(WIDGET)


def test_an_answer_cut_in_the_middle_loses_nothing(world: World) -> None:
    for number in range(30):
        world.create(WIDGET, f"o-{number}")
    with world.proxy() as proxy:
        proxy.cut_after(6000)
        client = world.new_client(server=proxy.url)
        informer = world.informer(WIDGET, client, page_size=10)
        with following(informer) as seen:
            assert stored(informer) == world.versions(WIDGET)
            names = [name for _, name in seen.wait(30)]
            assert sorted(names) == sorted(world.versions(WIDGET))


def test_a_kind_that_is_deleted_and_served_again_is_followed_again(world: World) -> None:
    gadget = Kind(group="example.com", version="v1", kind="Gadget")
    definition = MutableObject(CRD, {**WIDGET_CRD, "metadata": {"name": "gadgets.example.com"}})
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
    definition["spec"] = {**definition["spec"], "names": names}

    def is_served() -> bool:
        try:
            world.client.list_page(gadget, namespace=world.namespace)
        except Exception:
            return False
        return True

    world.client.create(definition)
    assert eventually(is_served)
    informer = world.informer(gadget)
    with following(informer) as seen:
        world.create(gadget, "one")
        seen.wait(1)
        world.client.delete(CRD, "gadgets.example.com")
        assert seen.wait(2)[-1] == (ResourceAction.DELETE, "one")
        assert eventually(lambda: not is_served())
        world.client.create(definition)
        assert eventually(is_served)
        world.create(gadget, "two")
        assert seen.wait(3)[-1] == (ResourceAction.CREATE, "two")
        assert list(stored(informer)) == ["two"]
    world.client.delete(CRD, "gadgets.example.com")
