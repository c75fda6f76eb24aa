"""The watchers and reconcilers of a controller, each in its place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, final

from msgspec import structs

from appsdk_operator.cache import DeliveryKey, Event, EventSource, ResourceAction
from appsdk_operator.controllers import HotLoops, Outcome
from appsdk_operator.resource import Kind, Object, is_older_version
from appsdk_operator.runtime import Clock, FailureLog, get_logger, settle, system_clock
from appsdk_operator.watchers._checks import check_told
from appsdk_operator.watchers._controller_metrics import CallNumbers, Role
from appsdk_operator.watchers._finalizer_lifecycle import Custody
from appsdk_operator.watchers._opinionated import OpinionatedWatcher
from appsdk_operator.watchers._opinionated_reconciler import OpinionatedReconciler
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
    from appsdk_operator.watchers._pending_calls import OwedCall

_log = get_logger("appsdk_operator.watchers")

__all__ = ["Entry", "ReconcilerEntry", "WatcherEntry", "goes_back", "name_of"]


# Looked up once: an enumeration's member costs as much as a call.
_CREATE, _DELETE, _UPDATE, _RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.DELETE,
    ResourceAction.UPDATE,
    ResourceAction.RESYNC,
)
_OPINIONATED = (OpinionatedWatcher, OpinionatedReconciler)


class Entry:
    """A watcher's or reconciler's place in a controller.

    It tells it apart, also from itself added twice, and knows how it is called.
    """

    __slots__ = ("failures", "is_removed", "kind", "numbers", "selective", "target", "told", "view")

    role: ClassVar[Role]
    is_told_events: ClassVar[bool] = False
    """Whether an event says enough for :meth:`call`, so that most calls need no request."""

    def __init__(
        self,
        target: ResourceWatcher | ResourceReconciler,
        kind: str | Kind,
        selective: SelectiveWatcher | SelectiveReconciler | None,
    ) -> None:
        self.target = target
        self.selective = selective
        self.kind = str(kind)
        self.view: Kind | None = (
            target.kind
            if isinstance(target, _OPINIONATED)
            else (kind if isinstance(kind, Kind) else None)
        )
        """With whose types it reads objects; None: as the informer does."""
        self.is_removed = False
        self.failures = FailureLog(_log, system_clock)
        """Where failures of :attr:`selective` go; the controller's, once it was added."""
        self.numbers: Mapping[ResourceAction, CallNumbers] = {}
        """Its metrics, by action; the controller's, shared by all of its role and kind."""
        self.told: dict[EventSource, dict[DeliveryKey, tuple[str, str]]] = {}
        """For sources that had told others already when the watcher came: of which objects, by uid
        and resourceVersion, it was told last. What was on its way then may be older than that."""

    @property
    def is_by_key(self) -> bool:
        """Whether objects of one name are all the same to it."""
        return False

    def read(self, obj: Object) -> Object:
        """The object with the types of its own kind, whatever those of the informer are."""
        view, kind = self.view, obj.kind
        if view is None or (view.spec is kind.spec and view.status is kind.status):
            return obj
        # Who ties an informer to watchers of another kind gets its objects as they are.
        return obj.viewed_as(view) if view == kind else obj

    def read_event(self, event: Event) -> Event:
        """:meth:`read` for the objects of an event."""
        obj, old = self.read(event.object), event.old and self.read(event.old)
        if obj is event.object and old is event.old:
            return event
        return structs.replace(event, object=obj, old=old)

    def request_of(self, told: Event | ReconcileRequest) -> ReconcileRequest:
        """What it was, or is to be, called with, as a request."""
        if isinstance(told, ReconcileRequest):
            return told
        return ReconcileRequest(action=told.action, object=told.object, old=told.old)

    def call(self, told: Event | ReconcileRequest) -> Outcome:
        """Make a call, and wait for it where it is ``async def``."""
        raise NotImplementedError

    def is_due(self, key: DeliveryKey, event: Event, first: OwedCall | None) -> bool:
        """Whether the watcher is to be told of ``event``, given the first call that it is owed."""
        told = self.told.get(key.source)
        if told is None:
            return True
        obj, action = event.object, event.action
        version = obj.resource_version
        known = told.get(key) if first is None else (first.seen.uid, first.seen.resource_version)
        if known is None or known[0] != obj.uid:
            if action is not _CREATE or (known and is_older_version(version, known[1])):
                return False
        elif first is None and action is not _DELETE and not goes_back(event):
            is_shown = bool(version) and version == known[1] and action is not _RESYNC
            if is_shown or is_older_version(version, known[1]):
                return False
        if action is _DELETE:
            told.pop(key, None)
        elif action is not _RESYNC:
            self.was_told(key, obj)
        return True

    def was_told(self, key: DeliveryKey, obj: Object) -> None:
        """Remember that the watcher was told of ``obj``."""
        told = self.told.get(key.source)
        if told is not None:
            told[key] = (obj.uid, obj.resource_version)

    @property
    def custody(self) -> Custody | None:
        """What writes the finalizers of the target; None: it has none."""
        custody = getattr(self.target, "custody", None)  # it may be wrapped
        return custody if isinstance(custody, Custody) else None

    def check_under(self, kind: str | Kind) -> None:
        """Find one that is made for another kind than that under which it is to be added.

        Raises:
            ValueError: it would refuse every object.
        """
        target = self.target
        if isinstance(target, _OPINIONATED) and isinstance(kind, Kind) and target.kind != kind:
            raise ValueError(
                f"{target!r} is made for {target.kind}, and would refuse each object of {kind}: "
                "add it under its own kind"
            )

    def check_beside(self, other: Entry) -> None:
        """Find two that would let go of each other's objects.

        Raises:
            ValueError: both put the same finalizer on objects of one kind.
        """
        mine, others = self.custody, other.custody
        if mine is None or others is None:
            return
        if mine.kind == others.kind and set(mine.names) & set(others.names):
            raise ValueError(
                f"{self.target!r} would share its finalizer with {other.target!r}, and objects "
                "would go when one of them has cleaned up: give one of them another finalizer with "
                "finalizer="
            )

    def ignores(self, event: Event) -> bool:
        """Whether the watcher has nothing to do for ``event``."""
        if self.selective is None or event.action is not _UPDATE or event.old is None:
            return False
        try:
            return not self.selective.concerns(event.old, event.object)
        except BaseException as error:
            self.failures.failed(
                error,
                f"concerns() of {type(self.target).__qualname__}",
                "concerns() of %r failed: the event is delivered",
                self.target,
            )
            return False


