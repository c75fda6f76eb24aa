"""The endpoints that kubelet's probes ask."""

from __future__ import annotations

from typing import Any, Final, final

import attrs

from appsdk_operator.manager._servers.checks import HealthCheck, HealthChecks
from appsdk_operator.runtime import Clock, StopSignal, system_clock
from appsdk_operator.serving import HTTPLimits, HTTPServer, check_address, is_off

__all__ = ["HealthServer", "HealthServerOptions"]

_LIVEZ: Final = "/livez"


def _check_path(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if not value.startswith("/") or value.endswith("/") or set(value) & set("?#% "):
        raise ValueError(f"{attribute.name}={value!r}: write a path such as /readyz")


@attrs.frozen(kw_only=True)
class HealthServerOptions:
    """Where and how health is served."""

    address: str = attrs.field(default="127.0.0.1:8081", validator=check_address)
    """``host:port``; default ``127.0.0.1:8081``, which nobody but this machine reaches. kubelet
    asks at the pod's address: name ``":8081"`` to listen on all. ``""`` or ``"0"``: no server."""
    readiness_path: str = attrs.field(default="/readyz", validator=_check_path)
    """Where the ready checks are; default ``/readyz``."""
    liveness_path: str = attrs.field(default="/healthz", validator=_check_path)
    """Where the health checks are; default ``/healthz``. They are at ``/livez``, too."""
    check_timeout: float = attrs.field(default=5.0)
    """Seconds in which all checks together have to answer; default 5."""
    show_reasons: bool = False
    """Whether the endpoints themselves say why a check failed; default: only its own page, such as
    ``/readyz/informers``, and the log do, as in Kubernetes' own components."""
    shutdown_timeout: float = 5.0
    """Seconds of grace for probes under way at a stop; default 5."""

    def __attrs_post_init__(self) -> None:
        if not self.check_timeout > 0:
            raise ValueError(f"check_timeout={self.check_timeout}: use more than 0 seconds")
        if self.readiness_path == self.liveness_path:
            raise ValueError("readiness_path and liveness_path are the same: use two paths")

    @property
    def is_enabled(self) -> bool:
        """Whether there is to be a server: False for the addresses ``""`` and ``"0"``."""
        return not is_off(self.address)


@final
class HealthServer:
    """Serves ready checks and health checks; see :class:`HealthChecks` for the pages.

    The port is bound at the construction, so that a taken one is an error at once. A runnable:
    :meth:`run` serves until its stop signal is set. Thread-safe.

    >>> server = HealthServer(HealthServerOptions(address="127.0.0.1:0"))
    >>> server.add_ready_check("disk", lambda: None)
    >>> server.close()

    Raises:
        OSError: the address cannot be bound.
        ValueError: the options switch the server off.
    """

    name: Final = "health"
    needs_leader_election: Final = False
    only_serve_when_leader: Final = False

    def __init__(
        self,
        options: HealthServerOptions | None = None,
        *,
        limits: HTTPLimits | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """A server without checks, so one that says ok.

        Args:
            options: where and how; see there.
            limits: what clients may ask.
            clock: what time-outs are measured with.
        """
        options = options or HealthServerOptions()
        if not options.is_enabled:
            raise ValueError(f"address={options.address!r} means no server: do not make one")
        self._options = options
        self.ready_checks: Final = self._checks(options.readiness_path, clock)
        """What has to pass for the process to be sent work."""
        self.health_checks: Final = self._checks(options.liveness_path, clock)
        """What has to pass for the process to be left alive."""
        self._server = HTTPServer(
            options.address,
            name=self.name,
            limits=limits,
            shutdown_timeout=options.shutdown_timeout,
            clock=clock,
        )
        pages = {
            options.readiness_path: self.ready_checks,
            options.liveness_path: self.health_checks,
        }
        pages.setdefault(_LIVEZ, self.health_checks)
        for path, checks in pages.items():
            self._server.add_handler(path, checks.handler(path), is_prefix=True)

    @property
    def address(self) -> str:
        """Where it listens, for example ``127.0.0.1:8081``."""
        return self._server.address

    @property
    def url(self) -> str:
        """The address as a URL."""
        return self._server.url

    def __repr__(self) -> str:
        return f"<health server on {self.address}>"

    def add_ready_check(self, name: str, check: HealthCheck) -> None:
        """Be ready only while ``check`` passes; see :meth:`HealthChecks.add`."""
        self.ready_checks.add(name, check)

    def add_health_check(self, name: str, check: HealthCheck) -> None:
        """Be alive only while ``check`` passes: kubelet restarts the container when it does not."""
        self.health_checks.add(name, check)

    def run(self, stop: StopSignal, /) -> None:
        """Serve until ``stop`` is set.

        Raises:
            RuntimeError: it ran before or was closed.
            TimeoutError: a check still runs ``shutdown_timeout`` seconds after the stop.
            OSError: it cannot accept connections.
        """
        self.ready_checks.freeze()
        self.health_checks.freeze()
        # Probes that wait for a check are answered at the stop: it may hang.
        detach = [stop.on_set(self.ready_checks.stop), stop.on_set(self.health_checks.stop)]
        try:
            self._server.run(stop)
        finally:
            for forget in detach:
                forget()
            end = system_clock.monotonic() + self._options.shutdown_timeout
            hanging = [
                name
                for checks in (self.ready_checks, self.health_checks)
                for name in checks.close(max(0.0, end - system_clock.monotonic()))
            ]
        if hanging:
            raise TimeoutError(
                f"still running {self._options.shutdown_timeout:g} s after the stop: checks "
                f"{', '.join(hanging)}: give what they call a time-out"
            )

    def close(self) -> None:
        """Let go of the port of a server that is not to run. Harmless after a run, and twice."""
        self._server.close()
        self.ready_checks.close()
        self.health_checks.close()

    def _checks(self, path: str, clock: Clock) -> HealthChecks:
        return HealthChecks(
            path.lstrip("/"),
            timeout=self._options.check_timeout,
            show_reasons=self._options.show_reasons,
            clock=clock,
        )
