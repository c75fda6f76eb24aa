"""Service account, roles and bindings from permissions."""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import attrs

from appsdk_operator.app import App, Permission, merged
from appsdk_operator.project._rbac.permission_sets import (
    UNNAMED_VERBS,
    Atom,
    atoms,
    cluster_wide,
    covers_atom,
    granted_to_all,
    is_namespaced,
    singles,
    without,
)
from appsdk_operator.resource import Kind, MutableObject, dump_yaml, kinds
from appsdk_operator.runtime import validation

_WIDTH: Final = 100
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MOST_TESTS: Final = 2


@attrs.frozen
class _Document:
    """One object, with the rules that it has."""

    kind: Kind
    metadata: dict[str, Any]
    content: dict[str, Any] = attrs.field(factory=dict)
    rules: tuple[Permission, ...] = ()

    @property
    def object(self) -> MutableObject:
        rules = {"rules": [each.rule for each in self.rules]} if self.rules else {}
        return MutableObject(self.kind, copy.deepcopy({**self._head(), **rules}))

    @property
    def text(self) -> str:
        head = dump_yaml(self._head())
        return head + "rules:\n" + "".join(map(_rule_text, self.rules)) if self.rules else head

    def _head(self) -> dict[str, Any]:
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": self.metadata,
            **self.content,
        }


@final
@attrs.frozen(kw_only=True)
class Roles:
    """The service account of an operator, its roles and their bindings; a value.

    All objects have the operator's name. What it needs in the namespaces in which it works is in a
    ClusterRole if it works in all, else in a Role in each; what it needs in one namespace only, as
    its Lease, in a Role there.
    """

    name: str
    """The name of all objects."""
    namespace: str
    """The namespace of the service account, and so of the operator's pods."""
    cluster: tuple[Permission, ...]
    """The rules of the ClusterRole; empty: there is none."""
    by_namespace: Mapping[str, tuple[Permission, ...]]
    """The rules of the Role in each namespace."""
    besides: tuple[Permission, ...] = ()
    """What was recorded and is not declared."""

    @property
    def objects(self) -> list[MutableObject]:
        """ServiceAccount, ClusterRole, Roles, ClusterRoleBinding and RoleBindings, in this order.

        Each call makes new objects.
        """
        return [each.object for part in self._documents().values() for each in part]

    def texts(self) -> dict[str, str]:
        """The YAML of the objects by file name, with the reasons of each rule as comments."""
        return {
            path: "---\n".join(each.text for each in part)
            for path, part in self._documents().items()
            if part
        }

    def _documents(self) -> dict[str, list[_Document]]:
        account = _Document(kinds.core.v1.ServiceAccount, self._metadata(self.namespace))
        found: dict[str, list[_Document]] = {
            "service_account.yaml": [account],
            "role.yaml": [],
            "role_binding.yaml": [],
        }
        subjects = [{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}]
        rules = {"": self.cluster, **self.by_namespace}
        for place in sorted(rules):
            if not rules[place]:
                continue
            role = kinds.rbac.v1.Role if place else kinds.rbac.v1.ClusterRole
            binding = kinds.rbac.v1.RoleBinding if place else kinds.rbac.v1.ClusterRoleBinding
            ref = {"apiGroup": role.group, "kind": role.kind, "name": self.name}
            metadata = self._metadata(place)
            found["role.yaml"].append(_Document(role, metadata, rules=rules[place]))
            found["role_binding.yaml"].append(
                _Document(binding, metadata, {"roleRef": ref, "subjects": subjects})
            )
        return found

    def _metadata(self, namespace: str) -> dict[str, Any]:
        labels = {"app.kubernetes.io/name": self.name}
        if not namespace:
            return {"name": self.name, "labels": labels}
        return {"name": self.name, "namespace": namespace, "labels": labels}


