"""A Lease on a server that does as the test says, and an elector in a thread."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from appsdk_operator import client as c
from appsdk_operator.manager import Elector, LeaderElection
from appsdk_operator.manager._election.client import LEASE
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.waiting import eventually

PATIENCE = 10.0


def answer(code: int, **more: Any) -> Exception:
    return c.error_from_status({"code": code, **more})


class FakeLeases:
    """Leases in memory. ``fault`` is asked before each request is done, and may raise or block."""

    def __init__(self) -> None:
        self.leases: dict[str, Object] = {}
        self.calls: list[str] = []
        self.fault: Callable[[str], None] = lambda verb: None
        self.after: Callable[[str], None] = lambda verb: None
        self.held: set[int] = set()
        """The threads of requests that wait until the test goes on."""
        self._versions = itertools.count(1)
        self._lock = threading.RLock()
        self.called = threading.Condition(self._lock)

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        assert (kind, namespace) == (LEASE, "ops")
        self._begin("get")
        with self._lock:
            if name not in self.leases:
                raise answer(404, reason="NotFound")
            return self.leases[name]

    def create(self, obj: MutableObject, /) -> Object:
        self._begin("create")
        with self._lock:
            if obj.name in self.leases:
                raise answer(409, reason="AlreadyExists")
            return self._store(obj, "create")

    def update(self, obj: MutableObject, /) -> Object:
        self._begin("update")
        with self._lock:
            known = self.leases.get(obj.name)
            if known is None:
                raise answer(404, reason="NotFound")
            if known.resource_version != obj.resource_version:
                raise answer(409, reason="Conflict")
            return self._store(obj, "update")

    def put(self, name: str, holder: str, **spec: Any) -> None:
        """Write a Lease as somebody else does."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, **spec}
        with self._lock:
            self._store(MutableObject.new(LEASE, name, namespace="ops", spec=spec), "")

    def touch(self, name: str, **labels: str) -> None:
        """Label a Lease as somebody else does."""
        with self._lock:
            draft = self.leases[name].mutable_copy()
            draft.labels.update(labels)
            self._store(draft, "")

    def holder(self, name: str = "lock") -> str:
        with self._lock:
            lease = self.leases.get(name)
            return "" if lease is None else lease.spec.get("holderIdentity") or ""

    def wait_for_calls(self, *calls: str) -> None:
        """Wait until the last calls were these."""
        with self.called:
            is_so = self.called.wait_for(
                lambda: self.calls[-len(calls) :] == list(calls), timeout=PATIENCE
            )
            assert is_so, self.calls

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """For a fault that waits for the test: meanwhile time may go by."""
        me = threading.get_ident()
        self.held.add(me)
        try:
            yield
        finally:
            self.held.discard(me)

    def _begin(self, verb: str) -> None:
        with self.called:
            self.calls.append(verb)
            self.called.notify_all()
        self.fault(verb)

    def _store(self, obj: MutableObject, verb: str) -> Object:
        data = {**obj.data, "metadata": {**obj.data["metadata"]}}
        data["metadata"]["resourceVersion"] = str(next(self._versions))
        data["metadata"].setdefault("uid", f"uid-{next(self._versions)}")
        stored = self.leases[obj.name] = Object.from_dict(LEASE, data)
        self.after(verb)
        return stored


class Running:
    """An elector in a thread; the test's fixture ends all of them."""

    all: ClassVar[list[Running]] = []

    def __init__(
        self,
        leases: Any,
        clock: Any = None,
        *,
        identity: str = "me",
        on_started: Callable[[], None] = lambda: None,
        callbacks: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.leases = leases
        self.clock = clock or ManualClock(start=1000.0)
        self.metrics = Metrics()
        self.events: list[str] = []
        self.leaders: list[str] = []
        self.elector = Elector(
            leases,
            LeaderElection(id="lock", namespace="ops", identity=identity, **options),
            clock=self.clock,
            metrics=self.metrics,
            **{
                "on_new_leader": self.leaders.append,
                "on_event": lambda lease, text: self.events.append(text),
                **(callbacks or {}),
            },
        )
        self.is_requesting = False
        perform = self.elector._perform

        def performed(action: Any, done: StopSignal) -> None:
            self.is_requesting = True
            try:
                perform(action, done)
            finally:
                self.is_requesting = False

        self.elector._perform = performed  # type: ignore[method-assign]
        self.stop_signal = StopSignal(clock=self.clock)
        self.pause = StopSignal()
        self.started = threading.Event()
        self.error: BaseException | None = None

        def started() -> None:
            self.started.set()
            on_started()

        def run() -> None:
            try:
                self.elector.run(self.stop_signal, started)
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=run, name=f"elector-{identity}")
        self.all.append(self)

    def start(self) -> Running:
        self.thread.start()
        return self

    def lead(self) -> Running:
        """Start it, and wait until it leads."""
        self.start()
        assert self.started.wait(PATIENCE)
        return self

    def end(self) -> None:
        """Wait until it has ended by itself."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        assert not self.elector.join(PATIENCE)

    def is_waiting(self) -> bool:
        """Whether all on its clock have ended, or wait for a time or a request that is held."""
        alive = [
            one
            for one in self.all
            if one.clock is self.clock and one.thread.is_alive() and one.thread.ident is not None
        ]
        if len(self.clock._waiters) < len(alive):
            return False
        return all(not one.is_requesting or one.is_held for one in alive)

    @property
    def is_held(self) -> bool:
        """Whether its last request is one that the test holds."""
        requests = self.elector._requests
        return bool(requests) and requests[-1].ident in self.leases.held

    def advance_until(self, condition: Callable[[], Any]) -> None:
        """Let time pass, a little at a time, until the condition holds."""
        for _ in range(2000):
            if condition():
                return
            self.clock.advance(0.1)
            # Who was woken has to come to its next wait, or time runs away from it.
            assert eventually(self.is_waiting), "it does not come to its next wait"
        raise AssertionError("it did not come true")

    def stop(self) -> None:
        self.stop_signal.set()
        self.end()
        if self.error is not None:
            raise self.error
