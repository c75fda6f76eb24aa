"""The servers of a manager, and what they say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from appsdk_operator.cache import Health
from appsdk_operator.client import ClientLike
from appsdk_operator.manager._core.cluster import Cluster
from appsdk_operator.manager._core.groups import Group, Groups
from appsdk_operator.manager._core.options import ManagerOptions
from appsdk_operator.manager._core.runnable import RunnableGroup, placements
from appsdk_operator.manager._servers.checks import HealthCheck, HealthChecks
from appsdk_operator.manager._servers.health import HealthServer
from appsdk_operator.manager._servers.metrics import MetricsServer, check_extra_path
from appsdk_operator.manager._servers.profile import ProfileServer
from appsdk_operator.runtime import Metrics
from appsdk_operator.serving import HTTPHandler

__all__ = ["Servers", "caches_health", "runnables_health"]


@final
class Servers:
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


def caches_health(clusters: Sequence[Cluster], group: Group) -> Health:
    """Whether the caches of ``clusters``, and what else is in their group, follow their servers."""
    others = [r for r in group.members if not any(r is cluster for cluster in clusters)]
    asked = [getattr(one, "health", None) for one in (*clusters, *others)]
    outcomes = [health() for health in asked if callable(health)]
    healths = [outcome for outcome in outcomes if isinstance(outcome, Health)]
    bad = [health.text for health in healths if not health.is_ready]
    return Health(not bad, "; ".join(bad or [health.text for health in healths]))


def runnables_health(groups: Groups) -> Health:
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
