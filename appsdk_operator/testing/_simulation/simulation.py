"""An operator on a model server, without threads: the test decides what happens when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import attrs

from appsdk_operator.cache import ResourceAction
from appsdk_operator.client import ConnectionLost, Patch
from appsdk_operator.controllers import Outcome
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, settle
from appsdk_operator.testing._broken_promise import BrokenPromise, hides_kit_frames
from appsdk_operator.testing._simulation.model_server import Fault, ModelServer
from appsdk_operator.watchers import (
    InformerController,
    KubernetesInformer,
    ReconcileRequest,
    ResourceReconciler,
    ResourceWatcher,
    SelectiveReconciler,
    SelectiveWatcher,
)

__all__ = ["Call", "Process", "Simulation"]

__tracebackhide__ = hides_kit_frames


@attrs.define
class Call:
    """One call of a watcher or reconciler."""

    operator: int
    """Which operator made it: 1 before the first restart, then 2, …"""
    watcher: int
    """The watcher's or reconciler's place in add order, from 0."""
    action: ResourceAction
    object: Object
    old: Object | None
    at: float
    """Seconds on the simulation's clock."""
    began: int
    """Its place among all beginnings and ends of calls."""
    ended: int = 0
    """0 while it runs."""
    error: BaseException | None = None
    requeue_after: float | None = None
    """The seconds after which a reconciler asked to be called again."""

    def __str__(self) -> str:
        outcome = f" -> {self.error!r}" if self.error else ""
        outcome += "" if self.requeue_after is None else f" -> again in {self.requeue_after:g} s"
        return (
            f"{self.at:9.3f} operator {self.operator} watcher {self.watcher} "
            f"{self.action.value:<6} {self.object!r}{outcome}"
        )


@final
class Process:
    """The operator's process as its client sees it: once it is dead, no request leaves it."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self.is_alive: bool = True
        self.before_write: Callable[[], None] = _nothing
        """Called before each write; may kill the process."""
        self.after_write: Callable[[], None] = _nothing
        """Called after each write took effect; may kill the process."""

    def die(self) -> None:
        """End here: raises out of whatever is being done."""
        self.is_alive = False
        raise ConnectionLost("the process died")

    def check(self) -> None:
        """Raise when the process is dead."""
        if not self.is_alive:
            self.die()

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """As :meth:`Client.get`."""
        self.check()
        return self._server.get(kind, name, namespace=namespace)

    def patch(self, kind: Kind, name: str, patch: Patch, *, namespace: str = "") -> Object:
        """As :meth:`Client.patch`."""
        return self.write(lambda: self._server.patch(kind, name, patch, namespace=namespace))

    @property
    def status(self) -> ProcessStatus:
        """As :attr:`Client.status`."""
        return ProcessStatus(self, self._server)

    def write(self, do: Callable[[], Object]) -> Object:
        """Carry a write out, unless the process is dead before or after it."""
        self.check()
        self.before_write()
        written = do()
        self.after_write()
        return written

    def list_page(self, kind: Kind, **options: Any) -> Any:
        """As :meth:`Client.list_page`."""
        self.check()
        return self._server.list_page(kind, **options)

    def watch(self, kind: Kind, **options: Any) -> Any:
        """As :meth:`Client.watch`."""
        self.check()
        return self._server.watch(kind, **options)


@final
class ProcessStatus:
    """The subresource ``status`` as the operator's process has it."""

    def __init__(self, process: Process, server: ModelServer) -> None:
        self._process = process
        self._server = server

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """As :meth:`SubresourceClient.get`."""
        self._process.check()
        return self._server.status.get(kind, name, namespace=namespace)

    def patch(self, kind: Kind, name: str, patch: Patch, *, namespace: str = "") -> Object:
        """As :meth:`SubresourceClient.patch`."""
        status = self._server.status
        return self._process.write(lambda: status.patch(kind, name, patch, namespace=namespace))


def _is_news(call: Call) -> bool:
    return call.action is not ResourceAction.RESYNC or call.error is not None


def _nothing() -> None:
    """What hooks do until a test sets them."""


