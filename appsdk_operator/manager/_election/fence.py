"""A client that refuses writes once its process has lost the lead."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from appsdk_operator.client import (
    Call,
    ClientLike,
    ClientWrapper,
    Forward,
    ResultT,
    checked_before_write,
)
from appsdk_operator.manager._election.unanswered_writes import (
    TrackedWrite,
    may_still_be_carried_out,
)


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
        self._track = fence.track_write if isinstance(fence, _TrackingFence) else None

    def _send(self, call: Call[ResultT], forward: Forward[ResultT]) -> ResultT:
        if not call.is_write:
            return forward(call)
        if self._track is None:
            self._fence.check_write()
            with checked_before_write(self._fence.check_write):
                return forward(call)
        write = self._track()
        write.begin()
        is_lost = True
        try:
            with checked_before_write(write.before_send):
                answer = forward(call)
            is_lost = False
        except BaseException as error:
            is_lost = may_still_be_carried_out(error)
            raise
        finally:
            write.end(is_lost=is_lost)
        return answer
