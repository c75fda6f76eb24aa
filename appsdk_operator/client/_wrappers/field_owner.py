"""A client that signs its writes."""

from __future__ import annotations

from typing import Unpack

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._api.options import (
    ApplyOptions,
    PatchOptions,
    SubresourceApplyOptions,
    SubresourceCreateOptions,
    SubresourceUpdateOptions,
    WriteOptions,
)
from appsdk_operator.client._api.patches import Patch
from appsdk_operator.client._api.protocols import ClientLike, SubresourceLike
from appsdk_operator.client._wrappers.wrapper import ClientWrapper, SubresourceWrapper
from appsdk_operator.resource import AnyObject, Kind, Object
from appsdk_operator.runtime.validation import check_text

__all__ = ["FieldOwnerClient"]


class FieldOwnerClient(ClientWrapper):
    """Every write names ``field_manager`` as the owner of its fields, unless the call names one.

    Deletes have no owner. The name shows up in ``metadata.managedFields``, and server-side apply
    needs one.
    """

    def __init__(self, inner: ClientLike, field_manager: str) -> None:
        """A wrapper.

        Raises:
            ValueError: the name is empty, or longer than the 128 characters that servers take.
        """
        super().__init__(inner)
        check_text("field_manager", field_manager)
        if not 0 < len(field_manager) <= 128 or not field_manager.isprintable():
            raise ValueError(
                f"field_manager {field_manager!r} must have 1 to 128 printable characters"
            )
        self.field_manager = field_manager

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.create`, signed."""
        options["field_manager"] = options.get("field_manager") or self.field_manager
        return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.update`, signed."""
        options["field_manager"] = options.get("field_manager") or self.field_manager
        return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.patch`, signed."""
        options["field_manager"] = options.get("field_manager") or self.field_manager
        return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[ApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.apply`, signed."""
        options["field_manager"] = options.get("field_manager") or self.field_manager
        return self.inner.apply(obj, **options)

    def subresource(self, name: str) -> SubresourceLike:
        """A subresource whose writes are signed as well."""
        return _SignedSubresource(self.inner.subresource(name), self.field_manager)


class _SignedSubresource(SubresourceWrapper):
    def __init__(self, inner: SubresourceLike, field_manager: str) -> None:
        super().__init__(inner)
        self._field_manager = field_manager

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceCreateOptions]
    ) -> Object[SpecT, StatusT]:
        options["field_manager"] = options.get("field_manager") or self._field_manager
        return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceUpdateOptions]
    ) -> Object[SpecT, StatusT]:
        options["field_manager"] = options.get("field_manager") or self._field_manager
        return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        options["field_manager"] = options.get("field_manager") or self._field_manager
        return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceApplyOptions]
    ) -> Object[SpecT, StatusT]:
        options["field_manager"] = options.get("field_manager") or self._field_manager
        return self.inner.apply(obj, **options)
