"""A kind of which a reconciler gets some of the events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, final

from appsdk_operator._generics import SpecT, StatusT, subscript
from appsdk_operator.controllers import Predicate, event_predicates
from appsdk_operator.resource import Kind, When, Where, check_kind


@final
class Filtered(Generic[SpecT, StatusT]):
    """A kind in ``owns=`` or ``watches=``, with filters of its events.

        @app.object_reconciler(
            BUCKET,
            owns=[Filtered(CONFIG_MAP, when=field("data").changed)],
            watches={Filtered(SECRET, where=labels("role=key")): buckets_of},
        )
        def reconcile(bucket: Object) -> None: ...

    The filters only keep events from the reconciler. The cache has all objects of the kind, so that
    the reconciler can read those that it made. Immutable and thread-safe.

    Args:
        kind: the kind.
        where: the objects whose events count: a filter such as ``labels("app=web")``, or a function
            of the object. An update also counts if the old object matches, so the reconciler sees
            that an object no longer does. Default: all.
        when: the updates that count: a filter such as ``field("data").changed``, or a function of
            the old object and the new one. Creations and deletions count in any case. Default: all.

    If a filter raises, the event counts, and the error is logged.

    Raises:
        TypeError: an argument has the wrong type.

    >>> from appsdk_operator import field, kinds
    >>> Filtered(kinds.core.v1.ConfigMap, when=field("data").changed)
    Filtered(configmaps.v1, when=field('data').changed)
    """

    __slots__ = ("filters", "kind")

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        where: Where[SpecT, StatusT] | None = None,
        when: When[SpecT, StatusT] | None = None,
    ) -> None:
        """See the class."""
        self.kind: Kind[Any, Any] = check_kind(kind)
        """The kind."""
        self.filters: tuple[tuple[str, Predicate[Any, Any]], ...] = event_predicates(where, when)
        """The predicates, each with the name of its option."""

    def __repr__(self) -> str:
        filters = "".join(f", {option}={each}" for option, each in self.filters)
        return f"Filtered({self.kind}{filters})"

    @property
    def predicates(self) -> tuple[Predicate[Any, Any], ...]:
        """What an event must pass."""
        return tuple(each for _, each in self.filters)


def filtered(given: Any, option: str) -> Filtered[Any, Any]:
    """A kind, or a kind with filters, as the latter.

    Raises:
        TypeError: it is neither; the text names the option.
    """
    return given if isinstance(given, Filtered) else Filtered(check_kind(given, option))


def kinds_among(followed: Iterable[Filtered[Any, Any]]) -> list[Kind[Any, Any]]:
    """Their kinds, each once, in order."""
    return list(dict.fromkeys(each.kind for each in followed))
