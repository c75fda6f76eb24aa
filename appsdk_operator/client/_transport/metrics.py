"""The metrics of requests, with the names and labels of client-go and of grafana-app-sdk.

``rest_client_*`` are those of client-go and controller-runtime, ``kubernetes_client_*`` those of
grafana-app-sdk.
"""

from __future__ import annotations

import functools
from typing import Self

from appsdk_operator.client._errors import ApiError, ClientError
from appsdk_operator.client._request import Request
from appsdk_operator.runtime import Clock, Family, Metrics

# client-go's buckets.
_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 45.0, 60.0)
_BYTES = (
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262144.0,
    1048576.0,
    4194304.0,
    16777216.0,
)
_BY_VERB = ("verb", "host")
_REQUESTS = Family(
    "rest_client_requests_total",
    "counter",
    "Number of HTTP requests, partitioned by status code, method, and host.",
    ("code", "method", "host"),
)
_RETRIES = Family(
    "rest_client_request_retries_total",
    "counter",
    "Number of request retries, partitioned by status code, verb, and host.",
    ("code", "verb", "host"),
)
_DURATION = Family(
    "rest_client_request_duration_seconds",
    "histogram",
    "Request latency in seconds. Broken down by verb, and host.",
    _BY_VERB,
    _SECONDS,
)
_REQUEST_SIZE = Family(
    "rest_client_request_size_bytes",
    "histogram",
    "Request size in bytes. Broken down by verb and host.",
    _BY_VERB,
    _BYTES,
)
_RESPONSE_SIZE = Family(
    "rest_client_response_size_bytes",
    "histogram",
    "Response size in bytes. Broken down by verb and host.",
    _BY_VERB,
    _BYTES,
)
_LIMITED = Family(
    "rest_client_rate_limiter_duration_seconds",
    "histogram",
    "Client side rate limiter latency in seconds. Broken down by verb, and host.",
    _BY_VERB,
    _SECONDS,
)

# grafana-app-sdk's.
_BY_KIND = ("status_code", "verb", "kind", "subresource")
_KIND_REQUESTS = Family(
    "kubernetes_client_requests_total",
    "counter",
    "Number of requests, by status code, verb, resource and subresource.",
    _BY_KIND,
)
_KIND_DURATION = Family(
    "kubernetes_client_request_duration_seconds",
    "histogram",
    "Time to the answer of a request.",
    _BY_KIND,
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0),
)
WATCH_EVENTS = Family(
    "kubernetes_client_watch_events_total",
    "counter",
    "Events received by watches, by type.",
    ("event_type", "kind"),
)
WATCH_ERRORS = Family(
    "kubernetes_client_watch_errors_total",
    "counter",
    "Lines of watches that are no events.",
    ("error_type", "kind"),
)
NO_ANSWER = "<error>"
"""The status code of an attempt without an answer."""
UNPARSEABLE = "unparseable_object"
"""The ``error_type`` of lines that are not events."""


class Observation:
    """Counts one attempt at its end, and measures its duration. A context manager."""

    def __init__(self, metrics: RequestMetrics, request: Request, clock: Clock) -> None:
        self.code = NO_ANSWER
        """The status code, or :data:`NO_ANSWER`."""
        self._metrics = metrics
        self._request = request
        self._clock = clock
        self._started = clock.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        seconds = self._clock.monotonic() - self._started
        self._metrics.attempted(self._request, self.code, seconds)


class RequestMetrics:
    """Counts requests to one host; if ``detailed``, also durations, sizes, retries and waits."""

    def __init__(self, metrics: Metrics, *, host: str, detailed: bool) -> None:
        self._metrics = metrics
        self._host = host
        self._detailed = detailed

    def timed(self, request: Request, clock: Clock) -> Observation:
        """Observe one attempt."""
        return Observation(self, request, clock)

    def attempted(self, request: Request, code: str, seconds: float) -> None:
        """Count one attempt."""
        self._metrics.count(_REQUESTS, (code, request.method, self._host))
        if request.resource:
            labels = _labels_by_kind(code, request.verb, request.resource)
            self._metrics.count(_KIND_REQUESTS, labels)
            if request.verb != "watch":
                self._metrics.observe(_KIND_DURATION, labels, seconds)
        self._observe(_DURATION, request, seconds)
        self._observe(_REQUEST_SIZE, request, float(len(request.body or b"")))

    def watched(self, request: Request, event_type: str) -> None:
        """Count an event of a watch."""
        self._metrics.count(WATCH_EVENTS, (event_type, _names_of(request.resource)[0]))

    def garbled(self, request: Request) -> None:
        """Count a line of a watch that is not an event."""
        self._metrics.count(WATCH_ERRORS, (UNPARSEABLE, _names_of(request.resource)[0]))

    def received(self, request: Request, size: int) -> None:
        """Record the size of an answer."""
        self._observe(_RESPONSE_SIZE, request, float(size))

    def limited(self, request: Request, seconds: float) -> None:
        """Record how long a request waits for the client-side rate limit."""
        self._observe(_LIMITED, request, seconds)

    def retried(self, request: Request, error: ClientError) -> None:
        """Count a retry."""
        if self._detailed:
            code = str(error.status) if isinstance(error, ApiError) else NO_ANSWER
            self._metrics.count(_RETRIES, (code, request.method, self._host))

    def _observe(self, family: Family, request: Request, value: float) -> None:
        if self._detailed:
            self._metrics.observe(family, (request.method, self._host), value)


@functools.lru_cache(maxsize=1024)
def _labels_by_kind(code: str, verb: str, resource: str) -> tuple[str, str, str, str]:
    """The labels of a request, as grafana-app-sdk has them: 0 is the code of no answer."""
    kind, subresource = _names_of(resource)
    return ("0" if code == NO_ANSWER else code, verb.upper(), kind, subresource)


@functools.lru_cache(maxsize=1024)
def _names_of(resource: str) -> tuple[str, str]:
    """Plural and subresource of a resource as RBAC rules name it; no subresource is ``spec``.

    >>> _names_of("deployments.apps/scale"), _names_of("configmaps")
    (('deployments', 'scale'), ('configmaps', 'spec'))
    """
    qualified, _, subresource = resource.partition("/")
    return qualified.partition(".")[0], subresource or "spec"
