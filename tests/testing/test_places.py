"""The report of a broken promise names the lines of the operator that ran last."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator import App, Kind, Object
from appsdk_operator.client import MergePatch
from appsdk_operator.testing import BrokenPromise, Replica, World, check_operator
from appsdk_operator.testing._world.places import Traced, place_of

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
FILE = "test_places.py"


def first_line(function: Callable[..., Any]) -> int:
    return inspect.getsourcelines(function)[1]


def says_no(world: World) -> None:
    assert not world.objects(), "it says no"


def report(make: Any, *replay: str) -> list[str]:
    with pytest.raises(BrokenPromise, match="it says no") as raised:
        check_operator(make, WIDGET, at_rest=says_no, replay=replay)
    told = str(raised.value).splitlines()
    return told[next(n for n, line in enumerate(told) if line.startswith("lines that ran")) :]


def test_lines_of_the_last_call_and_of_the_last_one_that_wrote() -> None:
    first = 0

    def make(replica: Replica) -> Any:
        nonlocal first

        def reconcile(request: Any) -> None:
            if request.name == "a":
                label(replica, request.name)
            elif request.name == "c":
                raise AssertionError

        first = first_line(reconcile)
        return reconcile

    name = "test_lines_of_the_last_call_and_of_the_last_one_that_wrote.make.reconcile"
    found = report(make, "create a {}", "wait 1", "create b {}", "wait 1")
    assert found[:2] == [
        "lines that ran in the last call, of default/b:",
        f"  {name} ({FILE}:{first + 1}, {first + 3})",
    ]
    at = first_line(label)
    assert found[2:] == [
        "lines that ran in the last call that wrote, of default/a:",
        f"  {name} ({FILE}:{first + 1}-{first + 2})",
        f"  label ({FILE}:{at + 1}-{at + 2})",
    ]


def label(replica: Replica, name: str) -> None:
    patch = MergePatch({"metadata": {"labels": {"seen": "yes"}}})
    replica.client.patch(WIDGET, name, patch, namespace="default")


def test_of_coroutines_the_functions_are_named() -> None:
    app = App("widgets")

    @app.on_add(WIDGET)
    async def greet(widget: Object) -> None:
        pass

    assert report(app, "create a {}", "wait 1") == [
        "lines that ran in the last call, of default/a:",
        f"  {place_of(greet)}",
    ]


@pytest.mark.parametrize("function", [label, functools.partial(label, None)])
def test_a_function_begins_somewhere(function: Any) -> None:
    assert place_of(function) == f"label ({FILE}:{first_line(label)})"


@pytest.mark.parametrize("function", [print, check_operator, inspect.getsource, Object])
def test_what_is_not_the_operators_has_no_place(function: Any) -> None:
    assert not place_of(function)


class Hostile:
    """A callable that answers each question for an attribute with something else."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return self._answer(self)

    def __call__(self, request: Any) -> None: ...


def raises(_: Any) -> Any:
    raise SystemExit("no attributes here")


@pytest.mark.parametrize("answer", [raises, lambda self: self, lambda _: 1])
def test_what_lies_about_its_attributes_has_no_place(answer: Any) -> None:
    assert not place_of(Hostile(answer))


def test_another_tracer_goes_on_afterwards() -> None:
    def tracer(*_: Any) -> None: ...

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with Traced({}):
            assert sys.gettrace() is not tracer
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
