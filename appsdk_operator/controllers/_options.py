"""Controller options, and how they are merged with a manager's defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import msgspec

from appsdk_operator.resource import Kind, group_kind
from appsdk_operator.runtime import ItemExponential, RateLimiter, RetryPolicy
from appsdk_operator.runtime.validation import check_callable, check_plain

_LIMITS = ("rate_limiter", "max_attempts")
"""The options that a retry policy replaces."""
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
            f"{field.name}={value!r} is not a function: each controller makes its own limiter, so "
            "give a function that makes one, such as lambda: ItemExponential(base=1.0)"
        )
    check_plain(field.name, value)


def _check_policy(_: object, field: attrs.Attribute[Any], value: object) -> None:
    check_callable(field.name, value, "error", "attempt")


def _check_kinds(_: object, field: attrs.Attribute[Mapping[str, int] | None], value: Any) -> None:
    for name, count in (value or {}).items():
        if not isinstance(name, str) or not name[:1].isupper() or "/" in name:
            raise ValueError(
                f"{field.name} has {name!r}: write Kind.group, as in Deployment.apps, or just the "
                "kind if the group has no name, as in Pod"
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
    """The options of a controller.

    If a field is None, the manager's ``controller_options`` apply; if it is None there, too, the
    built-in default applies. The defaults are controller-runtime's.
    """

    max_concurrent_reconciles: int | None = attrs.field(
        default=None, validator=_check_count, metadata={"least": 1}
    )
    """The number of requests that are reconciled in parallel; default 1.

    Reconciles of one request never overlap."""
    cache_sync_timeout: float | None = attrs.field(
        default=None, validator=_check_seconds, metadata={"above_0": True}
    )
    """Seconds within which each source has to start and sync; default 120.

    After that the controller fails. The usual cause: the service account may not list or watch the
    kind."""
    reconcile_timeout: float | None = attrs.field(default=None, validator=_check_seconds)
    """Seconds that a reconcile may take; default, and 0: no limit.

    At the deadline the controller sets the stop signal of the context, and cancels an ``async def``
    reconciler. Python cannot interrupt a plain function: it has to check the signal. If it does
    not, the controller logs the line where it is, and starts a spare worker, at most
    ``max_concurrent_reconciles`` of them. The request waits until the function returns."""
    recover_exceptions: bool | None = attrs.field(default=None, validator=_check_flag)
    """Whether a bug in a reconcile is retried like any failure; default True.

    Bugs are ``TypeError``, ``KeyError``, ``AssertionError``, ``SystemExit`` and the like. With
    False a bug ends the controller, and with it the manager."""
    retry: RetryPolicy | None = attrs.field(default=None, validator=_check_policy)
    """When a failed request is retried.

    A function of the error and the number of the attempt, which returns seconds, or None to give up
    until the next event. Attempts are counted as for ``max_attempts``. It replaces ``rate_limiter``
    and ``max_attempts``, which decide by default."""
    rate_limiter: Callable[[], RateLimiter] | None = attrs.field(
        default=None, validator=_check_factory
    )
    """A function that makes the rate limiter for failed requests.

    Default: for each request 5 ms, doubled with each failure up to 1000 s, plus up to a tenth at
    random."""
    needs_leader_election: bool | None = attrs.field(default=None, validator=_check_flag)
    """Whether it only runs on the leader; default True. Without leader election it always runs."""
    warm_up: bool | None = attrs.field(default=None, validator=_check_flag)
    """Whether sources start and sync before this replica becomes leader; default False.

    The replica then takes over without delay. A standby has the same caches as the leader."""
    skip_name_validation: bool | None = attrs.field(default=None, validator=_check_flag)
    """Whether another controller of the process may have the same name; default False.

    The metrics of both are then added up."""
    max_attempts: int | None = attrs.field(
        default=None, validator=_check_count, metadata={"least": 0}
    )
    """The failures in a row after which a request is dropped until the next event; default, and 0:
    no limit.

    If an event leads to a call before the planned retry, its failure does not count. A new
    generation of the object, or another uid, starts a new count."""
    stop_timeout: float | None = attrs.field(default=None, validator=_check_seconds)
    """Seconds to wait at a stop for reconciles that still run; default 30."""
    kind_concurrency: Mapping[str, int] | None = attrs.field(
        default=None, validator=_check_kinds, converter=_frozen, hash=False
    )
    """``max_concurrent_reconciles`` by ``Kind.group``, for a manager's defaults:
    ``{"Deployment.apps": 5, "Pod": 10}``. It overrides the manager's general number."""

    def __attrs_post_init__(self) -> None:
        others = [name for name in _LIMITS if getattr(self, name) is not None]
        if self.retry is not None and others:
            raise ValueError(
                f"retry= says when and how often failed requests are retried, but so does "
                f"{' and '.join(f'{name}=' for name in others)}: give one of them"
            )

    def over(self, defaults: ControllerOptions, *, kind: Kind | None = None) -> ControllerOptions:
        """These options, with ``defaults`` for the fields that are None.

        Args:
            defaults: the options of the manager.
            kind: the controller's kind, for ``kind_concurrency``.

        >>> manager = ControllerOptions(max_concurrent_reconciles=4, max_attempts=10)
        >>> options = ControllerOptions(max_attempts=3).over(manager)
        >>> options.max_concurrent_reconciles, options.max_attempts
        (4, 3)
        """
        names = [field.name for field in attrs.fields(ControllerOptions)]
        merged = {name: _first(getattr(self, name), getattr(defaults, name)) for name in names}
        # One of both: what is given here goes before the defaults' whole.
        if self.retry is not None:
            merged |= dict.fromkeys(_LIMITS)
        elif any(getattr(self, name) is not None for name in _LIMITS):
            merged["retry"] = None
        if kind is not None and self.max_concurrent_reconciles is None:
            by_kind = merged["kind_concurrency"] or _NO_KINDS
            name = group_kind(kind)
            merged["max_concurrent_reconciles"] = by_kind.get(
                name, merged["max_concurrent_reconciles"]
            )
        return ControllerOptions(**merged)


class ResolvedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options without None, with the built-in defaults."""

    max_concurrent_reconciles: int = 1
    cache_sync_timeout: float = 120.0
    reconcile_timeout: float = 0.0
    recover_exceptions: bool = True
    retry: RetryPolicy | None = None
    rate_limiter: Callable[[], RateLimiter] = ItemExponential
    needs_leader_election: bool = True
    warm_up: bool = False
    skip_name_validation: bool = False
    max_attempts: int = 0
    stop_timeout: float = 30.0
    kind_concurrency: Mapping[str, int] = _NO_KINDS

    @classmethod
    def of(cls, options: ControllerOptions) -> ResolvedOptions:
        """``options``, with the built-in defaults for the fields that are None."""
        given = {name: getattr(options, name) for name in attrs.fields_dict(ControllerOptions)}
        return cls(**{name: value for name, value in given.items() if value is not None})


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value
