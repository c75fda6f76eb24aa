"""A client for one namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._api.options import (
    ApplyOptions,
    DeleteCollectionOptions,
    DeleteOptions,
    ListOptions,
    ListPageOptions,
    PatchOptions,
    SubresourceApplyOptions,
    SubresourceCreateOptions,
    SubresourceUpdateOptions,
    WatchOptions,
    WriteOptions,
)
from appsdk_operator.client._api.protocols import ClientLike, SubresourceLike
from appsdk_operator.client._api.request_builders import check_object
from appsdk_operator.client._transport.watch import WatchStream
from appsdk_operator.client._wrappers.wrapper import ClientWrapper, SubresourceWrapper
from appsdk_operator.resource import (
    AnyObject,
    Kind,
    ListPage,
    MutableObject,
    Object,
    Patch,
    check_kind,
    check_path_segment,
)

__all__ = ["NamespacedClient"]


class NamespacedClient(ClientWrapper):
    """Adds its namespace where none is given, and refuses every other one.

    Cluster-scoped kinds pass unchanged. An object that gets the namespace is copied.

    Raises, from every verb:
        ValueError: another namespace is given.
    """

    def __init__(self, inner: ClientLike, namespace: str) -> None:
        super().__init__(inner)
        check_path_segment("namespace", namespace)
        self.namespace = namespace

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.get`."""
        return self.inner.get(kind, name, namespace=self.filled(kind, name, namespace))

    def list(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[ListOptions]
    ) -> Iterator[Object[SpecT, StatusT]]:
        """As :meth:`Client.list`."""
        options["namespace"] = self.filled(kind, "", options.get("namespace", ""))
        return self.inner.list(kind, **options)

    def list_page(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[ListPageOptions]
    ) -> ListPage[SpecT, StatusT]:
        """As :meth:`Client.list_page`."""
        options["namespace"] = self.filled(kind, "", options.get("namespace", ""))
        return self.inner.list_page(kind, **options)

    def watch(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[WatchOptions]
    ) -> WatchStream[SpecT, StatusT]:
        """As :meth:`Client.watch`."""
        options["namespace"] = self.filled(kind, "", options.get("namespace", ""))
        return self.inner.watch(kind, **options)

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.create`."""
        return self.inner.create(self.placed(obj), **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.update`."""
        return self.inner.update(self.placed(obj), **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.patch`."""
        options["namespace"] = self.filled(kind, name, options.get("namespace", ""))
        return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[ApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.apply`."""
        return self.inner.apply(self.placed(obj), **options)

    def delete(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[DeleteOptions]
    ) -> Object[SpecT, StatusT] | None:
        """As :meth:`Client.delete`."""
        options["namespace"] = self.filled(kind, name, options.get("namespace", ""))
        return self.inner.delete(kind, name, **options)

    def delete_collection(self, kind: Kind, **options: Unpack[DeleteCollectionOptions]) -> None:
        """As :meth:`Client.delete_collection`."""
        options["namespace"] = self.filled(kind, "", options.get("namespace", ""))
        self.inner.delete_collection(kind, **options)

    def subresource(self, name: str) -> SubresourceLike:
        """A subresource of objects in the namespace."""
        return _NamespacedSubresource(self.inner.subresource(name), self)

    def filled(self, kind: Kind, name: str, namespace: str) -> str:
        """The namespace of a request: the given one, or the client's.

        Raises:
            ValueError: another namespace is given.
        """
        if not check_kind(kind).is_namespaced or namespace == self.namespace:
            return namespace
        if namespace:
            raise ValueError(
                f"namespace {namespace} of the object {name or kind.qualified_name} does not match "
                f"the namespace {self.namespace} on the client"
            )
        return self.namespace

    def placed(self, obj: AnyObject, kind: Kind | None = None) -> AnyObject:
        """The object in the client's namespace: itself, or a copy if it had none."""
        check_object(obj)
        namespace = self.filled(kind or obj.kind, obj.name, obj.namespace)
        if namespace == obj.namespace:
            return obj
        placed = MutableObject(obj.kind, obj.to_dict())
        placed.metadata["namespace"] = namespace
        return placed


class _NamespacedSubresource(SubresourceWrapper):
    def __init__(self, inner: SubresourceLike, client: NamespacedClient) -> None:
        super().__init__(inner)
        self._client = client

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT]:
        return self.inner.get(kind, name, namespace=self._client.filled(kind, name, namespace))

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceCreateOptions]
    ) -> Object[SpecT, StatusT]:
        check_object(obj)
        parent = options.get("parent") or obj.kind
        namespace = options.get("namespace") or obj.namespace
        options["namespace"] = self._client.filled(parent, obj.name, namespace)
        return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceUpdateOptions]
    ) -> Object[SpecT, StatusT]:
        return self.inner.update(self._client.placed(obj, options.get("parent")), **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        options["namespace"] = self._client.filled(kind, name, options.get("namespace", ""))
        return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceApplyOptions]
    ) -> Object[SpecT, StatusT]:
        return self.inner.apply(self._client.placed(obj, options.get("parent")), **options)
