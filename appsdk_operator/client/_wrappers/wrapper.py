"""The base class of client wrappers, which passes every verb on to another client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from appsdk_operator.client._transport.watch import WatchStream
from appsdk_operator.resource import AnyObject, Kind, ListPage, Object, Patch
from appsdk_operator.runtime import ActivityObserver

__all__ = ["ClientWrapper", "SubresourceWrapper"]


class ClientWrapper:
    """Passes every verb on to ``inner``; subclass it and override single verbs."""

    def __init__(self, inner: ClientLike) -> None:
        """A client that calls ``inner``.

        Raises:
            TypeError: ``inner`` is no client.
        """
        _check_inner(inner)
        self.inner = inner
        """The wrapped client."""

    def observe_activity(self, observer: ActivityObserver) -> Callable[[], None]:
        """See :meth:`Client.observe_activity`; no effect where ``inner`` has no such method."""
        observe: Callable[[ActivityObserver], Callable[[], None]] | None = getattr(
            self.inner, "observe_activity", None
        )
        return observe(observer) if callable(observe) else lambda: None

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.get`."""
        return self.inner.get(kind, name, namespace=namespace)

    def list(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[ListOptions]
    ) -> Iterator[Object[SpecT, StatusT]]:
        """See :meth:`Client.list`."""
        return self.inner.list(kind, **options)

    def list_page(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[ListPageOptions]
    ) -> ListPage[SpecT, StatusT]:
        """See :meth:`Client.list_page`."""
        return self.inner.list_page(kind, **options)

    def watch(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[WatchOptions]
    ) -> WatchStream[SpecT, StatusT]:
        """See :meth:`Client.watch`."""
        return self.inner.watch(kind, **options)

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.create`."""
        return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.update`."""
        return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.patch`."""
        return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[ApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.apply`."""
        return self.inner.apply(obj, **options)

    def delete(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[DeleteOptions]
    ) -> Object[SpecT, StatusT] | None:
        """See :meth:`Client.delete`."""
        return self.inner.delete(kind, name, **options)

    def delete_collection(self, kind: Kind, **options: Unpack[DeleteCollectionOptions]) -> None:
        """See :meth:`Client.delete_collection`."""
        self.inner.delete_collection(kind, **options)

    @property
    def status(self) -> SubresourceLike:
        """The client for ``status``, wrapped the same way."""
        return self.subresource("status")

    def subresource(self, name: str) -> SubresourceLike:
        """The client for a subresource, wrapped the same way."""
        return self.inner.subresource(name)


class SubresourceWrapper:
    """Passes every verb on a subresource on to ``inner``."""

    def __init__(self, inner: SubresourceLike) -> None:
        self.inner = inner
        """The wrapped client."""

    @property
    def name(self) -> str:
        """The subresource, for example ``status``."""
        return self.inner.name

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.get`."""
        return self.inner.get(kind, name, namespace=namespace)

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceCreateOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.create`."""
        return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceUpdateOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.update`."""
        return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.patch`."""
        return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.apply`."""
        return self.inner.apply(obj, **options)


def _check_inner(inner: object) -> None:
    # A fake may have only the verbs that its test needs.
    verbs = ("get", "list", "list_page", "watch", "create", "update", "patch", "apply", "delete")
    is_client = any(callable(getattr(inner, verb, None)) for verb in verbs)
    if isinstance(inner, (type, dict)) or not is_client:
        raise TypeError(f"inner={inner!r} is no client: give one, such as Client(config)")
