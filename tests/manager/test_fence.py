"""A fenced client writes nothing after the lead was lost, however late in a request that is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.client import (
    Client,
    ClientConfig,
    Hooks,
    InterceptedClient,
    MergePatch,
    NamespacedClient,
)
from appsdk_operator.manager import FencedClient, LeadershipLost
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import APIServer

CONFIG_MAP = kinds.core.v1.ConfigMap
POD = kinds.core.v1.Pod


class Switch:
    """A fence that a test closes."""

    def __init__(self) -> None:
        self.is_open = True
        self.looks = 0
        self.at_look: Callable[[int], None] = lambda number: None

    def check_write(self) -> None:
        self.looks += 1
        self.at_look(self.looks)
        if not self.is_open:
            raise LeadershipLost("too late")


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer() as server:
        yield server


@pytest.fixture
def client(server: APIServer) -> Iterator[Client]:
    config = ClientConfig(server=server.url, retry_backoff=0.01)
    with Client(config, metrics=Metrics()) as client:
        yield client


def draft(name: str = "a") -> MutableObject:
    return MutableObject.new(CONFIG_MAP, name, namespace="default", data={"x": "1"})


PATCH = MergePatch({"data": {"x": "2"}})
WHERE = {"namespace": "default"}

VERBS: dict[str, Callable[[Any], Any]] = {
    "create": lambda c: c.create(draft("new")),
    "update": lambda c: c.update(draft()),
    "patch": lambda c: c.patch(CONFIG_MAP, "a", PATCH, **WHERE),
    "apply": lambda c: c.apply(draft(), field_manager="me"),
    "delete": lambda c: c.delete(CONFIG_MAP, "a", **WHERE),
    "delete_collection": lambda c: c.delete_collection(CONFIG_MAP, **WHERE),
    "status.update": lambda c: c.status.update(draft()),
    "status.patch": lambda c: c.status.patch(CONFIG_MAP, "a", PATCH, **WHERE),
    "status.apply": lambda c: c.status.apply(draft(), field_manager="me"),
    "subresource.create": lambda c: c.subresource("eviction").create(draft(), parent=POD),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_changes_something_is_refused(
    verb: str, client: Client, server: APIServer
) -> None:
    client.create(draft())
    switch = Switch()
    switch.is_open = False
    before = len(server.requests)
    with pytest.raises(LeadershipLost):
        VERBS[verb](FencedClient(client, switch))
    assert len(server.requests) == before


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_looked_at_once_more_right_before_its_bytes(
    verb: str, client: Client, server: APIServer
) -> None:
    client.create(draft())
    switch = Switch()
    switch.at_look = lambda number: setattr(switch, "is_open", number < 2)
    before = len(server.requests)
    with pytest.raises(LeadershipLost):
        VERBS[verb](FencedClient(client, switch))
    assert switch.looks == 2
    assert len(server.requests) == before


def test_reads_go_on(client: Client) -> None:
    client.create(draft())
    switch = Switch()
    switch.is_open = False
    fenced = FencedClient(client, switch)
    assert fenced.get(CONFIG_MAP, "a", namespace="default").name == "a"
    assert [o.name for o in fenced.list(CONFIG_MAP, namespace="default")]
    assert fenced.list_page(CONFIG_MAP, namespace="default").items
    assert fenced.status.name == "status"


def test_writes_go_on_while_the_fence_is_open(client: Client) -> None:
    fenced = FencedClient(client, Switch())
    fenced.create(draft())
    patched = fenced.patch(CONFIG_MAP, "a", PATCH, namespace="default")
    assert patched["data"] == {"x": "2"}
    fenced.delete(CONFIG_MAP, "a", namespace="default")


def test_a_retry_is_looked_at_again(client: Client, server: APIServer) -> None:
    client.create(draft())
    switch = Switch()
    switch.at_look = lambda number: setattr(switch, "is_open", number < 3)
    server.fail(status=429, verb="patch", times=5, retry_after=0)
    with pytest.raises(LeadershipLost):
        FencedClient(client, switch).patch(CONFIG_MAP, "a", PATCH, namespace="default")
    assert switch.looks == 3, "at the call, before the first try, and before the second"
    assert client.get(CONFIG_MAP, "a", namespace="default")["data"] == {"x": "1"}


def test_it_works_through_other_wrappers(client: Client, server: APIServer) -> None:
    switch = Switch()
    inner = NamespacedClient(InterceptedClient(client, Hooks()), "default")
    fenced = FencedClient(inner, switch)
    fenced.create(MutableObject.new(CONFIG_MAP, "a", data={}))
    switch.at_look = lambda number: setattr(switch, "is_open", number < 4)
    with pytest.raises(LeadershipLost):
        fenced.patch(CONFIG_MAP, "a", PATCH)
    assert switch.looks == 4


def test_the_fence_of_one_client_does_not_stop_another(client: Client) -> None:
    closed = Switch()
    closed.is_open = False
    with pytest.raises(LeadershipLost):
        FencedClient(client, closed).create(draft())
    looks = closed.looks
    client.create(draft())
    FencedClient(client, Switch()).patch(CONFIG_MAP, "a", PATCH, namespace="default")
    assert closed.looks == looks


def test_two_fences_around_one_another_are_both_asked(client: Client) -> None:
    outer, inner = Switch(), Switch()
    FencedClient(FencedClient(client, inner), outer).create(draft())
    assert (outer.looks, inner.looks) == (2, 2)


def test_a_write_in_another_thread_is_not_looked_at_by_this_ones_fence(client: Client) -> None:
    switch = Switch()
    done: list[str] = []

    def elsewhere(number: int) -> None:
        if number == 2:
            thread = threading.Thread(target=lambda: done.append(client.create(draft("b")).name))
            thread.start()
            thread.join()

    switch.at_look = elsewhere
    FencedClient(client, switch).create(draft())
    assert done == ["b"]
    assert switch.looks == 2


def test_a_connection_on_which_nothing_was_sent_does_no_harm(client: Client) -> None:
    switch = Switch()
    fenced = FencedClient(client, switch)
    for _ in range(3):
        switch.looks = 0
        switch.at_look = lambda number: setattr(switch, "is_open", number < 2)
        with pytest.raises(LeadershipLost):
            fenced.create(draft())
    switch.at_look = lambda number: setattr(switch, "is_open", True)
    fenced.create(draft())


def test_a_refused_retry_says_that_an_earlier_try_may_have_been_carried_out(
    client: Client, server: APIServer
) -> None:
    obj = client.create(draft()).mutable_copy()
    obj["data"]["x"] = "2"
    switch = Switch()
    switch.at_look = lambda number: setattr(switch, "is_open", number < 3)
    server.fail(verb="update", times=1, after_write=True)
    with pytest.raises(LeadershipLost) as caught:
        FencedClient(client, switch).update(obj)
    assert "may have been carried out" in caught.value.__notes__[0]
    assert client.get(CONFIG_MAP, "a", namespace="default")["data"] == {"x": "2"}
