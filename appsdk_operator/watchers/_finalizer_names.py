"""The names of the finalizers that watchers put on objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from appsdk_operator.controllers import MAX_FINALIZER_NAME
from appsdk_operator.resource import Kind, check_kind
from appsdk_operator.runtime import UNNAMED
from appsdk_operator.runtime.validation import check_text

__all__ = ["FinalizerSupplier", "default_finalizer", "in_progress_finalizer", "in_progress_name"]

FinalizerSupplier: TypeAlias = Callable[[Kind], str]
"""Gives the name of the finalizer for a kind."""


def default_finalizer(kind: Kind, operator: str = UNNAMED) -> str:
    """``{operator}.{version}.{kind}.{group}``, as in grafana-app-sdk, where the name is "operator".

    Where it is used the name is that of the controller, the Operator or the Manager, whichever has
    one and is nearest. With a name, what is longer than 63 characters is cut, and a digest stands
    for the rest. Built-in kinds take only finalizers with a domain in front, so theirs are
    ``operator.appsdk/{version}.{kind}.{group}``.

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


def in_progress_finalizer(kind: Kind) -> str:
    """``wip.{version}.{kind}.{group}``: on objects whose add callback has not succeeded yet.

    It belongs to :func:`default_finalizer`; a watcher with another one gets ``wip.`` in front of
    that, because one watcher must not end what another has begun.
    """
    return _finalizer("wip", check_kind(kind))


def in_progress_name(kind: Kind, finalizer: str) -> str:
    """The finalizer for objects in progress that belongs to ``finalizer``."""
    if finalizer == default_finalizer(kind):
        return in_progress_finalizer(kind)
    prefix, slash, rest = finalizer.rpartition("/")
    return f"{prefix}{slash}{_shortened(f'wip.{rest}', rest)}"


def _shortened(name: str, whole: str) -> str:
    if len(name) <= MAX_FINALIZER_NAME:
        return name
    import hashlib

    # Still one for each: the digest stands for what is cut off.
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    return f"{name[: MAX_FINALIZER_NAME - 17].rstrip('.-_')}.{digest}"


def _finalizer(prefix: str, kind: Kind) -> str:
    if kind.group and "." in kind.group and not kind.group.endswith(".k8s.io"):
        return f"{prefix}.{kind.version}.{kind.kind}.{kind.group}"
    return f"{prefix}.appsdk/{kind.version}.{kind.kind}" + (f".{kind.group}" if kind.group else "")