@final
class Simulation:
    """One kind, one operator, one thread: the caller's.

    Nothing happens by itself. The test writes to :attr:`server`, lets the informer do a request
    (:meth:`poll`), an event be handled (:meth:`handle`), time pass (:meth:`advance`) or the
    operator start anew (:meth:`restart`), in any order and with any fault; :meth:`settle` does
    what is left to do. Every call of a watcher or
    reconciler is recorded in :attr:`calls`.

    Several workers are simulated by handling further events while a watcher is being called: set
    :attr:`during_call` and call :meth:`handle` in it.

    >>> from appsdk_operator import SimpleWatcher, kinds
    >>> seen = []
    >>> watcher = SimpleWatcher(add=lambda obj: seen.append(obj.name))
    >>> with Simulation(kinds.core.v1.ConfigMap, lambda process: [watcher]) as simulation:
    ...     _ = simulation.server.create("a")
    ...     simulation.settle()
    >>> seen
    ['a']
    """

    def __init__(
        self,
        kind: Kind,
        watchers: Callable[[Process], Sequence[ResourceWatcher | ResourceReconciler]],
        *,
        resync: float = 30.0,
        seed: int = 0,
        **options: Any,
    ) -> None:
        """An operator that has not done anything yet.

        Args:
            kind: the kind that it watches.
            watchers: makes its watchers and reconcilers, in add order; called again at each
                restart. The process is the client to give to them: it has ``get``, ``patch`` and
                ``status.patch``.
            resync: of the informer, in seconds; 0: never.
            seed: of the jitter of backoffs and resyncs; default 0.
            options: of the :class:`InformerController`; ``error_handler`` defaults to silence.
        """
        self.clock: ManualClock = ManualClock(seed=seed)
        self.server: ModelServer = ModelServer(kind)
        self.calls: list[Call] = []
        self.operator: int = 0
        self.during_call: Callable[[Call], None] = lambda _: None
        """Called while a watcher is being called, before its own code; may raise to make it fail,
        handle other events, or write to the server."""
        self._kind = kind
        self._make_watchers = watchers
        self._resync = resync
        self._options = {"error_handler": lambda *_: None, **options}
        self._steps = 0
        self._start()

    def _start(self) -> None:
        self.operator += 1
        self.process: Process = Process(self.server)
        self._stop = StopSignal(clock=self.clock)
        self._next_poll = self.clock.monotonic()
        self.controller: InformerController = InformerController(
            clock=self.clock, metrics=Metrics(), **self._options
        )
        self.informer: KubernetesInformer = KubernetesInformer(
            self._kind,
            self.process,
            resync=self._resync,
            clock=self.clock,
            metrics=Metrics(),
            on_error=lambda _: None,
        )
        self.controller.add_informer(self.informer, self._kind)
        for number, target in enumerate(self._make_watchers(self.process)):
            if isinstance(target, ResourceWatcher):
                recorded = (
                    _RecordedSelectiveWatcher
                    if isinstance(target, SelectiveWatcher)
                    else _RecordedWatcher
                )
                watcher = recorded(self, self.process, number, target)
                self.controller.add_watcher(watcher, self._kind)
            else:
                is_selective = isinstance(target, SelectiveReconciler)
                wrap = _RecordedSelectiveReconciler if is_selective else _RecordedReconciler
                reconciler = wrap(self, self.process, number, target)
                self.controller.add_reconciler(reconciler, self._kind)

    def poll(self, fault: Fault = Fault.NONE) -> bool:
        """Let the informer do its next request; False while it backs off, or is dead."""
        if not self.process.is_alive or self.clock.monotonic() < self._next_poll:
            return False
        self.server.next_fault = fault
        wait = self.informer.step(self._stop)
        self.server.next_fault = Fault.NONE
        if not wait and self.informer.is_backing_off:
            # The wait begins with the failure, and not with the next poll.
            wait = self.informer.step(self._stop)
        self._next_poll = self.clock.monotonic() + wait
        return True

    def handle(self) -> bool:
        """Let the next event or retry that is due be handled; False when there is none."""
        return self.process.is_alive and self.controller.process_next()

    def advance(self, seconds: float) -> None:
        """Let time pass; nothing happens in it by itself."""
        self.clock.advance(seconds)

    def restart(self, **options: Any) -> None:
        """End the operator where it is, as a crash would, and start another one.

        Args:
            options: of the :class:`InformerController` from now on, beside those it has.
        """
        self._options |= options
        self.process.is_alive = False
        self._stop.set()
        self.controller.close()
        self._start()

    def settle(self, *, horizon: float = 3600.0) -> None:
        """Do, without faults, all that is left to do, letting as much time pass as it needs.

        A reconciler that asks for calls again and again, at least every half minute, never comes to
        rest: use :meth:`poll`, :meth:`handle` and :meth:`advance` with it. What one asked for at a
        later time may still be to come.

        Args:
            horizon: seconds of the simulation's time after which to give up; default an hour.

        Raises:
            BrokenPromise: it does not come to rest; with the last call that failed.
        """
        deadline = self.clock.monotonic() + horizon
        quiet_rounds = 0
        while quiet_rounds < 3:
            if self.clock.monotonic() > deadline:
                raise BrokenPromise(
                    f"not at rest after {horizon:g} s: {self.controller.pending_events} events and "
                    f"{self.controller.pending_retries} retries wait{self._last_failure()}"
                )
            so_far = len(self.calls)
            self.poll()
            while self.handle():
                pass
            is_quiet = self._is_in_sync() and not any(map(_is_news, self.calls[so_far:]))
            quiet_rounds = quiet_rounds + 1 if is_quiet else 0
            # A round takes long enough for every backoff and resync to come due in time.
            self.advance(11.0)

    def _last_failure(self) -> str:
        failed = [call for call in self.calls if call.error is not None]
        return f"\nthe last call that failed: {failed[-1]}" if failed else ""

    def _is_in_sync(self) -> bool:
        return (
            self.informer.resource_version == self.server.resource_version
            and not self.controller.pending_events
            and not self.controller.pending_retries
            and not (self._resync and self.controller.given_up_calls)
        )

    def close(self) -> None:
        """End the operator."""
        self._stop.set()
        self.controller.close()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def story(self) -> str:
        """Every call so far, a line each."""
        return "\n".join(map(str, self.calls))

    def record(
        self,
        process: Process,
        number: int,
        action: ResourceAction,
        obj: Object,
        old: Object | None,
        do: Callable[[], Any],
    ) -> Any:
        """Make one call and keep the record of it; what the call returned."""
        process.check()
        self._steps += 1
        call = Call(self.operator, number, action, obj, old, self.clock.monotonic(), self._steps)
        self.calls.append(call)
        try:
            self.during_call(call)
            process.check()
            outcome = settle(do())
            call.requeue_after = getattr(outcome, "requeue_after", None)
            return outcome
        except BaseException as error:
            call.error = error
            raise
        finally:
            self._steps += 1
            call.ended = self._steps