def roles(
    source: App | Iterable[Permission],
    *,
    namespace: str,
    name: str | None = None,
    namespaces: Sequence[str] | None = None,
    recorded: Iterable[Permission] = (),
) -> Roles:
    """The roles of an operator, from its declarations and from the requests of its tests.

    The same arguments give the same objects.

    Args:
        source: the App; or permissions.
        namespace: the namespace of the operator's pods.
        name: the name of all objects; default: the App's.
        namespaces: the namespaces in which the operator works; default: the App's. Empty: all.
        recorded: what tests needed, see :func:`load_permissions`. What ``source`` allows already is
            left out. What it allows in the operator's own namespace counts as allowed in the
            namespaces of tests, because a test has one namespace for both.

    Raises:
        ValueError: ``name`` is missing for permissions, or a name is invalid.

    >>> pods = Permission(groups=[""], resources=["pods"], verbs=["get", "list", "watch"])
    >>> made = roles([pods], name="pod-counter", namespace="counters")
    >>> [each.kind.kind for each in made.objects]
    ['ServiceAccount', 'ClusterRole', 'ClusterRoleBinding']
    """
    if isinstance(source, App):
        name = name or source.name
        namespaces = source.namespaces if namespaces is None else namespaces
        declared = source.permissions()
    else:
        declared = tuple(source)
    if not name:
        raise ValueError(
            "name is missing: give the operator's name, which the permissions do not contain"
        )
    works_in = validation.checked_texts("namespaces", namespaces or ())
    # In tests an App works where it says; what tests of other operators needed is taken as it is.
    in_tests = source.namespaces if isinstance(source, App) else works_in
    for what, given in (("name", name), ("namespace", namespace)):
        if not _NAME.fullmatch(given):
            raise ValueError(
                f"{what}={given!r}: use lower-case letters, digits and '-', such as 'my-operator'"
            )
    if not in_tests:
        recorded = _wherever_it_works(recorded)
    besides = _needed_besides(declared, recorded, in_all=not in_tests)
    needed = [*declared, *besides]
    cluster: list[Permission] = []
    placed: dict[str, list[Permission]] = {}
    for each in map(_in_parts, needed):
        for part in each:
            for place in _places(part, namespace, works_in):
                if place is None:
                    cluster.append(cluster_wide(part))
                else:
                    placed.setdefault(place, []).append(
                        attrs.evolve(part, namespace=place, is_cluster_wide=False)
                    )
    everywhere = merged(cluster)
    # What is allowed everywhere is not repeated in a Role.
    return Roles(
        name=name,
        namespace=namespace,
        cluster=everywhere,
        besides=besides,
        by_namespace={
            place: rules
            for place in sorted(placed)
            if (rules := without(placed[place], lambda atom: covers_atom(everywhere, atom)))
        },
    )


def _needed_besides(
    declared: Iterable[Permission], recorded: Iterable[Permission], *, in_all: bool
) -> tuple[Permission, ...]:
    """What tests needed beyond what is declared, with the tests as reasons."""
    declared = tuple(declared)
    # A test has one namespace, which is both that of the pods and one in which they work.
    known = [
        cluster_wide(each)
        if each.namespace is None and (in_all or not any(map(is_namespaced, atoms(each))))
        else attrs.evolve(each, namespace=each.namespace or None)
        for each in declared
    ]

    def is_known(atom: Atom) -> bool:
        return granted_to_all(atom) or covers_atom(known, atom)

    return tuple(
        attrs.evolve(each, reasons=[_reason_of_tests(each)]) for each in without(recorded, is_known)
    )


def _wherever_it_works(recorded: Iterable[Permission]) -> list[Permission]:
    """The same for an operator that works in all namespaces: it lists in all as it does in some.

    What is asked for by name, and in no namespace, is of a kind without namespaces.
    """
    found = [part for each in recorded for part in singles(each)]
    unplaced = {
        _kind_of(each)
        for each in found
        if each.is_cluster_wide and not set(each.verbs) <= {"list", "watch"}
    }
    return [
        attrs.evolve(each, is_cluster_wide=False)
        if each.is_cluster_wide and _kind_of(each) not in unplaced
        else each
        for each in found
    ]


def _kind_of(single: Permission) -> tuple[str, ...]:
    return (*single.groups, *(each.partition("/")[0] for each in single.resources), *single.paths)


def _reason_of_tests(permission: Permission) -> str:
    tests = permission.reasons
    named = ", ".join(tests[:_MOST_TESTS])
    more = f" and {len(tests) - _MOST_TESTS} more" if len(tests) > _MOST_TESTS else ""
    return f"{', '.join(permission.verbs)} recorded in {named or 'tests'}{more}"


def _in_parts(permission: Permission) -> Iterator[Permission]:
    """The permission in rules that RBAC can express: those for names have no create."""
    if not permission.names:
        yield permission
        return
    unnamed = [verb for verb in permission.verbs if verb in UNNAMED_VERBS]
    named = [verb for verb in permission.verbs if verb not in UNNAMED_VERBS]
    if named:
        yield attrs.evolve(permission, verbs=named)
    if unnamed:
        yield attrs.evolve(permission, verbs=unnamed, names=())


def _places(permission: Permission, own: str, works_in: Sequence[str]) -> Sequence[str | None]:
    """The namespaces of the Roles for a permission; None: the ClusterRole."""
    if permission.namespace is not None:
        return [permission.namespace or own]
    is_placed = not permission.is_cluster_wide and all(map(is_namespaced, atoms(permission)))
    if not works_in or not is_placed:
        return [None]
    return works_in


def _rule_text(rule: Permission) -> str:
    lines = [line for reason in rule.reasons for line in _comment(reason)]
    return (
        "".join(f"{line}\n" for line in lines)
        + dump_yaml({"rules": [rule.rule]}).partition("\n")[2]
    )


def _comment(text: str) -> list[str]:
    plain = " ".join(text.split())
    return textwrap.wrap(
        plain, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False
    )
