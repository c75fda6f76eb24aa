"""How a controller works, as values: what is not said is inherited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from appsdk_operator.resource import Kind
from appsdk_operator.runtime import ItemExponential, RateLimiter

__all__ = ["ControllerOptions", "ResolvedOptions", "group_kind"]

_NO_KINDS: Mapping[str, int] = MappingProxyType({})


def _check_count(_: object, field: attrs.Attribute[int | None], value: int | None) -> None:
    least = field.metadata["least"]
    if value is None or (type(value) is int and value >= least):
        return
    raise ValueError(f"{field.name}={value!r}: give a whole number from {least} on")


def _check_seconds(_: object, field: attrs.Attribute[float | None], value: Any) -> None:
    if value is None:
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < float("inf"):
        raise ValueError(f"{field.name}={value!r}: give seconds from 0 on")
    if not value and field.metadata.get("above_0"):
        raise ValueError(f"{field.name}={value!r}: give more than 0 seconds")


def _check_flag(_: object, field: attrs.Attribute[bool | None], value: bool | None) -> None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{field.name}={value!r}: give True or False")


def _check_factory(
    _: object,
    field: attrs.Attribute[Callable[[], RateLimiter] | None],
    value: Callable[[], RateLimiter] | None,
) -> None:
    if value is not None and not callable(value):
        raise TypeError(
            f"{field.name}={value!r} is not a function: each controller makes a limiter of its "
            "own, so give what makes one, as lambda: ItemExponential(base=1.0)"
        )


def _check_kinds(_: object, field: attrs.Attribute[Mapping[str, int] | None], value: Any) -> None:
    for name, count in (value or {}).items():
        if not isinstance(name, str) or not name[:1].isupper() or "/" in name:
            raise ValueError(
                f"{field.name} has {name!r}: write Kind.group, as in Deployment.apps, or just the "
                "kind where the group has no name, as in Pod"
            )
        if type(count) is not int or count < 1:
            raise ValueError(
                f"{field.name} has {name}={count!r}: give a whole number from 1 on, or leave the "
                "kind out"
            )


def _frozen(value: Mapping[str, int] | None) -> Mapping[str, int] | None:
    return None if value is None else MappingProxyType(dict(value))


@attrs.frozen(kw_only=True)
class ControllerOptions:
    """How a controller works.

    What is None comes from the manager's ``controller_options``, and what is None there too has
    the built-in default that each field names. The defaults are controller-runtime's.
    """

    max_concurrent_reconciles: int | None = attrs.field(
        default=None, validator=_check_count, metadata={"least": 1}
    )
    """How many requests are reconciled side by side; default 1. One request never is, with any
    number."""
    cache_sync_timeout: float | None = attrs.field(
        default=None, validator=_check_seconds, metadata={"above_0": True}
    )
    """Seconds that each source has to start and to sync; default 120. The controller fails
    then: most often the service account must not list or watch the kind."""
    reconcile_timeout: float | None = attrs.field(default=None, validator=_check_seconds)
    """Seconds that a reconcile may take; default, and 0: no limit. Then the stop signal of its
    context is set and an ``async def`` reconciler is cancelled. Python cannot end plain code:
    it has to look at the signal."""
    recover_exceptions: bool | None = attrs.field(default=None, validator=_check_flag)
    """Whether a reconcile that ends with a bug (``TypeError``, ``KeyError``, ``AssertionError``,
    ``SystemExit``, …) is retried like any failure; default True. With False it ends the
    controller, and with it the manager."""
    rate_limiter: Callable[[], RateLimiter] | None = attrs.field(
        default=None, validator=_check_factory
    )
    """Makes what decides how long a failed request waits; default: per request 5 ms, doubled with
    each failure up to 1000 s, plus up to a tenth at random."""
    needs_leader_election: bool | None = attrs.field(default=None, validator=_check_flag)
    """Whether it runs on the leader only; default True. Without leader election it always runs."""
    warm_up: bool | None = attrs.field(default=None, validator=_check_flag)
    """Whether sources start and sync before this replica leads, so that it takes over without
    delay; default False. A stand-by then holds the same caches as the leader."""
    skip_name_validation: bool | None = attrs.field(default=None, validator=_check_flag)
    """Whether its name may be in use by another controller of the process; default False. Their
    metrics then add up."""
    max_attempts: int | None = attrs.field(
        default=None, validator=_check_count, metadata={"least": 0}
    )
    """How often in a row a reconcile of one request may fail before it is given up until the next
    event; default, and 0: no limit."""
    stop_timeout: float | None = attrs.field(default=None, validator=_check_seconds)
    """Seconds to wait at a stop for reconciles that still run; default 30."""
    kind_concurrency: Mapping[str, int] | None = attrs.field(
        default=None, validator=_check_kinds, converter=_frozen, hash=False
    )
    """``max_concurrent_reconciles`` by ``Kind.group``, for a manager's defaults:
    ``{"Deployment.apps": 5, "Pod": 10}``. It goes before the manager's number for all."""

    def over(self, defaults: ControllerOptions, *, kind: Kind | None = None) -> ControllerOptions:
        """These options, and ``defaults`` for what they leave open.

        Args:
            defaults: those of the manager.
            kind: what the controller is for, to be looked up in ``kind_concurrency``.

        >>> manager = ControllerOptions(max_concurrent_reconciles=4, max_attempts=10)
        >>> options = ControllerOptions(max_attempts=3).over(manager)
        >>> options.max_concurrent_reconciles, options.max_attempts
        (4, 3)
        """
        names = [field.name for field in attrs.fields(ControllerOptions)]
        merged = {name: _first(getattr(self, name), getattr(defaults, name)) for name in names}
        if kind is not None and self.max_concurrent_reconciles is None:
            by_kind = merged["kind_concurrency"] or _NO_KINDS
            name = group_kind(kind)
            merged["max_concurrent_reconciles"] = by_kind.get(
                name, merged["max_concurrent_reconciles"]
            )
        return ControllerOptions(**merged)


@attrs.frozen(kw_only=True)
class ResolvedOptions:
    """Options with nothing left open. Each field has the built-in default."""

    max_concurrent_reconciles: int = 1
    cache_sync_timeout: float = 120.0
    reconcile_timeout: float = 0.0
    recover_exceptions: bool = True
    rate_limiter: Callable[[], RateLimiter] = ItemExponential
    needs_leader_election: bool = True
    warm_up: bool = False
    skip_name_validation: bool = False
    max_attempts: int = 0
    stop_timeout: float = 30.0
    kind_concurrency: Mapping[str, int] = attrs.field(default=_NO_KINDS, hash=False)

    @classmethod
    def of(cls, options: ControllerOptions) -> ResolvedOptions:
        """``options``, and the built-in defaults for what they leave open."""
        given = {name: getattr(options, name) for name in attrs.fields_dict(ControllerOptions)}
        return cls(**{name: value for name, value in given.items() if value is not None})


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value


def group_kind(kind: Kind) -> str:
    """Kind and group, as ``Deployment.apps``.

    >>> from appsdk_operator.resource import kinds
    >>> group_kind(kinds.apps.v1.Deployment), group_kind(kinds.core.v1.Pod)
    ('Deployment.apps', 'Pod')
    """
    return f"{kind.kind}.{kind.group}".rstrip(".")
