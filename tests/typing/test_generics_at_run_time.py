"""What a type checker reads in brackets costs nothing and works on every Python."""

from __future__ import annotations

import gc
import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

import appsdk_operator
from appsdk_operator import Kind, MutableObject, Object

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
DATA: dict[str, Any] = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"size": 3}}


def generic_classes() -> Iterator[type[Any]]:
    seen = set()
    for found in pkgutil.walk_packages(appsdk_operator.__path__, "appsdk_operator."):
        if found.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(found.name)).values():
            if (
                inspect.isclass(value)
                and value.__module__.startswith("appsdk_operator.")
                and any(
                    p.__name__.startswith("SpecT") for p in vars(value).get("__parameters__", ())
                )
                and not value.__name__.startswith("_")
                and value not in seen
            ):
                seen.add(value)
                yield value


GENERICS = list(generic_classes())


def test_kinds_and_objects_are_generic() -> None:
    assert {Kind, Object, MutableObject} <= set(GENERICS)


@pytest.mark.parametrize("generic", GENERICS, ids=lambda c: c.__qualname__)
def test_brackets_with_the_spec_alone_or_with_both_types_work(generic: Any) -> None:
    assert generic[int].__origin__ is generic
    assert generic[int, str].__args__ == (int, str)


@pytest.mark.parametrize("generic", GENERICS, ids=lambda c: c.__qualname__)
def test_a_subclass_may_name_the_types(generic: Any) -> None:
    if not getattr(generic, "__final__", False):
        assert types.new_class("Of", (generic[int],)).__mro__[1] is generic


def test_an_object_is_as_small_as_its_fields_and_is_not_tracked() -> None:
    obj = Object[int, str].from_dict(WIDGET, DATA)
    # A header and eight pointers, the number among them.
    assert sys.getsizeof(obj) == 16 + 8 * 8
    assert not gc.is_tracked(obj)
    assert not hasattr(obj, "__dict__")
    assert not hasattr(obj, "__orig_class__")


def test_a_draft_and_a_kind_made_with_brackets_are_like_others() -> None:
    draft = MutableObject[int, str](WIDGET, {})
    kind = Kind[int, str](group="example.com", version="v1", kind="Widget")
    assert not hasattr(draft, "__orig_class__")
    assert not hasattr(kind, "__orig_class__")
    assert kind == WIDGET
    assert hash(kind) == hash(WIDGET)
