"""A controller that does one step at a time, with an informer whose events the test makes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.cache import Event, EventSource, ResourceAction
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.watchers import InformerController, WatcherCall
from tests.runs import Run

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CREATE, UPDATE, DELETE, RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.UPDATE,
    ResourceAction.DELETE,
    ResourceAction.RESYNC,
)


def make_widget(name: str = "a", version: int = 1, **metadata: Any) -> Object:
    """``make_widget("a", 2, generation=3, finalizers=[...], spec={...})``."""
    kind = metadata.pop("kind", WIDGET)
    spec = metadata.pop("spec", {})
    defaults = {"namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return Object.from_dict(
        kind, {"metadata": {"name": name, **defaults, **metadata}, "spec": spec}
    )


class ScriptedInformer:
    """An informer without a server: what it tells is what the test makes it tell."""

    def __init__(self) -> None:
        self.handler: EventSource | None = None
        self.registrations = 0
        self.is_running = threading.Event()
        self.outcome: BaseException | None = None
        self.ends_by_itself = False
        self.has_ended = False

    def add_event_handler(self, handler: EventSource) -> None:
        self.handler = handler
        self.registrations += 1

    def run(self, stop: StopSignal) -> None:
        self.is_running.set()
        try:
            if not self.ends_by_itself:
                stop.wait()
            if self.outcome is not None:
                raise self.outcome
        finally:
            self.has_ended = True

    def tell(self, *events: Event) -> None:
        assert self.handler is not None
        self.handler.on_events(events)

    def add(self, *objects: Object, is_initial: bool = False) -> None:
        self.tell(*(Event(CREATE, obj, None, is_initial) for obj in objects))

    def update(self, old: Object, new: Object) -> None:
        self.tell(Event(UPDATE, new, old))

    def delete(self, obj: Object) -> None:
        self.tell(Event(DELETE, obj))

    def resync(self, *objects: Object) -> None:
        self.tell(*(Event(RESYNC, obj) for obj in objects))


class RecordedWatcher:
    """Writes down its calls, and fails as planned: one entry of ``plan`` for each call."""

    def __init__(self, name: str, calls: list[str], plan: list[Any] | None = None) -> None:
        self.name = name
        self.calls = calls
        self.plan = plan if plan is not None else []
        self.objects: list[tuple[Object, ...]] = []
        self.during: Callable[[str], None] = lambda _: None

    def add(self, obj: Object) -> None:
        self._record("CREATE", obj)

    def update(self, old: Object, new: Object) -> None:
        self._record("RESYNC" if old is new else f"UPDATE {old.resource_version}->", old, new)

    def delete(self, obj: Object) -> None:
        self._record("DELETE", obj)

    def _record(self, what: str, *objects: Object) -> None:
        obj = objects[-1]
        gap = "" if what.endswith(">") else " "
        call = f"{self.name} {what}{gap}{obj.resource_version} of {obj.name}"
        self.calls.append(call)
        self.objects.append(objects)
        self.during(call)
        outcome = self.plan.pop(0) if self.plan else None
        if outcome is not None:
            raise outcome


class Rig:
    """A controller on a manual clock, what its watchers were told, and what failed."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.calls: list[str] = []
        self.errors: list[tuple[Exception, WatcherCall]] = []
        self.metrics = options.setdefault("metrics", Metrics())
        options.setdefault("error_handler", lambda *failure: self.errors.append(failure))
        options.setdefault("clock", self.clock)
        self.controller = InformerController(**options)
        self.informer = self.add_informer()
        self._runs: list[Run] = []
        self.raised: list[BaseException] = []

    def add_informer(self, kind: Kind | str = WIDGET) -> ScriptedInformer:
        informer = ScriptedInformer()
        self.controller.add_informer(informer, kind)
        return informer

    def make_watcher(self, name: str = "w", *plan: Any) -> RecordedWatcher:
        return RecordedWatcher(name, self.calls, list(plan))

    def watcher(self, name: str = "w", *plan: Any, kind: Kind | str = WIDGET) -> RecordedWatcher:
        watcher = self.make_watcher(name, *plan)
        self.controller.add_watcher(watcher, kind)
        return watcher

    def work(self, limit: int = 10_000) -> list[str]:
        """Handle all that is ready; what the watchers were told by that."""
        before = len(self.calls)
        for _ in range(limit):
            if not self.controller.process_next():
                return self.calls[before:]
        raise AssertionError("the controller does not come to rest")

    def after(self, seconds: float) -> list[str]:
        """Let time pass, then as :meth:`work`."""
        self.clock.advance(seconds)
        return self.work()

    def start(self) -> StopSignal:
        """Run the controller in a thread until the test ends, or the signal is set."""
        self._runs.append(Run(self.controller, raised=self.raised).start())
        return self._runs[-1].stop

    def join(self) -> list[BaseException]:
        """Wait for the run to end by itself; what it raised."""
        for run in self._runs:
            run.join()
        return self.raised

    def stop(self) -> list[BaseException]:
        """Stop the run; what it raised."""
        for run in self._runs:
            run.stop.set()
        return self.join()

    def close(self) -> None:
        self.stop()
        self.controller.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A controller with the default options."""
    made = Rig()
    yield made
    made.close()


@pytest.fixture
def make_rig() -> Iterator[Callable[..., Rig]]:
    """Makes controllers with options."""
    rigs: list[Rig] = []

    def make(**options: Any) -> Rig:
        rigs.append(Rig(**options))
        return rigs[-1]

    yield make
    for made in rigs:
        made.close()


@pytest.fixture
def widget() -> Callable[..., Object]:
    """Makes objects."""
    return make_widget
