"""The selection of one informer, computed from the options of the cache, the kind, the namespace.

Selections are values: a change of namespaces is worked out by comparing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from appsdk_operator.cache._cache.options import CacheOptions, NamespaceOptions
from appsdk_operator.cache._informer.transforms import Transform
from appsdk_operator.resource import Kind, Object

if TYPE_CHECKING:
    from appsdk_operator.resource import FieldSelector, LabelSelector

_T = TypeVar("_T")
_DEFAULTS = NamespaceOptions()


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that one informer follows: a namespace, selectors, and the form of storage."""

    namespace: str
    """The namespace; ``""``: all but :attr:`excluded`, or the objects of a cluster-scoped kind."""
    excluded: frozenset[str] = frozenset()
    label_selector: LabelSelector | None = None
    field_selector: FieldSelector | None = None
    transform: Transform | None = None
    metadata_only: bool = False

    def __hash__(self) -> int:
        # Without the transform: many cannot be hashed.
        return hash((self.namespace, self.excluded, self.label_selector, self.field_selector))

    def covers(self, namespace: str) -> bool:
        """Whether objects of ``namespace`` may be part of it."""
        if self.namespace:
            return namespace == self.namespace
        return namespace not in self.excluded

    def covers_all_of(self, other: Selection) -> bool:
        """Whether it contains all of ``other``, with the same selectors, and no less of each."""
        if not self.selects_like(other) or self.metadata_only > other.metadata_only:
            return False
        if other.namespace:
            return self.covers(other.namespace)
        return not self.namespace and self.excluded <= other.excluded

    def selects_like(self, other: Selection) -> bool:
        """Whether both have the same selectors."""
        return (self.label_selector, self.field_selector) == (
            other.label_selector,
            other.field_selector,
        )

    @property
    def selects_all(self) -> bool:
        """Whether no selector leaves objects out."""
        return all(
            each is None or each.empty for each in (self.label_selector, self.field_selector)
        )

    def overlaps(self, other: Selection) -> bool:
        """Whether some namespace is covered by both."""
        if self.namespace:
            return other.covers(self.namespace)
        return not other.namespace or self.covers(other.namespace)

    def selects(self, obj: Object) -> bool:
        """Whether the selectors match ``obj``, whose namespace is covered."""
        labels, fields = self.label_selector, self.field_selector
        if labels is not None and not labels.matches(obj.labels):
            return False
        if fields is None or fields.empty:
            return True
        from appsdk_operator.resource import selected_values

        return fields.matches(selected_values(obj.kind.qualified_name, obj.to_dict()))

    @property
    def sent_field_selector(self) -> FieldSelector | None:
        """The field selector for requests, which leaves the excluded namespaces out."""
        if not self.excluded:
            return self.field_selector
        from appsdk_operator.resource import FieldSelector

        others = FieldSelector.parse(
            ",".join(f"metadata.namespace!={name}" for name in sorted(self.excluded))
        )
        own = self.field_selector.terms if self.field_selector else ()
        return FieldSelector((*own, *others.terms))

    def __str__(self) -> str:
        if self.namespace or not self.excluded:
            return self.namespace
        return f"all but {', '.join(sorted(self.excluded))}"


def selections_of(
    kind: Kind,
    options: CacheOptions,
    namespaces: Mapping[str, NamespaceOptions],
    defaults: NamespaceOptions,
    *,
    are_selected: bool = False,
) -> list[Selection]:
    """The selections of ``kind``, one for each informer.

    Args:
        kind: the kind.
        options: its options.
        namespaces: those of the cache; empty: all.
        defaults: the cache's options, which apply where no other does.
        are_selected: whether a selector has chosen ``namespaces``; empty then: none.
    """
    chosen = namespaces if options.namespaces is None else options.namespaces
    names = list(chosen or ("",)) if kind.is_namespaced else [""]
    if are_selected and kind.is_namespaced and options.namespaces is None:
        names = list(namespaces)
    own = options.namespaces or {}
    selections: list[Selection] = []
    for name in names:
        precedence: list[Any] = [own.get(name, _DEFAULTS), options]
        if kind.is_namespaced:
            precedence.append(namespaces.get(name, _DEFAULTS))
        precedence.append(defaults)
        selections.append(
            Selection(
                namespace=name,
                excluded=frozenset(names) - {""} if not name else frozenset(),
                label_selector=_first([each.label_selector for each in precedence]),
                field_selector=_first([each.field_selector for each in precedence]),
                transform=_first([each.transform for each in precedence]),
                metadata_only=options.metadata_only,
            )
        )
    return selections


def _first(values: list[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)
