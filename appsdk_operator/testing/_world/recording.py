"""Wrappers that record the calls of watchers and reconcilers in a world's journal."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from typing import Any, final

import attrs
import msgspec

from appsdk_operator.cache import Event
from appsdk_operator.client import ConnectionLost
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import Clock, callback_name, settle, with_class
from appsdk_operator.testing._world.journal import Entry, Journal
from appsdk_operator.testing._world.places import Traced, place_of
from appsdk_operator.watchers import (
    ReconcileRequest,
    ResourceWatcher,
    SelectiveReconciler,
    SelectiveWatcher,
)

_current: contextvars.ContextVar[Entry | None] = contextvars.ContextVar("call", default=None)


@final
@attrs.frozen(kw_only=True)
class CallRecorder:
    """Records the calls that one process makes."""

    who: str
    """The name of the replica."""
    process: int
    clock: Clock
    journal: Journal
    kind: Kind
    """The world's: texts name the kind of an object where it is another one."""
    is_alive: Callable[[], bool]
    """Whether the process has not crashed."""
    has_several: Callable[[], bool]
    """Whether texts have the number of the watcher or reconciler."""
    on_begin: Callable[[Entry], None]
    """Called at the start of each call; may raise to make it fail."""
    on_end: Callable[[Entry], None]
    """Called with each call that has ended."""
    is_traced: Callable[[], bool]
    """Whether the lines of the operator that calls run are noted."""

    @staticmethod
    def current() -> Entry | None:
        """The call that this code is in, None outside of one."""
        return _current.get()

    def record(self, entry: Entry, watcher: int, do: Callable[[], Any]) -> Any:
        """Make one call, record it, and return its result.

        Raises:
            ConnectionLost: the process has crashed before the call.
        """
        if not self.is_alive():
            raise ConnectionLost("the process is dead")
        entry.process, entry.watcher = self.process, watcher
        self.journal.add(entry)
        before = self.current()
        is_traced = entry.what == "call" and self.is_traced()
        if entry.what in ("function", "timer") and before is not None:
            entry.within = before
            before.writes.append(entry)
        else:
            _current.set(entry)
        try:
            if entry.what == "call":
                self.on_begin(entry)
            with Traced(entry.lines) if is_traced else contextlib.nullcontext():
                outcome = settle(do())
            again = getattr(outcome, "requeue_after", None)
            if again is not None:
                entry.again = again
                entry.outcome = f"wants to be called again in {again:g} s"
            return outcome
        except BaseException as error:
            entry.error = with_class(error)
            if self.is_alive():
                entry.outcome = f"fails with {type(error).__name__}"
            raise
        finally:
            _current.set(before)
            entry.over, entry.ended = self.clock.monotonic(), self.journal.step()
            if entry.what == "call":
                self.on_end(entry)

    def entry(
        self,
        text: str,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        what: str = "call",
        **facts: Any,
    ) -> Entry:
        """The entry of a call that begins now; ``text`` is followed by the object's name."""
        of = kind.qualified_name
        described = name if of == self.kind.qualified_name else f"{kind.plural} {name}"
        key = f"{namespace}/{name}" if namespace else name
        return Entry(
            self.clock.monotonic(),
            self.who,
            what,
            f"{text} {described}",
            key=key,
            kind=of,
            **facts,
        )

    def entry_of(self, text: str, obj: Object, **facts: Any) -> Entry:
        """The entry of a call that begins now and gets ``obj``."""
        facts |= {"uid": obj.uid, "version": int(obj.resource_version), "object": obj}
        return self.entry(text, obj.kind, obj.namespace, obj.name, **facts)


def recorded(recorder: CallRecorder, target: Any, number: int, kind: Kind) -> Any:
    """A wrapper of ``target`` that records its calls.

    Args:
        recorder: of the process that calls it.
        target: a watcher or a reconciler.
        number: its place in add order, from 0.
        kind: of the objects that a reconciler is called for, where its request carries no object.

    Raises:
        TypeError: ``target`` is neither.
    """
    if isinstance(target, SelectiveWatcher):
        return _RecordedSelectiveWatcher(recorder, target, number, kind)
    if isinstance(target, ResourceWatcher):
        return _RecordedWatcher(recorder, target, number, kind)
    reconcile = getattr(target, "reconcile", target)
    if not callable(reconcile):
        raise TypeError(f"{target!r} is neither a watcher nor a reconciler")
    if isinstance(target, SelectiveReconciler):
        return _RecordedSelectiveReconciler(recorder, reconcile, number, kind)
    return _RecordedReconciler(recorder, reconcile, number, kind)


