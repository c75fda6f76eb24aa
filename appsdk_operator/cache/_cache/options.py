"""Options of a cache for one kind and for one namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from appsdk_operator.cache._informer.store import IndexFunction, check_indexes
from appsdk_operator.cache._informer.transforms import Transform
from appsdk_operator.resource import (
    Kind,
    check_followed_namespace,
    check_kind,
    field_selector_of,
    label_selector_of,
)
from appsdk_operator.runtime.validation import (
    check_flag,
    check_function,
    check_instance,
    checked_seconds,
)

if TYPE_CHECKING:
    from appsdk_operator.resource import FieldSelector, Filter, LabelSelector, NamespaceSelector


def _function(_: object, field: attrs.Attribute[Transform | None], value: object) -> None:
    check_function(field.name, value)


def _flag(_: object, field: attrs.Attribute[bool], value: object) -> None:
    check_flag(field.name, value)


def _seconds(_: object, field: attrs.Attribute[float | None], value: float | None) -> None:
    if value is not None:
        checked_seconds(field.name, value)


@attrs.frozen(kw_only=True)
class NamespaceOptions:
    """Options for one namespace; if an option is None, the next level's applies.

    The levels are controller-runtime's: the namespace of the kind, the kind, the namespace of the
    cache, the cache.
    """

    label_selector: LabelSelector | None = attrs.field(default=None, converter=label_selector_of)
    """Selects by label, as text, as a mapping of labels or as a LabelSelector; ``""``: all."""
    field_selector: FieldSelector | None = attrs.field(default=None, converter=field_selector_of)
    """The same for fields."""
    transform: Transform | None = attrs.field(default=None, validator=_function)
    """Changes each object before it is stored."""


Namespaces: TypeAlias = Sequence[str] | Mapping[str, NamespaceOptions]
"""Names, or options by name; empty: all namespaces. In a mapping the name ``""`` stands for all
namespaces, or among others for all the others."""


def checked_selection(
    namespaces: Namespaces | LabelSelector | NamespaceSelector | Filter[Any, Any],
) -> dict[str, NamespaceOptions] | NamespaceSelector:
    """``namespaces`` as a selector, or as a mapping of names to options.

    Raises:
        ValueError, TypeError: as :func:`checked_namespaces`, and as :class:`NamespaceSelector`.
    """
    if isinstance(namespaces, (str, Mapping)) or (type(namespaces) is tuple and not namespaces):
        return checked_namespaces(namespaces)
    from appsdk_operator.resource import (
        Filter,
        LabelSelector,
        NamespaceSelector,
        namespace_selector_of,
    )

    if isinstance(namespaces, (Filter, LabelSelector, NamespaceSelector)):
        selector = namespace_selector_of(namespaces)
        if selector is None:
            raise ValueError(
                f"namespaces={namespaces!r}: the only filters that select namespaces are "
                "labels(…), joined by &"
            )
        return selector
    given: Any = namespaces
    given = tuple(given) if isinstance(given, Iterable) else given
    if given == ("*",):
        return {}
    return namespace_selector_of(given) or checked_namespaces(given)


def checked_namespaces(namespaces: Namespaces) -> dict[str, NamespaceOptions]:
    """``namespaces`` as a mapping of names to options, in the same order; empty: all.

    Raises:
        ValueError: a name is empty, or a single string was given.
        TypeError: the options of a namespace are not NamespaceOptions.
    """
    if isinstance(namespaces, Mapping):
        given: Mapping[Any, Any] = namespaces
        for name, options in given.items():
            if not isinstance(name, str) or not isinstance(options, NamespaceOptions):
                raise TypeError(
                    f"namespaces={{{name!r}: {options!r}}}: give NamespaceOptions by name"
                )
            check_followed_namespace(name, "namespaces")
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
        check_followed_namespace(name, "namespaces")
    return {name: NamespaceOptions() for name in namespaces}


def _namespaces_or_none(namespaces: Namespaces | None) -> Mapping[str, NamespaceOptions] | None:
    return None if namespaces is None else checked_namespaces(namespaces)


def _indexes(_: object, __: object, value: Mapping[str, IndexFunction] | None) -> None:
    if value is None:
        raise TypeError("indexes=None: leave them out, or give functions by name")
    check_indexes(value)


@attrs.frozen(kw_only=True)
class CacheOptions:
    """Options for one kind; if an option is None, the cache's applies."""

    namespaces: Mapping[str, NamespaceOptions] | None = attrs.field(
        default=None, converter=_namespaces_or_none
    )
    """The namespaces to follow, as names or as :class:`NamespaceOptions` by name.

    Default: the cache's; empty: all. In a mapping, the name ``""`` stands for all namespaces
    without their own name."""
    label_selector: LabelSelector | None = attrs.field(default=None, converter=label_selector_of)
    """Selects objects by label, as text, as a mapping of labels or as a LabelSelector; default: the
    cache's; ``""``: all."""
    field_selector: FieldSelector | None = attrs.field(default=None, converter=field_selector_of)
    """The same for fields."""
    transform: Transform | None = attrs.field(default=None, validator=_function)
    """Changes each object before it is stored; default: the cache's own."""
    indexes: Mapping[str, IndexFunction] = attrs.field(factory=dict, validator=_indexes)
    """Index functions by name.

    A function named ``field:spec.nodeName`` answers field selectors on ``spec.nodeName``; see
    :meth:`Cache.index_field`."""
    resync: float | None = attrs.field(default=None, validator=_seconds)
    """Seconds after which handlers get every object again; default: the cache's; 0: never."""
    metadata_only: bool = attrs.field(default=False, validator=_flag)
    """Request and store only the metadata of the objects.

    This takes a fraction of the memory; reading a spec is an error. If the cache already holds full
    objects of the kind, it uses that copy. A copy with this option never gets full objects."""


def checked_by_kind(by_kind: Mapping[Kind, CacheOptions]) -> dict[Kind, CacheOptions]:
    """``by_kind`` as a dict, checked.

    Raises:
        TypeError: it is not a mapping of kinds to CacheOptions.
    """
    if not isinstance(by_kind, Mapping):
        raise TypeError(f"by_kind={by_kind!r}: give a mapping of kinds to CacheOptions")
    for kind, options in by_kind.items():
        check_kind(kind, "by_kind")
        check_instance("by_kind", options, CacheOptions, "CacheOptions()")
    return dict(by_kind)


def kind_tuple(what: str, kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """``kinds`` as a tuple.

    Args:
        what: the name of the argument, for the error text.
        kinds: the kinds.

    Raises:
        TypeError: ``kinds`` is a single kind, or contains something else.
    """
    given: Any = kinds
    if isinstance(given, Kind):
        raise TypeError(f"{what}={given}: give a list of kinds, {what}=[kind]")
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{what}={given!r}: give a list of kinds")
    return tuple(check_kind(kind, what) for kind in kinds)
