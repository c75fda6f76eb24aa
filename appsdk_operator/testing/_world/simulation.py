"""A simulation: an operator whose requests and events the test triggers, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import attrs

from appsdk_operator.apiserver import FaultRule
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import safe_repr
from appsdk_operator.testing._broken_promise import BrokenPromise, hides_kit_frames
from appsdk_operator.testing._world.cluster import Process, SimulatedCluster
from appsdk_operator.testing._world.journal import Entry
from appsdk_operator.testing._world.runnable import add_targets
from appsdk_operator.watchers import InformerController, KubernetesInformer

__tracebackhide__ = hides_kit_frames


@final
class Simulation(SimulatedCluster):
    """One kind and one operator, in the caller's thread.

    Nothing happens on its own. The test writes as another client (:meth:`create`, :meth:`replace`,
    :meth:`patch`, :meth:`delete`), and triggers the informer's next request (:meth:`poll`), the
    next call of a watcher (:meth:`handle`), the passing of time (:meth:`advance`) and restarts
    (:meth:`restart`), in any order and with any fault. :meth:`settle` runs until nothing is left to
    do. Every call of a watcher or reconciler is in :attr:`calls`.

    To simulate several workers, handle further events while a watcher is being called: set
    :attr:`during_call` and call :meth:`handle` in it.

    >>> from appsdk_operator import SimpleWatcher, kinds
    >>> seen = []
    >>> watcher = SimpleWatcher(add=lambda obj: seen.append(obj.name))
    >>> with Simulation(kinds.core.v1.ConfigMap, lambda process: [watcher]) as simulation:
    ...     _ = simulation.create("a")
    ...     simulation.settle()
    >>> seen
    ['a']
    """

    def __init__(
        self,
        kind: Kind,
        make: Callable[[Process], Sequence[Any]],
        *,
        resync: float = 30.0,
        seed: int = 0,
        crds: Iterable[Mapping[str, Any]] = (),
        **options: Any,
    ) -> None:
        """A simulation of an operator that has not run yet.

        Args:
            kind: the kind that it watches.
            make: makes its watchers and reconcilers, in add order; called again at each restart.
                They write with ``process.client``.
            resync: the resync interval of the informer, in seconds; 0: never.
            seed: the seed of jitter and uids; default 0.
            crds: further CustomResourceDefinitions, or the one of ``kind``.
            options: options of the :class:`InformerController`; the default of ``error_handler``
                ignores errors.
        """
        super().__init__(kind, seed=seed, crds=crds, ends_idle_watches=True)
        self.during_call: Callable[[Entry], None] = lambda _: None
        """Called at the start of each call of a watcher; may raise to make the call fail, handle
        other events, or write to the server."""
        self._make = make
        self._resync = resync
        self._options = {"error_handler": lambda *_: None, **options}
        self._start(1)

    def _start(self, number: int) -> None:
        # Its one thread cannot wait before a retry: nobody would move the clock.
        self.process: Process = Process(self, "operator", number, max_retries=0)
        self._next_poll = self.clock.monotonic()
        self.controller: InformerController = InformerController(
            clock=self.clock, metrics=self.process.metrics, **self._options
        )
        self.informer: KubernetesInformer = KubernetesInformer(
            self.kind,
            self.process.client,
            resync=self._resync,
            page_size=2,  # so that tests exercise paging
            clock=self.clock,
            metrics=self.process.metrics,
            on_error=lambda _: None,
        )
        self.controller.add_informer(self.informer, self.kind)
        add_targets(self.process, self.controller, self._make(self.process), self.kind)

    @property
    def calls(self) -> list[Entry]:
        """All calls of watchers and reconcilers so far, in order."""
        return self.journal.of("call")

    @property
    def working(self) -> Sequence[Process]:
        """The process that runs."""
        return [self.process]

    def before_call(self, process: Process, entry: Entry) -> None:
        """Call :attr:`during_call`."""
        self.during_call(entry)
        process.check_alive()

    def poll(self, *faults: FaultRule) -> bool:
        """Make the informer's next request; False while it backs off, or its process is dead.

        Args:
            faults: what happens to that request.

        Raises:
            ValueError: a fault takes time, but in a Simulation time stands still.
        """
        for rule in faults:
            if rule.is_gradual or rule.action == "stall":
                raise ValueError(
                    f"{rule!r} takes time, but in a Simulation only the test advances the clock"
                )
        if not self.process.is_alive or self.clock.monotonic() < self._next_poll:
            return False
        api, stop = self.server.api, self.process.stop
        if faults:
            api.inject([attrs.evolve(rule, user_agent=self.process.name) for rule in faults])
        wait = self.informer.step(stop)
        if faults:
            api.clear_faults()
        if not wait and self.informer.is_backing_off:
            # The backoff begins now, and not with the next poll.
            wait = self.informer.step(stop)
        self._next_poll = self.clock.monotonic() + wait
        return True

    def handle(self) -> bool:
        """Handle the next event or retry that is due; False if there is none."""
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
        self.process.crash()
        self._end()
        number = self.process.process + 1
        self.note(self.process.name, "life", f"starts again as process {number}")
        self._start(number)

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
            so_far = len(self.journal.entries)
            self.poll()
            while self.handle():
                pass
            is_quiet = self._is_in_sync() and not any(map(_is_news, self.journal.entries[so_far:]))
            quiet_rounds = quiet_rounds + 1 if is_quiet else 0
            # Long enough that three rounds cover every backoff and resync.
            self.advance(11.0)

    def _last_failure(self) -> str:
        failed = [call for call in self.calls if call.error is not None]
        if not failed:
            return ""
        return f"\nthe last call that failed: {failed[-1]}: {safe_repr(failed[-1].error)}"

    def _is_in_sync(self) -> bool:
        return (
            {obj.uid: obj for obj in self.informer.store.list()}
            == {obj.uid: obj for obj in self.objects()}
            and self.informer.has_synced
            and not self.controller.pending_events
            and not self.controller.pending_retries
            and not (self._resync and self.controller.given_up_calls)
        )

    def _end(self) -> None:
        self.process.stop.set()
        self.controller.close()
        self.process.close()

    def close(self) -> None:
        """End the operator."""
        self._end()
        self.server.close()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_news(entry: Entry) -> bool:
    return entry.what == "call" and (entry.action != "RESYNC" or entry.error is not None)
