"""Conditions for :func:`~appsdk_operator.controllers.wait_for`; use it as a module.

    from appsdk_operator.controllers import until, wait_for

    ready = until.condition_true("Ready") | until.field_equals("status.phase", "Failed")
    wait_for(client, POD, "web", ready, namespace="default", timeout=30)

Conditions are values: combine them with ``&``, ``|`` and ``~``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, final, overload

import attrs

from appsdk_operator._generics import subscript
from appsdk_operator.controllers._helpers.conditions import get_condition
from appsdk_operator.resource import HIDDEN_FIELDS, FieldPath, Object
from appsdk_operator.runtime.validation import check_function

__all__ = [
    "Until",
    "condition_false",
    "condition_true",
    "deleted",
    "exists",
    "field_equals",
    "matches",
]


def _nothing(_: Object) -> str:
    return ""


if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    # The value without an object for which a condition may hold: None, or Never if it needs one.
    AbsentT = _TypeVar("AbsentT", default=None)
    AbsentT_co = _TypeVar("AbsentT_co", default=None, covariant=True)
    OtherAbsentT = _TypeVar("OtherAbsentT", default=None)
else:
    AbsentT, OtherAbsentT = TypeVar("AbsentT"), TypeVar("OtherAbsentT")
    AbsentT_co = TypeVar("AbsentT_co", covariant=True)


@final
@attrs.frozen
class Until(Generic[AbsentT_co]):
    """A condition on an object that may be absent. Immutable; called with each state.

    ``Until[Never]`` only holds for an existing object, so that :func:`wait_for` returns one;
    ``Until[None]``, or ``Until`` alone, may hold without an object.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    text: str
    """The condition as text that follows "until"."""
    _holds: Callable[[Object | None], bool] = attrs.field(repr=False, alias="holds")
    _seen: Callable[[Object], str] = attrs.field(default=_nothing, repr=False, alias="seen")

    def __call__(self, obj: Object | None) -> bool:
        """Whether it holds for this state; None: the object does not exist."""
        return bool(self._holds(obj))

    def describe(self, obj: Object | None) -> str:
        """The part of the state that the condition depends on, for error texts."""
        return "it does not exist" if obj is None else self._seen(obj)

    @overload
    def __and__(self, other: Until[Never]) -> Until[Never]: ...
    @overload
    def __and__(self, other: Until[OtherAbsentT]) -> Until[AbsentT_co]: ...
    def __and__(self, other: Until[Any]) -> Until[Any]:
        """A condition that holds when both hold."""
        return Until(
            f"({self.text} and {other.text})",
            lambda obj: self(obj) and other(obj),
            lambda obj: _joined(self._seen(obj), other._seen(obj)),
        )

    def __or__(self, other: Until[OtherAbsentT]) -> Until[AbsentT_co | OtherAbsentT]:
        """A condition that holds when at least one of the two holds."""
        return Until(
            f"({self.text} or {other.text})",
            lambda obj: self(obj) or other(obj),
            lambda obj: _joined(self._seen(obj), other._seen(obj)),
        )

    def __invert__(self) -> Until[None]:
        """The negation; one of a condition on the content also holds without an object."""
        return Until(f"not {self.text}", lambda obj: not self(obj), self._seen)


def exists() -> Until[Never]:
    """The object exists."""
    return Until("it exists", lambda obj: obj is not None)


def deleted(which: Object | str = "") -> Until[None]:
    """The object is gone.

    Args:
        which: an object or a uid, so that another object of the same name counts as gone.
            Default: any object of the name.
    """
    uid = which if isinstance(which, str) else which.uid
    return Until(
        "it is deleted" + (f" (uid {uid})" if uid else ""),
        lambda obj: obj is None or bool(uid and obj.uid != uid),
        lambda obj: f"finalizers: {', '.join(obj.finalizers)}" if obj.is_deleting else "",
    )


def condition_true(type: str) -> Until[Never]:  # noqa: A002 - the API's own word
    """The status condition of this type is True."""
    return _condition(type, "True")


def condition_false(type: str) -> Until[Never]:  # noqa: A002
    """The status condition of this type is False; it must exist."""
    return _condition(type, "False")


def field_equals(path: str, value: Any) -> Until[Never]:
    """The field has this value; None: it is absent or null, and the object exists.

    Args:
        path: for example ``status.phase`` or ``metadata.labels['app']``.
        value: a JSON value.

    Raises:
        ValueError: ``path`` is not a path.
    """
    found = FieldPath(path)
    has_value = found == value
    is_hidden = found.root in HIDDEN_FIELDS
    return Until(
        f"{path} has the given value" if is_hidden else f"{path} is {value!r}",
        lambda obj: obj is not None and has_value(obj),
        lambda obj: "" if is_hidden else f"{path} is {found.value(obj)!r}",
    )


def matches(function: Callable[[Object], Any], text: str = "") -> Until[Never]:
    """The object exists, and ``function`` returns a true value for it.

    Args:
        function: must be quick and change nothing; an error ends the wait.
        text: the condition as text, for errors; default: the function's name.

    Raises:
        TypeError: ``function`` is not a plain function; or it is a function of this module, which
            you have to call to make a condition.
    """
    check_function("function", function, required=True)
    if getattr(function, "__module__", "") == __name__:
        raise TypeError(f"until.{function.__name__} makes a condition: call it")
    name = text or f"{getattr(function, '__name__', function)!s} holds"
    return Until(name, lambda obj: obj is not None and bool(function(obj)))


def _condition(type: str, status: str) -> Until[Never]:  # noqa: A002
    def holds(obj: Object | None) -> bool:
        found = None if obj is None else get_condition(obj, type)
        return found is not None and found.status == status

    def seen(obj: Object) -> str:
        found = get_condition(obj, type)
        if found is None:
            return f"it has no condition {type}"
        why = ": ".join(part for part in (found.reason, found.message) if part)
        return f"condition {type} is {found.status}" + (f" ({why})" if why else "")

    return Until(f"condition {type} is {status}", holds, seen)


def _joined(*parts: str) -> str:
    return "; ".join(dict.fromkeys(part for part in parts if part))
