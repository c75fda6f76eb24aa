"""What an operator asked an API server for in tests, and the permissions that follow from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Protocol, final

from appsdk_operator.app import Permission
from appsdk_operator.project._rbac.permission_sets import (
    UNNAMED_VERBS,
    Atom,
    covers_atom,
    granted_to_all,
    without,
)

_MOST_NAMES: Final = 100
"""Names of a row in one test; of more than these none is fixed."""
_EVIDENCE: Final = 2
"""The number of tests that have to agree on a name."""


class AccessAttributes(Protocol):
    """The attributes of a request, as :class:`appsdk_operator.testing.Access` has them."""

    @property
    def verb(self) -> str:
        """As RBAC names it."""
        ...

    @property
    def group(self) -> str:
        """The API group."""
        ...

    @property
    def full_resource(self) -> str:
        """The resource with its subresource; empty for a request for no resource."""
        ...

    @property
    def namespace(self) -> str:
        """Empty: all, or none."""
        ...

    @property
    def name(self) -> str:
        """Empty: any."""
        ...

    @property
    def path(self) -> str:
        """Of a request for no resource."""
        ...


_Row = tuple[str, str, str, str, str]
"""Group, resource, path, verb and namespace; without one: in all, or for an object of none."""
_WORKS_IN: Final = "*"
"""The namespace of a row for those in which the operator works."""


@final
class Recording:
    """The permissions that an operator needed in each test; a mutable collection for one thread.

    A namespace that a test made for itself stands for those in which the operator works; a request
    in no namespace is for all of them, or for an object that is in none. A name
    counts as fixed, so that a role may be for objects of that name only, if at least two tests
    needed it, if the operator nowhere lists or watches all objects of the resource, and if the name
    is neither that of an object or namespace of a test nor made of one, as ``a-config`` is of
    ``a``. Whoever watches needs ``list`` as well: not every server sends lists as streams.

    >>> from appsdk_operator.testing import Access
    >>> recording = Recording()
    >>> recording.add("test_a", [Access(user="operator", verb="list", resource="pods")])
    >>> recording.permissions()[0].rule
    {'apiGroups': [''], 'resources': ['pods'], 'verbs': ['list']}
    """

    def __init__(self) -> None:
        self._rows: dict[_Row, dict[str, set[str]]] = {}
        self._foreign: set[str] = set()

    def __bool__(self) -> bool:
        """Whether anything was recorded."""
        return bool(self._rows)

    @property
    def tests(self) -> frozenset[str]:
        """The tests in which the operator asked for something."""
        return frozenset(test for tests in self._rows.values() for test in tests)

    def add(
        self,
        test: str,
        operator: Iterable[AccessAttributes],
        *,
        others: Iterable[AccessAttributes] = (),
        namespaces: Collection[str] = (),
    ) -> None:
        """Add what was asked for in a test.

        Args:
            test: its name.
            operator: what the operator asked for.
            others: what the test itself did, and other clients: the names of their objects are not
                fixed ones.
            namespaces: the namespaces that the test made for itself.
        """
        self._foreign.update(namespaces)
        self._foreign.update(each.name for each in others)
        for each in operator:
            place = _WORKS_IN if each.namespace in namespaces else each.namespace
            # The name of what was created is for others; a create is authorized without it.
            name = "" if each.verb in UNNAMED_VERBS else each.name
            # Where a server has no lists as streams, whoever watches lists first.
            for verb in ("list", "watch") if each.verb == "watch" else (each.verb,):
                row = (each.group, each.full_resource, each.path, verb, place)
                names = self._rows.setdefault(row, {}).setdefault(test, set())
                names.add(name)
                if len(names) > _MOST_NAMES:
                    names.clear()
                    names.add("")

    def merge(self, other: Recording) -> None:
        """Add what another recording has."""
        self._foreign |= other._foreign
        for row, tests in other._rows.items():
            mine = self._rows.setdefault(row, {})
            for test, names in tests.items():
                mine.setdefault(test, set()).update(names)

    def to_dict(self) -> dict[str, Any]:
        """The recording as JSON values."""
        return {
            "rows": [
                [*row, {test: sorted(names) for test, names in sorted(tests.items())}]
                for row, tests in sorted(self._rows.items())
            ],
            "foreign": sorted(self._foreign),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recording:
        """The recording that :meth:`to_dict` made."""
        made = cls()
        made._foreign.update(data["foreign"])
        for *row, tests in data["rows"]:
            group, resource, path, verb, place = row
            made._rows[group, resource, path, verb, place] = {
                test: set(names) for test, names in tests.items()
            }
        return made

    def permissions(self) -> tuple[Permission, ...]:
        """What a role has to allow, merged and in order; the reasons are the names of tests.

        What every authenticated user may do is left out: discovery, and reviews of oneself.
        """
        fixed = self._fixed_names()
        found: list[Permission] = []
        for (group, resource, path, verb, place), tests in self._rows.items():
            names = set().union(*tests.values())
            known = names <= fixed.get((group, resource), frozenset())
            found.append(
                Permission(
                    groups=() if path else [group],
                    resources=() if path else [resource],
                    paths=[path] if path else (),
                    verbs=[verb],
                    names=sorted(names) if known else (),
                    namespace=None if place in ("", _WORKS_IN) else place,
                    is_cluster_wide=not place and not path,
                    reasons=sorted(tests),
                )
            )
        everywhere = [each for each in found if each.is_cluster_wide]

        def is_superfluous(atom: Atom) -> bool:
            if granted_to_all(atom):
                return True
            return not atom.is_cluster_wide and covers_atom(everywhere, atom)

        return without(found, is_superfluous)

    def _fixed_names(self) -> dict[tuple[str, str], frozenset[str]]:
        """The fixed names by group and resource with its subresource."""
        tests_by_name: dict[tuple[str, str], dict[str, set[str]]] = {}
        listed: set[tuple[str, str]] = set()
        for (group, resource, _, verb, _), tests in self._rows.items():
            base = (group, resource.partition("/")[0])
            for test, names in tests.items():
                if "" in names and verb not in UNNAMED_VERBS:
                    listed.add(base)
                for name in names - {""}:
                    tests_by_name.setdefault(base, {}).setdefault(name, set()).add(test)
        # The operator learns the names of what it lists, so others may be made of them.
        varying = self._foreign | {name for base in listed for name in tests_by_name.get(base, {})}
        found = {}
        for group, resource, _, _, _ in self._rows:
            base = (group, resource.partition("/")[0])
            if base not in listed:
                found[group, resource] = frozenset(
                    name
                    for name, tests in tests_by_name.get(base, {}).items()
                    if len(tests) >= _EVIDENCE and not _is_made_of(name, varying)
                )
        return found


def _is_made_of(name: str, others: Iterable[str]) -> bool:
    """Whether one of ``others`` is ``name``, or a part of it between dashes and dots."""
    whole = f"-{name.replace('.', '-')}-"
    return any(other and f"-{other.replace('.', '-')}-" in whole for other in others)
