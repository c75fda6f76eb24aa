"""Predicates: they decide which events reach a handler."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, final

from appsdk_operator._generics import (
    OtherSpecT,
    OtherStatusT,
    SpecT,
    SpecT_contra,
    StatusT,
    StatusT_contra,
    subscript,
)
from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.resource import (
    ChangeFilter,
    Filter,
    FilterExpression,
    FilterScope,
    Object,
    When,
    Where,
    change_filter_of,
    field,
    filter_of,
)
from appsdk_operator.runtime import callback_name

_CREATE, _UPDATE, _DELETE, _RESYNC, _GENERIC = ResourceAction

EventFunction: TypeAlias = Callable[[Event[SpecT, StatusT]], bool]


@final
class Predicate(FilterExpression, Generic[SpecT_contra, StatusT_contra]):
    """A filter of events: a function of an event that can be combined with others.

    Combine predicates with ``&``, ``|`` and ``~``, or with :func:`all_of`, :func:`any_of` and
    :func:`not_`. In place of a predicate you can give a plain function of an event, or a filter:

    * a :class:`~appsdk_operator.resource.Filter` checks the object of the event. An update also
      passes when the whole predicate holds for the old object, so an object that leaves a filter
      is seen once more;
    * a :class:`~appsdk_operator.resource.ChangeFilter` checks updates and resyncs. It passes
      creations, deletions, generic events, and updates that replace an object by another one.

    A predicate only keeps events from a handler. It does not make the local copy smaller, as a
    selector of the cache does. The reconciler does not see the event.

    If a predicate raises, no event is lost: the source lets the event pass, logs the predicate's
    name and counts the error. Each source calls its predicates in one thread; they must not wait,
    and cannot be ``async def``. The semantics are controller-runtime's; differences are noted.

    >>> in_default = Predicate(lambda event: event.object.namespace == "default")
    >>> worth_it = in_default & (generation_changed | label_changed)

    Raises:
        TypeError: the function is not a plain function of an event.
    """

    __slots__ = ()
    scope: ClassVar[FilterScope] = FilterScope.EVENT
    arguments: ClassVar[tuple[str, ...]] = ("event",)

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    if TYPE_CHECKING:

        def __init__(
            self,
            function: EventFilter[SpecT_contra, StatusT_contra],
            *,
            name: str | None = None,
        ) -> None: ...

    @classmethod
    def from_functions(
        cls,
        *,
        create: EventFunction[OtherSpecT, OtherStatusT] | None = None,
        update: EventFunction[OtherSpecT, OtherStatusT] | None = None,
        delete: EventFunction[OtherSpecT, OtherStatusT] | None = None,
        generic: EventFunction[OtherSpecT, OtherStatusT] | None = None,
    ) -> Predicate[OtherSpecT, OtherStatusT]:
        """A predicate with a function for each action; without one, all events of the action pass.

        A resync is an update without a change: ``update`` gets it with ``old`` and ``object`` the
        same.

        Raises:
            TypeError: an argument is not a plain function of one argument.
        """
        members = {"create": create, "update": update, "delete": delete, "generic": generic}
        given = {name: member for name, member in members.items() if member is not None}
        for name, member in given.items():
            cls.check(name, member)
        by_action = {_CREATE: create, _UPDATE: update, _DELETE: delete, _GENERIC: generic}

        def function(event: Event[OtherSpecT, OtherStatusT]) -> bool:
            if event.action is _RESYNC:
                member, event = update, Event(_RESYNC, event.object, event.object)
            else:
                member = by_action[event.action]
            return True if member is None else member(event)

        text = ", ".join(f"{name}={_name_of(member)}" for name, member in given.items())
        return Predicate(function, name=f"from_functions({text})")

    def __call__(self, event: Event[SpecT_contra, StatusT_contra] | None = None) -> bool:
        """Whether ``event`` passes.

        Raises:
            TypeError: there is no event.
            Exception: what a function raised.
        """
        if event is None:
            raise TypeError(f"{self} is a predicate already: write it without ()")
        if self._call(event, event.object):
            return True
        old = event.old
        return old is not None and self._looks_at_objects() and self._call(event, old)

    @classmethod
    def adapted(cls, scope: FilterScope, test: Callable[..., bool]) -> Callable[..., bool]:
        """A function of a part, for an event and the object to look at."""
        if scope is FilterScope.OBJECT:
            return lambda _event, obj: test(obj)
        if scope is FilterScope.CHANGE:
            return lambda event, _obj: _passes_change(test, event)
        return lambda event, _obj: test(event)

    def _looks_at_objects(self) -> bool:
        return any(leaf.scope is FilterScope.OBJECT for leaf in self.tree.leaves())

    def __and__(
        self, other: EventFilter[SpecT_contra, StatusT_contra]
    ) -> Predicate[SpecT_contra, StatusT_contra]:
        made: Predicate[SpecT_contra, StatusT_contra] = self._with("&", other, is_first=True)
        return made

    def __rand__(
        self, other: EventFilter[SpecT_contra, StatusT_contra]
    ) -> Predicate[SpecT_contra, StatusT_contra]:
        made: Predicate[SpecT_contra, StatusT_contra] = self._with("&", other, is_first=False)
        return made

    def __or__(
        self, other: EventFilter[SpecT_contra, StatusT_contra]
    ) -> Predicate[SpecT_contra, StatusT_contra]:
        made: Predicate[SpecT_contra, StatusT_contra] = self._with("|", other, is_first=True)
        return made

    def __ror__(
        self, other: EventFilter[SpecT_contra, StatusT_contra]
    ) -> Predicate[SpecT_contra, StatusT_contra]:
        made: Predicate[SpecT_contra, StatusT_contra] = self._with("|", other, is_first=False)
        return made

    def __invert__(self) -> Predicate[SpecT_contra, StatusT_contra]:
        made: Predicate[SpecT_contra, StatusT_contra] = self._negated()
        return made


EventFilter: TypeAlias = (
    Filter[SpecT, StatusT] | ChangeFilter[SpecT, StatusT] | EventFunction[SpecT, StatusT]
)
"""Returns whether an event should reach the handler; a :class:`Predicate` is one."""


def all_of(*predicates: EventFilter[SpecT, StatusT]) -> Predicate[SpecT, StatusT]:
    """Passes events that pass every predicate, called in order; same as ``&``; without any: all."""
    parts = as_predicates(predicates)
    if not parts:
        return Predicate(lambda _event: True, name="all_of()")
    return functools.reduce(operator.and_, parts)


def any_of(*predicates: EventFilter[SpecT, StatusT]) -> Predicate[SpecT, StatusT]:
    """Passes events that pass at least one predicate, called in order; same as ``|``.

    Raises:
        ValueError: there is no predicate, so no event would pass.
    """
    if not predicates:
        raise ValueError("any_of() lets nothing pass: give it at least one predicate")
    return functools.reduce(operator.or_, as_predicates(predicates))


def not_(predicate: EventFilter[SpecT, StatusT]) -> Predicate[SpecT, StatusT]:
    """Passes events that do not pass the other predicate; same as ``~``.

    The negation of a ``…_changed`` filter drops creations and deletions, because the filter passes
    them.
    """
    (part,) = as_predicates((predicate,))
    return ~part


def as_predicates(
    filters: Iterable[EventFilter[SpecT, StatusT]],
) -> tuple[Predicate[SpecT, StatusT], ...]:
    """``filters`` as Predicates; plain functions are wrapped.

    Raises:
        TypeError: one is neither, or ``filters`` is not a list of them.
    """
    if isinstance(filters, (str, Mapping)) or not isinstance(filters, Iterable):
        raise TypeError(f"predicates={filters!r}: give a list of predicates")
    return tuple(map(_predicate_of, filters))


def event_predicates(
    where: Where[SpecT, StatusT] | None,
    when: When[SpecT, StatusT] | None,
    predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
) -> tuple[tuple[str, Predicate[SpecT, StatusT]], ...]:
    """The predicates that the options ``where``, ``when`` and ``predicates`` ask for.

    Returns:
        Each with the name of its option, for error texts.

    Raises:
        TypeError: an option has something else than it takes; the text says what to give.
    """
    found: list[tuple[str, Predicate[SpecT, StatusT]]] = []
    if where is not None:
        found.append(("where", Predicate(filter_of(where))))
    if when is not None:
        found.append(("when", Predicate(change_filter_of(when))))
    return (*found, *(("predicates", each) for each in as_predicates(predicates)))


def _predicate_of(given: Any) -> Predicate[Any, Any]:
    if isinstance(given, Predicate):
        return given
    Predicate.check("predicate", given)
    return Predicate(given)


def _passes_change(test: Callable[[Object, Object], bool], event: Event) -> bool:
    new = event.object
    if event.action is _UPDATE:
        old = event.old
        # Another uid: the object was deleted and created again between two events.
        return old is not None and (old.uid != new.uid or test(old, new))
    return event.action is not _RESYNC or test(new, new)


def _name_of(function: Any) -> str:
    return str(function) if isinstance(function, FilterExpression) else callback_name(function)


def _changed(name: str, differs: Callable[[Object, Object], bool]) -> ChangeFilter[Any, Any]:
    return ChangeFilter(differs, name=name)


def _generation_differs(old: Object, new: Object) -> bool:
    if old.generation != new.generation or old.is_deleting is not new.is_deleting:
        return True
    return not new.generation and old.resource_version != new.resource_version


resource_version_changed: ChangeFilter[Any, Any] = _changed(
    "resource_version_changed", lambda old, new: old.resource_version != new.resource_version
)
"""Drops resyncs, and updates with an unchanged resourceVersion."""

generation_changed: ChangeFilter[Any, Any] = _changed("generation_changed", _generation_differs)
"""Drops resyncs, and updates with an unchanged ``metadata.generation``.

