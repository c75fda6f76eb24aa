"""A permission: what an operator may do with which resources, and why it has to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

__all__ = ["Permission", "merged"]

_VERBS: Final = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
)
"""The usual verbs in the order in which they are written."""


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _verb_order(verb: str) -> tuple[int, str]:
    return (_VERBS.index(verb) if verb in _VERBS else len(_VERBS), verb)


@attrs.frozen(kw_only=True)
class Permission:
    """One rule of a role, with the reasons for it.

    >>> Permission(groups=[""], resources=["pods"], verbs=["list", "get"]).rule
    {'apiGroups': [''], 'resources': ['pods'], 'verbs': ['list', 'get']}
    """

    groups: tuple[str, ...] = attrs.field(converter=_texts)
    """The API groups; ``""`` is the core group."""
    resources: tuple[str, ...] = attrs.field(converter=_texts)
    """The plurals of the resources, with their subresources: ``pods``, ``pods/status``."""
    verbs: tuple[str, ...] = attrs.field(converter=_texts)
    """The verbs: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``."""
    names: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    """The names of the objects; empty: any. The verbs ``list`` and ``create`` are for all names."""
    namespace: str | None = None
    """The only namespace in which it is needed. None: everywhere the app works, and for objects
    without a namespace."""
    reasons: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    """Why the operator needs it, a phrase each."""

    @property
    def rule(self) -> dict[str, Any]:
        """The rule of a Role or ClusterRole, as JSON values."""
        found: dict[str, Any] = {
            "apiGroups": list(self.groups),
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }
        if self.names:
            found["resourceNames"] = list(self.names)
        return found


def merged(permissions: Iterable[Permission]) -> tuple[Permission, ...]:
    """The same permissions with one entry for each resource, names and namespace, in order.

    The order is that of namespace, group, resource and names; that of verbs is the usual one.
    """
    found: dict[tuple[str, str, str, tuple[str, ...]], tuple[dict[str, None], dict[str, None]]] = {}
    namespaces: Mapping[str, str | None] = {
        each.namespace or "": each.namespace for each in permissions
    }
    for each in permissions:
        for group in each.groups:
            for resource in each.resources:
                key = each.namespace or "", group, resource, tuple(sorted(each.names))
                verbs, reasons = found.setdefault(key, ({}, {}))
                verbs.update(dict.fromkeys(each.verbs))
                reasons.update(dict.fromkeys(each.reasons))
    return tuple(
        Permission(
            groups=[group],
            resources=[resource],
            verbs=sorted(verbs, key=_verb_order),
            names=names,
            namespace=namespaces[namespace],
            reasons=reasons,
        )
        for (namespace, group, resource, names), (verbs, reasons) in sorted(found.items())
    )
