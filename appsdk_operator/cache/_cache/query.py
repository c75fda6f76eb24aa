"""Queries: what a list asks for, and how a local copy answers it from its indexes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache._cache.routing import ReadTarget
from appsdk_operator.cache._informer.store import IndexFunction, Lister
from appsdk_operator.resource import (
    Kind,
    Object,
    ObjectKey,
    field_selector_of,
    label_selector_of,
)

if TYPE_CHECKING:
    from appsdk_operator.resource import FieldSelection, LabelSelection, LabelSelector

FIELD_INDEX = "field:"
"""The prefix, before the path, of the name of an index that answers field selectors."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a list, all of which must hold."""

    namespace: str = ""
    """The namespace; ``""``: all."""
    name: str = ""
    """The name; ``""``: any."""
    labels: LabelSelector | None = None
    indexes: Sequence[tuple[str, str]] = ()
    """Pairs of an index and a value under which it must have the object."""

    def matches(self, obj: Object, store: Lister) -> bool:
        """Whether ``obj``, which need not be in ``store``, meets the conditions."""
        return self._is_selected(obj) and all(
            value in store.values_of(index, obj) for index, value in self.indexes
        )

    def objects_in(self, target: ReadTarget) -> list[Object]:
        """The objects of ``target`` that meet the conditions."""
        store = target.informer.store
        namespace = self.namespace or target.namespace
        if self.indexes:
            (index, value), *others = self.indexes
            found = store.by_index(index, value)
            for index, value in others:
                keys = {obj.key for obj in store.by_index(index, value)}
                found = [obj for obj in found if obj.key in keys]
        elif self.name and namespace:
            obj = store.get(self.name, namespace)
            found = [] if obj is None else [obj]
        else:
            found = store.list(namespace=namespace or None)
        if target.excluded:
            found = [obj for obj in found if obj.namespace not in target.excluded]
        if namespace:
            found = [obj for obj in found if obj.namespace == namespace]
        return [obj for obj in found if self._is_selected(obj)]

    def _is_selected(self, obj: Object) -> bool:
        if self.namespace and obj.namespace != self.namespace:
            return False
        if self.name and obj.name != self.name:
            return False
        return self.labels is None or self.labels.matches(obj.labels)


def query_of(
    kind: Kind,
    indexes: Collection[str],
    *,
    namespace: str | None,
    label_selector: LabelSelection | None,
    field_selector: FieldSelection | None,
) -> Query | None:
    """The query for a list; None when no object can meet its conditions.

    Raises:
        ValueError: the field selector needs an index that does not exist, or is negated.
    """
    where, name, wanted = namespace or "", "", []
    fields = field_selector_of(field_selector)
    for term in fields.terms if fields else ():
        if term.negated:
            raise ValueError(
                f"field_selector={str(fields)!r}: a cache answers path=value only; list with the "
                "live client, or filter the result yourself"
            )
        if term.path == "metadata.name":
            if not term.value or name not in ("", term.value):
                return None
            name = term.value
        elif term.path == "metadata.namespace":
            if where not in ("", term.value) or bool(term.value) is not kind.is_namespaced:
                return None
            where = term.value
        elif FIELD_INDEX + term.path in indexes:
            wanted.append((FIELD_INDEX + term.path, term.value))
        else:
            raise ValueError(
                f"field_selector={str(fields)!r}: the cache of {kind.qualified_name} has no index "
                f"{FIELD_INDEX + term.path!r}: declare it with "
                f"cache.index_field(kind, {term.path!r}), or list with the live client"
            )
    labels = label_selector_of(label_selector)
    return Query(namespace=where, name=name, labels=labels, indexes=wanted)


def sorted_objects(
    found: list[Object[SpecT, StatusT]], kind: Kind[SpecT, StatusT], limit: int
) -> list[Object[SpecT, StatusT]]:
    """``found`` sorted by namespace and name, as servers list; the first ``limit``, 0 for all."""
    found.sort(key=_key)
    return [obj.viewed_as(kind) for obj in (found[:limit] if limit else found)]


_key: Callable[[Object], ObjectKey] = lambda obj: obj.key  # noqa: E731 - it sorts


def field_index(path: str) -> IndexFunction:
    """An index function for the value at ``path``, as field selectors see it: ``""`` if absent.

    >>> from appsdk_operator.resource import Object, kinds
    >>> pod = Object.from_dict(
    ...     kinds.core.v1.Pod, {"metadata": {"name": "web"}, "spec": {"nodeName": "n1"}}
    ... )
    >>> field_index("spec.nodeName")(pod)
    ('n1',)
    """
    first, *rest = path.split(".")
    if not all((first, *rest)):
        raise ValueError(f"path {path!r}: write names with dots between them: spec.nodeName")

    from appsdk_operator.resource import wire_steps

    def values(obj: Object) -> tuple[str, ...]:
        value: Any = obj.get(first)
        for part in wire_steps(obj.kind, (first, *rest))[1:]:
            value = value.get(part) if hasattr(value, "get") else None
        if value is None:
            return ("",)
        return (str(value).lower() if isinstance(value, bool) else str(value),)

    return values
