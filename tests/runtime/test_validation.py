"""The checks of functions: quick for plain ones, and of the same opinion as their signatures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from appsdk_operator.runtime.validation import check_callable, check_function, check_plain


def takes_two(a: Any, b: Any) -> None: ...


def has_default(a: Any, b: Any = 1) -> None: ...


def has_keyword(a: Any, *, b: Any) -> None: ...


def has_keyword_with_default(a: Any, *, b: Any = 1) -> None: ...


def takes_all(*args: Any) -> None: ...


def by_position(a: Any, b: Any, /) -> None: ...


@functools.wraps(takes_two)
def wrapped(*args: Any) -> None: ...


async def coroutine(a: Any) -> None: ...


async def generator(a: Any) -> AsyncIterator[int]:
    yield 1


class Things:
    def method(self, a: Any, b: Any = 1) -> None: ...

    @staticmethod
    def static(a: Any) -> None: ...

    @classmethod
    def of_class(cls, a: Any) -> None: ...

    async def slow(self, a: Any) -> None: ...

    def __call__(self, a: Any) -> None: ...


class SlowThings:
    async def __call__(self, a: Any) -> None: ...


with_signature: Any = lambda *args: None  # noqa: E731 - to give it an attribute
with_signature.__signature__ = inspect.signature(takes_two)

PLAIN: list[Callable[..., Any]] = [
    takes_two,
    has_default,
    has_keyword,
    has_keyword_with_default,
    takes_all,
    by_position,
    wrapped,
    with_signature,
    lambda a: None,
    lambda: None,
    Things().method,
    Things.method,
    Things.static,
    Things.of_class,
    Things(),
    Things,
    functools.partial(takes_two, 1),
    dict,
]
ASYNC: list[Callable[..., Any]] = [
    coroutine,
    generator,
    Things().slow,
    SlowThings(),
    functools.partial(coroutine),
]


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


@pytest.mark.parametrize("count", range(4))
@pytest.mark.parametrize("function", PLAIN, ids=name_of)
def test_what_can_be_called_with_so_many_arguments_passes(
    function: Callable[..., Any], count: int
) -> None:
    arguments = ("a", "b", "c")[:count]
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:
        fits = True  # it has no signature
    except TypeError:
        fits = False
    else:
        fits = True
    if fits:
        check_callable("option", function, *arguments)
    else:
        with pytest.raises(TypeError, match=r"^option=.* is not a function of "):
            check_callable("option", function, *arguments)


@pytest.mark.parametrize("function", ASYNC, ids=name_of)
def test_what_is_async_passes_only_where_it_is_awaited(function: Callable[..., Any]) -> None:
    check_callable("option", function, "a", is_awaited=True)
    check_function("option", function, is_awaited=True)
    for check in (check_plain, check_function, check_callable):
        with pytest.raises(TypeError, match=r"^option is async, .*: make it a plain function"):
            check("option", function)


@pytest.mark.parametrize("function", PLAIN, ids=name_of)
def test_what_is_not_async_is_plain(function: Callable[..., Any]) -> None:
    check_plain("option", function)
    check_function("option", function)


def test_none_passes_unless_a_function_is_required() -> None:
    check_function("option", None)
    check_callable("option", None, "a")
    with pytest.raises(TypeError, match=r"^option=None: give a function$"):
        check_function("option", None, required=True)
    with pytest.raises(TypeError, match=r"^option=None is not a function of"):
        check_callable("option", None, "a", required=True)