class _RecordedWatcher:
    """A watcher whose calls are recorded."""

    def __init__(
        self, simulation: Simulation, process: Process, number: int, watcher: ResourceWatcher
    ) -> None:
        self._simulation = simulation
        self._process = process
        self._number = number
        self.watcher = watcher

    @property
    def custody(self) -> Any:
        return getattr(self.watcher, "custody", None)

    def add(self, obj: Object) -> None:
        self._record(ResourceAction.CREATE, obj, None, lambda: self.watcher.add(obj))

    def update(self, old: Object, new: Object) -> None:
        action = ResourceAction.RESYNC if old is new else ResourceAction.UPDATE
        self._record(action, new, old, lambda: self.watcher.update(old, new))

    def delete(self, obj: Object) -> None:
        self._record(ResourceAction.DELETE, obj, None, lambda: self.watcher.delete(obj))

    def _record(
        self, action: ResourceAction, obj: Object, old: Object | None, do: Callable[[], Any]
    ) -> None:
        self._simulation.record(self._process, self._number, action, obj, old, do)


class _RecordedSelectiveWatcher(_RecordedWatcher):
    """The same for watchers that say what concerns them."""

    def concerns(self, old: Object, new: Object) -> bool:
        watcher = self.watcher
        return not isinstance(watcher, SelectiveWatcher) or watcher.concerns(old, new)


class _RecordedReconciler:
    """A reconciler whose calls are recorded."""

    def __init__(
        self, simulation: Simulation, process: Process, number: int, reconciler: ResourceReconciler
    ) -> None:
        self._simulation = simulation
        self._process = process
        self._number = number
        self.reconciler = reconciler
        self.is_by_key = getattr(reconciler, "is_by_key", False)
        self.custody = getattr(reconciler, "custody", None)

    def reconcile(self, request: ReconcileRequest, /) -> Outcome:
        outcome: Outcome = self._simulation.record(
            self._process,
            self._number,
            request.action,
            request.object,
            request.old,
            lambda: self.reconciler.reconcile(request),
        )
        return outcome


class _RecordedSelectiveReconciler(_RecordedReconciler):
    """The same for reconcilers that say what concerns them."""

    def concerns(self, old: Object, new: Object) -> bool:
        reconciler = self.reconciler
        return not isinstance(reconciler, SelectiveReconciler) or reconciler.concerns(old, new)
