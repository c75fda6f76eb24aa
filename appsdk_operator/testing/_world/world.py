"""A world: an API server, other clients, and whole operators with their threads, on a manual clock.

Time costs nothing, only events do. What runs is real; the threads run one at a time (see
``scheduler``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, final

from appsdk_operator.app import App, Handler, RecordError, Timer, is_paused
from appsdk_operator.controllers import FinalizerError, TerminalError
from appsdk_operator.resource import Kind, Object, kinds
from appsdk_operator.runtime import (
    add_note,
    callback_place,
    environment,
    safe_repr,
    settle,
    with_class,
)
from appsdk_operator.testing._broken_promise import BrokenPromise, hides_kit_frames
from appsdk_operator.testing._world.apps import definitions_of, kind_of, maker_of
from appsdk_operator.testing._world.cluster import NO_CHANGE, Process, SimulatedCluster
from appsdk_operator.testing._world.journal import Entry, timeline_of
from appsdk_operator.testing._world.places import places_of
from appsdk_operator.testing._world.runnable import as_runnable
from appsdk_operator.testing._world.scheduler import Fiber, StuckError, ThreadScheduler

__tracebackhide__ = hides_kit_frames

_LEASE: Final = kinds.coordination.v1.Lease
_HOT_LOOP_WINDOW: Final = 600.0
_MOST_PROCESSES: Final = 50
_END_WITHIN: Final = 900.0
_WRITTEN_WITHIN: Final = 330.0
"""The seconds within which an App repeats the write of a finalizer or record that has failed."""


@final
class World(SimulatedCluster):
    """An API server, other clients that write to it, and an operator, simulated on a manual clock.

    The operator runs with its real threads, caches and leader election. One thread runs at a time,
    until it waits; when all threads wait, the clock moves to the earliest deadline. So an hour
    takes only the time of its work: milliseconds if an operator requeues now and then, some seconds
    if two replicas renew leases. A seed always gives the same run.

    Use it in a ``with`` block; the thread of the block drives the simulation. The world simulates
    waits on the kit's clock, ``threading``, ``asyncio``, queues and pools of threads, and on locks
    that are made in the block. It does not simulate other blocking calls: an operator must not use
    sockets or ``time.sleep``. On Linux all these threads share one processor.

    >>> from appsdk_operator import kinds
    >>> from appsdk_operator.controllers import Result
    >>> def make(replica):
    ...     return lambda request: Result(requeue_after=3600.0)
    >>> with World(kinds.core.v1.ConfigMap, make) as world:
    ...     _ = world.create("a")
    ...     world.run(2 * 3600.0)
    ...     print(len(world.journal.of("call", "default/a")))
    3

    Args:
        kind: the kind that the operator manages; its CRD is installed unless it is a built-in kind.
            Or the operator as an :class:`~appsdk_operator.app.App`: the kind is then the first kind
            that the App handles, and the CRDs are the App's.
        make: a function that makes the operator of a replica; it is called again after each crash
            and restart. It returns a watcher or a reconciler, or several, which are called in this
            order for each event; or an object with ``run(stop)`` that uses ``replica.clock`` and
            ``replica.config`` or ``replica.client``. Or an App, to test another one of its kinds.
        replicas: the number of replicas; default 1.
        leader_election: whether the watchers or reconcilers that ``make`` returns run on the
            leader only; default: on all replicas. A manager that ``make`` returns has its own
            ``leader_election=``, and so has an App.
        seed: the seed of jitter, uids, and the choice of the next thread; default 0: threads go on
            in the order in which they became ready.
        crds: further CustomResourceDefinitions, or the one of ``kind``.
    """

    def __init__(
        self,
        kind: Kind | App,
        make: Callable[[Replica], Any] | App | None = None,
        *,
        replicas: int = 1,
        leader_election: bool = False,
        seed: int = 0,
        crds: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """See the class."""
        if isinstance(kind, App):
            app, kind = kind, kind_of(kind)
            make = app
        self.app: App | None = make if isinstance(make, App) else None
        """The App that is the operator; None for another one."""
        if isinstance(make, App):
            crds = [*definitions_of(make), *crds]
            make, leader_election = maker_of(make, leader_election=leader_election), False
        if make is None:
            raise TypeError("give World(kind, make) a function that makes the operator, or an App")
        super().__init__(kind, seed=seed, crds=crds)
        self.elsewhere: dict[str, Any] = {}
        """For what an operator makes outside of the cluster; it survives crashes."""
        self.checks_lease = True
        """Whether a write by a replica that has lost the Lease breaks a promise."""
        self.most_calls = 100
        """The calls, or writes, for one object in ten minutes without a change from outside above
        which :meth:`run` reports a hot loop."""
        self.schedule: ThreadScheduler = ThreadScheduler(self.clock, seed=seed)
        self.replicas: list[Replica] = []
        self._make = make
        self._leader_election = leader_election
        self._names = self.names_of(replicas)
        # When each fault is over, and what ends it.
        self._faults: dict[object, tuple[float, Callable[[], None]]] = {}
        self._crashed: list[Process] = []
        self._is_down = False
        self._counts: dict[tuple[str, str, str], tuple[float, int]] = {}
        # The state in which calls were found to come: starts and ends, writes, and the horizon.
        self._waits_in: tuple[int, int, float] | None = None
        self._broken: BrokenPromise | None = None
        self._restarts = 0
        self._is_open = False

    @staticmethod
    def names_of(replicas: int) -> list[str]:
        """The names of that many replicas."""
        if replicas == 1:
            return ["operator"]
        return [f"operator-{number + 1}" for number in range(replicas)]

    # -- life --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.schedule.__enter__()
        self._is_open = True
        try:
            for number in range(len(self._names)):
                self.replicas.append(self._start(number, 1))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except StuckError as stuck:
            if error is None:
                raise
            add_note(error, str(stuck))

    def close(self) -> None:
        """End all processes as a crash would. A second call does nothing.

        Raises:
            RuntimeError: a thread does not end.
        """
        if not self._is_open:
            return
        self._is_open = False
        try:
            for replica in (*self._crashed, *self.replicas):
                replica.is_alive = False
                self.schedule.thaw(replica)
                replica.stop.set()
                replica.close()
            self.schedule.is_interrupted = False
            self._faults.clear()
            end = self.clock.monotonic() + _END_WITHIN
            self.schedule.run_ready()
            while self.schedule.fibers and self.schedule.jump(until=end):
                self.schedule.run_ready()
            self.server.close()
            self.schedule.run_ready()
            left = sorted(set(map(_name_and_place, self.schedule.fibers)))
        finally:
            self.schedule.__exit__()
        if left:
            raise StuckError(f"still running {_END_WITHIN:g} s after their stop: {', '.join(left)}")

    def _start(self, number: int, process: int) -> Replica:
        replica = Replica(self, self._names[number], process)
        if process > 1:
            self.note(replica.name, "life", f"starts again as process {process}")
        with self.schedule.owned_by(replica), environment(metrics=replica.metrics):
            try:
                runnable = as_runnable(
                    replica, self._make, self.kind, leader_election=self._leader_election
                )
            except Exception as error:
                if process == 1:
                    raise
                # It is started again, as any process that ends by itself.
                replica.ends_with(error)
                return replica
            replica.thread = threading.Thread(
                target=replica.run, args=(runnable,), name=f"{replica.name}-{process}"
            )
            replica.thread.start()
        return replica

    # -- time --------------------------------------------------------------------------------

    def run(self, seconds: float = 0.0) -> None:
        """Let ``seconds`` pass, and run everything that is due in that time.

        Raises:
            BrokenPromise: a check failed, or a replica ends again and again.
            RuntimeError: a thread blocks in a call that is not simulated.
        """
        end = self.clock.monotonic() + seconds
        while True:
            self.schedule.run_ready()
            self.raise_broken()
            if self._start_ended():
                continue
            due = min((until for until, _ in self._faults.values()), default=end)
            if self.schedule.jump(until=min(due, end)):
                continue
            if due > end or not self._faults:
                break
            self.clock.advance(max(0.0, due - self.clock.monotonic()))
            for fault in [each for each, (until, _) in self._faults.items() if until <= due]:
                self._faults.pop(fault)[1]()
        self.clock.advance(max(0.0, end - self.clock.monotonic()))

    def settle(self, *, horizon: float = 7200.0) -> bool:
        """Let time pass until the operator is at rest: no write and no failed call for a minute.

        Args:
            horizon: the most seconds to wait; default two hours.

        Returns:
            Whether it came to rest.
        """
        end = self.clock.monotonic() + horizon
        quiet = 0
        while quiet < 3 and self.clock.monotonic() < end:
            so_far = len(self.journal.entries)
            self.run(20.0)
            news = [
                e
                for e in self.journal.entries[so_far:]
                # A timer is called, or fails, for ever; what it writes is news.
                if (e.has_failed if e.what in ("call", "function") else e.outcome != NO_CHANGE)
                and not e.is_of_timer
            ]
            quiet = 0 if news or self._faults or self._has_calls_to_come(end) else quiet + 1
        return quiet >= 3

    def _has_calls_to_come(self, end: float) -> bool:
        """Whether a call runs, will be repeated, or polls what was changed since it began."""
        # It is asked again and again while nothing happens until the next retry.
        state = (self.journal.steps, self.server.api.resource_version, end)
        if state == self._waits_in:
            return True
        present = {obj.uid: obj for obj in self.objects()}
        calls = [e for e in self.journal.of("call") if not e.is_of_timer]
        last: dict[Any, Entry] = {(e.who, e.process, e.watcher, e.kind, e.key): e for e in calls}
        # A call of one function of an App does not say that those that failed are done.
        functions: dict[Any, Entry] = {
            (e.who, e.process, id(e.declared), e.kind, e.uid): e
            for e in self.journal.of("function")
            if e.uid in present
        }
        last |= {
            one: e
            for one, e in functions.items()
            if not e.ended
            or (_asks_for(present[e.uid], e.declared) and not self.is_paused(present[e.uid]))
        }
        alive = {(replica.name, replica.process) for replica in self.replicas}
        ours = self.kind.qualified_name
        changed = max((e.began for e in self.journal.of("step") if e.kind != ours), default=0)
        waits = any(
            (e.has_failed and not isinstance(e.error, TerminalError))
            or not e.ended
            or (e.began < changed and e.at + e.again < end)
            for e in last.values()
            if (e.who, e.process) in alive
        )
        if waits:
            self._waits_in = state
            return True
        now = self.clock.monotonic()
        # The functions of an object go on while its finalizer or record cannot be written.
        return any(
            isinstance(e.error, (FinalizerError, RecordError))
            and now - e.at <= _WRITTEN_WITHIN
            and (e.who, e.process) in alive
            and (obj := present.get(e.uid)) is not None
            and not (obj.is_deleting or self.is_paused(obj))
            and (obj.finalizers, obj.annotations) == (e.object.finalizers, e.object.annotations)
            for e in calls
        )

    def is_paused(self, obj: Object) -> bool:
        """Whether ``paused=`` of the App keeps an object in this state from all calls."""
        return self.app is not None and is_paused(self.app, obj)

    def _end_after(self, seconds: float, fault: object, end: Callable[[], None]) -> None:
        """Call ``end`` after ``seconds``; later if the same fault goes on for longer already."""
        until = self.clock.monotonic() + seconds
        present, _ = self._faults.get(fault, (until, end))
        self._faults[fault] = max(until, present), end

    # -- faults ------------------------------------------------------------------------------

    def crash(self, number: int = 0) -> None:
        """Crash a replica; it starts again as another process."""
        self._reset_counts()
        self.replicas[number].crash()

    def down(self, seconds: float) -> None:
        """Crash all replicas; they start again after ``seconds``."""
        self.note("the operator", "fault", f"is down for {seconds:g} s")
        self._is_down = True
        for replica in self.replicas:
            self.bury(replica)
        self._end_after(seconds, "down", self._end_down)

    def _end_down(self) -> None:
        self._is_down = False

    def bury(self, process: Process) -> None:
        """End a process at once: none of its threads runs again, and its watches are cut."""
        if not process.is_alive:
            return
        super().bury(process)
        self._crashed.append(process)
        self._faults.pop(process, None)
        self.schedule.freeze(process)
        for watch in process.watches:
            watch.abort()

    def restart(self, number: int = 0) -> None:
        """Stop a replica, wait until it has ended, and start it again.

        Raises:
            BrokenPromise: it does not end in 15 minutes.
        """
        replica = self.replicas[number]
        if self._is_down:
            return
        self._reset_counts()
        self.note(replica.name, "life", "is asked to stop")
        replica.stop.set()
        end = self.clock.monotonic() + _END_WITHIN
        while replica.is_alive and replica.thread is not None and replica.thread.is_alive():
            if self.clock.monotonic() > end:
                raise BrokenPromise(f"{replica.name} has not ended {_END_WITHIN:g} s after a stop")
            self.run(0.5)
        self._start_ended()

    def freeze(self, seconds: float, number: int = 0) -> None:
        """Suspend all threads of a replica for ``seconds``, as a paused machine does."""
        replica = self.replicas[number]
        if not replica.is_alive:
            return
        self.note(replica.name, "fault", f"is suspended for {seconds:g} s")
        self.schedule.freeze(replica)
        self._end_after(seconds, replica, lambda: self.schedule.thaw(replica))

    def lag(self, seconds: float) -> None:
        """Withhold watch events for ``seconds``, so that caches lag."""
        self.note("the server", "fault", f"holds back watch events for {seconds:g} s")
        self.server.api.stall_watches(True)
        self._end_after(seconds, "lag", lambda: self.server.api.stall_watches(False))

    def cut(self) -> None:
        """Cut all connections, those of watches included."""
        self.note("the network", "fault", "cuts all watches")
        self.server.cut_connections()

    def end_faults(self) -> None:
        """End all faults: lags, freezes, and :attr:`write_faults` and :attr:`failures` for good."""
        self.takes_write_faults = False
        self.write_faults.clear()
        for failures in self.failures.values():
            failures.clear()
        for _, end in self._faults.values():
            end()
        self._faults.clear()

    # -- checks while it runs ----------------------------------------------------------------

    def after_call(self, entry: Entry) -> None:
        """Count a call that has ended, unless it is of a timer, whose calls never end."""
        if not entry.is_of_timer:
            self._count("call", entry)

    def before_write(self, process: Process, entry: Entry) -> None:
        """Check a write that a replica is about to make."""
        self._count("write", entry)
        if process.identity and self.checks_lease:
            leases = self._lease_holders()
            if process.identity not in leases:
                holder = leases[0] or "nobody" if leases else "nobody"
                self.break_promise(
                    f"no writes after the lease is lost: {entry.line}, but {holder} has it",
                    entry.key,
                )
        super().before_write(process, entry)

    def _lease_holders(self) -> list[str | None]:
        return [lease["spec"].get("holderIdentity") for lease in self.server.objects(_LEASE)]

    @property
    def working(self) -> Sequence[Process]:
        """The replicas that hold a Lease, or all replicas if none does."""
        holders = self._lease_holders()
        return [
            one for one in self.replicas if one.identity and one.identity in holders
        ] or self.replicas

    def before_connection(self) -> None:
        """Let the seed choose another thread."""
        self.schedule.maybe_switch()

    def pass_turn(self) -> None:
        """Let other threads run; this thread never goes on if its process has crashed."""
        self.schedule.yield_now()

    def _count(self, what: str, entry: Entry) -> None:
        counted, now = (what, entry.kind, entry.key), self.clock.monotonic()
        since, count = self._counts.get(counted, (now, 0))
        since, count = (since, count + 1) if now - since <= _HOT_LOOP_WINDOW else (now, 1)
        self._counts[counted] = (since, count)
        if count > self.most_calls:
            act = "writes" if what == "write" else "is called for"
            name = entry.key.rpartition("/")[2]
            self.break_promise(
                f"no hot loop: {entry.who} {act} {name} {count} times although nothing "
                "happened from outside",
                entry.key,
            )

    def code_at_work(self) -> str:
        """The lines of the operator that ran in its last calls, or else those where its threads
        are, as text that follows a timeline."""
        if found := places_of(self.journal.entries):
            return found
        threads = sorted({_name_and_place(each) for each in self.schedule.fibers if _place(each)})
        lines = "".join(f"\n  {each}" for each in threads)
        return f"\nthreads of the operator:{lines}" if threads else ""

    def _reset_counts(self) -> None:
        self._counts.clear()

    def note(self, who: str, what: str, text: str, key: str = "") -> Entry:
        """Add an entry to the journal; a step or fault starts counting for hot loops again."""
        if what in ("step", "fault"):
            self._reset_counts()
        return super().note(who, what, text, key)

    def break_promise(self, text: str, key: str = "") -> None:
        """Record a broken promise; :meth:`run` raises the first one."""
        if self._broken is None and self._is_open:
            self._broken = BrokenPromise(f"{text}\n{timeline_of(self.journal.entries, key)}")
            self.schedule.is_interrupted = True

    def raise_broken(self) -> None:
        """Raise the broken promise that was recorded, if any."""
        if self._broken is not None:
            raise self._broken

    def _start_ended(self) -> bool:
        """Start the replicas again whose process has ended; whether there was one."""
        started = False
        for number, replica in enumerate(() if self._is_down else self.replicas):
            thread = replica.thread
            if replica.is_alive and thread is not None and thread.is_alive():
                continue
            if replica.is_alive and not replica.stop.is_set():
                self._restarts += 1
            if self._restarts > _MOST_PROCESSES:
                raise BrokenPromise(
                    f"{replica.name} ends again and again: {safe_repr(replica.error)}\n"
                    f"{self.timeline()}"
                ) from replica.error
            replica.is_alive = False
            replica.close()
            self.replicas[number] = self._start(number, replica.process + 1)
            started = True
        return started


@final
class Replica(Process):
    """One process of an operator in a :class:`World`; the argument of ``make``."""

    def __init__(self, world: World, name: str, process: int) -> None:
        """Made by the :class:`World`."""
        super().__init__(world, name, process)
        self.world = world
        self.error: BaseException | None = None
        """The error that ended it, None where there was none."""
        self.thread: threading.Thread | None = None

    def ends_with(self, error: BaseException | None) -> None:
        """Note that the process has ended without being asked to."""
        self.error = error
        if self.is_alive and not self.stop.is_set():
            why = "" if error is None else f" with {safe_repr(error)}"
            self.world.note(self.name, "life", f"ends by itself{why}")

    def run(self, runnable: Any) -> None:
        """Run the operator until it ends; the body of its thread."""
        try:
            settle(runnable.run(self.stop))
        except BaseException as error:
            self.ends_with(with_class(error))
        else:
            self.ends_with(None)


def _name_and_place(fiber: Fiber) -> str:
    place = _place(fiber)
    return f"{fiber.name}, at {place}" if place else fiber.name


def _place(fiber: Fiber) -> str:
    ident = None if fiber.thread is None else fiber.thread.ident
    return "" if ident is None else callback_place(ident)


def _asks_for(obj: Object, handler: Handler) -> bool:
    """Whether an App repeats a failed call of this function for the object as it is now."""
    if obj.is_deleting or handler.cause == "delete":
        return obj.is_deleting and handler.cause == "delete"
    return is_for(handler, obj)


def is_for(function: Handler | Timer, obj: Object) -> bool:
    """Whether a function is called for an object in this state, as an App takes its filter."""
    where = function.options.where
    try:
        return where is None or bool(where(obj))
    except Exception:
        return True
