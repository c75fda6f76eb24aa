"""A timer of objects: a function that is called for each object at intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import Outcome, Result
from appsdk_operator.resource import Object
from appsdk_operator.runtime import Clock, settle
from appsdk_operator.watchers._checks import check_returned
from appsdk_operator.watchers._reconciler import ReconcileRequest

_DUE = "due"
"""The monotonic time of an object's next call, in the state of its request."""


@final
class ObjectTimer:
    """A reconciler that calls a function for each object at intervals, for as long as it lives.

    Like the other watchers and reconcilers of a kind it gets its calls in add order, and never
    at the same time as they for one object. A failed call is repeated as the retry policy of the
    controller says, but after :attr:`longest_retry` seconds at the latest. A restart begins anew.
    """

    def __init__(
        self,
        function: Callable[[Object], Any],
        *,
        interval: float,
        first_after: float,
        is_ready: Callable[[Object], bool],
        clock: Clock,
    ) -> None:
        """A timer.

        Args:
            function: what is called with the object.
            interval: seconds from the end of a call to the next one.
            first_after: seconds from the first sight of an object to its first call.
            is_ready: whether the object may have its calls. A change that makes it ready is
                noticed at once.
            clock: the clock of the controller.
        """
        self.function = function
        self.longest_retry: float = interval
        """The longest time in seconds between a failed call and the next one."""
        self._first_after = first_after
        self._is_ready = is_ready
        self._clock = clock

    def concerns(self, old: Object, new: Object) -> bool:
        """Whether the object has become ready."""
        return self._is_ready(new) and not self._is_ready(old)

    def reconcile(self, request: ReconcileRequest, /) -> Outcome:
        """Call the function if it is due; returns when to look again.

        Raises:
            Exception: what the function raised.
            TypeError: it returned a Result or an error.
        """
        obj, state = request.object, request.state
        if request.action is ResourceAction.DELETE or obj.is_deleting:
            return None
        now = self._clock.monotonic()
        due: float = state.setdefault(_DUE, now + self._first_after)
        if not self._is_ready(obj):
            return Result(requeue_after=self.longest_retry)
        if now < due:
            return Result(requeue_after=due - now)
        check_returned(self.function, settle(self.function(obj)))
        state[_DUE] = self._clock.monotonic() + self.longest_retry
        return Result(requeue_after=self.longest_retry)

    def __repr__(self) -> str:
        return f"<ObjectTimer of every {self.longest_retry:g} s>"
