"""The permissions that follow from an App's declarations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from appsdk_operator.app._declarations import Declarations, Handler, Use
from appsdk_operator.app._permission import Permission, merged
from appsdk_operator.manager import ManagerOptions
from appsdk_operator.resource import Kind

__all__ = ["permissions_of"]


def permissions_of(
    name: str, declared: Declarations, options: ManagerOptions
) -> tuple[Permission, ...]:
    """The permissions of an app of this name with these options, merged and in order."""
    return merged([*_of_handlers(declared), *_of_uses(declared), *_of_options(name, options)])


def _of_handlers(declared: Declarations) -> Iterator[Permission]:
    for kind in declared.handled:
        yield _permission(kind, ("get", "list", "watch"), "its functions get their events")
    for each in declared.watching:
        if isinstance(each, Handler):
            yield _permission(each.kind, ("get", "patch"), "its watcher writes finalizers")


def _of_uses(declared: Declarations) -> Iterator[Permission]:
    for use in declared.uses:
        yield from _of_use(use)


def _of_use(use: Use) -> Iterator[Permission]:
    plural = use.kind.plural
    if use.verbs:
        yield Permission(
            groups=[use.kind.group],
            resources=[plural, *(f"{plural}/{each}" for each in use.subresources)],
            verbs=use.verbs,
            names=use.names,
            namespace=use.namespace,
            reasons=[use.reason] if use.reason else [],
        )


def _of_options(name: str, options: ManagerOptions) -> Iterator[Permission]:
    election = options.leader_election
    if election is not None:
        yield Permission(
            groups=["coordination.k8s.io"],
            resources=["leases"],
            verbs=["get", "create", "update"],
            namespace=election.namespace,
            reasons=[f"the leader election of {name}"],
        )


def _permission(kind: Kind[Any, Any], verbs: Iterable[str], reason: str) -> Permission:
    return Permission(groups=[kind.group], resources=[kind.plural], verbs=verbs, reasons=[reason])
