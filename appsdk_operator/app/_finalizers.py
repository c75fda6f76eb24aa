"""The finalizers that an App has written, in this release or in an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from appsdk_operator.app._declarations import Background, Declarations, Handler, Timer
from appsdk_operator.app._kinds import owned_kinds
from appsdk_operator.resource import Kind, Versions
from appsdk_operator.watchers import (
    JoinedFinalizer,
    default_finalizer,
    finalizer_names,
)


def finalizers_of(
    name: str, previous_names: Sequence[str], finalizer: JoinedFinalizer, declared: Declarations
) -> dict[Kind[Any, Any], tuple[str, ...]]:
    """The finalizers on objects of each kind, with those of earlier names, versions and releases.

    A kind of several versions is there once, in its hub's. One that is only reconciled has none.

    Raises:
        ValueError: a kind is handled in several versions, and nothing converts between them.
    """
    hubs: dict[str, tuple[Kind[Any, Any], tuple[Kind[Any, Any], ...]]] = {}
    for owned in owned_kinds(declared):
        if isinstance(owned.kind, Versions):
            hubs[owned.hub.qualified_name] = owned.hub, tuple(owned.kind.kinds)
    found: dict[Kind[Any, Any], dict[str, None]] = {}
    timers = [each for each in declared.timers if each.kind is not None]
    for each in (*declared.watching, *declared.backgrounds, *timers):
        assert each.kind is not None
        hub, versions = hubs.get(each.kind.qualified_name, (each.kind, (each.kind,)))
        if isinstance(each, (Background, Handler, Timer)):
            names = [
                one
                for version in versions
                for one in finalizer_names(finalizer, version, (name, *previous_names))
            ]
        elif (lifecycle := getattr(each.target, "finalizer_lifecycle", None)) is not None:
            names = list(lifecycle.names_for((name, *previous_names)))
        elif each.is_factory:
            # What it makes is not known before there is a client; most have the usual finalizer.
            names = [*finalizer_names(default_finalizer, each.kind, (name, *previous_names))]
        else:
            continue
        found.setdefault(hub, {}).update(dict.fromkeys(names))
    for reconciling in declared.reconciling:
        kind = reconciling.kind
        found.setdefault(hubs.get(kind.qualified_name, (kind,))[0], {})
    return {kind: tuple(names) for kind, names in found.items()}
