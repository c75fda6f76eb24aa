"""What roles and bindings in files allow the service account of an operator."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, final

import attrs

from appsdk_operator.app import Permission, merged
from appsdk_operator.project._rbac.permission_sets import (
    Atom,
    atoms,
    covers,
    covers_atom,
    granted_to_all,
    is_namespaced,
    singles,
    without,
)
from appsdk_operator.resource import load_yaml

_GROUP = "rbac.authorization.k8s.io"
_KINDS = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ServiceAccount")


@final
@attrs.frozen(kw_only=True)
class Grants:
    """The permissions of an operator's service account; a value."""

    permissions: tuple[Permission, ...]
    """Cluster-wide, or in a namespace. The reason of each is the role that grants it."""
    namespace: str = ""
    """The namespace of the service account: that of the ServiceAccount if it is among the objects,
    else that of the first binding which has one. Empty if neither says it."""

    @classmethod
    def load(cls, *paths: str | Path, account: str = "") -> Self:
        """Read roles and bindings from YAML files, and from all YAML files in folders.

        Args:
            paths: files and folders; what is none of RBAC's is skipped, and so are the templates of
                Helm charts in a folder.
            account: the name of the service account; see :meth:`of`.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file is not YAML, or there is no role.
            TypeError: one is not a path, such as a list of paths.
        """
        for path in paths:
            if not isinstance(path, (str, os.PathLike)):
                raise TypeError(
                    f"{path!r} is not a path: give each path as an argument, as in "
                    "Grants.load('deploy', 'roles.yaml')"
                )
        objects: list[Any] = []
        for path in map(Path, paths):
            for file in _files(path):
                content = file.read_bytes()
                try:
                    objects += load_yaml(content)
                except ValueError as error:
                    if path.is_dir() and b"{{" in content:
                        continue
                    raise ValueError(
                        f"{file}: {error}; for a Helm chart give the output of helm template"
                    ) from error
        found = list(_of_rbac(objects))
        if not any(each["kind"] in ("ClusterRole", "Role") for each in found):
            named = ", ".join(map(str, paths))
            raise ValueError(
                f"{named}: there is no ClusterRole and no Role: make them with appsdk-operator "
                "rbac module:app, or for a chart with helm template"
            )
        return cls.of(found, account=account)

    @classmethod
    def of(cls, objects: Iterable[Mapping[str, Any]], *, account: str = "") -> Self:
        """Read roles and bindings.

        Args:
            objects: ClusterRoles, Roles and their bindings; other kinds are skipped. Without any
                binding all roles count, a ClusterRole for all namespaces.
            account: the name of the service account; default: any that has a binding. Bindings of
                accounts of this name in another namespace do not count.
        """
        found = list(_of_rbac(objects))
        bindings = [each for each in found if each["kind"].endswith("Binding")]
        roles = {
            (each["kind"], _namespace(each), _name(each)): each
            for each in found
            if each["kind"] in ("ClusterRole", "Role")
        }
        own = [
            (_namespace(each), _name(each))
            for each in found
            if each["kind"] == "ServiceAccount" and account in ("", _name(each))
        ]
        bound = [
            (subject.get("namespace") or _namespace(each), subject.get("name", ""))
            for each in bindings
            for subject in each.get("subjects") or ()
            if subject.get("kind") == "ServiceAccount" and account in ("", subject.get("name"))
        ]
        namespace = next((place for place, _ in [*own, *bound] if place), "")
        placed = {(place, name) for place, name in own if place}
        if account and namespace:
            placed.add((namespace, account))
        names = {name for _, name in placed}
        accounts = placed | {each for each in bound if each[1] not in names}
        granted: list[Permission] = []
        if not bindings:
            for (kind, place, _), role in roles.items():
                granted += _permissions(role, roles, None if kind == "ClusterRole" else place)
        for each in bindings:
            place = _namespace(each)
            if not any(_is_one_of(accounts, one, place) for one in each.get("subjects") or ()):
                continue
            ref = each.get("roleRef") or {}
            kind = ref.get("kind", "ClusterRole")
            of_binding = roles.get((kind, place if kind == "Role" else "", ref.get("name", "")))
            if of_binding is not None:
                everywhere = each["kind"] == "ClusterRoleBinding"
                granted += _permissions(of_binding, roles, None if everywhere else place)
        return cls(permissions=tuple(granted), namespace=namespace)

    @property
    def is_for_all_namespaces(self) -> bool:
        """Whether they allow something with objects in all namespaces: a role of the cluster."""
        return any(
            is_namespaced(atom)
            for each in self.permissions
            if each.is_cluster_wide
            for atom in atoms(attrs.evolve(each, is_cluster_wide=False))
        )

    def missing(
        self, needed: Iterable[Permission], *, namespaces: Sequence[str] = ()
    ) -> tuple[Permission, ...]:
        """The part of ``needed`` that the roles do not allow, merged and in order.

        Args:
            needed: permissions, of :meth:`App.permissions` or of
                :func:`~appsdk_operator.project.load_permissions`.
            namespaces: those in which the operator works; default: all.
        """

        def is_granted(atom: Atom) -> bool:
            if granted_to_all(atom):
                return True
            if atom.namespace == "":
                return covers_atom(self.permissions, attrs.evolve(atom, namespace=self.namespace))
            places = namespaces if atom.namespace is None and is_namespaced(atom) else ()
            return all(
                covers_atom(self.permissions, attrs.evolve(atom, namespace=place))
                for place in places or (atom.namespace,)
            )

        return without(needed, is_granted)

    def unused(self, used: Iterable[Permission]) -> tuple[Permission, ...]:
        """The part of what the roles allow that nothing in ``used`` needs, merged and in order.

        A wildcard is used as soon as anything needs it. The reasons are the roles.
        """
        wanted = [atom for each in used for atom in atoms(each)]

        def is_used(permission: Permission) -> Iterator[Permission]:
            for verb in permission.verbs:
                for names in [[name] for name in permission.names] or [[]]:
                    one = attrs.evolve(permission, verbs=[verb], names=names)
                    if not any(self._is_at(one, atom) and covers(one, atom) for atom in wanted):
                        yield one

        return merged(
            left
            for each in self.permissions
            for single in singles(each)
            for left in is_used(single)
        )

    def _is_at(self, granted: Permission, atom: Atom) -> bool:
        if granted.is_cluster_wide or atom.namespace is None:
            return True
        return granted.namespace == (atom.namespace or self.namespace)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = [each for pattern in ("*.yaml", "*.yml") for each in path.rglob(pattern)]
    # Folders with a dot hold what generators remember.
    return sorted(
        each
        for each in found
        if not any(part.startswith(".") for part in each.relative_to(path).parts)
    )


