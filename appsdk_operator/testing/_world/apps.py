"""An App as the operator of a world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from appsdk_operator.app import App, handled_kinds, observed_manager
from appsdk_operator.manager import LeaderElection, Manager
from appsdk_operator.resource import Kind
from appsdk_operator.testing._world.runnable import OperatorProcess
from appsdk_operator.webhooks import WebhookServerOptions

__all__ = ["definitions_of", "kind_of", "maker_of"]


def kind_of(app: App) -> Kind[Any, Any]:
    """The kind that a world's other clients write: the first that the App handles.

    Raises:
        ValueError: it handles none.
    """
    found = handled_kinds(app)
    if not found:
        raise ValueError(f"{app!r} handles no kind: give the kind of which there are objects")
    return found[0]


def definitions_of(app: App) -> list[Mapping[str, Any]]:
    """The CRDs of the App."""
    return [crd.to_dict() for crd in app.crds()]


def maker_of(app: App, *, leader_election: bool) -> Callable[[OperatorProcess], Manager]:
    """What makes the App's manager for a process.

    Without the App's servers, which would open ports. The calls of watchers and reconcilers are
    recorded, those of timers are not: they are no answer to a change.
    """
    election = app.options.leader_election
    if election is None and leader_election:
        election = LeaderElection(id=app.name)

    def make(process: OperatorProcess) -> Manager:
        own = election and attrs.evolve(
            election,
            namespace=election.namespace or "default",
            identity=f"{process.name}-{process.process}",
        )
        return observed_manager(
            app,
            process.config,
            lambda target, kind: process.recorded(target, kind=kind),
            leader_election=own,
            metrics_server=None,
            health_server=None,
            profile_server=None,
            webhook_server=WebhookServerOptions(address=""),
            clock=process.clock,
            metrics=process.metrics,
        )

    return make
