"""A permission: what an operator may do with which resources, and why it has to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

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

    groups: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    """The API groups; ``""`` is the core group."""
    resources: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    """The plurals of the resources, with their subresources: ``pods``, ``pods/status``."""
    verbs: tuple[str, ...] = attrs.field(converter=_texts)
    """The verbs: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``."""
    names: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    """The names of the objects; empty: any. ``create`` and ``deletecollection`` are for all names;
    ``list`` and ``watch`` are allowed with a field selector for one of the names only."""
    namespace: str | None = None
    """The only namespace in which it is needed; ``""``: that of the operator's own pods. None:
    everywhere the app works, and for objects without a namespace."""
    is_cluster_wide: bool = False
    """Whether a Role cannot allow it: the objects are of all namespaces, wherever the app works, or
    of none."""
    paths: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    """The paths of requests for no resource, such as ``/metrics``, in place of groups and
    resources."""
    reasons: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    """Why the operator needs it, a phrase each."""

    @property
    def rule(self) -> dict[str, Any]:
        """The rule of a Role or ClusterRole, as JSON values."""
        if self.paths:
            return {"nonResourceURLs": list(self.paths), "verbs": list(self.verbs)}
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
    found: dict[_Key, tuple[dict[str, None], dict[str, None]]] = {}
    for each in permissions:
        place = () if each.namespace is None else (each.namespace,)
        names = tuple(sorted(each.names))
        keys = [(place, "", path, names, True, each.is_cluster_wide) for path in each.paths]
        keys += [
            (place, group, resource, names, False, each.is_cluster_wide)
            for group in each.groups
            for resource in each.resources
        ]
        for key in keys:
            verbs, reasons = found.setdefault(key, ({}, {}))
            verbs.update(dict.fromkeys(each.verbs))
            reasons.update(dict.fromkeys(each.reasons))
    return tuple(_of_key(key, verbs, reasons) for key, (verbs, reasons) in sorted(found.items()))


def _of_key(key: _Key, verbs: Iterable[str], reasons: Iterable[str]) -> Permission:
    place, group, resource, names, is_path, is_cluster_wide = key
    return Permission(
        groups=() if is_path else [group],
        resources=() if is_path else [resource],
        paths=[resource] if is_path else (),
        verbs=sorted(verbs, key=_verb_order),
        names=names,
        namespace=place[0] if place else None,
        is_cluster_wide=is_cluster_wide,
        reasons=reasons,
    )


_Key = tuple[tuple[str, ...], str, str, tuple[str, ...], bool, bool]
"""Namespace, group, resource or path, names, and whether it is a path."""
