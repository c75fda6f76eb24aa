"""Watchers: the protocols, and a watcher made from functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, final, runtime_checkable

import attrs

from appsdk_operator._generics import SpecT, SpecT_contra, StatusT, StatusT_contra, subscript
from appsdk_operator.resource import Object
from appsdk_operator.runtime.validation import check_callable

CallbackResult: TypeAlias = Awaitable[None] | None
"""What a callback returns: None, or an awaitable if it is ``async def``."""

ObjectCallback: TypeAlias = Callable[[Object[SpecT, StatusT]], Any]
UpdateCallback: TypeAlias = Callable[[Object[SpecT, StatusT], Object[SpecT, StatusT]], Any]


@runtime_checkable
class ResourceWatcher(Protocol[SpecT_contra, StatusT_contra]):
    """Reacts to events of the objects of one kind; the controller retries a method that raises.

    Any object with these methods is a watcher; they may be ``async def``. Their return values are
    ignored, except that a returned error or Result is a failure, with a text that says so.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def add(self, obj: Object[SpecT_contra, StatusT_contra]) -> CallbackResult:
        """Handle a new object, or one of the initial list."""
        ...

    def update(
        self, old: Object[SpecT_contra, StatusT_contra], new: Object[SpecT_contra, StatusT_contra]
    ) -> CallbackResult:
        """Handle a change, or a resync; for a resync ``old is new``."""
        ...

    def delete(self, obj: Object[SpecT_contra, StatusT_contra]) -> CallbackResult:
        """Handle the removal of an object; ``obj`` is its last known state."""
        ...


@runtime_checkable
class SelectiveWatcher(
    ResourceWatcher[SpecT_contra, StatusT_contra], Protocol[SpecT_contra, StatusT_contra]
):
    """A watcher that can tell in advance which updates it would ignore.

    The controller does not deliver these updates, so they do not end pending retries.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def concerns(
        self, old: Object[SpecT_contra, StatusT_contra], new: Object[SpecT_contra, StatusT_contra]
    ) -> bool:
        """Whether ``update`` would do anything."""
        ...


def _function_of(*arguments: str) -> Any:
    def check(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        check_callable(str(attribute.alias), value, *arguments, is_awaited=True)

    return check


_OTHER_NAMES = {
    f"{before}{name}{after}": meant
    for meant, names in {
        "add": ("add", "added", "create", "created"),
        "update": ("update", "updated", "change", "changed", "modify", "modified"),
        "delete": ("delete", "deleted", "remove", "removed"),
        "sync": ("sync", "synced", "resync", "resume", "resumed"),
    }.items()
    for name in names
    for before in ("", "on")
    for after in ("", "func")
}
"""The names of these callbacks in grafana-app-sdk, client-go and kopf."""


def refuse_other_names(what: str, given: Iterable[str], callbacks: Sequence[str]) -> None:
    """Refuse unknown arguments of ``what``, such as callback names of other libraries.

    Args:
        what: the class.
        given: the unknown arguments.
        callbacks: its own callbacks.

    Raises:
        TypeError: there are unknown arguments; the text has the name of the first one here.
    """
    for name in sorted(given):
        meant = _OTHER_NAMES.get(name.lower().replace("_", ""))
        listed = f"there are {', '.join(callbacks[:-1])} and {callbacks[-1]}"
        hint = f"it is {meant}=" if meant in callbacks else listed
        raise TypeError(f"{what}({name}=…): no such function is called; {hint}")


def _name_of(function: object) -> str:
    return getattr(function, "__name__", None) or repr(function)


@final
@attrs.frozen(kw_only=True)
class SimpleWatcher(Generic[SpecT_contra, StatusT_contra]):
    """A watcher made from functions; each is optional.

    Raises:
        TypeError: a function does not take one object, or ``update`` does not take two; or all
            functions are None.

    >>> seen = []
    >>> watcher = SimpleWatcher(add=lambda obj: seen.append(obj.name))
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    _add: ObjectCallback[SpecT_contra, StatusT_contra] | None = attrs.field(
        default=None, alias="add", validator=_function_of("obj")
    )
    _update: UpdateCallback[SpecT_contra, StatusT_contra] | None = attrs.field(
        default=None, alias="update", validator=_function_of("old", "new")
    )
    _delete: ObjectCallback[SpecT_contra, StatusT_contra] | None = attrs.field(
        default=None, alias="delete", validator=_function_of("obj")
    )

    if not TYPE_CHECKING:  # which knows the arguments

        def __new__(cls, *positional: Any, **given: Any) -> Any:
            if positional:
                shown = ", ".join(map(_name_of, positional))
                raise TypeError(
                    f"SimpleWatcher({shown}) does not say when to call it: name the event, as in "
                    f"SimpleWatcher(add={_name_of(positional[0])}); there are add, update and "
                    "delete"
                )
            callbacks = ("add", "update", "delete")
            refuse_other_names("SimpleWatcher", given.keys() - set(callbacks), callbacks)
            if given and all(function is None for function in given.values()):
                names = ", ".join(f"{name}=None" for name in given)
                raise TypeError(
                    f"SimpleWatcher({names}) calls nothing: add=f gives a function, and add=f() "
                    "what it has returned"
                )
            return object.__new__(cls)

    def add(self, obj: Object[SpecT_contra, StatusT_contra]) -> CallbackResult:
        """Call the ``add`` function."""
        outcome: CallbackResult = None if self._add is None else self._add(obj)
        return outcome

    def update(
        self, old: Object[SpecT_contra, StatusT_contra], new: Object[SpecT_contra, StatusT_contra]
    ) -> CallbackResult:
        """Call the ``update`` function."""
        outcome: CallbackResult = None if self._update is None else self._update(old, new)
        return outcome

    def delete(self, obj: Object[SpecT_contra, StatusT_contra]) -> CallbackResult:
        """Call the ``delete`` function."""
        outcome: CallbackResult = None if self._delete is None else self._delete(obj)
        return outcome


if not TYPE_CHECKING:  # its signature is that of the arguments
    SimpleWatcher.__new__.__wrapped__ = SimpleWatcher.__init__
