"""The manager: one process of an operator, with a shared cache and client, servers and election."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast, final

import attrs

from appsdk_operator._lazy import if_loaded
from appsdk_operator._version import __version__
from appsdk_operator.cache import Cache, Health
from appsdk_operator.client import Client, ClientConfig, ClientLike
from appsdk_operator.controllers import ControllerOptions, Draft
from appsdk_operator.manager._core.announcements import Announcements
from appsdk_operator.manager._core.cluster import CacheSetup, Cluster, check_server
from appsdk_operator.manager._core.groups import Group, Groups
from appsdk_operator.manager._core.lifecycle import Elected, ElectorLike, Lifecycle
from appsdk_operator.manager._core.options import ManagerOptions, ManagerOptionsDict, check_names
from appsdk_operator.manager._core.runnable import (
    Runnable,
    RunnableGroup,
    as_runnable,
    health_of,
    placements,
)
from appsdk_operator.manager._core.signals import check_main_thread, run_with_signals
from appsdk_operator.manager._lazy_value import LazyValue
from appsdk_operator.manager._servers.checks import HealthCheck, HealthChecks
from appsdk_operator.resource import Object
from appsdk_operator.runtime import (
    ActivityObserver,
    Clock,
    Family,
    Metrics,
    ObservedParts,
    Sample,
    StopSignal,
    check_clock,
    check_stop,
    counted,
    environment,
    get_logger,
    owned_by,
    present_clock,
    present_metrics,
)

if TYPE_CHECKING:
    from appsdk_operator.manager._core.debug_state import DebugState
    from appsdk_operator.manager._core.pauses import Pauses
    from appsdk_operator.manager._events.recorder import EventBroadcaster, EventRecorder
    from appsdk_operator.manager._servers.health import HealthServer
    from appsdk_operator.manager._servers.metrics import MetricsServer
    from appsdk_operator.manager._servers.profile import ProfileServer
    from appsdk_operator.serving import HTTPHandler
    from appsdk_operator.webhooks import Webhooks, WebhookServer

_log = get_logger("appsdk_operator.manager")

OWN_READY_CHECKS = ("caches", "controllers", "leader-election", "manager", "webhooks")
"""The names of a manager's own ready checks."""
_KIT = Family("appsdk_operator_info", "gauge", "The version of the kit; always 1.", ("version",))
_LAST_ELECTION_REQUEST = 5.0
_LAST_EVENTS = 5.0
_LAST_EVENTS_WITHOUT_TIME = 0.5
"""Seconds without a grace period: enough for one request, the event that the lead was lost."""


