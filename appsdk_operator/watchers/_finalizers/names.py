"""The default finalizer names of opinionated watchers and reconcilers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, final

import attrs
import msgspec

from appsdk_operator.controllers import MAX_FINALIZER_NAME
from appsdk_operator.resource import Kind, check_kind
from appsdk_operator.runtime import UNNAMED
from appsdk_operator.runtime.validation import check_text, no_awaitable

FinalizerSupplier: TypeAlias = Callable[[Kind], str]
"""Returns the finalizer name for a kind."""


def default_finalizer(kind: Kind, operator: str = UNNAMED) -> str:
    """``{group}/{operator}.{version}.{kind}``; without a name the operator is "operator".

    Controllers pass their own name, or else the name of their Operator or Manager. With such a
    name, a part after the "/" of more than 63 characters is cut, and ends with a digest. The group
    of a built-in kind is not a domain of the operator, so the finalizer of such a kind is
    ``{operator}.appsdk/{version}.{kind}.{group}``.

    >>> default_finalizer(Kind(group="example.com", version="v1", kind="Widget"))
    'example.com/operator.v1.Widget'
    >>> default_finalizer(Kind(group="", version="v1", kind="ConfigMap"))
    'operator.appsdk/v1.ConfigMap'
    >>> default_finalizer(Kind(group="example.com", version="v1", kind="Widget"), "shop")
    'example.com/shop.v1.Widget'
    """
    check_text("operator", operator, empty=False)
    name = _finalizer(operator, check_kind(kind))
    return name if operator == UNNAMED else _shortened(name)


@final
class JoinedFinalizer(msgspec.Struct, frozen=True):
    """:func:`default_finalizer` in place of those of several watchers of an operator.

    >>> JoinedFinalizer(("dns",))(Kind(group="example.com", version="v1", kind="Widget"), "shop")
    'example.com/shop.v1.Widget'
    """

    watchers: tuple[str, ...] = ()
    """The names of watchers whose finalizers, ``example.com/shop.dns.v1.Widget``, it replaces."""
    versions: tuple[str, ...] = ()
    """Other versions of the kind whose finalizers, ``example.com/shop.v1beta1.Widget``, it
    replaces."""

    def __call__(self, kind: Kind, operator: str = UNNAMED) -> str:
        """The finalizer for a kind."""
        return default_finalizer(kind, operator)

    def parts(self, operator: str) -> tuple[str, ...]:
        """What stands in the finalizers for ``operator``, the present one first."""
        # No operator's name has a dot, so that these are not other operator's finalizers.
        return (operator, *(f"{operator}.{watcher}" for watcher in self.watchers))


@final
class Spellings(msgspec.Struct, frozen=True):
    """The finalizers of a watcher under one name of its operator, the present spelling first."""

    finalizers: tuple[str, ...]
    """On handled objects."""
    in_progress: tuple[str, ...]
    """On objects whose add callback has not succeeded yet; one for each of ``finalizers``."""

    @classmethod
    def of(cls, kind: Kind, *finalizers: str) -> Spellings:
        """``finalizers`` with their in-progress finalizers."""
        return cls(finalizers, tuple(in_progress_name(kind, each) for each in finalizers))

    @property
    def all_names(self) -> tuple[str, ...]:
        """All of them, each finalizer with its in-progress finalizer."""
        pairs = zip(self.finalizers, self.in_progress, strict=True)
        return tuple(name for pair in pairs for name in pair)


def takes_operator_name(supplier: FinalizerSupplier) -> bool:
    """Whether an operator's name stands in the finalizers of ``supplier``."""
    return supplier is default_finalizer or isinstance(supplier, JoinedFinalizer)


def spellings(supplier: FinalizerSupplier, kind: Kind, operator: str = UNNAMED) -> Spellings:
    """The finalizers of a watcher that was given ``supplier``, the earlier spelling among them."""
    if not takes_operator_name(supplier):
        return Spellings.of(kind, no_awaitable("finalizer", supplier(kind)))
    if not isinstance(supplier, JoinedFinalizer):
        return _spellings(kind, (operator,))
    parts = supplier.parts(operator)
    found = [
        _spellings(attrs.evolve(kind, version=version), parts)
        for version in dict.fromkeys((kind.version, *supplier.versions))
    ]
    return Spellings(
        tuple(name for each in found for name in each.finalizers),
        tuple(name for each in found for name in each.in_progress),
    )


def _spellings(kind: Kind, parts: Iterable[str]) -> Spellings:
    names = [
        name
        for part in parts
        for name in (default_finalizer(kind, part), _earlier_spelling(kind, part))
    ]
    return Spellings.of(kind, *(name for name in names if name))


def in_progress_finalizer(kind: Kind) -> str:
    """``{group}/wip.{version}.{kind}``: on objects whose add callback has not succeeded yet.

    It belongs to :func:`default_finalizer`. A watcher with another finalizer has its own, with
    ``wip.`` before the name, so that watchers do not finish each other's additions.
    """
    return _finalizer("wip", check_kind(kind))


def in_progress_name(kind: Kind, finalizer: str) -> str:
    """The in-progress finalizer that belongs to ``finalizer``."""
    if finalizer == default_finalizer(kind):
        return in_progress_finalizer(kind)
    if finalizer == _earlier_spelling(kind, UNNAMED):
        return _earlier_spelling(kind, "wip")
    prefix, slash, rest = finalizer.rpartition("/")
    return _shortened(f"{prefix}{slash}wip.{rest}", rest)


def finalizer_names(
    supplier: FinalizerSupplier, kind: Kind, operators: Iterable[str]
) -> tuple[str, ...]:
    """The finalizers of a watcher, each with its in-progress finalizer.

    Args:
        supplier: what the watcher was given.
        kind: the kind of the objects.
        operators: the names of its operator, the present one first.
    """
    if not takes_operator_name(supplier):
        return spellings(supplier, kind).all_names
    return tuple(
        name for operator in operators for name in spellings(supplier, kind, operator).all_names
    )


def _shortened(name: str, whole: str = "") -> str:
    prefix, slash, rest = name.rpartition("/")
    if len(rest) <= MAX_FINALIZER_NAME:
        return name
    import hashlib

    # The digest keeps the names of different finalizers different.
    digest = hashlib.sha256((whole or rest).encode()).hexdigest()[:16]
    return f"{prefix}{slash}{rest[: MAX_FINALIZER_NAME - 17].rstrip('.-_')}.{digest}"


def _finalizer(prefix: str, kind: Kind) -> str:
    if _is_domain(kind.group):
        return f"{kind.group}/{prefix}.{kind.version}.{kind.kind}"
    return f"{prefix}.appsdk/{kind.version}.{kind.kind}" + (f".{kind.group}" if kind.group else "")


def _is_domain(group: str) -> bool:
    """Whether the group is a domain whose names an operator may choose."""
    return "." in group and not group.endswith(".k8s.io")


def _earlier_spelling(kind: Kind, prefix: str) -> str:
    """The finalizer without "/", as in grafana-app-sdk; ``""`` if there can be none.

    Newer kube-apiservers warn of such names.
    """
    if "." not in kind.group:
        return ""  # no API server takes one on these kinds
    name = f"{prefix}.{kind.version}.{kind.kind}.{kind.group}"
    return name if prefix in (UNNAMED, "wip") else _shortened(name)
