"""Says in the log when an API server does not answer, and when it is back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import attrs

from appsdk_operator.client import (
    ANSWER_WITHIN,
    ApiError,
    Client,
    ClientConfig,
    ClientLike,
    ContactWatch,
    ReadTimeout,
    ServerContact,
    TransportError,
    requests_end_with,
)
from appsdk_operator.runtime import (
    Clock,
    Family,
    ManualClock,
    Metrics,
    Sample,
    StopSignal,
    duration_text,
    get_logger,
    present_clock,
    safe_text,
)

_log: Final = get_logger("appsdk_operator.manager")
_MEANWHILE: Final = (
    "The cache can still be read. Other requests wait, or fail and are retried. The operator "
    "handles changes after the outage"
)
_LONGEST: Final = 300
_UNREACHABLE: Final = Family(
    "api_server_unreachable_seconds",
    "gauge",
    "Seconds for which the API server has not answered; 0 while it answers.",
    ("server",),
)
_OUTAGES: Final = Family(
    "api_server_outages_total",
    "counter",
    "How often the API server stopped answering.",
    ("server",),
)


@final
class ServerMonitor:
    """Looks whether the API server of one client answers; its owner runs it in a thread.

    It asks only a server from which nothing came for five seconds, by ``GET /version``, on a
    connection of its own. Any answer counts, also a refusal. By default it asks nothing on a
    :class:`~appsdk_operator.runtime.ManualClock`: its questions would be the next event of each
    test that moves the time.
    """

    def __init__(
        self, client: ClientLike, *, clock: Clock, metrics: Metrics, enabled: bool | None = None
    ) -> None:
        """A monitor that does not run yet.

        Args:
            client: the client; those of another make have no monitor.
            clock: the clock of all waits.
            metrics: where it counts its requests and the outages.
            enabled: whether it asks; default: yes, unless ``clock`` is a manual one.
        """
        self.name: str = ""
        """Whose log lines they are."""
        self._config: ClientConfig | None = None
        self._contact: ServerContact | None = None
        self._clock = present_clock(clock)
        self._metrics = metrics
        self._outages = 0
        wanted = not isinstance(self._clock, ManualClock) if enabled is None else enabled
        if wanted and isinstance(client, Client):
            self._config, self._contact = client.config, client.contact

    @property
    def is_enabled(self) -> bool:
        """Whether :meth:`run` does anything."""
        return self._contact is not None

    @property
    def lost_for(self) -> float | None:
        """Seconds since a server was heard that counts as lost; None: it answers."""
        since = None if self._contact is None else self._contact.lost_since
        return None if since is None else max(0.0, self._clock.monotonic() - since)

    def run(self, stop: StopSignal) -> None:
        """Look until ``stop`` is set."""
        contact, config = self._contact, self._config
        if contact is None or config is None:
            return
        limited = attrs.evolve(
            config,
            connect_timeout=min(config.connect_timeout, ANSWER_WITHIN),
            read_timeout=min(config.read_timeout, ANSWER_WITHIN),
            request_timeout=min(config.request_timeout, ANSWER_WITHIN),
            max_retries=0,
            qps=None,
        )
        watch = contact.watch(self._clock.monotonic())
        retire = self._metrics.add_source(self.samples)
        try:
            with Client(limited, clock=self._clock, metrics=self._metrics) as client:
                while not stop.is_set():
                    self._look(client, contact, watch, config, stop)
        finally:
            contact.end(watch)
            retire()

    def samples(self) -> Iterable[Sample]:
        """Its series, while it runs."""
        if self._config is not None:
            labels = (self._config.server,)
            yield Sample(_UNREACHABLE, labels, self.lost_for or 0.0)
            yield Sample(_OUTAGES, labels, self._outages)

    def _look(
        self,
        client: Client,
        contact: ServerContact,
        watch: ContactWatch,
        config: ClientConfig,
        stop: StopSignal,
    ) -> None:
        look = contact.look(watch, self._clock.monotonic())
        if look.away is not None:
            self._say_back(config, look.away)
        if look.lost_for is not None:
            self._outages += 1
            self._say_lost(config, look.error, look.lost_for)
        if look.wait:
            stop.wait(look.wait)
        else:
            self._ask(client, contact, stop)

    def _ask(self, client: Client, contact: ServerContact, stop: StopSignal) -> None:
        began = self._clock.monotonic()
        try:
            with requests_end_with(stop):
                client.request("GET", "/version")
        except ApiError:
            pass  # an answer
        except Exception as error:
            if stop.is_set():
                return  # which ended the question
            ended = self._clock.monotonic()
            if isinstance(error, TransportError):
                contact.not_answered(error, began, ended)
                return
            # Credentials that cannot be read say nothing of the server, and end no loss.
            _log.debug("the API server could not be asked: %s", safe_text(error))
            if contact.lost_since is not None:
                contact.not_answered(error, began, ended)
                return
        contact.answered(self._clock.monotonic())

    def _say_lost(self, config: ClientConfig, error: Exception | None, seconds: float) -> None:
        text = safe_text(error)[:_LONGEST]
        # A refused connection has a remedy; what took too long has none.
        took_too_long = isinstance(error, ReadTimeout) or (
            error is not None and isinstance(error.__cause__, TimeoutError)
        )
        _log.warning(
            "%s: the API server %s has not answered for %s%s. %s",
            self.name or "the operator",
            config.server,
            duration_text(seconds),
            "" if took_too_long else f" ({text})",
            _MEANWHILE,
            extra={"server": config.server, "error_text": text},
        )

    def _say_back(self, config: ClientConfig, seconds: float) -> None:
        _log.info(
            "%s: the API server %s answers again, after %s",
            self.name or "the operator",
            config.server,
            duration_text(seconds),
            extra={"server": config.server},
        )
