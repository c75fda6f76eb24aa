"""The endpoints for kubelet's probes."""

from __future__ import annotations

from typing import Any, ClassVar, Final, final

import attrs

from appsdk_operator.manager._servers.checks import HealthCheck, HealthChecks
from appsdk_operator.manager._servers.endpoint_server import EndpointOptions, EndpointServer
from appsdk_operator.runtime import Clock, StopSignal, present_clock, thread_clock
from appsdk_operator.serving import HTTPLimits, HTTPServer, check_address

_LIVEZ: Final = "/livez"


def _check_path(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if not value.startswith("/") or value.endswith("/") or set(value) & set("?#% "):
        raise ValueError(f"{attribute.name}={value!r}: write a path such as /readyz")


@attrs.frozen(kw_only=True)
class HealthServerOptions(EndpointOptions):
    """Options of a :class:`HealthServer`."""

    address: str = attrs.field(default="127.0.0.1:8081", validator=check_address)
    """``host:port``; default ``127.0.0.1:8081``, which only this machine reaches. kubelet probes
    the pod's address: use ``":8081"`` to listen on all addresses. ``""`` or ``"0"``: no server."""
    readiness_path: str = attrs.field(default="/readyz", validator=_check_path)
    """The path of the ready checks; default ``/readyz``."""
    liveness_path: str = attrs.field(default="/healthz", validator=_check_path)
    """The path of the health checks; default ``/healthz``. ``/livez`` serves them, too."""
    check_timeout: float = attrs.field(default=5.0)
    """Seconds for all checks together; default 5."""
    show_reasons: bool = False
    """Whether the lists of checks say why a check failed. Default False: only the check's own page,
    such as ``/readyz/caches``, and the log do, as in Kubernetes' own components."""
    shutdown_timeout: float = 5.0
    """Seconds at a stop for probes that are being answered; default 5."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not self.check_timeout > 0:
            raise ValueError(f"check_timeout={self.check_timeout}: use more than 0 seconds")
        if self.readiness_path == self.liveness_path:
            raise ValueError("readiness_path and liveness_path are the same: use two paths")


@final
class HealthServer(EndpointServer):
    """Serves ready checks and health checks; see :class:`HealthChecks` for the pages.

    The constructor binds the port, so that a taken port is an error at once. It is a runnable:
    :meth:`run` serves until its stop signal is set. Thread-safe.

    >>> server = HealthServer(HealthServerOptions(address="127.0.0.1:0"))
    >>> server.add_ready_check("disk", lambda: None)
    >>> server.close()

    Raises:
        OSError: the address cannot be bound.
        ValueError: the options switch the server off.
    """

    name: ClassVar[str] = "health"

    def __init__(
        self,
        options: HealthServerOptions | None = None,
        *,
        limits: HTTPLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        """A server without checks, which answers ok.

        Args:
            options: the address and the options of the checks.
            limits: limits for clients.
            clock: the clock of its time-outs.
        """
        options = options or HealthServerOptions()
        clock = present_clock(clock)
        self._options = options
        self.ready_checks: Final = self._checks(options.readiness_path, clock)
        """The checks that must pass for the pod to be ready."""
        self.health_checks: Final = self._checks(options.liveness_path, clock)
        """The checks that must pass, or kubelet restarts the container."""
        super().__init__(options, limits=limits, clock=clock)

    def _add_routes(self, server: HTTPServer) -> None:
        routes = {
            self._options.readiness_path: self.ready_checks,
            self._options.liveness_path: self.health_checks,
        }
        routes.setdefault(_LIVEZ, self.health_checks)
        for path, checks in routes.items():
            server.add_handler(path, checks.handler(path), is_prefix=True)

    def add_ready_check(self, name: str, check: HealthCheck) -> None:
        """Add a check that must pass for the pod to be ready; see :meth:`HealthChecks.add`."""
        self.ready_checks.add(name, check)

    def add_health_check(self, name: str, check: HealthCheck) -> None:
        """Add a check that must pass, or kubelet restarts the container."""
        self.health_checks.add(name, check)

    def run(self, stop: StopSignal, /) -> None:
        """Serve until ``stop`` is set.

        Raises:
            RuntimeError: it was run before or was closed.
            TimeoutError: a check still runs ``shutdown_timeout`` seconds after the stop.
            OSError: it cannot accept connections.
        """
        self.ready_checks.freeze()
        self.health_checks.freeze()
        # At the stop, probes that wait for a check are answered: the check may hang.
        detach = [stop.on_set(self.ready_checks.stop), stop.on_set(self.health_checks.stop)]
        try:
            super().run(stop)
        finally:
            for each in detach:
                each()
            end = thread_clock().monotonic() + self._options.shutdown_timeout
            hanging = [
                name
                for checks in (self.ready_checks, self.health_checks)
                for name in checks.close(max(0.0, end - thread_clock().monotonic()))
            ]
        if hanging:
            raise TimeoutError(
                f"still running {self._options.shutdown_timeout:g} s after the stop: checks "
                f"{', '.join(hanging)}: set a time-out for what they wait for"
            )

    def close(self) -> None:
        """Close the port of a server that will not run. Harmless after a run, and twice."""
        super().close()
        for checks in (self.ready_checks, self.health_checks):
            checks.close(self._options.shutdown_timeout)

    def _checks(self, path: str, clock: Clock) -> HealthChecks:
        return HealthChecks(
            path.lstrip("/"),
            timeout=self._options.check_timeout,
            show_reasons=self._options.show_reasons,
            clock=clock,
        )
