"""Predicates: they decide which events reach a handler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, final

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
from appsdk_operator.controllers._field_paths import FieldPath
from appsdk_operator.controllers._protocols import EventFilter
from appsdk_operator.controllers._user_functions import (
    check_sync_function,
    name_of,
)
from appsdk_operator.resource import LabelSelection, Object, label_selector_of
from appsdk_operator.runtime.validation import no_awaitable

_CREATE, _UPDATE, _DELETE, _RESYNC, _GENERIC = ResourceAction


@final
class Predicate(Generic[SpecT_contra, StatusT_contra]):
    """A filter for events: a function of an event that can be combined with others.

    Combine with ``&``, ``|`` and ``~``, or with :func:`all_of`, :func:`any_of` and :func:`not_`.
    Plain functions are accepted wherever a predicate is.

    A predicate keeps events from a handler. It does not make the local copy smaller, as a selector
    of the cache does, and the reconciler does not see the event.

    A predicate that raises loses no event: its source lets the event pass, logs the predicate's
    name and counts it. Predicates are called in one thread for each source, must not wait, and
    cannot be ``async def``. The semantics are controller-runtime's; differences are noted.

    >>> in_default = Predicate(lambda event: event.object.namespace == "default")
    >>> worth_it = in_default & (generation_changed | label_changed)
    """

    __slots__ = ("_function", "_name")

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(
        self, function: EventFilter[SpecT_contra, StatusT_contra], *, name: str | None = None
    ) -> None:
        """A predicate.

        Args:
            function: returns, for an event, a true value to let it pass.
            name: for logs; default: the function's name.

        Raises:
            TypeError: ``function`` is no plain function of one argument.
        """
        check_sync_function("function", function, "event")
        self._function = function
        self._name = name or _name_of(function)

    @classmethod
    def from_functions(
        cls,
        *,
        create: EventFilter[OtherSpecT, OtherStatusT] | None = None,
        update: EventFilter[OtherSpecT, OtherStatusT] | None = None,
        delete: EventFilter[OtherSpecT, OtherStatusT] | None = None,
        generic: EventFilter[OtherSpecT, OtherStatusT] | None = None,
    ) -> Predicate[OtherSpecT, OtherStatusT]:
        """A predicate with a function for each action; a missing one lets all its events pass.

        A resync is an update with nothing changed: ``update`` gets it with ``old`` and ``object``
        the same.

        Raises:
            TypeError: one is no plain function of one argument.
        """
        members = {"create": create, "update": update, "delete": delete, "generic": generic}
        given = {name: member for name, member in members.items() if member is not None}
        for name, member in given.items():
            check_sync_function(name, member, "event")
        by_action = {_CREATE: create, _UPDATE: update, _DELETE: delete, _GENERIC: generic}

        def function(event: Event[OtherSpecT, OtherStatusT]) -> bool:
            if event.action is _RESYNC:
                member, event = update, Event(_RESYNC, event.object, event.object)
            else:
                member = by_action[event.action]
            return True if member is None else member(event)

        text = ", ".join(f"{name}={_name_of(member)}" for name, member in given.items())
        return Predicate(function, name=f"from_functions({text})")

    @classmethod
    def from_object_filter(
        cls, function: Callable[[Object[OtherSpecT, OtherStatusT]], bool]
    ) -> Predicate[OtherSpecT, OtherStatusT]:
        """A predicate of the object alone; for an update, of the new state.

        So an update after which the object no longer passes is filtered out.

        Raises:
            TypeError: ``function`` is no plain function of one argument.
        """
        check_sync_function("function", function, "obj")
        return Predicate(lambda event: function(event.object), name=name_of(function))

    def __call__(self, event: Event[SpecT_contra, StatusT_contra] | None = None) -> bool:
        """Whether ``event`` passes.

        Raises:
            TypeError: there is no event.
            Exception: what the function raised.
        """
        if event is None:
            raise TypeError(f"{self} is a predicate already: write it without ()")
        passes: Any = self._function(event)
        if passes is True or passes is False:
            return passes
        return bool(no_awaitable(f"predicate {self}", passes))

    def __and__(
        self, other: EventFilter[SpecT_contra, StatusT_contra]
    ) -> Predicate[SpecT_contra, StatusT_contra]:
        return all_of(self, other)

    def __rand__(
        self, other: EventFilter[SpecT_contra, StatusT_contra]
    ) -> Predicate[SpecT_contra, StatusT_contra]:
        return all_of(other, self)

    def __or__(
        self, other: EventFilter[SpecT_contra, StatusT_contra]
    ) -> Predicate[SpecT_contra, StatusT_contra]:
        return any_of(self, other)

    def __ror__(
        self, other: EventFilter[SpecT_contra, StatusT_contra]
    ) -> Predicate[SpecT_contra, StatusT_contra]:
        return any_of(other, self)

    def __invert__(self) -> Predicate[SpecT_contra, StatusT_contra]:
        return not_(self)

    def __bool__(self) -> bool:
        raise TypeError(
            f"predicate {self} is not true or false before it has seen an event: combine "
            "predicates with &, | and ~ instead of and, or and not"
        )

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<Predicate {self._name}>"


def all_of(*predicates: EventFilter[SpecT, StatusT]) -> Predicate[SpecT, StatusT]:
    """Passes events that pass every predicate, called in order; same as ``&``. Without any: all."""
    parts = as_predicates(predicates)
    return Predicate(
        lambda event: all(part(event) for part in parts),
        name=f"all_of({', '.join(map(str, parts))})",
    )


def any_of(*predicates: EventFilter[SpecT, StatusT]) -> Predicate[SpecT, StatusT]:
    """Passes events that pass at least one predicate, called in order; same as ``|``.

    Raises:
        ValueError: there is none, so no event would pass.
    """
    if not predicates:
        raise ValueError("any_of() lets nothing pass: give it at least one predicate")
    parts = as_predicates(predicates)
    return Predicate(
        lambda event: any(part(event) for part in parts),
        name=f"any_of({', '.join(map(str, parts))})",
    )


def not_(predicate: EventFilter[SpecT, StatusT]) -> Predicate[SpecT, StatusT]:
    """Passes events that do not pass the other predicate; same as ``~``.

    The negation of a ``…_changed`` predicate drops creations and deletions, which that one passes.
    """
    (part,) = as_predicates((predicate,))
    return Predicate(lambda event: not part(event), name=f"not_({part})")


def as_predicates(
    filters: Iterable[EventFilter[SpecT, StatusT]],
) -> tuple[Predicate[SpecT, StatusT], ...]:
    """``filters`` as Predicates; plain functions are wrapped.

    Raises:
        TypeError: one is neither, or ``filters`` is no list of them.
    """
    if isinstance(filters, (str, Mapping)) or not isinstance(filters, Iterable):
        raise TypeError(f"predicates={filters!r}: give a list of predicates")
    found = []
    for each in filters:
        if isinstance(each, Predicate):
            found.append(each)
        else:
            check_sync_function("predicate", each, "event")
            found.append(Predicate(each))
    return tuple(found)


def _name_of(function: EventFilter) -> str:
    return str(function) if isinstance(function, Predicate) else name_of(function)


def _changed(name: str, differs: Callable[[Object, Object], bool]) -> Predicate:
    """A predicate that drops resyncs and updates without the difference, and passes all else."""

    def function(event: Event) -> bool:
        if event.action is _UPDATE:
            old, new = event.old, event.object
            # Another uid: the object was deleted and created again between two events.
            return old is not None and (old.uid != new.uid or differs(old, new))
        return event.action is not _RESYNC

    return Predicate(function, name=name)


def _generation_differs(old: Object, new: Object) -> bool:
    if old.generation != new.generation or old.is_deleting is not new.is_deleting:
        return True
    return not new.generation and old.resource_version != new.resource_version


resource_version_changed: Predicate = _changed(
    "resource_version_changed", lambda old, new: old.resource_version != new.resource_version
)
"""Drops resyncs, and updates with an unchanged resourceVersion."""

generation_changed: Predicate = _changed("generation_changed", _generation_differs)
"""Drops resyncs, and updates with an unchanged ``metadata.generation``.

