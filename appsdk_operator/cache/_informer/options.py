"""The options of an informer as one checked value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from appsdk_operator.cache._informer.handler_caller import ErrorHandler
from appsdk_operator.cache._informer.store import IndexFunction, check_indexes
from appsdk_operator.cache._informer.transforms import Transform, only_metadata_then
from appsdk_operator.resource import Kind, check_followed_namespace, check_kind
from appsdk_operator.runtime.validation import (
    check_count,
    check_flag,
    check_function,
    check_number,
)

if TYPE_CHECKING:
    from appsdk_operator.resource import FieldSelector, LabelSelector


class InformerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an :class:`Informer`, which makes this value from its keywords.

    The constructor documents them; the defaults are the same.
    """

    namespace: str = ""
    label_selector: LabelSelector | None = None
    field_selector: FieldSelector | None = None
    transform: Transform | None = None
    metadata_only: bool = False
    indexes: Mapping[str, IndexFunction] | None = None
    resync: float = 0.0
    page_size: int = 500
    stream_first_sync: bool = True
    watch_timeout: tuple[float, float] = (300.0, 600.0)
    silence_limit: float | None = None
    on_error: ErrorHandler | None = None

    def __post_init__(self) -> None:
        check_followed_namespace(self.namespace)
        check_function("transform", self.transform)
        check_flag("metadata_only", self.metadata_only)
        check_indexes(self.indexes)
        _check_page_size(self.page_size)
        check_flag("stream_first_sync", self.stream_first_sync)
        _check_watch_timeout(self.watch_timeout)
        _check_silence_limit(self.silence_limit)
        check_function("on_error", self.on_error)

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


def _check_page_size(value: int) -> None:
    check_count("page_size", value)
    if value < 0:
        raise ValueError(f"page_size={value}: use 0 for all at once, or more")


def _check_watch_timeout(value: tuple[float, float]) -> None:
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


def _check_silence_limit(value: float | None) -> None:
    if value is not None:
        check_number("silence_limit", value)
        if not value > 0:
            raise ValueError(f"silence_limit={value}: use more than 0 seconds")
