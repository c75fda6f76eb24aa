"""Overloads: a signature and its implementation; how a call finds its overload at run time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._cel.types import Type, parse_type, split_parameters
from appsdk_operator.apiserver._cel.values import (
    CelError,
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    no_such_overload,
)

Row = tuple[str, str, Callable[..., Any]]
"""The id, the signature and the implementation of one overload."""

_SIGNATURE: Final = re.compile(r"(?:(?P<receiver>[\w<>,]+):)?(?P<name>.+?)\((?P<params>.*)\)->(.+)")


@final
@attrs.frozen(eq=False)
class Overload:
    """One overload of a function. A method takes its receiver as the first parameter."""

    id: str
    name: str
    member: bool
    params: tuple[Type, ...]
    result: Type
    call: Callable[..., Any]

    def accepts(self, args: list[Any]) -> bool:
        """Whether the overload accepts these values."""
        return len(args) == len(self.params) and all(map(_is_instance, self.params, args))


def overloads_of(table: Iterable[tuple[str, str, Callable[..., Any]]]) -> list[Overload]:
    """The overloads of a table with the columns id, signature and implementation.

    A signature looks like ``name(int,list<A>)->bool``, that of a method ``string:name(int)->bool``.
    """
    return [_overload(*row) for row in table]


def _overload(id_: str, signature: str, call: Callable[..., Any]) -> Overload:
    found = _SIGNATURE.fullmatch(signature)
    if found is None:
        raise ValueError(f"{signature!r} is not a signature")
    params = [
        *([found["receiver"]] if found["receiver"] else []),
        *split_parameters(found["params"]),
    ]
    return Overload(
        id_,
        found["name"],
        bool(found["receiver"]),
        tuple(map(parse_type, params)),
        parse_type(found[4]),
        guarded(call),
    )


def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
    """``call``, with a CEL error where a value is not what its type says, as in a dynamic list."""

    def checked(*args: Any) -> Any:
        try:
            return call(*args)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise no_such_overload() from None

    return checked


_PYTHON: Final[dict[str, type | tuple[type, ...]]] = {
    "int": int,
    "uint": Uint,
    "double": float,
    "string": str,
    "bytes": bytes,
    "bool": bool,
    "list": list,
    "map": dict,
    "timestamp": Timestamp,
    "duration": Duration,
    "optional_type": Optional,
    "type": TypeValue,
    "null_type": type(None),
}


def _is_instance(param: Type, value: Any) -> bool:
    """Whether a value has the type of a parameter; the items of lists and maps are not checked."""
    if param.kind in ("variable", "object") or param.name == "dyn":
        return True
    if param.kind == "opaque":
        return getattr(value, "type_name", "") == param.name
    wanted = _PYTHON.get(param.name)
    if wanted is None or not isinstance(value, wanted):
        return False
    if param.name == "int":
        return not isinstance(value, (bool, Uint))
    return True


def dispatch(overloads: list[Overload]) -> Callable[..., Any]:
    """A function that calls the first overload that accepts its arguments."""
    if len(overloads) == 1:
        single = overloads[0]

        def call_one(*args: Any) -> Any:
            if not single.accepts(list(args)):
                raise no_such_overload()
            return single.call(*args)

        return call_one

    def call(*args: Any) -> Any:
        given = list(args)
        for overload in overloads:
            if overload.accepts(given):
                return overload.call(*args)
        raise no_such_overload()

    return call


def is_parseable(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    """A predicate on strings: ``parse`` accepts the string."""

    def call(text: str) -> bool:
        try:
            parse(text)
        except CelError:
            return False
        return True

    return call
