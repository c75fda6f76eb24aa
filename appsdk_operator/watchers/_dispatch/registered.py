"""Registered watchers and reconcilers: how each is called, and what it was last called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeGuard, final

from appsdk_operator._lazy import if_loaded
from appsdk_operator.cache import DeliveryKey, Event, ResourceAction
from appsdk_operator.controllers import HotLoops, Outcome
from appsdk_operator.resource import DecodeError, Kind, Object
from appsdk_operator.runtime import (
    Clock,
    FailureLog,
    callback_name,
    get_logger,
    is_interrupt,
    present_clock,
    settle,
)
from appsdk_operator.runtime.validation import no_awaitable
from appsdk_operator.watchers._checks import check_returned
from appsdk_operator.watchers._dispatch.metrics import CallMetrics, Role
from appsdk_operator.watchers._finalizers.opinionated import HasFinalizerLifecycle
from appsdk_operator.watchers._level_based import CalledFunction, LevelBased, SteadyCall
from appsdk_operator.watchers._reconciler import (
    KeyReconciler,
    ReconcileRequest,
    ResourceReconciler,
    SelectiveReconciler,
    SimpleReconciler,
    checked_outcome,
)
from appsdk_operator.watchers._watcher import ResourceWatcher, SelectiveWatcher, SimpleWatcher

if TYPE_CHECKING:
    from appsdk_operator.watchers._finalizers.lifecycle import FinalizerLifecycle
    from appsdk_operator.watchers._opinionated import OpinionatedWatcher
    from appsdk_operator.watchers._opinionated_reconciler import OpinionatedReconciler

_log = get_logger("appsdk_operator.watchers")


# Module names, because a look-up of an enumeration's member costs as much as a call.
_CREATE, _DELETE, _UPDATE = (
    ResourceAction.CREATE,
    ResourceAction.DELETE,
    ResourceAction.UPDATE,
)


def _is_watcher(handler: object) -> TypeGuard[OpinionatedWatcher]:
    return isinstance(handler, HasFinalizerLifecycle) and isinstance(
        handler, if_loaded("appsdk_operator.watchers", "OpinionatedWatcher")
    )


def _is_reconciler(handler: object) -> TypeGuard[OpinionatedReconciler]:
    return isinstance(handler, HasFinalizerLifecycle) and isinstance(
        handler, if_loaded("appsdk_operator.watchers", "OpinionatedReconciler")
    )


class RegisteredTarget:
    """One registration of a watcher or reconciler under a kind; a handler may have several."""

    __slots__ = (
        "call_metrics",
        "failures",
        "handler",
        "has_time_limits",
        "is_removed",
        "kind",
        "level_based",
        "not_shown",
        "selective",
        "steady",
        "takes_events",
        "view",
    )

    role: ClassVar[Role]

    def __init__(
        self,
        handler: ResourceWatcher | ResourceReconciler,
        kind: str | Kind,
        selective: SelectiveWatcher | SelectiveReconciler | None,
    ) -> None:
        self.handler = handler
        self.selective = selective
        self.kind = str(kind)
        self.view: Kind | None = (
            handler.finalizer_lifecycle.kind
            if isinstance(handler, HasFinalizerLifecycle)
            else (kind if isinstance(kind, Kind) else None)
        )
        """The kind whose types it gets objects with; None: that of the informer."""
        self.is_removed = False
        self.takes_events = False
        """Whether :meth:`call` takes events as they are, so that most calls need no request."""
        self.level_based: LevelBased | None = getattr(handler, "level_based", None)
        """What knows which of its functions is due; None: each event leads to a call."""
        self.steady: Callable[[Event], SteadyCall | Literal[False] | None] | None = None
        """What says which call is due for an update; None: nothing does."""
        self.has_time_limits = bool(getattr(handler, "has_time_limits", False))
        """Whether its functions have time limits, within one call of it."""
        self.failures = FailureLog(_log, present_clock())
        """The log for failures of :attr:`selective`; the controller's once it was added."""
        self.call_metrics: Mapping[ResourceAction, CallMetrics] = {}
        """Its metrics by action, shared by all targets of its role and kind."""
        self.not_shown: dict[DeliveryKey, Object | None] | None = None
        """For a target that was added late: the objects whose events are not for it yet.

        With the state of the first call; None: the object has gone, so there is none."""

    @property
    def is_by_key(self) -> bool:
        """Whether it does not tell successive objects of one name apart."""
        return False

    def read(self, obj: Object) -> Object:
        """The object with the types of :attr:`view`."""
        return obj.viewed_as(self._view_of(obj.kind))

    def read_event(self, event: Event) -> Event:
        """:meth:`read` for the objects of an event."""
        return event.viewed_as(self._view_of(event.object.kind))

    def _view_of(self, kind: Kind) -> Kind:
        """The kind as which it gets objects of ``kind``."""
        view = self.view
        if view is None or (
            view.spec is kind.spec and view.status is kind.status and view.rename == kind.rename
        ):
            return kind
        # Under a kind that is not the informer's, objects stay as they are.
        return view if view == kind else kind

    def request_of(self, trigger: Event | ReconcileRequest) -> ReconcileRequest:
        """``trigger`` as a request."""
        if isinstance(trigger, ReconcileRequest):
            return trigger
        return ReconcileRequest(action=trigger.action, object=trigger.object, old=trigger.old)

    def call(self, trigger: Event | ReconcileRequest) -> Outcome:
        """Call the handler; waits for the result of an ``async def``."""
        raise NotImplementedError

    def found_hot(self, obj: Object, now: float) -> None:
        """For targets with :attr:`steady`: the calls for an object are a hot loop."""
        raise NotImplementedError

    @property
    def finalizer_lifecycle(self) -> FinalizerLifecycle | None:
        """The finalizer lifecycle of an opinionated handler; None for others."""
        if isinstance(self.handler, HasFinalizerLifecycle):
            return self.handler.finalizer_lifecycle
        found = getattr(self.handler, "finalizer_lifecycle", None)  # it may be wrapped
        of_kit = if_loaded("appsdk_operator.watchers", "FinalizerLifecycle")
        return found if isinstance(found, of_kit) else None

    def check_kind(self, kind: str | Kind) -> None:
        """Check that an opinionated handler is added under its own kind.

        Raises:
            ValueError: it is for another kind, and would refuse every object.
        """
        handler = self.handler
        if not isinstance(handler, HasFinalizerLifecycle) or not isinstance(kind, Kind):
            return
        own = handler.finalizer_lifecycle.kind
        if own != kind:
            raise ValueError(
                f"{handler!r} is made for {own}, and would refuse each object of {kind}: "
                "add it under its own kind"
            )

    def check_finalizers(self, other: RegisteredTarget) -> None:
        """Check that the two do not share a finalizer.

        Raises:
            ValueError: they do, so each would release objects that the other has not cleaned up.
        """
        mine, others = self.finalizer_lifecycle, other.finalizer_lifecycle
        if mine is None or others is None:
            return
        # Nor must one take the other's for that of an earlier name of its operator.
        is_shared = not mine.names.isdisjoint(others.all_names)
        if mine.kind == others.kind and (is_shared or not others.names.isdisjoint(mine.all_names)):
            raise ValueError(
                f"{self.handler!r} would share its finalizer with {other.handler!r}, and objects "
                "would be removed when only one of them has cleaned up: give one of them another "
                "finalizer with finalizer="
            )

    def must_see(self, event: Event) -> bool:
        """Whether a deletion means nothing to the handler without this event before it."""
        lifecycle = self.finalizer_lifecycle
        if lifecycle is None:
            return False
        try:
            if event.action is _CREATE:
                return lifecycle.is_handled(event.object)
            # A clean-up is due before the deletion, which may come from another client that takes
            # the finalizer off meanwhile.
            return event.old is not None and (
                lifecycle.is_stripped(event.old, event.object)
                or (event.object.is_deleting and lifecycle.is_handled(event.object))
            )
        except DecodeError:
            return True  # nobody knows

    def is_unconcerned_by(self, event: Event) -> bool:
        """Whether the handler's ``concerns`` filters ``event`` out."""
        if self.selective is None or event.action is not _UPDATE or event.old is None:
            return False
        try:
            is_concerned: object = self.selective.concerns(event.old, event.object)
            if is_concerned is True or is_concerned is False:  # asked of nearly every update
                return not is_concerned
            return not no_awaitable("concerns", is_concerned)
        except BaseException as error:
            if is_interrupt(error):
                raise
            self.failures.failed(
                error,
                f"concerns() of {type(self.handler).__qualname__}",
                "concerns() of %r failed: the event is delivered",
                self.handler,
            )
            return False


