"""The informer of one kind with grafana-app-sdk's defaults."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, ClassVar, final

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache import BatchHandler, EventHandler, Informer, Overflow, Registration
from appsdk_operator.resource import Object
from appsdk_operator.runtime import FailureLog, get_logger, guarded_call, present_clock
from appsdk_operator.watchers._checks import check_returned, check_watcher
from appsdk_operator.watchers._watcher import CallbackResult, ResourceWatcher, SelectiveWatcher

_log = get_logger("appsdk_operator.watchers")


@final
class KubernetesInformer(Informer[SpecT, StatusT]):
    """An :class:`~appsdk_operator.cache.Informer` with a resync of every object each 30 seconds.

    It takes the arguments of an Informer. The resync reads the local copy and costs no request. It
    repeats calls that the retry policy of a controller gave up.
    """

    not_a_controller: ClassVar[str] = (
        "an informer, no controller: give it to one, "
        "InformerController.add_informer(informer, kind), and add that"
    )
    """The error text of an Operator that gets an informer in place of a controller."""

    default_resync: ClassVar[float] = 30.0

    def add_event_handler(
        self,
        handler: EventHandler[SpecT, StatusT] | BatchHandler | ResourceWatcher[SpecT, StatusT],
        *,
        resync: float | None = None,
        max_pending: int = 10_000,
        overflow: Overflow = Overflow.COALESCE,
    ) -> Registration:
        """Send ``handler`` every existing object and all events from now on.

        As :meth:`Informer.add_event_handler`, and also for a :class:`ResourceWatcher`, as in
        grafana-app-sdk. A watcher runs in its own thread. Its errors are errors of the informer
        (``on_error``); the informer does not retry them, unlike an :class:`InformerController`.

        Raises:
            TypeError: ``handler`` has none of these forms, or ``overflow`` is not an
                :class:`Overflow`.
            ValueError, RuntimeError: as :meth:`Informer.add_event_handler`.
        """
        accepted: Any = handler
        if isinstance(handler, ResourceWatcher) and not isinstance(
            handler, (type, EventHandler, BatchHandler)
        ):
            check_watcher(handler)
            accepted = _WatcherHandler(handler)
        return super().add_event_handler(
            accepted, resync=resync, max_pending=max_pending, overflow=overflow
        )


@final
class _WatcherHandler:
    """A watcher as an event handler."""

    def __init__(self, watcher: ResourceWatcher) -> None:
        self._watcher = watcher
        self._concerns = watcher.concerns if isinstance(watcher, SelectiveWatcher) else None
        self._failures = FailureLog(_log, present_clock())

    def __repr__(self) -> str:
        return repr(self._watcher)

    def on_add(self, obj: Object, *, is_initial: bool) -> CallbackResult:  # noqa: ARG002
        return self._checked(self._watcher.add(obj))

    def on_update(self, old: Object, new: Object) -> CallbackResult:
        if old is not new and self._is_unconcerned_by(old, new):
            return None
        return self._checked(self._watcher.update(old, new))

    def on_delete(
        self,
        obj: Object,
        *,
        is_final_state_unknown: bool,  # noqa: ARG002
    ) -> CallbackResult:
        return self._checked(self._watcher.delete(obj))

    def _is_unconcerned_by(self, old: Object, new: Object) -> bool:
        if self._concerns is None:
            return False

        def failed(error: Exception) -> bool:
            name = type(self._watcher).__qualname__
            text = "concerns() of %r failed: the event is delivered"
            self._failures.failed(error, f"concerns() of {name}", text, self._watcher)
            return True

        return not guarded_call("concerns", self._concerns, old, new, failed=failed, check=bool)

    def _checked(self, returned: object) -> CallbackResult:
        if inspect.isawaitable(returned):
            return self._awaited(returned)
        check_returned(self._watcher, returned)
        return None

    async def _awaited(self, returned: Awaitable[object]) -> None:
        check_returned(self._watcher, await returned)
