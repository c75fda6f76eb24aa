"""Writes as they are asked for, and whom they have to pass before they take effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, final

import attrs

from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._values.users import ADMIN, User

__all__ = [
    "Attempt",
    "DeleteOptions",
    "Gate",
    "OpenGate",
    "Origin",
    "Outcome",
    "Target",
    "WriteOptions",
]


@attrs.frozen
class Target:
    """What a request is about: a served version of a resource, a namespace, maybe an object."""

    served: ServedVersion
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        """Where the object is stored."""
        return self.served.resource.key(self.namespace, self.name)


@attrs.frozen
class Origin:
    """Whose write it is, and what they sent along."""

    user: User = ADMIN
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """The fields of ``CreateOptions`` and their like, as they were sent."""
    warnings: list[str] = attrs.field(factory=list)
    """What is to be told, whatever becomes of the write."""

    def warn(self, warnings: Iterable[str]) -> None:
        """Tell of ``warnings``, each once."""
        self.warnings.extend(text for text in warnings if text not in self.warnings)


@attrs.frozen(kw_only=True)
class WriteOptions:
    """What goes for creates, updates and patches."""

    dry_run: bool = False
    field_validation: str = "Warn"
    origin: Origin | None = None
    """Whose write it is; None: the server's own doing, about which nobody is asked."""
    manager: str | None = None
    """Who comes to own the fields that change; None: ``managedFields`` stay as they are given."""
    applied: bool = False
    """Whether the object comes of a server-side apply, where null does not mean absent."""


@attrs.frozen(kw_only=True)
class DeleteOptions:
    """What goes for deletes."""

    dry_run: bool = False
    propagation: str | None = None
    grace: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    one_of_many: bool = False
    """Whether the object was not named: all that match are deleted."""
    origin: Origin | None = None


@attrs.define
class Outcome:
    """What a write leads to: the object in the client's version."""

    obj: dict[str, Any]
    status: int = 200
    deleted: bool = False


def _nothing(_obj: dict[str, Any]) -> None:
    """No defaults."""


@attrs.frozen(kw_only=True)
class Attempt:
    """A write that is about to take effect."""

    operation: str
    """``CREATE``, ``UPDATE`` or ``DELETE``."""
    target: Target
    subresource: str = ""
    obj: dict[str, Any] = attrs.field(factory=dict)
    """The wanted state in the client's version; empty for deletions."""
    old: dict[str, Any] = attrs.field(factory=dict)
    """The present state in the client's version; empty for creations."""
    options: WriteOptions | DeleteOptions
    prepare: Callable[[dict[str, Any]], None] = _nothing
    """Sets what a built-in object has when the first webhook sees it."""
    fill_in: Callable[[dict[str, Any]], None] = _nothing
    """Fills in defaults and drops nulls after a webhook has patched an object."""


class Gate(Protocol):
    """Who has a say in writes. To wait here is to let others write meanwhile."""

    async def mutate(self, attempt: Attempt) -> dict[str, Any]:
        """The state to go on with: that of the attempt, or another.

        Raises:
            StatusError: the write is refused.
        """
        ...

    async def validate(self, attempt: Attempt) -> None:
        """Look at the final state.

        Raises:
            StatusError: the write is refused.
        """
        ...


@final
class OpenGate:
    """A gate that lets everything through."""

    async def mutate(self, attempt: Attempt) -> dict[str, Any]:
        """The state of the attempt."""
        return attempt.obj

    async def validate(self, attempt: Attempt) -> None:
        """Nothing is wrong."""