_METHODS = {_CREATE: "add", _DELETE: "delete"}


def name_of(handler: object, action: ResourceAction, obj: Object | None = None) -> str:
    """The name of the user's function behind ``handler``, as far as it is known.

    Args:
        handler: the watcher or reconciler.
        action: what it is called for.
        obj: the object, which decides between the callbacks of some watchers.
    """
    method = _METHODS.get(action, "update")
    function: object = None
    if isinstance(handler, SimpleWatcher):
        function = getattr(handler, f"_{method}")
    elif _is_watcher(handler):
        function = handler.callback(method, obj)
    elif isinstance(handler, (SimpleReconciler, CalledFunction)):
        function = handler.function
    elif obj is not None and (level := getattr(handler, "level_based", None)) is not None:
        function = level.called(obj).function
    elif isinstance(handler, KeyReconciler) or _is_reconciler(handler):
        if not inspect.isroutine(handler.reconciler):
            return name_of(handler.reconciler, action, obj)
        function = handler.reconciler
    if function is not None:
        return callback_name(function)
    kind = callback_name(handler)
    if isinstance(handler, SimpleWatcher) or _is_watcher(handler):
        return kind
    is_reconciler = callable(getattr(handler, "reconcile", None))
    return f"{kind}.{'reconcile' if is_reconciler else method}"


