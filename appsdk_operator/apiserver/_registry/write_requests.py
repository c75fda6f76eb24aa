"""Requests to write, their options, and the admission interface that they pass through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, final

import attrs

from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._values.users import ADMIN, User

Change: TypeAlias = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Makes the new object from the old one; it may change and keep its argument."""


@attrs.frozen
class Target:
    """The resource version, namespace and name that a request addresses."""

    served: ServedVersion
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        """The object's key in the storage."""
        return self.served.resource.key(self.namespace, self.name)


@attrs.frozen
class Origin:
    """The client request behind a write: its user, its options, and warnings for its response."""

    user: User = ADMIN
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """The fields of ``CreateOptions``, ``UpdateOptions``, … as the client sent them."""
    warnings: list[str] = attrs.field(factory=list)
    """Warnings for the client, sent whether the write succeeds or not."""

    def warn(self, warnings: Iterable[str]) -> None:
        """Add ``warnings``, each once."""
        self.warnings.extend(text for text in warnings if text not in self.warnings)


@attrs.frozen(kw_only=True)
class WriteOptions:
    """Options of creates, updates and patches."""

    dry_run: bool = False
    field_validation: str = "Warn"
    origin: Origin | None = None
    """The client request behind it; None for the server's own writes, which skip admission."""
    manager: str | None = None
    """The field manager of changed fields; None: ``managedFields`` stay as they are given."""
    applied: bool = False
    """Whether this is a server-side apply, where null does not mean absent."""


@attrs.frozen(kw_only=True)
class DeleteOptions:
    """Options of deletes."""

    dry_run: bool = False
    propagation: str | None = None
    grace: int | None = None
    cascades: bool = False
    """Whether ``orphanDependents`` is false, in the form of former clients."""
    uid: str | None = None
    resource_version: str | None = None
    one_of_many: bool = False
    """Whether the delete is part of a deletecollection."""
    origin: Origin | None = None


@attrs.define
class WriteResult:
    """The result of a write: the object in the client's version."""

    obj: dict[str, Any]
    status: int = 200
    deleted: bool = False


def _nothing(_obj: dict[str, Any]) -> None:
    """Change nothing."""


@attrs.frozen(kw_only=True)
class AdmissionAttributes:
    """What admission controllers see of a write before it is stored."""

    operation: str
    """``CREATE``, ``UPDATE``, ``DELETE`` or ``CONNECT``."""
    target: Target
    subresource: str = ""
    obj: dict[str, Any] = attrs.field(factory=dict)
    """The new object in the client's version; empty for deletions."""
    old: dict[str, Any] = attrs.field(factory=dict)
    """The stored object in the client's version; empty for creations."""
    options: WriteOptions | DeleteOptions
    fill_in: Callable[[dict[str, Any]], None] = _nothing
    """Fills in defaults and drops nulls after a webhook has patched the object."""


class AdmissionController(Protocol):
    """Mutates and validates writes. While it waits, other writes go on."""

    async def mutate(self, attributes: AdmissionAttributes) -> dict[str, Any]:
        """The object to write: that of ``attributes`` or a changed copy.

        Raises:
            StatusError: the write is refused.
        """
        ...

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Check the final object.

        Raises:
            StatusError: the write is refused.
        """
        ...


@final
class AdmitAll:
    """Admits every write unchanged."""

    async def mutate(self, attributes: AdmissionAttributes) -> dict[str, Any]:
        """The object of ``attributes``."""
        return attributes.obj

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Accept."""