API servers increment the generation when the spec changes, but not for status, labels, annotations,
finalizers and owner references. Updates of kinds without generations, such as ConfigMaps, pass
(controller-runtime drops them all).

An update that marks an object for deletion always passes. One that adds or removes a finalizer does
not: combine with :data:`finalizers_changed` to wait for the removal of another's finalizer.
"""

annotation_changed: ChangeFilter[Any, Any] = _changed(
    "annotation_changed", lambda old, new: old.annotations != new.annotations
)
"""Drops resyncs, and updates with unchanged annotations; missing and empty ones are equal.

With changes of the spec: ``generation_changed | annotation_changed``."""

label_changed: ChangeFilter[Any, Any] = _changed(
    "label_changed", lambda old, new: old.labels != new.labels
)
"""Drops resyncs, and updates with unchanged labels; missing and empty ones are equal."""

finalizers_changed: ChangeFilter[Any, Any] = _changed(
    "finalizers_changed", lambda old, new: set(old.finalizers) != set(new.finalizers)
)
"""Drops resyncs, and updates with the same finalizers, in any order."""

deletion_requested: ChangeFilter[Any, Any] = _changed(
    "deletion_requested", lambda old, new: new.is_deleting and not old.is_deleting
)
"""Drops resyncs, and updates other than the one that marks the object for deletion."""


status_changed: ChangeFilter[Any, Any] = _changed("status_changed", field("status").changed)
"""Drops resyncs, and updates with an unchanged status."""