API servers increment the generation when the spec changes, but not for status, labels, annotations,
finalizers and owner references. Updates of kinds without generations, such as ConfigMaps, pass
(controller-runtime drops them all).

An update that marks an object for deletion always passes. One that adds or removes a finalizer does
not: combine with :data:`finalizers_changed` to wait for the removal of another's finalizer.
"""

annotation_changed: Predicate = _changed(
    "annotation_changed", lambda old, new: old.annotations != new.annotations
)
"""Drops resyncs, and updates with unchanged annotations; missing and empty ones are equal.

With changes of the spec: ``generation_changed | annotation_changed``."""

label_changed: Predicate = _changed("label_changed", lambda old, new: old.labels != new.labels)
"""Drops resyncs, and updates with unchanged labels; missing and empty ones are equal."""

finalizers_changed: Predicate = _changed(
    "finalizers_changed", lambda old, new: set(old.finalizers) != set(new.finalizers)
)
"""Drops resyncs, and updates with the same finalizers, in any order."""

deletion_requested: Predicate = _changed(
    "deletion_requested", lambda old, new: new.is_deleting and not old.is_deleting
)
"""Drops resyncs, and updates other than the one that marks the object for deletion."""


def fields_changed(*paths: str) -> Predicate:
    """Drops resyncs, and updates that change none of the fields at ``paths``.

    Args:
        paths: names separated by dots, with indexes and keys in brackets: ``spec.replicas``,
            ``spec.containers[0].image``, ``metadata.labels['app.kubernetes.io/name']``. A path may
            name a whole part (``data``); a missing field equals null.

    Raises:
        ValueError: there is no path, or one is invalid.

    >>> fields_changed("spec.replicas", "metadata.labels['app']")
    <Predicate fields_changed(spec.replicas, metadata.labels['app'])>
    """
    if not paths:
        raise ValueError("fields_changed() without a path: name the fields to look at")
    fields = [FieldPath(path) for path in paths]
    return _changed(
        f"fields_changed({', '.join(paths)})",
        lambda old, new: any(field.has_changed(old, new) for field in fields),
    )


status_changed: Predicate = fields_changed("status")
"""Drops resyncs, and updates with an unchanged status."""


def label_selector(selector: LabelSelection) -> Predicate:
    """Passes events of matching objects, as in ``label_selector("app=web, tier in (a,b)")``.

    An update passes when the old or the new labels match, so that an update by which an object
    leaves the selection passes too (controller-runtime only checks the new labels).

    Args:
        selector: as text, as a mapping of labels, or as a LabelSelector.

    Raises:
        SelectorError: it cannot be parsed.
        TypeError: it has another type.
    """
    parsed = label_selector_of(selector, "selector")
    if parsed is None:
        raise TypeError('selector=None: give one, or "" for all objects')

    def function(event: Event) -> bool:
        return parsed.matches(event.object.labels) or (
            event.old is not None and parsed.matches(event.old.labels)
        )

    return Predicate(function, name=f"label_selector({parsed})")