def _of_rbac(documents: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for document in documents:
        if not isinstance(document, Mapping):
            continue
        if str(document.get("kind", "")).endswith("List"):
            yield from _of_rbac(document.get("items") or ())
        group = str(document.get("apiVersion", "")).partition("/")[0]
        kind = document.get("kind")
        if kind in _KINDS and (group == _GROUP or kind == "ServiceAccount"):
            yield dict(document)


def _name(obj: Mapping[str, Any]) -> str:
    return str((obj.get("metadata") or {}).get("name", ""))


def _namespace(obj: Mapping[str, Any]) -> str:
    return str((obj.get("metadata") or {}).get("namespace") or "")


def _is_one_of(
    accounts: Collection[tuple[str, str]], subject: Mapping[str, Any], place: str
) -> bool:
    """Whether a subject of a binding in ``place`` is one of the accounts, or a group of theirs."""
    kind, name = subject.get("kind"), str(subject.get("name", ""))
    if kind == "ServiceAccount":
        return (subject.get("namespace") or place, name) in accounts
    if kind == "User":
        return any(name == f"system:serviceaccount:{at}:{each}" for at, each in accounts)
    if kind == "Group" and name in ("system:authenticated", "system:serviceaccounts"):
        return bool(accounts)
    return kind == "Group" and any(name == f"system:serviceaccounts:{at}" for at, _ in accounts)


def _permissions(
    role: Mapping[str, Any], roles: Mapping[tuple[str, str, str], Any], place: str | None
) -> Iterator[Permission]:
    """The rules of a role, those that are aggregated into it included."""
    rules = list(role.get("rules") or ())
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        wanted = (selector.get("matchLabels") or {}).items()
        for (kind, _, _), other in roles.items():
            labels = (other.get("metadata") or {}).get("labels") or {}
            if kind == "ClusterRole" and wanted and wanted <= labels.items():
                rules += other.get("rules") or ()
    for rule in rules:
        yield Permission(
            groups=rule.get("apiGroups") or (),
            resources=rule.get("resources") or (),
            paths=rule.get("nonResourceURLs") or (),
            verbs=rule.get("verbs") or (),
            names=rule.get("resourceNames") or (),
            namespace=place,
            is_cluster_wide=place is None,
            reasons=[f"{role['kind']} {_name(role)}"],
        )
