"""A call of a client's verb, as a value: what the hook of each wrapper gets.

The contract of the hook, :meth:`ClientWrapper._send`, which is the kit's own:

* It runs once for each call of a verb that goes to the server, those on subresources included, in
  the caller's thread: not again for a retry or a page, and never for a read from a cache.
* It gets the call before any argument is checked, with the options that were given. ``forward``
  makes the call on the wrapped client, and returns or raises what that does.
* It may forward another call (:meth:`Call.having`), forward late, again or not at all, and return
  another answer. So dry runs, namespaces and fences are hooks, as are counts, budgets and records.
* It shows no body, which may be a Secret, and keeps none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from appsdk_operator.resource import AnyObject, Kind, Patch

ResultT = TypeVar("ResultT")
"""What a call returns."""

_READS = frozenset({"get", "list", "list_page", "watch"})
_OF_OBJECTS = frozenset({"create", "update", "apply"})
_WITH_BODY = _OF_OBJECTS | {"patch"}


class Call(msgspec.Struct, Generic[ResultT], frozen=True, eq=False, weakref=False):
    """One call of a verb."""

    verb: str
    """The client's method, for example ``delete_collection``."""
    arguments: tuple[Any, ...]
    """Those by position: an object; or a kind, with a name and a patch where the verb has them."""
    options: Mapping[str, Any]
    """Those by name."""
    subresource: str = ""
    """For example ``status``; empty for the object itself."""

    def __repr__(self) -> str:
        place = f"{self.kind}/{self.subresource}" if self.subresource else f"{self.kind}"
        return f"<{self.verb} {place} {self.namespace!r} {self.name!r}>"

    @property
    def is_write(self) -> bool:
        """Whether it may change something."""
        return self.verb not in _READS

    @property
    def sends_object(self) -> bool:
        """Whether its body is an object, of which the first argument is not a kind."""
        return self.verb in _OF_OBJECTS

    @property
    def body(self) -> AnyObject | Patch | None:
        """The object or the patch that is sent."""
        return self.arguments[-1] if self.verb in _WITH_BODY else None

    @property
    def kind(self) -> Kind:
        """The kind in the request's path: for a subresource that of its parent."""
        subject = self.arguments[0]
        kind: Kind = self.options.get("parent") or (subject.kind if self.sends_object else subject)
        return kind

    @property
    def namespace(self) -> str:
        """The namespace in the request's path; empty: none, or all."""
        given: str = self.options.get("namespace", "")
        return given or (self.arguments[0].namespace if self.sends_object else "")

    @property
    def name(self) -> str:
        """The name in the request's path; empty for a collection."""
        if self.sends_object:
            # That of the parent of a new eviction or token may be given.
            name: str = self.options.get("name") or self.arguments[0].name
            return name
        return self.arguments[1] if len(self.arguments) > 1 else ""

    def having(self, **options: Any) -> Call[ResultT]:
        """The same call with these options."""
        return Call(self.verb, self.arguments, {**self.options, **options}, self.subresource)


Forward: TypeAlias = Callable[[Call[ResultT]], ResultT]
"""Makes a call on the wrapped client."""
