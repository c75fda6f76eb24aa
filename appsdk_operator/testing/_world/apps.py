"""An App as the operator of a world."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, final

import attrs

from appsdk_operator.app import (
    DEFAULT_FAILURE_EVENTS,
    App,
    Handler,
    Observer,
    Reconciling,
    Timer,
    handled_kinds,
    observed_manager,
)
from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.controllers import TerminalError
from appsdk_operator.manager import LeaderElection, Manager
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import settle, with_class
from appsdk_operator.testing._world.cluster import Process
from appsdk_operator.testing._world.places import place_of
from appsdk_operator.webhooks import WebhookServerOptions


def kind_of(app: App) -> Kind[Any, Any]:
    """The kind that a world's other clients write: the first that the App handles.

    Raises:
        ValueError: it handles none.
    """
    found = handled_kinds(app)
    if not found:
        raise ValueError(f"{app!r} handles no kind: give the kind of which there are objects")
    return found[0]


def definitions_of(app: App) -> list[Mapping[str, Any]]:
    """The CRDs of the App."""
    return [crd.to_dict() for crd in app.crds()]


def maker_of(app: App, *, leader_election: bool) -> Callable[[Process], Manager]:
    """What makes the App's manager for a process.

    Without the App's servers, which would open ports, and without Events of what is given up, which
    are not part of a history unless the App asks for them. The calls of watchers, reconcilers,
    functions and timers are recorded.
    """
    election, given = app.options.leader_election, app.options.failure_events
    if election is None and leader_election:
        election = LeaderElection(id=app.name)

    def make(process: Process) -> Manager:
        own = election and attrs.evolve(
            election,
            namespace=election.namespace or "default",
            identity=f"{process.name}-{process.process}",
        )
        return observed_manager(
            app,
            process.config,
            _FunctionRecorder(process),
            leader_election=own,
            metrics_server=None,
            health_server=None,
            profile_server=None,
            webhook_server=WebhookServerOptions(address=""),
            failure_events=None if given is DEFAULT_FAILURE_EVENTS else given,
            clock=process.clock,
            metrics=process.metrics,
        )

    return make


@final
class _FunctionRecorder(Observer):
    """Records what an App calls in one process, and makes functions and timers fail."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def target(self, target: Any, kind: Kind[Any, Any]) -> Any:
        """A watcher, or all functions of a kind."""
        return self._process.recorded(target, kind=kind)

    def reconciler(self, target: Any, declared: Reconciling) -> Any:
        """A reconciler; which changes pass its filters is known for those of objects alone."""
        filters = dict(declared.filters)
        where = filters.pop("where", None)

        def concerns(obj: Object) -> bool:
            try:
                return not filters and (where is None or where(Event(ResourceAction.CREATE, obj)))
            except Exception:
                return True  # as its source takes it

        return self._process.recorded(target, kind=declared.kind, concerns=concerns)

    def function(self, handler: Handler) -> Callable[..., Any]:
        """A function of an ``on_…`` declaration."""
        name = getattr(handler.function, "__name__", "a function")
        when = handler.options.when
        names = name if when is None else f"{name} when {when}"

        @functools.wraps(handler.function)
        def call(first: Object, second: Object | None = None) -> Any:
            old, new = (None, first) if second is None else (first, second)
            return self._record("function", names, handler, handler.function, old, new)

        return call

    def timer(self, timer: Timer) -> Callable[..., Any]:
        """A function of an ``every`` declaration; without a kind it is not recorded."""
        if timer.kind is None:
            return super().timer(timer)

        @functools.wraps(timer.function)
        def call(obj: Object) -> Any:
            return self._record("timer", str(timer.schedule), timer, timer.function, None, obj)

        return call

    def result(
        self, declared: Handler | Timer, write: Callable[[Object, Any], None]
    ) -> Callable[[Object, Any], None]:
        """What writes the results of a declaration: a call whose result is lost has failed."""

        def call(obj: Object, value: Any) -> None:
            try:
                write(obj, value)
            except BaseException as error:
                made = self._process.recorder.current()
                entries = made.writes if made is not None else ()
                for entry in reversed(entries):
                    if entry.declared is declared:
                        entry.error = with_class(error)
                        break
                raise

        return call

    def _record(
        self,
        what: str,
        text: str,
        declared: Handler | Timer,
        function: Callable[..., Any],
        old: Object | None,
        new: Object,
    ) -> Any:
        recorder = self._process.recorder
        entry = recorder.entry(
            f"calls {text} for",
            new.kind,
            new.namespace,
            new.name,
            what=what,
            action=declared.cause if isinstance(declared, Handler) else "",
            uid=new.uid,
            place=place_of(declared.function),
            declared=declared,
            old=old,
            object=new,
        )
        failures = self._process.cluster.failures[what]
        failure = failures.pop(0) if failures else ""

        def do() -> Any:
            if failure == "fails":
                raise ConnectionError("fails, as the history says")
            if failure == "fails for good":
                raise TerminalError("fails for good, as the history says")
            outcome = settle(function(new) if old is None else function(old, new))
            if failure == "fails late":
                raise ConnectionError("fails late, as the history says")
            return outcome

        return recorder.record(entry, -1, do)
