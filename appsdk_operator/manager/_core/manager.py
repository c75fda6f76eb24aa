"""One process of an operator: shared cache and client, and everything that runs on them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Unpack, final

import attrs

from appsdk_operator.cache import Cache, Health
from appsdk_operator.client import Client, ClientConfig, ClientLike
from appsdk_operator.controllers import ControllerHost, ControllerOptions, Draft
from appsdk_operator.manager._core.cluster import Cluster, check_server
from appsdk_operator.manager._core.groups import Group, Groups
from appsdk_operator.manager._core.lifecycle import Elected, ElectorLike, Lifecycle
from appsdk_operator.manager._core.options import ManagerOptions, ManagerOptionsDict, check_names
from appsdk_operator.manager._core.runnable import Runnable, RunnableGroup, as_runnable, placements
from appsdk_operator.manager._core.signals import SLICE, check_main_thread, stop_on_signals
from appsdk_operator.manager._election.elector import Elector
from appsdk_operator.manager._election.fence import FencedClient
from appsdk_operator.manager._election.options import elector_config
from appsdk_operator.manager._events.recorder import EventBroadcaster, EventRecorder
from appsdk_operator.manager._lazy_value import LazyValue
from appsdk_operator.manager._servers.checks import HealthCheck, HealthChecks
from appsdk_operator.manager._servers.health import HealthServer
from appsdk_operator.manager._servers.metrics import MetricsServer, check_extra_path
from appsdk_operator.manager._servers.profile import ProfileServer
from appsdk_operator.resource import Object
from appsdk_operator.runtime import (
    Clock,
    Environment,
    Metrics,
    StopSignal,
    ThreadGroup,
    check_stop,
    default_metrics,
    get_logger,
)
from appsdk_operator.serving import HTTPHandler

__all__ = ["Manager"]

_log = get_logger("appsdk_operator.manager")

_LAST_ELECTION_REQUEST = 5.0
_LAST_EVENTS = 5.0
_LAST_EVENTS_IN_HASTE = 0.5
"""Where there is no time left: enough for one request, the one that says that the lead was lost."""


@final
class Manager:
    """Runs controllers and what they need, on one or several replicas.

    It has a cache and clients that its controllers share, takes part in the leader election, serves
    health, metrics and webhooks, and starts and stops everything in an order in which nobody misses
    what he needs:

        with Manager(ClientConfig.load(), health_server=HealthServerOptions()) as manager:
            manager.add(my_controller)
            manager.run(handle_signals=True)

    Everything is checked, and every port bound, at the construction; nothing runs before
    :meth:`run`. Semantics and order are those of controller-runtime's Manager; ``docs/manager.md``
    tells them, ``docs/differences.md`` where it differs. Thread-safe.

    Args:
        server: where the API server is; a config, which stays as it is, or a client that its owner
            closes. With a wrapped client the election shares it; with a config, or a plain
            :class:`Client`, the election has a client of its own.
        options: all options as a value, see :class:`ManagerOptions`.
        changes: single options, instead of those in ``options``.

    Raises:
        TypeError, ValueError: an option that cannot be used; the text says what to do.
        OSError: a port that cannot be bound.
    """

    def __init__(
        self,
        server: ClientConfig | ClientLike,
        options: ManagerOptions | None = None,
        **changes: Unpack[ManagerOptionsDict],
    ) -> None:
        """See the class."""
        check_server(server)
        self._options = options = _merged(options, changes)
        self._metrics = options.metrics or default_metrics()
        self._environment = Environment(options.clock, self._metrics)
        self._environment.inherit(options.clock, self._metrics)
        self._lock = threading.Lock()
        self._has_run = False
        self._is_closed = False
        self._is_running = False
        self._webhooks = LazyValue(self._make_webhooks)
        self._events: EventBroadcaster | None = None
        self._clusters: list[Cluster] = []
        self._drafts: list[Draft] = []
        self._elector: ElectorLike | None = None
        # What to close at the end, last first.
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self._closing.close)
            if options.leader_election is not None:
                self._elector = _make_elector(
                    server,
                    options,
                    metrics=self._metrics,
                    on_event=self._record_election,
                    closing=self._closing,
                )
            self._cluster = Cluster(
                server,
                name="cache",
                cache=options.cache,
                client=options.client,
                new_cache=options.new_cache,
                new_client=options.new_client,
                fence=self.fence,
                clock=options.clock,
                metrics=self._metrics,
            )
            self._lifecycle = Lifecycle(
                elector=self._elector,
                base_stop=options.base_stop,
                graceful_shutdown_timeout=options.graceful_shutdown_timeout,
                clock=options.clock,
            )
            self.add(self._cluster)
            self._servers = _Servers(
                options,
                groups=self._lifecycle.groups,
                client=self._cluster.unfenced_client,
                metrics=self._metrics,
                snapshot=self.debug_snapshot,
            )
            self._closing.callback(self._servers.close)
            self._add_default_checks()
            if isinstance(options.webhook_server, Runnable):
                self._webhooks.get()
            on_failure.pop_all()

    def __repr__(self) -> str:
        return f"<Manager of {self._cluster.raw_client!r}>"

    # What controllers share.

    @property
    def client(self) -> ClientLike:
        """Reads what is cached from the cache, own writes included, and the rest from the server.

        Writes are refused once this process has lost the lead.
        """
        return self._cluster.client

    @property
    def live_client(self) -> ClientLike:
        """Reads from the server only; for the rest like :attr:`client`."""
        return self._cluster.live_client

    @property
    def cache(self) -> Cache:
        """The local copies."""
        return self._cluster.cache

    @property
    def clock(self) -> Clock:
        """What everything waits on."""
        return self._options.clock

    @property
    def metrics(self) -> Metrics:
        """Where everything publishes."""
        return self._metrics

    @property
    def controller_options(self) -> ControllerOptions:
        """The defaults of its controllers."""
        return self._options.controller_options

    @property
    def options(self) -> ManagerOptions:
        """What it was told."""
        return self._options

    def fence(self, client: ClientLike) -> ClientLike:
        """``client``, refusing writes once this process has lost the lead; for other clusters.

        Cluster(ClientConfig.load(context="elsewhere"), fence=manager.fence)
        """
        return client if self._elector is None else FencedClient(client, self._elector)

    def event_recorder(self, name: str) -> EventRecorder:
        """What records events in the name of the controller ``name``.

        What waits to be written is written at the end of the run, after all else has ended.

        Raises:
            ValueError: no server takes it as a reporting controller.
        """
        with self._lock:
            if self._events is None:
                self._events = EventBroadcaster(
                    self._cluster.unfenced_client,
                    options=self._options.events,
                    clock=self._options.clock,
                    metrics=self._metrics,
                )
                if self._is_closed:
                    self._events.close(0.0)  # nobody else would: events are dropped from now on
            return self._events.recorder(name)

    # What runs.

    def add(self, runnable: Runnable | Callable[[StopSignal], object]) -> None:
        """Run ``runnable``: with its group, or at once when that has started.

        A controller, an :class:`Operator`, a :class:`Cluster`, a cache or an informer, a server,
        any object with ``run(stop)``, or a function; the rules of :func:`placements` say in which
        group. What it raises ends the manager; when it returns, nothing happens.

        Raises:
            RuntimeError: the manager stops already.
            ValueError: it was added before.
            TypeError: it cannot be run, or does not say clearly where.
        """
        runnable = as_runnable(runnable)
        belong_to = getattr(runnable, "belong_to", None)
        if callable(belong_to):
            belong_to(self, self._options.name, self._options.previous_names)
        self._environment.hand_down(runnable)
        self._lifecycle.groups.add(runnable)
        if isinstance(runnable, Cluster):
            with self._lock:
                self._clusters.append(runnable)
                is_closed = self._is_closed
                if not is_closed:
                    self._closing.callback(runnable.close)
            if is_closed:  # just now
                runnable.close()

    def note_draft(self, draft: Draft) -> None:
        """For builders: :meth:`run` warns of a controller that was begun and not built by then."""
        with self._lock:
            self._drafts = [one for one in self._drafts if not one.is_over]
            self._drafts.append(draft)

    @property
    def webhook_server(self) -> Runnable:
        """The webhook server; made now if the option is a function and it was not used before.

        Raises:
            LookupError: the manager has none.
            RuntimeError: the manager stops already, or the function asks for the webhook server.
        """
        return self._webhooks.get()

    def add_ready_check(self, name: str, check: HealthCheck) -> None:
        """Have the pod sent work only while ``check`` passes; served at ``/readyz/<name>``.

        Args:
            name: a part of a path; ``caches``, ``controllers``, ``leader-election`` and
                ``manager`` are the manager's own.
            check: fails by raising, or by returning a Health that is not ready.

        Raises:
            RuntimeError: the manager was started.
            ValueError: the name is taken, or would not do in a path.
        """
        self._refuse_when_started(f"ready check {name!r}")
        self._servers.add_ready_check(name, check)

    def add_health_check(self, name: str, check: HealthCheck) -> None:
        """Have the pod killed when ``check`` goes on failing; served at ``/healthz/<name>``.

        For the arguments and errors see :meth:`add_ready_check`; there are no checks but yours.
        """
        self._refuse_when_started(f"health check {name!r}")
        self._servers.add_health_check(name, check)

    def add_metrics_handler(self, path: str, handler: HTTPHandler) -> None:
        """Serve something else beside the metrics.

        Raises:
            RuntimeError: the manager was started.
            ValueError: ``path`` is ``/metrics``, is taken, or begins without a slash.
        """
        self._refuse_when_started(f"metrics handler {path!r}")
        self._servers.add_metrics_handler(path, handler)

    # How it stands.

    @property
    def elected(self) -> Elected:
        """Set once this process leads and what runs on the leader only has started.

        Without leader election: once everything has started.
        """
        return self._lifecycle.elected

    @property
    def leader(self) -> str:
        """The identity of the leader; "" when there is none, or no election."""
        return "" if self._elector is None else self._elector.leader

    @property
    def term(self) -> int:
        """The number of the lead, see :attr:`Elector.term`; 0 without an election.

        Give it along with writes to other systems, and have them refuse a smaller one than they
        have seen.

        Raises:
            TypeError: ``new_elector`` made one that has no ``term``.
        """
        if self._elector is None:
            return 0
        term: object = getattr(self._elector, "term", None)
        if not isinstance(term, int):
            raise TypeError(
                f"{self._elector!r}, which new_elector made, has no term: give it an attribute "
                "term, a number that grows with each change of the leader"
            )
        return term

    @property
    def identity(self) -> str:
        """The own identity in the election; "" without one."""
        return "" if self._elector is None else self._elector.identity

    @property
    def addresses(self) -> dict[str, str]:
        """Where its servers listen, by name: ``metrics``, ``health``, ``profile``."""
        return self._servers.addresses

    def health(self) -> Health:
        """Whether caches, controllers and the election are as they should be, and if not why."""
        checks = (self._caches_health, self._controllers_health, self._election_health)
        healths = [check() for check in checks]
        bad = [health.text for health in healths if not health.is_ready]
        return Health(not bad, "; ".join(bad) or "; ".join(h.text for h in healths))

    def debug_snapshot(self) -> dict[str, Any]:
        """Groups, runnables, and what controllers tell of their queues, as plain values."""
        snapshot: dict[str, Any] = {
            "elected": self.elected.is_set(),
            "stopping": self._lifecycle.is_stopping,
            "groups": self._lifecycle.groups.snapshot(),
        }
        if self._elector is not None:
            snapshot["leader_election"] = {
                "identity": self._elector.identity,
                "leader": self._elector.leader,
                "is_leader": self._elector.is_leader,
            }
        return snapshot

    # Running.

    def run(self, stop: StopSignal | None = None, *, handle_signals: bool = False) -> None:
        """Start everything, and run it until ``stop`` is set or something fails; then stop it.

        Runnables are not told of ``stop`` at once, but group by group; what they share ends after
        them. All together they have ``graceful_shutdown_timeout``. What has not ended then goes on,
        and keeps the process from ending.

        Args:
            stop: ends the run; default: only a signal or a failure does.
            handle_signals: stop on SIGINT and SIGTERM; a second one ends the process at once.
                Works in the main thread only.

        Raises:
            Exception: what failed first; what failed later is in the log and in its notes.
            LeadershipLost: the lease was lost. Nobody was waited for: end the process.
            TimeoutError: not all have ended in time; the text names them.
            ExceptionGroup: something failed, and not all have ended in time.
            RuntimeError: it was started already.
            ValueError: ``handle_signals`` outside of the main thread.
        """
        if handle_signals:
            check_main_thread("manager")
        if stop is not None:
            check_stop(stop)
        with self._lock:
            if self._has_run:
                raise RuntimeError("manager already started: make a new one")
            self._has_run = self._is_running = True
            drafts, self._drafts = self._drafts, []
        for draft in drafts:
            if not draft.is_over:
                _log.warning(
                    "a controller was begun with %s and is not built, so that it does not run: end "
                    "it with .complete(reconciler)",
                    draft,
                )
        try:
            if handle_signals:
                self._run_with_signals(stop)
            else:
                self._lifecycle.run(stop)
        finally:
            with self._lock:
                self._is_running = False
            self.close()

    def close(self) -> None:
        """Let go of ports and connections of a manager that is not to run.

        :meth:`run` does so itself. Harmless when done twice; stops a manager that runs, without
        waiting for it.
        """
        self._lifecycle.close()
        with self._lock:
            if self._is_running:
                return
            self._has_run = self._is_closed = True
            events, closing = self._events, self._closing.pop_all()
        with closing:
            if events is not None:
                has_time = self._lifecycle.has_time
                events.close(_LAST_EVENTS if has_time else _LAST_EVENTS_IN_HASTE)

    def __enter__(self) -> Manager:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run_with_signals(self, stop: StopSignal | None) -> None:
        """Leave the waiting to another thread, so that this one always has time for signals."""
        own = stop.child() if stop is not None else StopSignal()
        ended = StopSignal()
        raised: list[BaseException] = []

        def run() -> None:
            try:
                self._lifecycle.run(own)
            except BaseException as error:
                raised.append(error)
            finally:
                ended.set()

        threads = ThreadGroup("manager")
        with stop_on_signals(own):
            threads.start("run", run)
            try:
                while not ended.wait(SLICE):
                    pass
            finally:
                own.set()
        threads.join()
        if raised:
            raise raised[0]

    # Parts.

    def _make_webhooks(self) -> Runnable:
        given = self._options.webhook_server
        if given is None:
            raise LookupError("the manager has no webhook server: give webhook_server=")
        if isinstance(given, Runnable):
            self._lifecycle.groups.add(given, group=RunnableGroup.WEBHOOKS)
            return given
        made = given()
        try:
            server = as_runnable(made)
            self._lifecycle.groups.add(server, group=RunnableGroup.WEBHOOKS)
        except BaseException:
            # Nobody else has it, and it may have bound its port.
            getattr(made, "close", _nothing)()
            raise
        return server

    def _record_election(self, lease: Object, text: str) -> None:
        # Different actions: what is alike but for its note becomes one event.
        action = "StopLeading" if text.endswith("stopped leading") else "StartLeading"
        recorder = self.event_recorder("leader-election")
        recorder.event(lease, "Normal", "LeaderElection", action, text)

    def _refuse_when_started(self, what: str) -> None:
        with self._lock:
            if self._has_run:
                raise RuntimeError(f"{what} comes too late: the manager was started already")

    def _add_default_checks(self) -> None:
        checks: dict[str, HealthCheck] = {
            "manager": self._manager_health,
            "controllers": self._controllers_health,
        }
        # Where the API server asks this process to convert what the caches are to list, it has to
        # be ready first.
        if self._options.webhook_server is None:
            checks["caches"] = self._caches_health
        if self._elector is not None:
            checks["leader-election"] = self._election_health
        for name, check in checks.items():
            self._servers.add_ready_check(name, check)

    def _manager_health(self) -> Health:
        if self._lifecycle.is_stopping:
            return Health(False, "the manager stops")
        return Health(True, "the manager runs")

    def _caches_health(self) -> Health:
        with self._lock:
            clusters = list(self._clusters)
        return _caches_health(clusters, self._lifecycle.groups[RunnableGroup.CACHES])

    def _controllers_health(self) -> Health:
        return _runnables_health(self._lifecycle.groups)

    def _election_health(self) -> Health:
        return Health(True, "no election") if self._elector is None else self._elector.health()


@final
class _Servers:
    """Metrics, health and profile servers: bound, and queued in their groups."""

    def __init__(
        self,
        options: ManagerOptions,
        *,
        groups: Groups,
        client: ClientLike,
        metrics: Metrics,
        snapshot: Callable[[], dict[str, Any]],
    ) -> None:
        """The servers that ``options`` ask for; when one cannot be made, none is left behind."""
        self._groups = groups
        self._metrics: MetricsServer | None = None
        self._health: HealthServer | None = None
        self._profile: ProfileServer | None = None
        self._extra_paths: set[str] = set()
        # Where there is no server the same names are refused, so that none of them fails only
        # in production.
        self._ready_checks = HealthChecks("readyz", clock=options.clock)
        self._health_checks = HealthChecks("healthz", clock=options.clock)
        try:
            if options.metrics_server is not None and options.metrics_server.is_enabled:
                self._metrics = MetricsServer(
                    options.metrics_server, metrics=metrics, client=client, clock=options.clock
                )
            if options.health_server is not None and options.health_server.is_enabled:
                self._health = HealthServer(options.health_server, clock=options.clock)
                self._ready_checks = self._health.ready_checks
                self._health_checks = self._health.health_checks
            if options.profile_server is not None and options.profile_server.is_enabled:
                self._profile = ProfileServer(
                    options.profile_server, snapshot=snapshot, clock=options.clock
                )
            for server in self._all:
                groups.add(server)
        except BaseException:
            self.close()
            raise

    @property
    def _all(self) -> list[MetricsServer | HealthServer | ProfileServer]:
        servers = (self._metrics, self._health, self._profile)
        return [server for server in servers if server is not None]

    @property
    def addresses(self) -> dict[str, str]:
        """Where they listen, by name."""
        return {server.name: server.address for server in self._all}

    def add_ready_check(self, name: str, check: HealthCheck) -> None:
        """See :meth:`Manager.add_ready_check`."""
        self._ready_checks.add(name, check)

    def add_health_check(self, name: str, check: HealthCheck) -> None:
        """See :meth:`Manager.add_health_check`."""
        self._health_checks.add(name, check)

    def add_metrics_handler(self, path: str, handler: HTTPHandler) -> None:
        """See :meth:`Manager.add_metrics_handler`."""
        if self._metrics is not None:
            self._metrics.add_handler(path, handler)
            return
        check_extra_path(path)
        if path in self._extra_paths:
            raise ValueError(f"{path} of the metrics server has a handler already")
        self._extra_paths.add(path)

    def close(self) -> None:
        """Let go of the ports of those that have not been started."""
        for server in self._all:
            [placement] = placements(server)
            if not self._groups[placement.group].has_started:
                server.close()


def _caches_health(clusters: Sequence[Cluster], group: Group) -> Health:
    """Whether the caches of ``clusters``, and what else is in their group, follow their servers."""
    others = [r for r in group.members if not any(r is cluster for cluster in clusters)]
    asked = [getattr(one, "health", None) for one in (*clusters, *others)]
    outcomes = [health() for health in asked if callable(health)]
    healths = [outcome for outcome in outcomes if isinstance(outcome, Health)]
    bad = [health.text for health in healths if not health.is_ready]
    return Health(not bad, "; ".join(bad or [health.text for health in healths]))


def _runnables_health(groups: Groups) -> Health:
    """Whether all runnables that can tell are well, the caches aside."""
    caches = groups[RunnableGroup.CACHES].runnables
    bad, good = [], 0
    for runnable in groups.runnables:
        health = getattr(runnable, "health", None)
        if not callable(health) or any(runnable is cache for cache in caches):
            continue
        outcome = health()
        if isinstance(outcome, Health):
            good += outcome.is_ready
            if not outcome.is_ready:
                bad.append(outcome.text)
    return Health(not bad, "; ".join(bad) or f"{good} runnables ok")


def _make_elector(
    server: ClientConfig | ClientLike,
    options: ManagerOptions,
    *,
    metrics: Metrics,
    on_event: Callable[[Object, str], None],
    closing: contextlib.ExitStack,
) -> ElectorLike:
    """The candidate that ``options`` ask for; what has to be closed is put on ``closing``.

    It has a client of its own wherever one can be made: from the config of the election, of the
    manager, or of the manager's client. Only a wrapped client is shared.
    """
    election = options.leader_election
    assert election is not None
    base = server.config if isinstance(server, Client) else server
    config = options.leader_election_config
    if config is None and isinstance(base, ClientConfig):
        config = elector_config(base, election)
    client: Any = server
    close: Callable[[], object] = _nothing
    if config is not None:
        if options.new_client is not None:
            client = options.new_client(config)
        else:
            client = Client(config, clock=options.clock, metrics=metrics)
        close = getattr(client, "close", _nothing)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(close)
        if options.new_elector is not None:
            elector = options.new_elector(client, election)
        else:
            elector = own = Elector(
                client,
                election,
                clock=options.clock,
                rng=options.rng,
                metrics=metrics,
                on_event=on_event,
            )
            # Below the client's close, so after it: with that its last request ends.
            closing.callback(own.retire)
            closing.callback(own.join, _LAST_ELECTION_REQUEST)
        closing.callback(close)
        on_failure.pop_all()
    return elector


def _merged(options: ManagerOptions | None, changes: ManagerOptionsDict) -> ManagerOptions:
    check_names(changes)
    if options is None:
        return ManagerOptions(**changes)
    if not isinstance(options, ManagerOptions):
        raise TypeError(
            f"options={options!r}: give ManagerOptions(…), or single options by their names"
        )
    return attrs.evolve(options, **changes)


def _nothing() -> None:
    pass


def _fits(manager: Manager) -> ControllerHost:
    return manager
