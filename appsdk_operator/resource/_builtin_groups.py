"""What the table of built-in kinds is read into: groups, their versions, and kinds by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from appsdk_operator.resource._kind import Kind

ALL_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
"""The verbs of a kind that is stored, in the order in which servers list them."""


class BuiltinKind(msgspec.Struct, frozen=True, kw_only=True):
    """A built-in kind with its names, subresources and verbs in discovery."""

    kind: Kind
    """The kind itself."""
    singular: str
    """The name of one, for example ``"configmap"``."""
    short_names: tuple[str, ...] = ()
    """Short forms of the plural for kubectl, for example ``("cm",)``."""
    categories: tuple[str, ...] = ()
    """Groups of kinds it belongs to, for example ``("all",)``."""
    subresources: tuple[str, ...] = ()
    """For example ``("scale", "status")``."""
    verbs: tuple[str, ...] = ALL_VERBS
    """The supported verbs; reviews can only be created, and Namespaces are deleted one by one."""


class Version:
    """One version of a group: its kinds are attributes.

    >>> from appsdk_operator import kinds
    >>> kinds.apps.v1.Deployment.plural
    'deployments'
    >>> [kind.kind for kind in kinds.coordination.v1]
    ['Lease']
    """

    __slots__ = ("_kinds", "_name")

    def __init__(self, name: str, kinds: Iterable[Kind]) -> None:
        """The version with these kinds; ``name`` is for error texts."""
        self._name = name
        self._kinds = {kind.kind: kind for kind in kinds}

    if not TYPE_CHECKING:  # type checkers know the names, see _builtin_names

        def __getattr__(self, name: str) -> Kind:
            """The kind of that name.

            Raises:
                AttributeError: there is none; the text lists names that look alike.
            """
            if name.startswith("_") or name not in self._kinds:
                raise AttributeError(_unknown("kind", name, self._name, self._kinds))
            return self._kinds[name]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def __dir__(self) -> list[str]:
        return sorted(self._kinds)

    def __repr__(self) -> str:
        return f"<kinds of {self._name}>"


class Group:
    """One API group: its versions are attributes.

    >>> from appsdk_operator import kinds
    >>> kinds.rbac.v1.Role.api_version
    'rbac.authorization.k8s.io/v1'
    """

    __slots__ = ("_short", "_versions", "name")

    def __init__(self, short: str, name: str, kinds: Iterable[Kind]) -> None:
        """The group ``name`` with these kinds, reached as ``kinds.<short>``."""
        self.name: str = name
        self._short = short
        by_version: dict[str, list[Kind]] = {}
        for kind in kinds:
            by_version.setdefault(kind.version, []).append(kind)
        self._versions = {
            version: Version(f"kinds.{short}.{version}", found)
            for version, found in by_version.items()
        }

    if not TYPE_CHECKING:  # type checkers know the names, see _builtin_names

        def __getattr__(self, name: str) -> Version:
            """The version of that name.

            Raises:
                AttributeError: there is none; the text lists those there are.
            """
            if name.startswith("_") or name not in self._versions:
                raise AttributeError(
                    _unknown("version", name, f"kinds.{self._short}", self._versions)
                )
            return self._versions[name]

    def __iter__(self) -> Iterator[Kind]:
        return (kind for version in self._versions.values() for kind in version)

    def __dir__(self) -> list[str]:
        return ["name", *sorted(self._versions)]

    def __repr__(self) -> str:
        return f"<kinds of {self.name or 'the core group'}>"


def _unknown(what: str, name: str, where: str, known: Iterable[str]) -> str:
    import difflib

    folded = {candidate.lower(): candidate for candidate in known}
    near = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, cutoff=0.5)]
    hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(known))}"
    return f"no {what} {name!r} in {where}: {hint}"
