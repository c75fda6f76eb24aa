"""A client that writes nothing once its process has lost the lead."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol, Unpack, runtime_checkable

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client import (
    ApiError,
    ApplyOptions,
    ClientLike,
    ClientWrapper,
    DeleteCollectionOptions,
    DeleteOptions,
    Patch,
    PatchOptions,
    SubresourceApplyOptions,
    SubresourceCreateOptions,
    SubresourceLike,
    SubresourceUpdateOptions,
    SubresourceWrapper,
    TransportError,
    WriteOptions,
    checked_before_write,
)
from appsdk_operator.manager._election.options import LeadershipLost
from appsdk_operator.manager._election.unanswered_writes import TrackedWrite
from appsdk_operator.resource import AnyObject, DecodeError, Kind, Object

__all__ = ["Fence", "FencedClient"]


class Fence(Protocol):
    """Knows whether a write may begin; an :class:`Elector` is one."""

    def check_write(self) -> None:
        """Return if a write may begin now. Called by any thread.

        Raises:
            LeadershipLost: it would come too late.
        """
        ...


@runtime_checkable
class _TrackingFence(Fence, Protocol):
    """A fence that waits for the answers of writes before it lets another process write."""

    def track_write(self) -> TrackedWrite:
        """A write that is about to begin."""
        ...


class FencedClient(ClientWrapper):
    """Passes everything on, but for writes that would come too late.

    Every verb that changes something, those of subresources included, asks the fence twice: when it
    is called, and right before its bytes are sent, again at each retry, so that a write which
    waited for a connection, for a rate limit or out of a pause of the whole process does not
    surprise the next leader. A process that has never led may write, as in controller-runtime.

    What is left: bytes that were sent, or that the machine was stopped from sending after the last
    look, may reach the server when the next leader works already. That takes a write which the
    server carries out later than the fence margin of :class:`LeaderElection` after the last look,
    also where a lease is given up, for which an :class:`Elector` waits for writes without an
    answer; ``docs/leader-election.md`` has the argument. Nothing here makes it impossible; an
    update that carries the resource version it was made for is refused by the server even then.

    Args:
        inner: does the work. A :class:`Client`, or anything around one; what is no Client itself
            is asked once, when it is called.
        fence: says whether a write may begin.
    """

    def __init__(self, inner: ClientLike, fence: Fence) -> None:
        super().__init__(inner)
        self._fence = fence

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.create`; raises LeadershipLost when it is too late."""
        with _guarded(self._fence):
            return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.update`; raises LeadershipLost when it is too late."""
        with _guarded(self._fence):
            return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.patch`; raises LeadershipLost when it is too late."""
        with _guarded(self._fence):
            return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[ApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.apply`; raises LeadershipLost when it is too late."""
        with _guarded(self._fence):
            return self.inner.apply(obj, **options)

    def delete(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[DeleteOptions]
    ) -> Object[SpecT, StatusT] | None:
        """See :meth:`Client.delete`; raises LeadershipLost when it is too late."""
        with _guarded(self._fence):
            return self.inner.delete(kind, name, **options)

    def delete_collection(self, kind: Kind, **options: Unpack[DeleteCollectionOptions]) -> None:
        """See :meth:`Client.delete_collection`; raises LeadershipLost when it is too late."""
        with _guarded(self._fence):
            self.inner.delete_collection(kind, **options)

    def subresource(self, name: str) -> SubresourceLike:
        """A subresource behind the same fence."""
        return _FencedSubresource(self.inner.subresource(name), self._fence)


class _FencedSubresource(SubresourceWrapper):
    def __init__(self, inner: SubresourceLike, fence: Fence) -> None:
        super().__init__(inner)
        self._fence = fence

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceCreateOptions]
    ) -> Object[SpecT, StatusT]:
        with _guarded(self._fence):
            return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceUpdateOptions]
    ) -> Object[SpecT, StatusT]:
        with _guarded(self._fence):
            return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        with _guarded(self._fence):
            return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceApplyOptions]
    ) -> Object[SpecT, StatusT]:
        with _guarded(self._fence):
            return self.inner.apply(obj, **options)


@contextlib.contextmanager
def _guarded(fence: Fence) -> Iterator[None]:
    if not isinstance(fence, _TrackingFence):
        fence.check_write()
        with checked_before_write(fence.check_write):
            yield
        return
    write = fence.track_write()
    write.begin()
    is_lost = True
    try:
        with checked_before_write(write.before_send):
            yield
        is_lost = False
    except BaseException as error:
        is_lost = _may_be_done_yet(error)
        raise
    finally:
        write.end(is_lost=is_lost)


def _may_be_done_yet(error: BaseException) -> bool:
    """Whether the last try of a write that failed so may be carried out after this moment."""
    if isinstance(error, TransportError):
        return error.sent
    # With 5xx the server, or what is before it, gives up waiting for what goes on.
    return not isinstance(error, (LeadershipLost, DecodeError)) and not (
        isinstance(error, ApiError) and error.status < 500
    )


def _fits(client: FencedClient) -> ClientLike:
    return client
