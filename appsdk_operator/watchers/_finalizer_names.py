"""The default finalizer names of opinionated watchers and reconcilers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, final

import attrs

from appsdk_operator.controllers import MAX_FINALIZER_NAME
from appsdk_operator.resource import Kind, check_kind
from appsdk_operator.runtime import UNNAMED
from appsdk_operator.runtime.validation import check_text

__all__ = [
    "FinalizerSupplier",
    "OperatorFinalizer",
    "default_finalizer",
    "finalizer_names",
    "in_progress_finalizer",
    "in_progress_name",
    "of_operator",
]

FinalizerSupplier: TypeAlias = Callable[[Kind], str]
"""Returns the finalizer name for a kind."""


def default_finalizer(kind: Kind, operator: str = UNNAMED) -> str:
    """``{operator}.{version}.{kind}.{group}``; in grafana-app-sdk the first part is "operator".

    Controllers pass the name of the controller, or else of its Operator or Manager. Finalizers with
    such a name are cut at 63 characters and then end with a digest. Built-in kinds only accept
    finalizers with a domain, so theirs are ``operator.appsdk/{version}.{kind}.{group}``.

    >>> default_finalizer(Kind(group="example.com", version="v1", kind="Widget"))
    'operator.v1.Widget.example.com'
    >>> default_finalizer(Kind(group="", version="v1", kind="ConfigMap"))
    'operator.appsdk/v1.ConfigMap'
    >>> default_finalizer(Kind(group="example.com", version="v1", kind="Widget"), "shop")
    'shop.v1.Widget.example.com'
    """
    check_text("operator", operator, empty=False)
    name = _finalizer(operator, check_kind(kind))
    if operator == UNNAMED:
        return name
    prefix, slash, rest = name.rpartition("/")
    return f"{prefix}{slash}{_shortened(rest, rest)}"


@final
@attrs.frozen
class OperatorFinalizer:
    """:func:`default_finalizer` for one of several watchers of an operator.

    >>> OperatorFinalizer("dns")(Kind(group="example.com", version="v1", kind="Widget"), "shop")
    'shop.dns.v1.Widget.example.com'
    """

    watcher: str
    """The watcher's name."""

    def __call__(self, kind: Kind, operator: str = UNNAMED) -> str:
        """The finalizer for a kind."""
        # No operator's name has a dot, so that this is no other operator's finalizer.
        return default_finalizer(kind, f"{operator}.{self.watcher}")


def of_operator(supplier: FinalizerSupplier) -> Callable[[Kind, str], str] | None:
    """``supplier`` as a function of kind and operator; None if the operator's name is not in it."""
    if isinstance(supplier, OperatorFinalizer):
        return supplier
    return default_finalizer if supplier is default_finalizer else None


def in_progress_finalizer(kind: Kind) -> str:
    """``wip.{version}.{kind}.{group}``: on objects whose add callback has not succeeded yet.

    It belongs to :func:`default_finalizer`. A watcher with another finalizer has its own, with
    ``wip.`` before the name, so that watchers do not finish each other's additions.
    """
    return _finalizer("wip", check_kind(kind))


def in_progress_name(kind: Kind, finalizer: str) -> str:
    """The in-progress finalizer that belongs to ``finalizer``."""
    if finalizer == default_finalizer(kind):
        return in_progress_finalizer(kind)
    prefix, slash, rest = finalizer.rpartition("/")
    return f"{prefix}{slash}{_shortened(f'wip.{rest}', rest)}"


def finalizer_names(
    supplier: FinalizerSupplier, kind: Kind, operators: Iterable[str]
) -> tuple[str, ...]:
    """The finalizers of a watcher, each with its in-progress finalizer.

    Args:
        supplier: what the watcher was given.
        kind: the kind of the objects.
        operators: the names of its operator, the present one first.
    """
    by_operator = of_operator(supplier)
    if by_operator is None:
        names = [supplier(kind)]
    else:
        names = [by_operator(kind, operator) for operator in operators]
    return tuple(one for name in names for one in (name, in_progress_name(kind, name)))


def _shortened(name: str, whole: str) -> str:
    if len(name) <= MAX_FINALIZER_NAME:
        return name
    import hashlib

    # The digest keeps the names of different finalizers different.
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    return f"{name[: MAX_FINALIZER_NAME - 17].rstrip('.-_')}.{digest}"


def _finalizer(prefix: str, kind: Kind) -> str:
    if kind.group and "." in kind.group and not kind.group.endswith(".k8s.io"):
        return f"{prefix}.{kind.version}.{kind.kind}.{kind.group}"
    return f"{prefix}.appsdk/{kind.version}.{kind.kind}" + (f".{kind.group}" if kind.group else "")
