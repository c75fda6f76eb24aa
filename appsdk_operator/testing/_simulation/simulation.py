"""A simulation: an operator on a model server, whose requests and events the test triggers."""

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
    """The number of the operator that made it: 1, then 2 after the first restart, …"""
    watcher: int
    """The number of the watcher or reconciler in add order, from 0."""
    action: ResourceAction
    object: Object
    old: Object | None
    at: float
    """Seconds on the simulation's clock."""
    began: int
    """Its number in the sequence of all starts and ends of calls."""
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
    """The client of a simulated operator; fails once the operator's process is dead."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self.is_alive: bool = True
        self.before_write: Callable[[], None] = _nothing
        """Called before each write; may kill the process."""
        self.after_write: Callable[[], None] = _nothing
        """Called after each successful write; may kill the process."""

    def die(self) -> None:
        """Kill the process, and raise out of its current call."""
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
        """Make a write; the hooks before and after it may kill the process."""
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
    """The subresource ``status`` of a :class:`Process`."""

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
    """The default of the hooks."""


@final
class Simulation:
    """One kind and one operator, in the caller's thread.

    Nothing happens on its own. The test writes to :attr:`server`, and triggers the informer's next
    request (:meth:`poll`), the next call of a watcher (:meth:`handle`), the passing of time
    (:meth:`advance`) and restarts (:meth:`restart`), in any order and with any fault.
    :meth:`settle` runs until nothing is left to do. Every call of a watcher or reconciler is
    recorded in :attr:`calls`.

    To simulate several workers, handle further events while a watcher is being called: set
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
        """An operator that was not run yet.

        Args:
            kind: the kind that it watches.
            watchers: makes its watchers and reconcilers, in add order; called again at each
                restart. Its argument is their client, with ``get``, ``patch`` and
                ``status.patch``.
            resync: the resync interval of the informer, in seconds; 0: never.
            seed: the seed of jitter; default 0.
            options: options of the :class:`InformerController`; the default of ``error_handler``
                ignores errors.
        """
        self.clock: ManualClock = ManualClock(seed=seed)
        """The clock on which everything waits."""
        self.server: ModelServer = ModelServer(kind)
        """The model of an API server that the test writes to."""
        self.calls: list[Call] = []
        """All calls of watchers so far, in order."""
        self.operator: int = 0
        self.during_call: Callable[[Call], None] = lambda _: None
        """Called at the start of each call of a watcher; may raise to make the call fail, handle
        other events, or write to the server."""
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
        """Make the informer's next request; False while it backs off, or its process is dead."""
        if not self.process.is_alive or self.clock.monotonic() < self._next_poll:
            return False
        self.server.next_fault = fault
        wait = self.informer.step(self._stop)
        self.server.next_fault = Fault.NONE
        if not wait and self.informer.is_backing_off:
            # The backoff begins now, and not with the next poll.
            wait = self.informer.step(self._stop)
        self._next_poll = self.clock.monotonic() + wait
        return True

    def handle(self) -> bool:
        """Handle the next event or retry that is due; False where there is none."""
        return self.process.is_alive and self.controller.process_next()

    def advance(self, seconds: float) -> None:
        """Advance the clock; nothing else happens."""
        self.clock.advance(seconds)

    def restart(self, **options: Any) -> None:
        """Crash the operator, and start another one.

        Args:
            options: more options of the :class:`InformerController`, from now on.
        """
        self._options |= options
        self.process.is_alive = False
        self._stop.set()
        self.controller.close()
        self._start()

    def settle(self, *, horizon: float = 3600.0) -> None:
        """Run without faults until nothing is left to do, and advance the clock as needed.

        A reconciler that requeues itself at least every half minute never comes to rest: use
        :meth:`poll`, :meth:`handle` and :meth:`advance` with it. Requeues with longer delays may
        still be pending at the end.

        Args:
            horizon: the most seconds of simulated time; default an hour.

        Raises:
            BrokenPromise: it does not come to rest; the text has the last call that failed.
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
            # Long enough that three rounds cover every backoff and resync.
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
        """Every call so far, one per line."""
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
        """Make one call, record it, and return its result."""
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
    def finalizer_lifecycle(self) -> Any:
        return getattr(self.watcher, "finalizer_lifecycle", None)

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
    """A watcher with ``concerns`` whose calls are recorded."""

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
        self.finalizer_lifecycle = getattr(reconciler, "finalizer_lifecycle", None)

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
    """A reconciler with ``concerns`` whose calls are recorded."""

    def concerns(self, old: Object, new: Object) -> bool:
        reconciler = self.reconciler
        return not isinstance(reconciler, SelectiveReconciler) or reconciler.concerns(old, new)
