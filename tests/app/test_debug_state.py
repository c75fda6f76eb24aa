"""What the debug page knows of an App: what fails since when, and nothing that did not happen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.app import App
from appsdk_operator.client import MergePatch
from appsdk_operator.controllers import TerminalError
from appsdk_operator.manager import Manager
from appsdk_operator.resource import Kind, MutableObject, Object, custom_resource_definition, kinds
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import MemoryServer, running
from appsdk_operator.watchers import ExponentialBackoff
from tests.waiting import eventually

LOOKS = "watcher_process_duration_seconds_count"
SHOP = Kind(group="shops.example.com", version="v1", kind="Shop")


def shop(name: str) -> MutableObject:
    return MutableObject.new(SHOP, name, namespace="default")


@pytest.fixture
def client() -> Iterator[Any]:
    with MemoryServer() as server, server.client() as client:
        client.create(custom_resource_definition(SHOP))
        eventually(lambda: client.list(SHOP) is not None)
        yield client


def app(*, resync: float = 0.0, broken: set[str] | None = None) -> App:
    """An App that cannot close the shops of ``broken``."""
    often = ExponentialBackoff(initial=0.2, maximum=0.2, max_attempts=None)
    made = App("shops", metrics=Metrics(), resync=resync, retry_policy=often)
    made.own(SHOP)

    @made.on_add(SHOP)
    def open_shop(shop: Object) -> None:
        if shop.name.startswith("bad"):
            raise ConnectionError("no answer")
        if shop.name.startswith("hopeless"):
            raise TerminalError("no such city")

    @made.on_delete(SHOP)
    def close_shop(shop: Object) -> None:
        if broken and shop.name in broken:
            raise PermissionError("retention")

    return made


def calls(manager: Manager, name: str) -> list[tuple[str, str, str]]:
    found = manager.debug_timeline("default", name)["calls"]
    return [(one["callback"].rpartition(".")[2], one["why"], one["outcome"]) for one in found]


def test_the_state_says_what_fails_since_when_and_who_is_held_in_deletion(client: Any) -> None:
    broken = {"stuck"}
    manager = app(broken=broken).manager(client)
    with running(manager):
        for name in ("good", "bad-1", "bad-2", "hopeless", "stuck"):
            client.create(shop(name))
        eventually(lambda: calls(manager, "stuck") != [])
        client.delete(SHOP, "stuck", namespace="default")
        eventually(lambda: manager.debug_state()["failing_total"] == 4)
        state = manager.debug_state()
        rows = {row["name"]: row for row in state["failing"]}
        assert state["for_good_total"] == 1
        assert state["failing"][0]["name"] == "hopeless", "for good comes first"
        assert (rows["hopeless"]["outcome"], rows["hopeless"]["due_in"]) == ("terminal", None)
        assert (rows["bad-1"]["type"], rows["bad-1"]["text"]) == ("ConnectionError", "no answer")
        assert rows["bad-1"]["outcome"] == "retrying"
        assert rows["bad-1"]["failures"] >= 1
        assert state["operator"]["started"] <= rows["bad-1"]["since"] <= state["time"]
        assert rows["stuck"]["why"].endswith("clean-up")
        assert rows["stuck"]["callback"].endswith("close_shop")
        (held,) = state["deleting"]
        assert held["name"] == "stuck"
        assert abs(held["since"] - state["time"]) < 60.0
        assert [one["text"] for one in state["verdict"]] == ["4 objects failing (1 for good)"]
        assert sum(state["controllers"][0]["history"]["failures"]) >= 4
        # What is made up for is not failing any more, and well since then.
        for name in ("bad-1", "bad-2", "hopeless"):
            client.patch(
                SHOP, name, MergePatch({"metadata": {"finalizers": []}}), namespace="default"
            )
            client.delete(SHOP, name, namespace="default")
        eventually(lambda: manager.debug_state()["failing_total"] == 1)
        broken.clear()
        eventually(lambda: manager.debug_state()["verdict"][0]["level"] == "good")
        state = manager.debug_state()
        assert state["operator"]["well_since"] >= rows["stuck"]["since"]
        assert state["verdict"][0]["text"].startswith("all well since ")


def test_a_start_without_on_sync_has_nothing_to_do(client: Any) -> None:
    manager = app().manager(client)
    with running(manager):
        client.create(shop("good"))
        eventually(lambda: calls(manager, "good") != [])
        assert calls(manager, "good")[-1] == ("open_shop", "creation", "done")
    manager = app(resync=0.05).manager(client)
    with running(manager):
        client.create(shop("other"))
        eventually(lambda: ("open_shop", "creation", "done") in calls(manager, "other"))
        assert set(calls(manager, "good")) == {("", "creation", "nothing to do")}
        first = looks(manager)
        eventually(lambda: looks(manager) > first + 4)
        (controller,) = manager.debug_state()["controllers"]
        assert sum(controller["history"]["calls"]) == 1, "of open_shop for the other one"
        assert set(calls(manager, "good")) == {("", "creation", "nothing to do")}
        client.delete(SHOP, "good", namespace="default")
        eventually(lambda: calls(manager, "good")[0][0] == "close_shop")
        assert calls(manager, "good")[0] == ("close_shop", "clean-up", "done")


def looks(manager: Manager) -> float:
    """How often an object was looked at so far."""
    return manager.metrics.value(LOOKS, event_type="RESYNC", kind=str(SHOP)) or 0.0


@pytest.mark.parametrize("is_shared", [False, True], ids=["own functions", "one function"])
def test_objects_of_different_kinds_with_one_name_fail_each_for_themselves(
    client: Any, is_shared: bool
) -> None:
    secret = kinds.core.v1.Secret
    made = App("shops", metrics=Metrics(), retry_policy=ExponentialBackoff(initial=600.0))
    made.own(SHOP)

    def fail(obj: Object) -> None:
        raise TerminalError(f"no such {obj.kind.kind}")

    def fail_too(obj: Object) -> None:
        fail(obj)

    made.on_add(SHOP)(fail)
    made.on_add(secret)(fail if is_shared else fail_too)
    manager = made.manager(client)
    with running(manager):
        client.create(shop("web"))
        client.create(MutableObject.new(secret, "web", namespace="default"))
        eventually(lambda: len(manager.debug_state()["failing"]) == 2)
        state = manager.debug_state()
    assert state["failing_total"] == state["for_good_total"] == 2
    causes = {row["kind"]: row["text"] for row in state["failing"]}
    assert causes == {"shops.v1.shops.example.com": "no such Shop", "secrets.v1": "no such Secret"}