@final
class Manager:
    """Runs controllers and everything they share, in one or several replicas.

    It has the cache and the clients of its controllers, takes part in the leader election, serves
    health, metrics and webhooks, and starts and stops all of it in order of dependency:

        with Manager(ClientConfig.load(), health_server=HealthServerOptions()) as manager:
            manager.add(my_controller)
            manager.run(handle_signals=True)

    The constructor checks all options and binds the ports, except the port of the webhook server,
    see :attr:`webhook_server`; nothing runs before :meth:`run`. Semantics and order are those of
    controller-runtime's Manager; ``docs/manager.md`` describes them, and ``docs/differences.md``
    lists the differences. Thread-safe.

    Args:
        server: the API server: a config, or a client, which its owner closes. The election has its
            own client, unless this is a wrapped client: then it uses that.
        options: the options as one value.
        changes: single options; they override ``options``.

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
        self._clock = clock = present_clock(options.clock)
        self._metrics = present_metrics(options.metrics)
        self.declared_by: object = None
        """The App that it runs; None for a manager that was made by itself."""
        self._lock = threading.Lock()
        self._has_run = False
        self._is_closed = False
        self._is_running = False
        self._webhooks = LazyValue(self._make_webhooks)
        self._events: EventBroadcaster | None = None
        self._clusters: list[Cluster] = []
        self._observed = ObservedParts()
        for observer in options.observers:
            self._observed.observe(observer)
        self._drafts: list[Draft] = []
        # Whose failures become Events already; see _tell_failures_of.
        self._announced: weakref.WeakSet[Any] = weakref.WeakSet()
        self._elector: ElectorLike | None = None
        self._pauses: Pauses | None = None
        # Runnables whose health is a ready check of its own.
        self._checked_apart: list[Runnable] = []
        # What close() closes, last first.
        self._closing = contextlib.ExitStack()
        with self._entered(), contextlib.ExitStack() as on_failure:
            on_failure.callback(self._closing.close)
            if options.leader_election is not None:
                from appsdk_operator.manager._core.pauses import Pauses

                self._pauses = Pauses(
                    options.name, options.leader_election.id, clock, on_change=self._record_pause
                )
                self._closing.callback(self._metrics.add_source(self._pauses.samples))
                self._elector = _make_elector(
                    server,
                    options,
                    on_event=self._record_election,
                    on_lease=self._pauses.observe,
                    closing=self._closing,
                    observed=self._observed,
                )
            self._cluster = Cluster(
                server,
                name="cache",
                cache=options.cache,
                client=options.client,
                new_cache=options.new_cache,
                new_client=options.new_client,
                fence=self.fence,
                probe_server=options.probe_server,
            )
            self._announce = Announcements(options.name, clock)
            self._lifecycle = Lifecycle(
                announce=self._announce,
                elector=self._elector,
                base_stop=options.base_stop,
                graceful_shutdown_timeout=options.graceful_shutdown_timeout,
                clock=clock,
            )
            self.add(self._cluster)
            self._made = clock.time()
            self._debug = LazyValue(self._make_debug_state)
            self._servers = _Servers(
                options,
                groups=self._lifecycle.groups,
                client=self._cluster.unfenced_client,
                snapshot=self.debug_snapshot,
                state=self.debug_state,
                timeline=self.debug_timeline,
            )
            self._closing.callback(self._servers.close)
            self._add_default_checks()
            if isinstance(options.webhook_server, Runnable):
                self._webhooks.get()
            on_failure.pop_all()

    def __repr__(self) -> str:
        return f"<Manager of {self._cluster.raw_client!r}>"

    # Shared by controllers.

    @property
    def client(self) -> ClientLike:
        """The client that reads from the cache, own writes included, and writes to the server.

        It reads kinds in ``ClientSetup(uncached=…)`` from the server, and refuses writes once this
        process has lost the lead.
        """
        return self._cluster.client

    @property
    def live_client(self) -> ClientLike:
        """The client that always reads from the server; otherwise like :attr:`client`."""
        return self._cluster.live_client

    @property
    def cache(self) -> Cache:
        """The cache that controllers share."""
        return self._cluster.cache

    @property
    def clock(self) -> Clock:
        """The clock of the manager and of all that it runs."""
        return self._clock

    @property
    def metrics(self) -> Metrics:
        """The metrics of the manager and of all that it runs."""
        return self._metrics

    @property
    def controller_options(self) -> ControllerOptions:
        """The default options of its controllers."""
        return self._options.controller_options

    @property
    def options(self) -> ManagerOptions:
        """The options that it was made with."""
        return self._options

    def fence(self, client: ClientLike) -> ClientLike:
        """Wrap ``client`` so that it refuses writes once this process has lost the lead.

        For further clusters::

            Cluster(ClientConfig.load(context="elsewhere"), fence=manager.fence)
        """
        if self._elector is None:
            return client
        from appsdk_operator.manager._election.fence import FencedClient

        return FencedClient(client, self._elector)

    def event_recorder(self, name: str) -> EventRecorder:
        """The recorder for events of the controller ``name``.

        Pending events are written at the end of the run, after everything else has ended.

        Raises:
            ValueError: the API does not allow the name for a reporting controller.
        """
        from appsdk_operator.manager._events.recorder import EventBroadcaster

        with self._lock:
            if self._events is None:
                self._events = EventBroadcaster(
                    self._cluster.unfenced_client,
                    options=self._options.events,
                    clock=self._clock,
                    metrics=self._metrics,
                )
                if self._is_closed:
                    self._events.close(0.0)  # the manager is over: later events are dropped
            return self._events.recorder(name)

    # Runnables.

    def add(self, runnable: Runnable | Callable[[StopSignal], object]) -> None:
        """Run ``runnable``: with its group, or at once when that has started.

        It may be a controller, an :class:`Operator`, a :class:`Cluster`, a cache or an informer, a
        server, any object with ``run(stop)``, or a function; :class:`RunnableGroup` has the rules
        for its group. If it raises an error, the manager stops; if it returns, the others go on.

        Raises:
            RuntimeError: the manager is stopping.
            ValueError: it was added before, or has another clock than the manager.
            TypeError: it cannot be run, or an attribute that selects its group is wrong.
        """
        runnable = as_runnable(runnable)
        for part in (runnable, *_controllers_of(runnable)):
            check_clock(self, part)
        belong_to = getattr(runnable, "belong_to", None)
        if callable(belong_to):
            belong_to(self, self._options.name, self._options.previous_names)
        self._prepare(runnable)
        if self._is_running:
            self._tell_failures_of(runnable)
        if self._pauses is not None:
            self._pauses.join(runnable)  # it must begin no call before
        with self._entered():  # it may start now, and the caller's thread be any
            self._lifecycle.groups.add(runnable)
        if self._is_running:  # the run may have begun in between, and not have seen it
            self._tell_failures_of(runnable)
        self._observed.join(runnable)
        if isinstance(runnable, Cluster):
            with self._lock:
                self._clusters.append(runnable)
                is_closed = self._is_closed
                if not is_closed:
                    self._closing.callback(runnable.close)
            if is_closed:  # just now
                runnable.close()

    def observe_activity(self, observer: ActivityObserver) -> Callable[[], None]:
        """Call ``observer`` for each call and request of the manager, as it happens.

        It sees each call of the manager's controllers, each request of its clients, and each
        request that a call makes with any :class:`~appsdk_operator.client.Client`. Parts that are
        added later count, too.

        Returns:
            A function that ends this.
        """
        return self._observed.observe(observer)

    def note_draft(self, draft: Draft) -> None:
        """For builders: :meth:`run` warns of controllers that were begun, but not built by then."""
        with self._lock:
            self._drafts = [one for one in self._drafts if not one.is_over]
            self._drafts.append(draft)

    @property
    def webhook_server(self) -> WebhookServer:
        """The webhook server; the first use makes it, unless the option is a server.

        Making it opens its port, and adds a ready check ``webhooks`` unless the manager was
        started. If the manager runs, it serves at once. If the option is another server, or a
        function that makes one, this is that server.

        Raises:
            OSError: its address cannot be bound.
            ValueError: its certificates cannot be used.
            RuntimeError: the manager is stopping, or the function that makes the server uses this
                property.
        """
        return self._webhooks.get()  # type: ignore[return-value]  # what the option says

    @property
    def webhooks(self) -> Webhooks:
        """The webhooks that :attr:`webhook_server` serves, by path; ``webhook_for`` adds to them.

        Raises:
            TypeError: the server that was given has no webhooks.
            OSError, ValueError, RuntimeError: as :attr:`webhook_server`.
        """
        from appsdk_operator.webhooks import Webhooks

        server = self._webhooks.get()
        found = getattr(server, "webhooks", None)
        if not isinstance(found, Webhooks):
            raise TypeError(
                f"the webhook server {server!r} has no webhooks: give a WebhookServer, or its "
                "options"
            )
        return found

    def add_ready_check(self, name: str, check: HealthCheck) -> None:
        """Make the pod ready only while ``check`` passes; served at ``/readyz/<name>``.

        Args:
            name: a path segment. The manager's own checks are ``caches``, ``controllers``,
                ``leader-election``, ``manager`` and ``webhooks``.
            check: fails by raising, or by returning a Health that is not ready.

        Raises:
            RuntimeError: the manager was started.
            ValueError: the name is taken, or is not a valid path segment.
        """
        self._refuse_when_started(f"ready check {name!r}")
        self._servers.add_ready_check(name, check)

    def add_health_check(self, name: str, check: HealthCheck) -> None:
        """Have the pod restarted while ``check`` fails; served at ``/healthz/<name>``.

        For the arguments and errors see :meth:`add_ready_check`. The manager has no health checks
        of its own.
        """
        self._refuse_when_started(f"health check {name!r}")
        self._servers.add_health_check(name, check)

    def add_metrics_handler(self, path: str, handler: HTTPHandler) -> None:
        """Serve ``path`` on the metrics server with ``handler``.

        Raises:
            RuntimeError: the manager was started.
            ValueError: ``path`` is ``/metrics``, is taken, or does not begin with a slash.
        """
        self._refuse_when_started(f"metrics handler {path!r}")
        self._servers.add_metrics_handler(path, handler)

    # Status.

    @property
    def elected(self) -> Elected:
        """Set once this process leads and its leader-only runnables have started.

        Without leader election: once all runnables have started.
        """
        return self._lifecycle.elected

    @property
    def leader(self) -> str:
        """The identity of the leader; "" when there is none, or no election."""
        return "" if self._elector is None else self._elector.leader

    @property
    def term(self) -> int:
        """The fencing token of the current lead, see :attr:`Elector.term`; 0 without an election.

        Send it with writes to other systems, and let them refuse a smaller number than they have
        seen.

        Raises:
            TypeError: ``new_elector`` made an elector without ``term``.
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
        """The identity of this process in the election; "" without an election."""
        return "" if self._elector is None else self._elector.identity

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of its servers, by name: ``metrics``, ``health``, ``profile``,
        ``webhooks``."""
        found = self._servers.addresses
        if self._webhooks.is_made:
            # A DevelopmentServer or a server of the user's own may have one, too.
            address = getattr(self._webhooks.get(), "address", "")
            if isinstance(address, str) and address:
                found["webhooks"] = address
        return found

    def health(self) -> Health:
        """Whether caches, controllers and the election are healthy; if not, the text says why."""
        checks = (self._caches_health, self._controllers_health, self._election_health)
        healths = [check() for check in checks]
        bad = [health.text for health in healths if not health.is_ready]
        return Health(not bad, "; ".join(bad) or "; ".join(h.text for h in healths))

    def debug_snapshot(self) -> dict[str, Any]:
        """The states of groups and runnables, with the queues of controllers, as plain values."""
        snapshot: dict[str, Any] = {
            "elected": self.elected.is_set(),
            "stopping": self._lifecycle.is_stopping,
            "groups": self._lifecycle.groups.snapshot(),
        }
        if (election := self._election_state()) is not None:
            snapshot["leader_election"] = election
        return snapshot

    def _election_state(self) -> dict[str, Any] | None:
        if self._elector is None:
            return None
        return {
            "identity": self._elector.identity,
            "leader": self._elector.leader,
            "is_leader": self._elector.is_leader,
        }

    def debug_state(self) -> dict[str, Any]:
        """The state that the debug server shows, as JSON values, bounded and with a version.

        ``docs/observability.md`` lists the fields. The state has the names of objects, not their
        content.
        """
        return self._debug.get().state()

    def debug_timeline(self, namespace: str, name: str, kind: str | None = None) -> dict[str, Any]:
        """The last and the planned calls for one object, as JSON values.

        Args:
            namespace: its namespace; ``""`` without one.
            name: its name.
            kind: its kind, for example ``deployments.v1.apps`` or ``Deployment``; default: objects
                of any kind.
        """
        return self._debug.get().timeline(namespace, name, kind)

    # Running.

    def run(self, stop: StopSignal | None = None, *, handle_signals: bool = False) -> None:
        """Start everything, and run it until ``stop`` is set or something fails; then stop it.

        Runnables stop group by group, dependencies last. Together they have
        ``graceful_shutdown_timeout``. A runnable that exceeds it goes on and keeps the process
        alive.

        Args:
            stop: ends the run; default: only a signal or a failure does.
            handle_signals: stop on SIGINT and SIGTERM; a second one ends the process at once.
                Works in the main thread only.

        Raises:
            Exception: the first failure; later failures are in the log and in its notes.
            LeadershipLost: the lease was lost. Runnables may still run: end the process.
            TimeoutError: runnables have not ended in time; the text names them.
            ExceptionGroup: a runnable failed, and others have not ended in time.
            RuntimeError: it was started before.
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
            self._say_that_it_starts()
            self._observe_for_options()
            with owned_by(self), self._entered():
                if handle_signals:
                    run_with_signals(
                        self._lifecycle.run,
                        stop,
                        note=self._note_signal,
                        threads="manager",
                        clock=self._clock,
                    )
                else:
                    self._lifecycle.run(stop)
        finally:
            with self._lock:
                self._is_running = False
            self.close()

    def close(self) -> None:
        """Close ports and connections of a manager that will not run.

        :meth:`run` does so itself. Harmless when called twice. If the manager runs, this stops it
        and does not wait for its end.
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
                events.close(_LAST_EVENTS if has_time else _LAST_EVENTS_WITHOUT_TIME)

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Internals.

    def _entered(self) -> environment:
        """The environment of what it runs, and of user code that makes parts for it."""
        return environment(clock=self._clock, metrics=self._metrics)

    def _say_that_it_starts(self) -> None:
        cache = self._options.cache or CacheSetup()
        selector = cache.namespace_selector
        config = getattr(self._cluster.raw_client, "config", None)
        self._announce.starts(
            self._lifecycle.groups.members,
            server=config.server if isinstance(config, ClientConfig) else "",
            namespaces=cache.namespace_names if selector is None else [str(selector)],
        )

    def _observe_for_options(self) -> None:
        """Begin the narration and the Events of failures, where those were asked for."""
        if self._options.narrate:
            from appsdk_operator.runtime import Narrator

            self.observe_activity(Narrator())
        if self._options.failure_events is not None:
            for runnable in self._lifecycle.groups.members:
                self._tell_failures_of(runnable)

    def _tell_failures_of(self, runnable: object) -> None:
        options = self._options.failure_events
        if options is None:
            return
        from appsdk_operator.manager._events.failures import FailureEventObserver

        for part in _controllers_of(runnable) or (runnable,):
            find: Callable[..., Any] | None = getattr(part, "object_of", None)
            observe = getattr(part, "observe_activity", None)
            if callable(find) and callable(observe):
                with self._lock:
                    if part in self._announced:
                        continue
                    self._announced.add(part)
                observe(
                    FailureEventObserver(
                        options, find=find, recorder=self._own_recorder, clock=self.clock
                    )
                )

    def _make_debug_state(self) -> DebugState:
        from appsdk_operator.manager._core.debug_state import DebugState

        return DebugState(
            self._options.name,
            self._lifecycle.groups,
            clock=self._clock,
            began=self._made,
            general=self._general_state,
            caches=self._caches,
            servers=self._all_servers,
        )

    def _own_recorder(self) -> EventRecorder:
        return self.event_recorder(self._options.name or "operator")

    def _note_signal(self, name: str) -> None:
        self._lifecycle.stop_reason = name

    def _make_webhooks(self) -> Runnable:
        from appsdk_operator.webhooks import WebhookServer, WebhookServerOptions

        given = self._options.webhook_server
        if isinstance(given, Runnable):
            self._add_webhook_server(given)
            return given
        with self._entered():
            if given is None or isinstance(given, WebhookServerOptions):
                made: Runnable = WebhookServer.of_options(
                    given or WebhookServerOptions(), clock=self.clock, metrics=self._metrics
                )
            else:
                made = given()
        try:
            server = as_runnable(made)
            check_clock(self, server)
            self._add_webhook_server(server)
        except BaseException:
            # Nothing else refers to it, and it may have bound its port.
            getattr(made, "close", _nothing)()
            raise
        return server

    def _add_webhook_server(self, server: Runnable) -> None:
        self._prepare(server)
        self._lifecycle.groups.add(server, group=RunnableGroup.WEBHOOKS)
        self._observed.join(server)
        health = getattr(server, "health", None)
        if callable(health) and not self._has_run:
            # Not where the user has a check of this name.
            with contextlib.suppress(ValueError):
                self._servers.add_ready_check("webhooks", health)
                self._checked_apart.append(server)

    def _prepare(self, runnable: Runnable) -> None:
        """Pass on what a part of the manager gets from it before it runs."""
        if isinstance(runnable, if_loaded("appsdk_operator.webhooks", "WebhookServer")):
            # Not fenced: every replica serves webhooks, and needs a certificate.
            cast("WebhookServer", runnable).attach(client=self._cluster.unfenced_client)

    def _record_election(self, lease: Object, text: str) -> None:
        # Different actions, because events that differ only in their note become one series.
        action = "StopLeading" if text.endswith("stopped leading") else "StartLeading"
        recorder = self.event_recorder("leader-election")
        recorder.event(lease, "Normal", "LeaderElection", action, text)

    def _record_pause(self, lease: Object, action: str, text: str) -> None:
        if self._elector is not None and self._elector.is_leader:
            recorder = self.event_recorder("leader-election")
            recorder.event(lease, "Normal", "OperatorPause", action, text)

    def _general_state(self) -> dict[str, Any]:
        health = self.health()
        paused = None if self._pauses is None else self._pauses.present
        return {
            "ready": health.is_ready,
            "health": health.text,
            "elected": self.elected.is_set(),
            "stopping": self._lifecycle.is_stopping,
            "leader_election": self._election_state(),
            "server_lost_for": max(self._lost_servers(), default=None),
            "paused": str(paused) if paused is not None else "",
        }

    def _lost_servers(self) -> list[float]:
        with self._lock:
            found = [cluster.lost_for for cluster in self._clusters]
        return [lost for lost in found if lost is not None]

    def _caches(self) -> Sequence[Any]:
        with self._lock:
            return [cluster.cache for cluster in self._clusters]

    def _all_servers(self) -> dict[str, Any]:
        found: dict[str, Any] = self._servers.by_name
        if self._webhooks.is_made:
            found["webhooks"] = self._webhooks.get()
        return found

    def _refuse_when_started(self, what: str) -> None:
        with self._lock:
            if self._has_run:
                raise RuntimeError(
                    f"{what} comes too late: the manager was started already, so add it before run"
                )

    def _add_default_checks(self) -> None:
        checks: dict[str, HealthCheck] = {
            "manager": self._manager_health,
            "controllers": self._controllers_health,
        }
        # With a conversion webhook the caches can sync only after this process is ready: the API
        # server calls it to answer their lists. See _caches_health for a server that comes later.
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
        if self._webhooks.is_made:
            return Health(True, "not asked: this process may have to convert what they list")
        with self._lock:
            clusters = list(self._clusters)
        return _caches_health(clusters, self._lifecycle.groups[RunnableGroup.CACHES])

    def _controllers_health(self) -> Health:
        return _runnables_health(self._lifecycle.groups, self._checked_apart)

    def _election_health(self) -> Health:
        return Health(True, "no election") if self._elector is None else self._elector.health()


@final
class _Servers:
    """The metrics, health and profile servers of a manager: bound, and added to their groups."""

    def __init__(
        self,
        options: ManagerOptions,
        *,
        groups: Groups,
        client: ClientLike,
        snapshot: Callable[[], dict[str, Any]],
        state: Callable[[], dict[str, Any]],
        timeline: Callable[[str, str, str | None], dict[str, Any]],
    ) -> None:
        """Make the servers that ``options`` enable; an error closes those made before."""
        self._groups = groups
        self._metrics: MetricsServer | None = None
        self._health: HealthServer | None = None
        self._profile: ProfileServer | None = None
        self._extra_paths: set[str] = set()
        # Without a server invalid names are refused as well, so that no error appears only in
        # production.
        self._ready_checks = HealthChecks("readyz")
        self._health_checks = HealthChecks("healthz")
        try:
            if options.metrics_server is not None and options.metrics_server.is_enabled:
                from appsdk_operator.manager._servers.metrics import MetricsServer

                self._metrics = MetricsServer(options.metrics_server, client=client)
                present_metrics().add_source(self._samples)
            if options.health_server is not None and options.health_server.is_enabled:
                from appsdk_operator.manager._servers.health import HealthServer

                self._health = HealthServer(options.health_server)
                self._ready_checks = self._health.ready_checks
                self._health_checks = self._health.health_checks
            if options.profile_server is not None and options.profile_server.is_enabled:
                from appsdk_operator.manager._servers.profile import ProfileServer

                self._profile = ProfileServer(
                    options.profile_server,
                    snapshot=snapshot,
                    state=state,
                    timeline=timeline,
                    client=client,
                )
            for server in self._all:
                groups.add(server)
        except BaseException:
            self.close()
            raise

    def _samples(self) -> Iterable[Sample]:
        yield Sample(_KIT, (__version__,), 1)

    @property
    def _all(self) -> list[MetricsServer | HealthServer | ProfileServer]:
        servers = (self._metrics, self._health, self._profile)
        return [server for server in servers if server is not None]

    @property
    def by_name(self) -> dict[str, Any]:
        """The servers by name."""
        return {server.name: server for server in self._all}

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of the servers, by name."""
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
        from appsdk_operator.manager._servers.metrics import check_extra_path

        check_extra_path(path)
        if path in self._extra_paths:
            raise ValueError(f"{path} of the metrics server has a handler already")
        self._extra_paths.add(path)

    def close(self) -> None:
        """Close the servers that were never started."""
        for server in self._all:
            [placement] = placements(server)
            if not self._groups[placement.group].has_started:
                server.close()


