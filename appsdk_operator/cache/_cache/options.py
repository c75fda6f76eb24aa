"""What a cache is to keep: by default, of one kind, and in one namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from appsdk_operator.cache._informer.store import IndexFunction
from appsdk_operator.cache._informer.transforms import Transform
from appsdk_operator.cache._options import (
    check_function,
    check_indexes,
    checked_seconds,
)
from appsdk_operator.resource import (
    FieldSelector,
    Kind,
    LabelSelector,
    check_kind,
    check_namespace_name,
    field_selector_of,
    label_selector_of,
)
from appsdk_operator.runtime.validation import check_flag, check_instance

__all__ = [
    "CacheOptions",
    "NamespaceOptions",
    "Namespaces",
    "checked_by_kind",
    "checked_namespaces",
]


def _function(_: object, field: attrs.Attribute[Transform | None], value: object) -> None:
    check_function(field.name, value)


def _flag(_: object, field: attrs.Attribute[bool], value: object) -> None:
    check_flag(field.name, value)


def _seconds(_: object, field: attrs.Attribute[float | None], value: float | None) -> None:
    if value is not None:
        checked_seconds(field.name, value)


@attrs.frozen(kw_only=True)
class NamespaceOptions:
    """What to keep in one namespace; what is None here is taken from the next in line.

    The line is controller-runtime's: the namespace of the kind, the kind, the namespace of the
    cache, the cache.
    """

    label_selector: LabelSelector | None = attrs.field(default=None, converter=label_selector_of)
    """Which objects, as text, as a mapping of labels or as a LabelSelector; ``""``: all."""
    field_selector: FieldSelector | None = attrs.field(default=None, converter=field_selector_of)
    """The same for fields."""
    transform: Transform | None = attrs.field(default=None, validator=_function)
    """What to make of each object before it is kept."""


Namespaces: TypeAlias = Sequence[str] | Mapping[str, NamespaceOptions]
"""Names, or options by name; none at all: all namespaces. In a mapping the name ``""`` stands for
all namespaces, or beside others for all the others."""


def checked_namespaces(namespaces: Namespaces) -> dict[str, NamespaceOptions]:
    """Namespaces in one form, in their order and each once; empty: all.

    Raises:
        ValueError: a name is empty, or the names are one text.
        TypeError: the options of a namespace are something else.
    """
    if isinstance(namespaces, Mapping):
        given: Mapping[Any, Any] = namespaces
        for name, options in given.items():
            if not isinstance(name, str) or not isinstance(options, NamespaceOptions):
                raise TypeError(
                    f"namespaces={{{name!r}: {options!r}}}: give NamespaceOptions by name"
                )
            check_namespace_name(name, "namespaces")
        return dict(namespaces)
    if isinstance(namespaces, str):
        raise ValueError(
            f"namespaces={namespaces!r}: give a list of names, or none at all for all namespaces"
        )
    if not isinstance(namespaces, Iterable):
        raise TypeError(f"namespaces={namespaces!r}: give a list of names")
    namespaces = tuple(namespaces)
    if not all(namespaces):
        raise ValueError(
            f"namespaces={namespaces!r}: give a list of names, or none at all for all namespaces"
        )
    for name in namespaces:
        check_namespace_name(name, "namespaces")
    return {name: NamespaceOptions() for name in namespaces}


def _namespaces_or_none(namespaces: Namespaces | None) -> Mapping[str, NamespaceOptions] | None:
    return None if namespaces is None else checked_namespaces(namespaces)


def _indexes(_: object, __: object, value: Mapping[str, IndexFunction] | None) -> None:
    if value is None:
        raise TypeError("indexes=None: leave them out, or give functions by name")
    check_indexes(value)


@attrs.frozen(kw_only=True)
class CacheOptions:
    """What to keep of one kind; what is None here is taken from the cache."""

    namespaces: Mapping[str, NamespaceOptions] | None = attrs.field(
        default=None, converter=_namespaces_or_none
    )
    """The namespaces to follow, as names or as :class:`NamespaceOptions` by name; default: those of
    the cache; empty: all. In a mapping the name ``""`` beside others stands for all the others."""
    label_selector: LabelSelector | None = attrs.field(default=None, converter=label_selector_of)
    """Which objects, as text, as a mapping of labels or as a LabelSelector; default: the cache's;
    ``""``: all."""
    field_selector: FieldSelector | None = attrs.field(default=None, converter=field_selector_of)
    """The same for fields."""
    transform: Transform | None = attrs.field(default=None, validator=_function)
    """What to make of each object before it is kept; default: the cache's own."""
    indexes: Mapping[str, IndexFunction] = attrs.field(factory=dict, validator=_indexes)
    """Index functions by name. One that is named ``field:spec.nodeName`` answers field selectors on
    ``spec.nodeName``; see :meth:`Cache.index_field`."""
    resync: float | None = attrs.field(default=None, validator=_seconds)
    """Seconds after which handlers are shown every object once more; default: the cache's, which
    is 0 unless set: never."""
    metadata_only: bool = attrs.field(default=False, validator=_flag)
    """Follow and keep the metadata of the objects alone, which takes a fraction of the memory;
    reading their spec is an error. Where the kind is kept whole, for somebody else, that copy
    serves; but what is kept so cannot be had whole."""


def checked_by_kind(by_kind: Mapping[Kind, CacheOptions]) -> dict[Kind, CacheOptions]:
    """Options by kind.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(by_kind, Mapping):
        raise TypeError(f"by_kind={by_kind!r}: give a mapping of kinds to CacheOptions")
    for kind, options in by_kind.items():
        check_kind(kind, "by_kind")
        check_instance("by_kind", options, CacheOptions, "CacheOptions()")
    return dict(by_kind)
