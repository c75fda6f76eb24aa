"""A client that sets options of its writes: the common part of dry runs and field owners."""

from __future__ import annotations

from collections.abc import Callable
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
from appsdk_operator.client._api.protocols import SubresourceLike
from appsdk_operator.client._wrappers.wrapper import ClientWrapper, SubresourceWrapper
from appsdk_operator.resource import AnyObject, Kind, Object, Patch

__all__ = ["WriteOptionsClient"]


class WriteOptionsClient(ClientWrapper):
    """Sets options of every create, update, patch and apply, also of subresources."""

    def _set_options(self, options: WriteOptions) -> None:
        """Change the options of one write in place."""
        raise NotImplementedError

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.create`."""
        self._set_options(options)
        return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.update`."""
        self._set_options(options)
        return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.patch`."""
        self._set_options(options)
        return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[ApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.apply`."""
        self._set_options(options)
        return self.inner.apply(obj, **options)

    def subresource(self, name: str) -> SubresourceLike:
        """A subresource whose writes have the same options."""
        return _WriteOptionsSubresource(self.inner.subresource(name), self._set_options)


class _WriteOptionsSubresource(SubresourceWrapper):
    """The same for one subresource."""

    def __init__(self, inner: SubresourceLike, set_options: Callable[[WriteOptions], None]) -> None:
        super().__init__(inner)
        self._set_options = set_options

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceCreateOptions]
    ) -> Object[SpecT, StatusT]:
        self._set_options(options)
        return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceUpdateOptions]
    ) -> Object[SpecT, StatusT]:
        self._set_options(options)
        return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        self._set_options(options)
        return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceApplyOptions]
    ) -> Object[SpecT, StatusT]:
        self._set_options(options)
        return self.inner.apply(obj, **options)
