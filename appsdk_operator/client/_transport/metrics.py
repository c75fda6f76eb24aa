"""The ``rest_client_*`` series, with the names and labels of client-go and controller-runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from appsdk_operator.client._errors import ApiError, ClientError
from appsdk_operator.client._request import Request
from appsdk_operator.runtime import Clock, Family, Metrics

__all__ = ["RequestMetrics"]

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


class Observation:
    """The status code of one attempt; ``<error>`` without an answer."""

    code = "<error>"


class RequestMetrics:
    """Counts requests to one host; if ``detailed``, also durations, sizes, retries and waits."""

    def __init__(self, metrics: Metrics, *, host: str, detailed: bool) -> None:
        self._metrics = metrics
        self._host = host
        self._detailed = detailed

    @contextlib.contextmanager
    def timed(self, request: Request, clock: Clock) -> Iterator[Observation]:
        """Count one attempt, and measure its duration."""
        observation = Observation()
        started = clock.monotonic()
        try:
            yield observation
        finally:
            self._metrics.count(_REQUESTS, (observation.code, request.method, self._host))
            self._observe(_DURATION, request, clock.monotonic() - started)
            self._observe(_REQUEST_SIZE, request, float(len(request.body or b"")))

    def received(self, request: Request, size: int) -> None:
        """Record the size of an answer."""
        self._observe(_RESPONSE_SIZE, request, float(size))

    def limited(self, request: Request, seconds: float) -> None:
        """Record how long a request waits for the client-side rate limit."""
        self._observe(_LIMITED, request, seconds)

    def retried(self, request: Request, error: ClientError) -> None:
        """Count a retry."""
        if self._detailed:
            code = str(error.status) if isinstance(error, ApiError) else "<error>"
            self._metrics.count(_RETRIES, (code, request.method, self._host))

    def _observe(self, family: Family, request: Request, value: float) -> None:
        if self._detailed:
            self._metrics.observe(family, (request.method, self._host), value)