_METHODS = {_CREATE: "add", _DELETE: "delete"}


def name_of(target: object, action: ResourceAction) -> str:
    """The name of the user's function that ``target`` calls for ``action``, as far as is known."""
    function: object = None
    if isinstance(target, SimpleWatcher):
        function = getattr(target, f"_{_METHODS.get(action, 'update')}")
    elif isinstance(target, SimpleReconciler):
        function = target.function
    elif isinstance(target, (KeyReconciler, OpinionatedReconciler)):
        if not inspect.isroutine(target.reconciler):
            return name_of(target.reconciler, action)
        function = target.reconciler
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    if isinstance(name, str):
        return name.replace("<locals>.", "")
    if function is not None:
        return str(type(function).__qualname__).replace("<locals>.", "")
    kind = type(target).__qualname__.replace("<locals>.", "")
    if isinstance(target, OpinionatedWatcher):
        return kind
    is_reconciler = callable(getattr(target, "reconcile", None))
    return f"{kind}.{'reconcile' if is_reconciler else _METHODS.get(action, 'update')}"


def goes_back(event: Event) -> bool:
    """Whether the server's history went back, as after a restore: the older state is the news."""
    old = event.old
    return old is not None and is_older_version(event.object.resource_version, old.resource_version)


@final
class WatcherEntry(Entry):
    """A watcher's place."""

    __slots__ = ("watcher",)

    role = Role.WATCHER
    is_told_events = True

    def __init__(self, watcher: ResourceWatcher, kind: str | Kind) -> None:
        super().__init__(watcher, kind, watcher if isinstance(watcher, SelectiveWatcher) else None)
        self.watcher = watcher

    def call(self, told: Event | ReconcileRequest) -> Outcome:
        """Call the method for the action.

        Raises:
            TypeError: it returned a Result or an error.
        """
        action, obj = told.action, told.object
        if action is _CREATE:
            outcome = self.watcher.add(obj)
        elif action is _DELETE:
            outcome = self.watcher.delete(obj)
        else:
            outcome = self.watcher.update(told.old if told.old is not None else obj, obj)
        if outcome is not None:
            check_told(self.watcher, settle(outcome))
        return None


@final
class ReconcilerEntry(Entry):
    """A reconciler's place."""

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
        """As for every entry."""
        return bool(getattr(self.reconciler, "is_by_key", False))

    def call(self, told: Event | ReconcileRequest) -> Outcome:
        """Call ``reconcile``.

        Raises:
            TypeError: it returned something else than a Result or None.
        """
        self._hot_loops.note(told.object.key, self._clock.monotonic())
        outcome = self.reconciler.reconcile(self.request_of(told))
        return checked_outcome(self.reconciler, settle(outcome))