def _controllers_of(runnable: Any) -> Sequence[Any]:
    """The controllers of an Operator; nothing for any other runnable."""
    if isinstance(runnable, if_loaded("appsdk_operator.manager", "Operator")):
        found: Sequence[Any] = runnable.controllers
        return found
    return ()


def _caches_health(clusters: Sequence[Cluster], group: Group) -> Health:
    """Whether the caches of ``clusters``, and others in their group, have synced."""
    others = [r for r in group.members if not any(r is cluster for cluster in clusters)]
    found = [health_of(one) for one in (*clusters, *others)]
    healths = [health for health in found if health is not None]
    bad = [health.text for health in healths if not health.is_ready]
    good = [text for health in healths for text in (health.text, health.note) if text]
    return Health(not bad, "; ".join(bad or good))


def _runnables_health(groups: Groups, checked_apart: Sequence[Runnable]) -> Health:
    """Whether all runnables with a ``health`` method are healthy, except those checked apart."""
    apart = [*groups[RunnableGroup.CACHES].runnables, *checked_apart]
    bad, notes, good = [], [], 0
    for runnable in groups.runnables:
        if any(runnable is other for other in apart):
            continue
        health = health_of(runnable)
        if health is not None:
            good += health.is_ready
            if not health.is_ready:
                bad.append(health.text)
            elif health.note:
                notes.append(health.note)
    return Health(not bad, "; ".join(bad or [f"{counted(good, 'runnable')} ok", *notes]))


def _make_elector(
    server: ClientConfig | ClientLike,
    options: ManagerOptions,
    *,
    on_event: Callable[[Object, str], None],
    on_lease: Callable[[Object], None],
    closing: contextlib.ExitStack,
    observed: ObservedParts,
) -> ElectorLike:
    """Make the elector for ``options``, and add its clean-up to ``closing``.

    It has a client of its own, made from the config of the election, of the manager, or of the
    manager's client. Only a wrapped client is shared.
    """
    election = options.leader_election
    assert election is not None
    base = server.config if isinstance(server, Client) else server
    config = options.leader_election_config
    if config is None and isinstance(base, ClientConfig):
        from appsdk_operator.manager._election.options import elector_config

        config = elector_config(base, election)
    client: Any = server
    close: Callable[[], object] = _nothing
    if config is not None:
        client = (options.new_client or Client)(config)
        close = getattr(client, "close", _nothing)
    observed.join(client)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(close)
        if options.new_elector is not None:
            elector = options.new_elector(client, election)
        else:
            from appsdk_operator.manager._election.elector import Elector

            elector = own = Elector(
                client,
                election,
                rng=options.rng,
                on_event=on_event,
                on_lease=on_lease,
            )
            # Called after the client's close, which ends the elector's last request.
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
