"""A client that stays in one namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from appsdk_operator.client._calls import check_object
from appsdk_operator.client._options import (
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
from appsdk_operator.client._patches import Patch
from appsdk_operator.client._protocols import ClientLike, SubresourceLike
from appsdk_operator.client._watch import WatchStream
from appsdk_operator.client._wrapper import ClientWrapper, SubresourceWrapper
from appsdk_operator.resource import Kind, ListPage, MutableObject, Object
from appsdk_operator.resource._kind import check_kind
from appsdk_operator.resource._names import check_path_segment

__all__ = ["NamespacedClient"]

_Obj = Object | MutableObject


class NamespacedClient(ClientWrapper):
    """Fills in ``namespace`` where none is given, and refuses every other one.

    Cluster-scoped kinds pass through as they are. Objects that get a namespace are copied, not
    changed.

    Raises, from every verb:
        ValueError: another namespace is given.
    """

    def __init__(self, inner: ClientLike, namespace: str) -> None:
        super().__init__(inner)
        check_path_segment("namespace", namespace)
        self.namespace = namespace

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """As :meth:`Client.get`."""
        return self.inner.get(kind, name, namespace=self.filled(kind, name, namespace))

    def list(self, kind: Kind, **options: Unpack[ListOptions]) -> Iterator[Object]:
        """As :meth:`Client.list`."""
        options["namespace"] = self.filled(kind, "", options.get("namespace", ""))
        return self.inner.list(kind, **options)

    def list_page(self, kind: Kind, **options: Unpack[ListPageOptions]) -> ListPage:
        """As :meth:`Client.list_page`."""
        options["namespace"] = self.filled(kind, "", options.get("namespace", ""))
        return self.inner.list_page(kind, **options)

    def watch(self, kind: Kind, **options: Unpack[WatchOptions]) -> WatchStream:
        """As :meth:`Client.watch`."""
        options["namespace"] = self.filled(kind, "", options.get("namespace", ""))
        return self.inner.watch(kind, **options)

    def create(self, obj: _Obj, **options: Unpack[WriteOptions]) -> Object:
        """As :meth:`Client.create`."""
        return self.inner.create(self.placed(obj), **options)

    def update(self, obj: _Obj, **options: Unpack[WriteOptions]) -> Object:
        """As :meth:`Client.update`."""
        return self.inner.update(self.placed(obj), **options)

    def patch(self, kind: Kind, name: str, patch: Patch, **options: Unpack[PatchOptions]) -> Object:
        """As :meth:`Client.patch`."""
        options["namespace"] = self.filled(kind, name, options.get("namespace", ""))
        return self.inner.patch(kind, name, patch, **options)

    def apply(self, obj: _Obj, **options: Unpack[ApplyOptions]) -> Object:
        """As :meth:`Client.apply`."""
        return self.inner.apply(self.placed(obj), **options)

    def delete(self, kind: Kind, name: str, **options: Unpack[DeleteOptions]) -> Object | None:
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
        """The namespace that is meant.

        Raises:
            ValueError: it is another than the client's.
        """
        if not check_kind(kind).is_namespaced or namespace == self.namespace:
            return namespace
        if namespace:
            raise ValueError(
                f"namespace {namespace} of the object {name or kind.qualified_name} does not match "
                f"the namespace {self.namespace} on the client"
            )
        return self.namespace

    def placed(self, obj: _Obj, kind: Kind | None = None) -> _Obj:
        """The object in the client's namespace; a copy, if it was in none."""
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

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        return self.inner.get(kind, name, namespace=self._client.filled(kind, name, namespace))

    def create(self, obj: _Obj, **options: Unpack[SubresourceCreateOptions]) -> Object:
        check_object(obj)
        parent = options.get("parent") or obj.kind
        namespace = options.get("namespace") or obj.namespace
        options["namespace"] = self._client.filled(parent, obj.name, namespace)
        return self.inner.create(obj, **options)

    def update(self, obj: _Obj, **options: Unpack[SubresourceUpdateOptions]) -> Object:
        return self.inner.update(self._client.placed(obj, options.get("parent")), **options)

    def patch(self, kind: Kind, name: str, patch: Patch, **options: Unpack[PatchOptions]) -> Object:
        options["namespace"] = self._client.filled(kind, name, options.get("namespace", ""))
        return self.inner.patch(kind, name, patch, **options)

    def apply(self, obj: _Obj, **options: Unpack[SubresourceApplyOptions]) -> Object:
        return self.inner.apply(self._client.placed(obj, options.get("parent")), **options)
