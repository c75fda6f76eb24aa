"""What can be a watcher, and what is told to those who give something else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from appsdk_operator.cache import Informer
from appsdk_operator.resource import Object
from appsdk_operator.watchers import ResourceWatcher, SimpleReconciler, SimpleWatcher


def told(rig: Any, widget: Callable[..., Object], watcher: Any) -> None:
    """Let ``watcher`` be told of an addition, an update, a resync and a deletion."""
    rig.controller.add_watcher(watcher, widget().kind)
    first, second = widget("a", 1), widget("a", 2)
    rig.informer.add(first)
    rig.informer.update(first, second)
    rig.work()
    rig.informer.resync(second)
    rig.informer.delete(second)
    rig.work()
    assert not rig.errors


EXPECTED = ["add 1", "update 1 2", "update 2 2", "delete 2"]


def test_functions_make_a_watcher(rig, widget):
    seen = []
    watcher = SimpleWatcher(
        add=lambda obj: seen.append(f"add {obj.resource_version}"),
        update=lambda a, b: seen.append(f"update {a.resource_version} {b.resource_version}"),
        delete=lambda obj: seen.append(f"delete {obj.resource_version}"),
    )
    told(rig, widget, watcher)
    assert seen == EXPECTED


def test_functions_that_are_left_out_do_nothing(rig, widget):
    told(rig, widget, SimpleWatcher())


@pytest.mark.parametrize("name", ["add", "update", "delete"])
def test_each_function_is_optional_on_its_own(rig, widget, name):
    seen = []
    told(rig, widget, SimpleWatcher(**{name: lambda *objects: seen.append(len(objects))}))
    assert seen == {"add": [1], "update": [2, 2], "delete": [1]}[name]


class Methods:
    """A watcher as somebody writes it, without a base class."""

    seen: list[str]

    def __init__(self) -> None:
        self.seen = []

    def add(self, obj: Object) -> None:
        self.seen.append(f"add {obj.resource_version}")

    def update(self, old: Object, new: Object) -> None:
        self.seen.append(f"update {old.resource_version} {new.resource_version}")

    def delete(self, obj: Object) -> None:
        self.seen.append(f"delete {obj.resource_version}")


class AsyncMethods(Methods):
    """The same, asynchronous."""

    async def add(self, obj: Object) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        Methods.add(self, obj)

    async def update(self, old: Object, new: Object) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        Methods.update(self, old, new)

    async def delete(self, obj: Object) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        Methods.delete(self, obj)


@pytest.mark.parametrize("make", [Methods, AsyncMethods])
def test_any_object_with_the_three_methods_is_a_watcher(rig, widget, make):
    watcher = make()
    assert isinstance(watcher, ResourceWatcher)
    told(rig, widget, watcher)
    assert watcher.seen == EXPECTED


def test_async_functions_make_a_watcher(rig, widget):
    seen = []

    async def add(obj: Object) -> None:
        await asyncio.sleep(0)
        seen.append(obj.name)

    told(rig, widget, SimpleWatcher(add=add))
    assert seen == ["a"]


def test_a_class_whose_methods_need_no_instance_is_a_watcher(rig, widget):
    seen = []

    class Watcher:
        @staticmethod
        def add(obj: Object) -> None:
            seen.append(f"add {obj.resource_version}")

        @classmethod
        def update(cls, old: Object, new: Object) -> None:
            seen.append(f"update {old.resource_version} {new.resource_version}")

        @staticmethod
        def delete(obj: Object) -> None:
            seen.append(f"delete {obj.resource_version}")

    told(rig, widget, Watcher)
    assert seen == EXPECTED


@pytest.mark.parametrize(
    ("watcher", "remedy"),
    [
        (None, "SimpleWatcher"),
        (print, "SimpleWatcher"),
        ({}, "no method add and no delete"),
        (attrs.make_class("NotCallable", ["add", "update", "delete"])(1, 2, 3), "no method add"),
        (SimpleReconciler(print), "is a reconciler: give it to add_reconciler"),
        (Methods, r"is a class: add an instance, Methods\("),
    ],
)
def test_what_is_no_watcher_is_refused_with_the_remedy(rig, widget, watcher, remedy):
    with pytest.raises(TypeError, match=remedy):
        rig.controller.add_watcher(watcher, widget().kind)


@pytest.mark.parametrize("name", ["add", "update", "delete"])
def test_what_cannot_be_called_is_refused_by_name(name):
    with pytest.raises(TypeError, match=f"{name}=3 is not a function of"):
        SimpleWatcher(**{name: 3})


@pytest.mark.parametrize(
    ("name", "function", "wanted"),
    [
        ("add", lambda: None, r"\(obj\)"),
        ("update", lambda obj: None, r"\(old, new\)"),
        ("delete", lambda old, new: None, r"\(obj\)"),
    ],
)
def test_a_function_of_something_else_is_refused_when_it_is_given(name, function, wanted):
    with pytest.raises(TypeError, match=f"{name}=.* is not a function of {wanted}"):
        SimpleWatcher(**{name: function})


@pytest.mark.parametrize(
    ("informer", "remedy"),
    [
        (None, "needs add_event_handler and run"),
        (3, "needs add_event_handler and run"),
        (Informer, r"is a class: add an instance, Informer\("),
    ],
)
def test_what_is_no_informer_is_refused_with_the_remedy(rig, widget, informer, remedy):
    with pytest.raises(TypeError, match=remedy):
        rig.controller.add_informer(informer, widget().kind)


@pytest.mark.parametrize(("kind", "error"), [("", ValueError), (None, TypeError), (3, TypeError)])
def test_a_kind_must_have_a_name(rig, kind, error):
    with pytest.raises(error, match="name the kind"):
        rig.controller.add_watcher(SimpleWatcher(), kind)
    with pytest.raises(error, match="name the kind"):
        rig.controller.add_informer(type(rig.informer)(), kind)


def test_two_watchers_of_the_same_functions_are_two(rig, widget):
    first, second = SimpleWatcher(add=rig.calls.append), SimpleWatcher(add=rig.calls.append)
    assert first == second
    rig.controller.add_watcher(first, widget().kind)
    rig.controller.add_watcher(second, widget().kind)
    rig.controller.remove_watcher(second, widget().kind)
    rig.informer.add(widget())
    assert len(rig.work()) == 1


@pytest.mark.parametrize("what", ["informer", "watcher", "reconciler", "cache"])
def test_swapped_arguments_are_refused_with_the_right_order(rig, widget, what):
    said = rf"^add_{what}\(widgets\.v1\.example\.com, {what}\): the two are swapped, write "
    with pytest.raises(TypeError, match=said):
        getattr(rig.controller, f"add_{what}")(widget().kind, SimpleWatcher())
