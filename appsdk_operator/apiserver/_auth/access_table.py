"""Who asked for what: the authorized requests of a server, merged."""

from __future__ import annotations

from typing import Final, final

import attrs

_MOST_OBJECTS: Final = 1000
_MOST_ROWS: Final = 10_000


@final
@attrs.frozen(kw_only=True, order=True)
class Access:
    """One or more requests with the same attributes, as authorization sees them; a value."""

    user: str
    """The username, impersonated or not; empty where it is not known, as in a proxy."""
    verb: str
    """As RBAC names it; of a request for no resource the HTTP method in lower case."""
    group: str = ""
    """The API group; empty for the core group."""
    resource: str = ""
    """The plural of the resource; empty for a request for no resource."""
    subresource: str = ""
    """The subresource; empty: the object itself."""
    namespace: str = ""
    """The namespace; empty for requests across namespaces, and for objects without one."""
    name: str = ""
    """The object's name, or the only name that a list or watch selects; empty: any. A create is
    here twice: without a name, as it is authorized, and with the name of the new object."""
    path: str = ""
    """The path of a request for no resource."""

    @property
    def full_resource(self) -> str:
        """``resource`` or ``resource/subresource``, as in a role."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@final
class _Objects:
    """Namespaces and names of one row; too many of them become "any"."""

    __slots__ = ("any_name", "any_namespace", "pairs")

    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()
        self.any_name = self.any_namespace = False

    def add(self, namespace: str, name: str) -> None:
        self.pairs.add(("" if self.any_namespace else namespace, "" if self.any_name else name))
        if len(self.pairs) > _MOST_OBJECTS:
            self.any_namespace = self.any_name
            self.any_name = True
            pairs, self.pairs = self.pairs, set()
            for pair in pairs:
                self.add(*pair)


@final
class AccessTable:
    """Accesses by user, verb and resource. For use in one thread only.

    Its size is bounded: of more than 1000 names of a row only the namespaces are kept, of more than
    1000 namespaces nothing, which counts as all. Rows after the 10,000th are not kept.
    """

    def __init__(self) -> None:
        """An empty table."""
        self._rows: dict[tuple[str, str, str, str, str, str], _Objects] = {}

    def note(
        self,
        user: str,
        verb: str,
        *,
        group: str = "",
        resource: str = "",
        subresource: str = "",
        namespace: str = "",
        name: str = "",
        path: str = "",
    ) -> None:
        """Add a request."""
        key = (user, verb, group, resource, subresource, path)
        objects = self._rows.get(key)
        if objects is None:
            if len(self._rows) >= _MOST_ROWS:
                return
            objects = self._rows[key] = _Objects()
        objects.add(namespace, name)

    def read(self, user: str | None = None) -> list[Access]:
        """The accesses of a user, default all, in order."""
        return sorted(
            Access(
                user=row[0],
                verb=row[1],
                group=row[2],
                resource=row[3],
                subresource=row[4],
                path=row[5],
                namespace=namespace,
                name=name,
            )
            for row, objects in self._rows.items()
            if user is None or row[0] == user
            for namespace, name in objects.pairs
        )

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()