def cause_of(handler: object, action: ResourceAction, obj: Object) -> str:
    """For logs: what ``handler`` is called for.

    For an :class:`OpinionatedWatcher` that is not the event: an object that was handled before
    leads to ``sync``, and one that is being deleted to ``delete``.
    """
    if isinstance(handler, CalledFunction):
        return handler.cause
    if _is_watcher(handler) and action is not _DELETE:
        if obj.is_deleting:
            return _DELETE.value
        if action is _CREATE and handler.finalizer_lifecycle.shows_handled(obj):
            return "SYNC"
    return action.value


@final
class RegisteredWatcher(RegisteredTarget):
    """A registered watcher."""

    __slots__ = ("watcher",)

    role = Role.WATCHER

    def __init__(self, watcher: ResourceWatcher, kind: str | Kind) -> None:
        super().__init__(watcher, kind, watcher if isinstance(watcher, SelectiveWatcher) else None)
        self.watcher = watcher
        self.takes_events = True

    def call(self, trigger: Event | ReconcileRequest) -> Outcome:
        """Call the method for the action.

        Raises:
            TypeError: it returned a Result or an error.
        """
        action, obj = trigger.action, trigger.object
        if action is _CREATE:
            outcome = self.watcher.add(obj)
        elif action is _DELETE:
            outcome = self.watcher.delete(obj)
        else:
            outcome = self.watcher.update(trigger.old if trigger.old is not None else obj, obj)
        if outcome is not None:
            check_returned(self.watcher, settle(outcome))
        return None


class RegisteredReconciler(RegisteredTarget):
    """A registered reconciler."""

    __slots__ = ("_clock", "_hot_loops", "reconciler")

    role = Role.RECONCILER

    def __init__(
        self, reconciler: ResourceReconciler, kind: str | Kind, *, controller: str, clock: Clock
    ) -> None:
        selective = reconciler if isinstance(reconciler, SelectiveReconciler) else None
        super().__init__(reconciler, kind, selective)
        self.reconciler = reconciler
        self._clock = clock
        self._hot_loops = HotLoops(_log, controller, self.kind, filter_hint="concerns(old, new)")

    @property
    def is_by_key(self) -> bool:
        """Whether it does not tell successive objects of one name apart."""
        return bool(getattr(self.reconciler, "is_by_key", False))

    def call(self, trigger: Event | ReconcileRequest) -> Outcome:
        """Call ``reconcile``.

        Raises:
            TypeError: it returned something else than a Result or None.
        """
        obj = trigger.object
        self._hot_loops.note((obj.namespace, obj.name), self._clock.monotonic())
        outcome = self.reconciler.reconcile(self.request_of(trigger))
        return checked_outcome(self.reconciler, settle(outcome))


@final
class RegisteredFunctions(RegisteredReconciler):
    """A registered reconciler that calls functions for events; they are counted as a watcher's."""

    __slots__ = ()

    role = Role.WATCHER

    def __init__(
        self, reconciler: ResourceReconciler, kind: str | Kind, *, controller: str, clock: Clock
    ) -> None:
        super().__init__(reconciler, kind, controller=controller, clock=clock)
        level: object = self.level_based
        # Not one that wraps the level-based one.
        self.takes_events = level is reconciler
        self.steady = getattr(reconciler, "steady", None)

    def found_hot(self, obj: Object, now: float) -> None:
        """Warn of an object whose calls are a hot loop."""
        self._hot_loops.found((obj.namespace, obj.name), now)

    def call(self, trigger: Event | ReconcileRequest) -> Outcome:
        """Call ``reconcile``, which waits for its functions itself and returns nothing."""
        obj, level, now = trigger.object, self.level_based, self._clock.monotonic()
        # By name, too: an object may be made anew each time.
        self._hot_loops.note((obj.namespace, obj.name), now)
        if level is not None and level.is_hot(obj, now):
            self.found_hot(obj, now)
        if self.takes_events:
            reconciler: Any = level
            reconciler.reconcile(trigger)
        else:
            self.reconciler.reconcile(self.request_of(trigger))
        return None
