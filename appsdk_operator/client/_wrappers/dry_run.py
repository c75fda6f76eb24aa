"""A client that changes nothing."""

from __future__ import annotations

from typing import Unpack

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._api.options import (
    ApplyOptions,
    DeleteCollectionOptions,
    DeleteOptions,
    PatchOptions,
    SubresourceApplyOptions,
    SubresourceCreateOptions,
    SubresourceUpdateOptions,
    WriteOptions,
)
from appsdk_operator.client._api.patches import Patch
from appsdk_operator.client._api.protocols import SubresourceLike
from appsdk_operator.client._wrappers.wrapper import ClientWrapper, SubresourceWrapper
from appsdk_operator.resource import AnyObject, Kind, Object

__all__ = ["DryRunClient"]


class DryRunClient(ClientWrapper):
    """Every write is a dry run: the server validates, defaults and answers, but stores nothing.

    Reads and watches are real.
    """

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.create` with ``dry_run``."""
        options["dry_run"] = True
        return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.update` with ``dry_run``."""
        options["dry_run"] = True
        return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.patch` with ``dry_run``."""
        options["dry_run"] = True
        return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[ApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.apply` with ``dry_run``."""
        options["dry_run"] = True
        return self.inner.apply(obj, **options)

    def delete(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[DeleteOptions]
    ) -> Object[SpecT, StatusT] | None:
        """As :meth:`Client.delete` with ``dry_run``."""
        options["dry_run"] = True
        return self.inner.delete(kind, name, **options)

    def delete_collection(self, kind: Kind, **options: Unpack[DeleteCollectionOptions]) -> None:
        """As :meth:`Client.delete_collection` with ``dry_run``."""
        options["dry_run"] = True
        self.inner.delete_collection(kind, **options)

    def subresource(self, name: str) -> SubresourceLike:
        """A subresource whose writes are dry runs as well."""
        return _DryRunSubresource(self.inner.subresource(name))


class _DryRunSubresource(SubresourceWrapper):
    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceCreateOptions]
    ) -> Object[SpecT, StatusT]:
        options["dry_run"] = True
        return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceUpdateOptions]
    ) -> Object[SpecT, StatusT]:
        options["dry_run"] = True
        return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        options["dry_run"] = True
        return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceApplyOptions]
    ) -> Object[SpecT, StatusT]:
        options["dry_run"] = True
        return self.inner.apply(obj, **options)
