"""A client that refuses writes once its process has lost the lead."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol, Unpack, runtime_checkable

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client import (
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
    WriteOptions,
    checked_before_write,
)
from appsdk_operator.manager._election.unanswered_writes import (
    TrackedWrite,
    may_still_be_carried_out,
)
from appsdk_operator.resource import AnyObject, Kind, Object

__all__ = ["Fence", "FencedClient"]


class Fence(Protocol):
    """Decides whether a write may begin; an :class:`Elector` is one."""

    def check_write(self) -> None:
        """Check that a write may begin now. Called by any thread.

        Raises:
            LeadershipLost: the lead is lost, or about to expire.
        """
        ...


@runtime_checkable
class _TrackingFence(Fence, Protocol):
    """A fence that waits for unanswered writes before it lets another process take over."""

    def track_write(self) -> TrackedWrite:
        """Track a write that is about to begin."""
        ...


class FencedClient(ClientWrapper):
    """Forwards all requests, except writes after the lead was lost.

    Each method that writes, those of subresources included, checks the fence when it is called and
    again right before its bytes are sent, at each retry. So a write that waited for a connection or
    a rate limit, or was delayed by a pause of the whole process, does not reach the next leader's
    time. A process that has never led may write, as in controller-runtime.

    The remaining risk: bytes that were already sent, or that the machine paused after the last
    check, may reach the server when the next leader works already. That requires that the server
    carries out the write later than the fence margin of :class:`LeaderElection` after the last
    check. Before an :class:`Elector` releases a lease, it waits for unanswered writes;
    ``docs/leader-election.md`` has the argument. Such a late write cannot be excluded, but the
    server refuses an update whose resource version has changed.

    Args:
        inner: sends the requests: a :class:`Client`, or a wrapper around one. For any other client
            the fence is checked only when a method is called.
        fence: decides whether a write may begin.
    """

    def __init__(self, inner: ClientLike, fence: Fence) -> None:
        super().__init__(inner)
        self._fence = fence

    def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.create`; raises LeadershipLost once the lead is lost."""
        with _guarded(self._fence):
            return self.inner.create(obj, **options)

    def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.update`; raises LeadershipLost once the lead is lost."""
        with _guarded(self._fence):
            return self.inner.update(obj, **options)

    def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.patch`; raises LeadershipLost once the lead is lost."""
        with _guarded(self._fence):
            return self.inner.patch(kind, name, patch, **options)

    def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[ApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.apply`; raises LeadershipLost once the lead is lost."""
        with _guarded(self._fence):
            return self.inner.apply(obj, **options)

    def delete(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[DeleteOptions]
    ) -> Object[SpecT, StatusT] | None:
        """See :meth:`Client.delete`; raises LeadershipLost once the lead is lost."""
        with _guarded(self._fence):
            return self.inner.delete(kind, name, **options)

    def delete_collection(self, kind: Kind, **options: Unpack[DeleteCollectionOptions]) -> None:
        """See :meth:`Client.delete_collection`; raises LeadershipLost once the lead is lost."""
        with _guarded(self._fence):
            self.inner.delete_collection(kind, **options)

    def subresource(self, name: str) -> SubresourceLike:
        """The subresource, with the same fence."""
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
        is_lost = may_still_be_carried_out(error)
        raise
    finally:
        write.end(is_lost=is_lost)


def _fits(client: FencedClient) -> ClientLike:
    return client
