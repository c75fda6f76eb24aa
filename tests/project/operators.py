"""Apps whose manifests the tests look at."""

from __future__ import annotations

from typing import Any

import attrs

from appsdk_operator import Kind, MutableObject, Object, kinds
from appsdk_operator.app import App
from appsdk_operator.manager import LeaderElection
from appsdk_operator.resource import Scope, Versions


@attrs.frozen
class Spec:
    """What a bucket is; ``{{ braces }}`` are no expression of Helm."""

    size: int = 1


BUCKET = Kind(group="example.com", version="v1", kind="Bucket", spec=Spec)
OLD_BUCKET = Kind(group="example.com", version="v1alpha1", kind="Bucket", spec=Spec)
REGION = Kind(group="example.com", version="v1", kind="Region", scope=Scope.CLUSTER)


def nothing(obj: Object[Any, Any]) -> None:
    """A function for a cause."""


def complete(obj: MutableObject[Any, Any]) -> None:
    """A defaulter."""


def same(old: Object[Any, Any], new: MutableObject[Any, Any]) -> None:
    """A conversion of equal versions."""
    new.spec = old.spec


def small() -> App:
    """An operator of one kind, without webhooks or election."""
    app = App("small-operator", graceful_shutdown_timeout=12.5)
    app.on_add(REGION)(nothing)
    return app


def full(**options: Any) -> App:
    """An operator with all that manifests can have."""
    app = App("bucket-operator", leader_election=True, **options)
    versions: Versions[Any, Any] = Versions(BUCKET).older(OLD_BUCKET, up=same, down=same)
    app.own(versions, short_names=["bu"])
    app.on_add(BUCKET)(nothing)
    app.on_delete(BUCKET)(nothing)
    app.on_add(REGION)(nothing)
    app.validate(BUCKET)(nothing)
    app.default(BUCKET)(complete)
    app.uses(kinds.core.v1.ConfigMap, verbs=["create"], namespace="backups", reason="its backups")
    app.uses(kinds.core.v1.Node, reason="the zones")
    return app


def elected_elsewhere() -> App:
    """An operator whose Lease is in another namespace."""
    app = App("lease-operator", leader_election=LeaderElection(id="lead", namespace="leases"))
    app.on_add(BUCKET)(nothing)
    return app
