"""The verbs as Protocols: let a function ask for the narrowest, and it takes any client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._api.options import FieldValidation, Propagation
from appsdk_operator.client._transport.watch import WatchStream
from appsdk_operator.resource import (
    AnyObject,
    Kind,
    ListPage,
    MutableObject,
    Object,
    Patch,
)
from appsdk_operator.runtime import StopSignal

if TYPE_CHECKING:
    from appsdk_operator.resource import FieldSelection, LabelSelection

Change: TypeAlias = Callable[[MutableObject[SpecT, StatusT]], Any]
"""Changes a mutable copy to the desired state; may be ``async def``."""


@runtime_checkable
class Reader(Protocol):
    """Reads objects: a client, or a cache. Semantics as :class:`Client`."""

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT]:
        """One object."""
        ...

    def list(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        limit: int = 500,
    ) -> Iterator[Object[SpecT, StatusT]]:
        """The objects of a kind."""
        ...


@runtime_checkable
class Writer(Protocol):
    """Changes objects. Semantics as :class:`Client`."""

    def create(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Create an object."""
        ...

    def update(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Replace an object."""
        ...

    def patch(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Change parts of an object."""
        ...

    def apply(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Server-side apply."""
        ...

    def delete(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation | None = None,
        grace_period: float | None = None,
        dry_run: bool = False,
    ) -> Object[SpecT, StatusT] | None:
        """Delete an object."""
        ...

    def delete_collection(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        propagation: Propagation | None = None,
        grace_period: float | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete the objects of a kind."""
        ...


class SubresourceLike(Protocol):
    """The verbs on one subresource. Semantics as :class:`SubresourceClient`."""

    @property
    def name(self) -> str:
        """The subresource, for example ``status``."""
        ...

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT]:
        """Read it."""
        ...

    def create(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        parent: Kind | None = None,
        name: str = "",
        namespace: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Post to it."""
        ...

    def update(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        parent: Kind | None = None,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Replace it."""
        ...

    def patch(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Change parts of it."""
        ...

    def apply(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        field_manager: str = "",
        parent: Kind | None = None,
        force: bool = False,
        dry_run: bool = False,
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Server-side apply to it."""
        ...


class Verbs(Reader, Writer, Protocol):
    """All verbs. Semantics as :class:`Client`."""

    def list_page(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
        resource_version_match: str | None = None,
        retry: bool = True,
        metadata_only: bool = False,
        stop: StopSignal | None = None,
    ) -> ListPage[SpecT, StatusT]:
        """One page of a list."""
        ...

    def watch(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        resource_version: str | None = None,
        timeout: float | None = None,
        bookmarks: bool = True,
        send_initial_events: bool = False,
        silence_limit: float | None = None,
        metadata_only: bool = False,
        stop: StopSignal | None = None,
    ) -> WatchStream[SpecT, StatusT]:
        """Open a watch."""
        ...

    def modify(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        change: Change[SpecT, StatusT],
        *,
        namespace: str = "",
    ) -> Object[SpecT, StatusT]:
        """Read, change and write an object."""
        ...

    @property
    def status(self) -> SubresourceLike:
        """The subresource ``status``."""
        ...

    def subresource(self, name: str) -> SubresourceLike:
        """Any subresource."""
        ...
