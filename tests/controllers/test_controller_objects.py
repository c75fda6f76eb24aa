"""Reconcilers that get the object instead of its name."""

from __future__ import annotations

from typing import Any

import pytest

from appsdk_operator.client import Forbidden, NotFound
from appsdk_operator.controllers import ObjectReconciler, Request, Result, as_reconciler
from appsdk_operator.resource import Object
from tests.cache.conftest import THING, thing
from tests.controllers.controller_tools import Rig


class Shelf:
    """A reader that has one thing."""

    def __init__(self, *things: Object, error: Exception | None = None) -> None:
        self.things = {obj.key: obj for obj in things}
        self.error = error
        self.asked: list[tuple[Any, str, str]] = []

    def get(self, kind: Any, name: str, *, namespace: str = "") -> Object:
        self.asked.append((kind, name, namespace))
        if self.error is not None:
            raise self.error
        key = Request(namespace, name)
        if key not in self.things:
            raise NotFound(f"no {name}", status=404)
        return self.things[key]

    def list(self, kind: Any, **_: Any) -> Any:
        raise AssertionError("nobody lists")


class Objects:
    def __init__(self) -> None:
        self.seen: list[Object] = []

    def reconcile_object(self, obj: Object) -> Result:
        self.seen.append(obj)
        return Result(requeue_after=5.0)


def test_an_object_reconciler_gets_the_object_and_its_outcome_counts() -> None:
    obj, reconciler = thing("a"), Objects()
    assert isinstance(reconciler, ObjectReconciler)
    shelf = Shelf(obj)
    reconcile = as_reconciler(shelf, THING, reconciler)
    assert reconcile(obj.key) == Result(requeue_after=5.0)
    assert reconciler.seen == [obj]
    assert shelf.asked == [(THING, "a", obj.namespace)]


def test_a_function_of_the_object_will_do() -> None:
    obj = thing("a")
    seen: list[Object] = []
    as_reconciler(Shelf(obj), THING, seen.append)(obj.key)
    assert seen == [obj]


def test_an_async_one_is_awaited() -> None:
    seen: list[str] = []

    async def reconcile(obj: Object) -> None:
        seen.append(obj.name)

    rig = Rig(reconciler=as_reconciler(Shelf(thing("a")), THING, reconcile)).begin()
    rig.add(thing("a").key)
    rig.controller.process_next()
    assert seen == ["a"]
    assert rig.results() == {"success": 1}
    rig.close()


def test_an_object_that_is_gone_needs_nothing() -> None:
    reconciler = Objects()
    assert as_reconciler(Shelf(), THING, reconciler)(Request("x", "gone")) is None
    assert reconciler.seen == []


def test_any_other_error_of_the_read_is_a_failure() -> None:
    shelf = Shelf(error=Forbidden("no", status=403))
    with pytest.raises(Forbidden):
        as_reconciler(shelf, THING, Objects())(Request("x", "a"))


def test_a_not_found_of_the_reconciler_itself_is_a_failure() -> None:
    def reconcile(_: Object) -> None:
        raise NotFound("its config map", status=404)

    with pytest.raises(NotFound):
        as_reconciler(Shelf(thing("a")), THING, reconcile)(thing("a").key)


@pytest.mark.parametrize(
    ("wrong", "remedy"), [(Objects, r"give an instance, Objects\("), (5, "reconcile_object")]
)
def test_what_is_no_object_reconciler_is_refused_with_the_remedy(wrong: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=remedy):
        as_reconciler(Shelf(), THING, wrong)
