"""What the operator makes in the cluster. The garbage collector deletes it with its owner."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Final

from appsdk_operator import MutableObject, NotFound, Object, kinds
from appsdk_operator.controllers import controller_of, create_or_update, set_controller_reference

from tenants_operator.app import MANAGED, app

NAMESPACE: Final = kinds.core.v1.Namespace
RESOURCE_QUOTA: Final = kinds.core.v1.ResourceQuota
ROLE_BINDING: Final = kinds.rbac.v1.RoleBinding

_PREFIX: Final = "tenant-"
_RBAC: Final = "rbac.authorization.k8s.io"


class NamespaceTakenError(Exception):
    """The tenant's namespace is not, or not yet, its own."""


def namespace_of(tenant: str) -> str:
    """The namespace of the tenant of this name.

    The prefix keeps a tenant called ``kube-system`` from what is not its own.
    """
    return f"{_PREFIX}{tenant}"


def tenant_uid_of(namespace: str) -> str:
    """The uid of the tenant to which a namespace belongs; empty if it belongs to none."""
    try:
        owner = controller_of(app.client.get(NAMESPACE, namespace))
    except NotFound:
        return ""
    return owner.uid if owner is not None and owner.kind == "Tenant" else ""


def make_namespace(tenant: Object[Any, Any]) -> None:
    """Make the namespace of a tenant.

    Raises:
        NamespaceTakenError: it is somebody else's; for example that of a deleted tenant of the same
            name, until the garbage collector has deleted it.
    """

    def shape(draft: MutableObject[Any, Any]) -> None:
        owner = controller_of(draft)
        if "uid" in draft.metadata and (owner is None or owner.uid != tenant.uid):
            raise NamespaceTakenError(f"there is a namespace {draft.name} of somebody else")
        if "deletionTimestamp" in draft.metadata:
            raise NamespaceTakenError(f"the namespace {draft.name} is being deleted")
        _mark(draft, tenant)

    draft: MutableObject[Any, Any] = MutableObject.new(NAMESPACE, namespace_of(tenant.name))
    create_or_update(app.client, draft, shape)


def make_quota(tenant: Object[Any, Any], hard: dict[str, str]) -> None:
    """Limit what the pods of a tenant may request."""

    def shape(draft: MutableObject[Any, Any]) -> None:
        _mark(draft, tenant)
        draft["spec"] = {"hard": hard}

    namespace = namespace_of(tenant.name)
    draft: MutableObject[Any, Any] = MutableObject.new(
        RESOURCE_QUOTA, "tenant", namespace=namespace
    )
    create_or_update(app.client, draft, shape)


def make_role_binding(
    owner: Object[Any, Any], namespace: str, name: str, role: str, users: Iterable[str]
) -> None:
    """Give users one of the roles of every cluster in a namespace."""
    role_ref = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
    subjects = [{"apiGroup": _RBAC, "kind": "User", "name": user} for user in users]

    def shape(draft: MutableObject[Any, Any]) -> None:
        _mark(draft, owner)
        draft["roleRef"] = role_ref
        draft["subjects"] = subjects

    with contextlib.suppress(NotFound):
        present = app.client.get(ROLE_BINDING, name, namespace=namespace)
        if present["roleRef"] != role_ref:
            # An API server lets nobody change it.
            app.client.delete(ROLE_BINDING, name, namespace=namespace, uid=present.uid)
    draft: MutableObject[Any, Any] = MutableObject.new(ROLE_BINDING, name, namespace=namespace)
    create_or_update(app.client, draft, shape)


def _mark(draft: MutableObject[Any, Any], owner: Object[Any, Any]) -> None:
    set_controller_reference(owner, draft)
    draft.labels.update(MANAGED)
