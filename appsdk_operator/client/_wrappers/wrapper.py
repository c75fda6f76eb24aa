"""The base class of client wrappers: every verb goes to another client, through one hook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Unpack

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._api.client_like import ClientLike
from appsdk_operator.client._api.live import Getter, live_reader
from appsdk_operator.client._api.options import (
    ApplyOptions,
    DeleteCollectionOptions,
    DeleteOptions,
    GetOptions,
    ListOptions,
    ListPageOptions,
    PatchOptions,
    SubresourceApplyOptions,
    SubresourceCreateOptions,
    SubresourceUpdateOptions,
    WatchOptions,
    WriteOptions,
)
from appsdk_operator.client._api.protocols import Change, SubresourceLike
from appsdk_operator.client._transport.watch import WatchStream
from appsdk_operator.client._wrappers.call import Call, Forward, ResultT
from appsdk_operator.resource import AnyObject, Kind, ListPage, Object, Patch

if TYPE_CHECKING:
    from appsdk_operator.client._api.aio import AsyncClient
    from appsdk_operator.runtime import ActivityObserver


class _Wrapper:
    """The hook, and the verbs that objects and subresources have in the same form."""

    inner: Any
    _subresource = ""

    def _send(self, call: Call[ResultT], forward: Forward[ResultT]) -> ResultT:
        """The hook; see :mod:`appsdk_operator.client._wrappers.call`."""
        return forward(call)

    def _forward(self, call: Call[ResultT]) -> ResultT:
        answer: ResultT = getattr(self.inner, call.verb)(*call.arguments, **call.options)
        return answer

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[GetOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.get`."""
        return self._send(Call("get", (kind, name), options, self._subresource), self._forward)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.patch`."""
        call: Call[Object[SpecT, StatusT]] = Call(
            "patch", (kind, name, patch), options, self._subresource
        )
        return self._send(call, self._forward)


class ClientWrapper(_Wrapper):
    """Passes every verb on to ``inner``; subclass it and override single verbs."""

    def __init__(self, inner: ClientLike) -> None:
        """A client that calls ``inner``.

        Raises:
            TypeError: ``inner`` is not a client.
        """
        _check_inner(inner)
        self.inner: ClientLike = inner
        """The wrapped client."""

    def observe_activity(self, observer: ActivityObserver) -> Callable[[], None]:
        """See :meth:`Client.observe_activity`; no effect if ``inner`` has no such method."""
        observe: Callable[[ActivityObserver], Callable[[], None]] | None = getattr(
            self.inner, "observe_activity", None
        )
        return observe(observer) if callable(observe) else lambda: None

    def list(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[ListOptions]
    ) -> Iterator[Object[SpecT, StatusT]]:
        """See :meth:`Client.list`."""
        return self._send(Call("list", (kind,), options), self._forward)

    def list_page(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[ListPageOptions]
    ) -> ListPage[SpecT, StatusT]:
        """See :meth:`Client.list_page`."""
        return self._send(Call("list_page", (kind,), options), self._forward)

    def watch(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[WatchOptions]
    ) -> WatchStream[SpecT, StatusT]:
        """See :meth:`Client.watch`."""
        return self._send(Call("watch", (kind,), options), self._forward)

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.create`."""
        return self._send(Call("create", (obj,), options), self._forward)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.update`."""
        return self._send(Call("update", (obj,), options), self._forward)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[ApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.apply`."""
        return self._send(Call("apply", (obj,), options), self._forward)

    def delete(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[DeleteOptions]
    ) -> Object[SpecT, StatusT] | None:
        """See :meth:`Client.delete`."""
        return self._send(Call("delete", (kind, name), options), self._forward)

    def delete_collection(self, kind: Kind, **options: Unpack[DeleteCollectionOptions]) -> None:
        """See :meth:`Client.delete_collection`."""
        self._send(Call("delete_collection", (kind,), options), self._forward)

    def modify(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        change: Change[SpecT, StatusT],
        *,
        namespace: str = "",
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.modify`. Its requests are calls of this client's verbs."""
        from appsdk_operator.client._api import edits

        steps = edits.modify_steps(kind, name, change, namespace=namespace)
        return edits.run_steps(steps, self, live_reader(self)).object

    def _around_live(self, live: Getter) -> Getter:
        """What reads in place of ``live``, the uncached client behind this wrapper."""
        return live

    @property
    def aio(self) -> AsyncClient:
        """See :attr:`Client.aio`. It calls this client's verbs."""
        from appsdk_operator.client._api.aio import AsyncClient

        return AsyncClient(self, live=live_reader(self))

    @property
    def status(self) -> SubresourceLike:
        """The client for ``status``, wrapped the same way."""
        return self.subresource("status")

    def subresource(self, name: str) -> SubresourceLike:
        """The client for a subresource, wrapped the same way."""
        return _SubresourceWrapper(self.inner.subresource(name), self._send)


class _SubresourceWrapper(_Wrapper):
    """Passes every verb on a subresource on to ``inner``, through the hook of its client."""

    def __init__(
        self, inner: SubresourceLike, hook: Callable[[Call[Any], Forward[Any]], Any]
    ) -> None:
        self.inner: SubresourceLike = inner
        self._subresource = inner.name
        self._hook = hook

    def _send(self, call: Call[ResultT], forward: Forward[ResultT]) -> ResultT:
        answer: ResultT = self._hook(call, forward)
        return answer

    @property
    def name(self) -> str:
        """The subresource, for example ``status``."""
        return self._subresource

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceCreateOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.create`."""
        return self._send(Call("create", (obj,), options, self._subresource), self._forward)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceUpdateOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.update`."""
        return self._send(Call("update", (obj,), options, self._subresource), self._forward)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.apply`."""
        return self._send(Call("apply", (obj,), options, self._subresource), self._forward)


def _check_inner(inner: object) -> None:
    # A fake may have only the verbs that its test needs.
    verbs = ("get", "list", "list_page", "watch", "create", "update", "patch", "apply", "delete")
    is_client = any(callable(getattr(inner, verb, None)) for verb in verbs)
    if isinstance(inner, (type, dict)) or not is_client:
        raise TypeError(f"inner={inner!r} is not a client: give one, such as Client(config)")
