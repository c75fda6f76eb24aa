"""The options of an informer as one checked value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from appsdk_operator.cache._informer.handler_caller import ErrorHandler
from appsdk_operator.cache._informer.store import IndexFunction, check_indexes
from appsdk_operator.cache._informer.transforms import Transform, only_metadata_then
from appsdk_operator.resource import (
    FieldSelector,
    Kind,
    LabelSelector,
    check_followed_namespace,
    check_kind,
    field_selector_of,
    label_selector_of,
)
from appsdk_operator.runtime.validation import (
    check_count,
    check_flag,
    check_function,
    check_number,
    checked_seconds,
)


def _check_namespace(_: object, __: object, value: str) -> None:
    check_followed_namespace(value)


def _check_page_size(_: object, __: object, value: int) -> None:
    check_count("page_size", value)
    if value < 0:
        raise ValueError(f"page_size={value}: use 0 for all at once, or more")


def _check_watch_timeout(_: object, __: object, value: tuple[float, float]) -> None:
    try:
        low, high = value
    except (TypeError, ValueError):
        raise TypeError(
            f"watch_timeout={value!r}: give two numbers of seconds, (300.0, 600.0)"
        ) from None
    for seconds in (low, high):
        check_number("watch_timeout", seconds)
    if not 1 <= low <= high:
        raise ValueError(f"watch_timeout={value}: use 1 <= low <= high seconds")


def _check_silence_limit(_: object, __: object, value: float | None) -> None:
    if value is not None:
        check_number("silence_limit", value)
        if not value > 0:
            raise ValueError(f"silence_limit={value}: use more than 0 seconds")


def _check_flag(_: object, field: attrs.Attribute[bool], value: object) -> None:
    check_flag(field.name, value)


def _check_function(_: object, field: attrs.Attribute[Any], value: object) -> None:
    check_function(field.name, value)


def _check_indexes(_: object, __: object, value: Mapping[str, IndexFunction] | None) -> None:
    check_indexes(value)


def _checked_resync(value: float) -> float:
    return checked_seconds("resync", value)


@attrs.frozen(kw_only=True)
class InformerOptions:
    """The options of an :class:`Informer`, which makes this value from its keywords.

    The constructor documents them; the defaults are the same.
    """

    namespace: str = attrs.field(default="", validator=_check_namespace)
    label_selector: LabelSelector | None = attrs.field(default=None, converter=label_selector_of)
    field_selector: FieldSelector | None = attrs.field(default=None, converter=field_selector_of)
    transform: Transform | None = attrs.field(default=None, validator=_check_function)
    metadata_only: bool = attrs.field(default=False, validator=_check_flag)
    indexes: Mapping[str, IndexFunction] | None = attrs.field(
        default=None, validator=_check_indexes
    )
    resync: float = attrs.field(default=0.0, converter=_checked_resync)
    page_size: int = attrs.field(default=500, validator=_check_page_size)
    stream_first_sync: bool = attrs.field(default=True, validator=_check_flag)
    watch_timeout: tuple[float, float] = attrs.field(
        default=(300.0, 600.0), validator=_check_watch_timeout
    )
    silence_limit: float | None = attrs.field(default=None, validator=_check_silence_limit)
    on_error: ErrorHandler | None = attrs.field(default=None, validator=_check_function)

    def check_for(self, kind: Kind) -> None:
        """Refuse options that ``kind`` cannot have.

        Raises:
            ValueError: a namespace was given for a cluster-scoped kind.
            TypeError: ``kind`` is not a Kind.
        """
        if not check_kind(kind).is_namespaced and self.namespace:
            raise ValueError(
                f"{kind.qualified_name} is cluster-scoped: leave namespace={self.namespace!r} out"
            )

    @property
    def store_transform(self) -> Transform | None:
        """The function that runs on each object before it is stored, None when there is none."""
        return only_metadata_then(self.transform) if self.metadata_only else self.transform
