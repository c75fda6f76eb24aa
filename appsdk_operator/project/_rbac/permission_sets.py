"""Sets of permissions: which of them cover which, and which are left over."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from appsdk_operator.app import Permission, merged
from appsdk_operator.resource import kinds

UNNAMED_VERBS: Final = ("create", "deletecollection")
"""The verbs whose requests name no object, so that no rule with names allows them."""

_DISCOVERY: Final = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
)
_SELF_REVIEWS: Final = {
    "authorization.k8s.io": ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
    "authentication.k8s.io": ("selfsubjectreviews",),
}


@attrs.frozen(kw_only=True)
class Atom:
    """One verb on one resource or path, perhaps of one name: what a request needs."""

    group: str = ""
    resource: str = ""
    """With its subresource."""
    verb: str
    name: str = ""
    """Empty: any."""
    path: str = ""
    namespace: str | None = None
    """As of a :class:`Permission`."""
    is_cluster_wide: bool = False
    """As of a :class:`Permission`."""


def atoms(permission: Permission) -> Iterator[Atom]:
    """The parts of a permission."""
    for verb in permission.verbs:
        for path in permission.paths:
            yield Atom(verb=verb, path=path, namespace=permission.namespace)
        names = () if verb in UNNAMED_VERBS else permission.names
        for group in permission.groups:
            for resource in permission.resources:
                for name in names or ("",):
                    yield Atom(
                        group=group,
                        resource=resource,
                        verb=verb,
                        name=name,
                        namespace=permission.namespace,
                        is_cluster_wide=permission.is_cluster_wide,
                    )


def covers(permission: Permission, atom: Atom) -> bool:
    """Whether a rule allows what ``atom`` needs, wherever that is; by RBAC's wildcards."""
    if atom.verb not in permission.verbs and "*" not in permission.verbs:
        return False
    if atom.path:
        return any(_path_matches(each, atom.path) for each in permission.paths)
    if atom.group not in permission.groups and "*" not in permission.groups:
        return False
    if permission.names and atom.name not in permission.names:
        return False
    _, _, subresource = atom.resource.partition("/")
    wanted = ["*", atom.resource, *([f"*/{subresource}"] if subresource else [])]
    return any(each in permission.resources for each in wanted)


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern[:-1]))


def covers_atom(permissions: Iterable[Permission], atom: Atom) -> bool:
    """Whether one of ``permissions`` covers ``atom`` where that is needed.

    What is cluster-wide is so everywhere; the rest, in its own namespace, in those in which the
    operator works, or in a named one, only there.
    """
    return any(
        (each.is_cluster_wide or (not atom.is_cluster_wide and each.namespace == atom.namespace))
        and covers(each, atom)
        for each in permissions
    )


def cluster_wide(permission: Permission) -> Permission:
    """The same permission in all namespaces and for objects without one."""
    return attrs.evolve(permission, namespace=None, is_cluster_wide=True)


def singles(permission: Permission) -> Iterator[Permission]:
    """The permission, for each resource or path alone."""
    for path in permission.paths:
        yield attrs.evolve(permission, groups=(), resources=(), paths=[path])
    for group in permission.groups:
        for resource in permission.resources:
            yield attrs.evolve(permission, groups=[group], resources=[resource], paths=())


def granted_to_all(atom: Atom) -> bool:
    """Whether every authenticated user may do it: discovery, and reviews of oneself."""
    if atom.path:
        return atom.verb == "get" and any(_path_matches(each, atom.path) for each in _DISCOVERY)
    return atom.verb == "create" and atom.resource in _SELF_REVIEWS.get(atom.group, ())


def is_namespaced(atom: Atom) -> bool:
    """Whether the objects are in namespaces; of kinds that are not built in it is assumed."""
    if atom.path or atom.is_cluster_wide:
        return False
    return (atom.group, atom.resource.partition("/")[0]) not in _cluster_kinds()


@functools.cache
def _cluster_kinds() -> frozenset[tuple[str, str]]:
    return frozenset(
        (each.kind.group, each.kind.plural)
        for each in kinds.builtin_kinds()
        if not each.kind.is_namespaced
    )


def without(
    permissions: Iterable[Permission], is_covered: Callable[[Atom], bool]
) -> tuple[Permission, ...]:
    """``permissions`` without the parts that are covered, merged and in order."""
    return merged(left for each in permissions for left in _parts_without(each, is_covered))


def _parts_without(
    permission: Permission, is_covered: Callable[[Atom], bool]
) -> Iterator[Permission]:
    left: dict[tuple[str, str, str, str], list[str]] = {}
    for atom in atoms(permission):
        if not is_covered(atom):
            key = (atom.group, atom.resource, atom.path, atom.verb)
            left.setdefault(key, []).append(atom.name)
    for (group, resource, path, verb), names in left.items():
        yield Permission(
            groups=() if path else [group],
            resources=() if path else [resource],
            paths=[path] if path else (),
            verbs=[verb],
            names=[name for name in names if name],
            namespace=permission.namespace,
            is_cluster_wide=permission.is_cluster_wide,
            reasons=permission.reasons,
        )
