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

    Each method that writes, subresources included, checks the fence when it is called, and again
    right before the bytes of each try are sent. So if a write waited for a connection or a rate
    limit, or the whole process paused, the write is not sent while another replica leads. A process
    that has never led may write, as in controller-runtime.

    One risk remains: the server may carry out a write while the next leader works already, if more
    time than the fence margin of :class:`LeaderElection` has passed since the last check, in the
    network or because the machine paused. No client can exclude such a late write, but the server
    refuses an update whose resource version has changed. Before an :class:`Elector` releases a
    lease, it waits for unanswered writes; ``docs/leader-election.md`` has the argument.

    Args:
        inner: sends the requests: a :class:`Client`, or a wrapper around one. Any other client is
            checked only when a method is called.
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