class _Recorded:
    noun = "watcher"
    is_selective = False

    def __init__(self, recorder: CallRecorder, target: Any, number: int, kind: Kind) -> None:
        self._recorder = recorder
        self._target = target
        self._number = number
        self._kind = kind
        # These belong to the reconciler, of which the target is a method.
        whole = getattr(target, "__self__", target)
        self._place = place_of(target)
        self.__qualname__ = callback_name(whole)  # the one that logs name
        self.finalizer_lifecycle = getattr(whole, "finalizer_lifecycle", None)
        self.is_by_key = getattr(whole, "is_by_key", False)
        self.level_based = getattr(whole, "level_based", None)
        self.has_time_limits = getattr(whole, "has_time_limits", False)

    def _record(self, entry: Entry, do: Callable[[], Any]) -> Any:
        if self._recorder.has_several():
            entry.text += f" ({self.noun} {self._number})"
        entry.place = self._place
        return self._recorder.record(entry, self._number, do)


class _RecordedWatcher(_Recorded):
    def add(self, obj: Object) -> Any:
        self._record(self._entry("CREATE", obj, "is called for"), lambda: self._target.add(obj))

    def update(self, old: Object, new: Object) -> Any:
        action, text = (
            ("RESYNC", "is resynced with") if old is new else ("UPDATE", "is called because")
        )
        entry = self._entry(action, new, text)
        entry.old = old
        if action == "UPDATE":
            entry.text += " changed"
        self._record(entry, lambda: self._target.update(old, new))

    def delete(self, obj: Object) -> Any:
        entry = self._entry("DELETE", obj, "is called because")
        entry.text += " is gone"
        self._record(entry, lambda: self._target.delete(obj))

    def _entry(self, action: str, obj: Object, text: str) -> Entry:
        return self._recorder.entry_of(text, obj, action=action, is_selective=self.is_selective)


class _RecordedSelectiveWatcher(_RecordedWatcher):
    is_selective = True

    def concerns(self, old: Object, new: Object) -> bool:
        return bool(self._target.concerns(old, new))


class _RecordedReconciler(_Recorded):
    noun = "reconciler"

    def __init__(self, recorder: CallRecorder, target: Any, number: int, kind: Kind) -> None:
        super().__init__(recorder, target, number, kind)

        def reconcile(request: Any, /) -> Any:
            return self(request)

        reconcile.__qualname__ = callback_name(target)  # the one that logs name
        self.reconcile = reconcile

    def __call__(self, request: Any, /) -> Any:
        if isinstance(request, ReconcileRequest):
            entry = self._entry_of(request)
        else:
            name, namespace = (
                getattr(request, "name", str(request)),
                getattr(request, "namespace", ""),
            )
            entry = self._recorder.entry("reconciles", self._kind, namespace, name)
        return self._record(entry, lambda: self._target(request))

    def _entry_of(self, request: ReconcileRequest) -> Entry:
        facts: dict[str, Any] = {"action": request.action.value, "old": request.old}
        facts |= {"is_selective": self.is_selective, "is_by_key": self.is_by_key}
        return self._recorder.entry_of("reconciles", request.object, **facts)


class _RecordedSelectiveReconciler(_RecordedReconciler):
    is_selective = True

    def concerns(self, old: Object, new: Object) -> bool:
        return bool(self._target.__self__.concerns(old, new))

    def steady(self, event: Event, /) -> Any:
        """For an App's functions: the call for an update, of which each is a reconcile."""
        level = self.level_based
        call = None if level is None else level.steady(event)
        if not call:
            return call
        steady, *rest = call
        request = ReconcileRequest(action=event.action, object=event.object, old=event.old)

        def function(old: Object, new: Object) -> Any:
            return self._record(
                self._entry_of(request), lambda: steady.check(steady.function(old, new))
            )

        return msgspec.structs.replace(steady, function=function), *rest
