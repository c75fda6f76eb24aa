"""The ``rest_client_*`` series, with the names and labels of client-go and controller-runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from appsdk_operator.client._errors import ApiError, ClientError
from appsdk_operator.client._request import Request
from appsdk_operator.runtime import Clock, Metrics

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


class Observation:
    """What became of one try."""

    code = "<error>"


class RequestMetrics:
    """Counts the requests to one host; durations, sizes, retries and waits when asked to."""

    def __init__(self, metrics: Metrics, *, host: str, detailed: bool) -> None:
        self._metrics = metrics
        self._host = host
        self._detailed = detailed
        # Children by their labels: looking one up in prometheus-client takes a lock and a sort.
        self._counters: dict[tuple[str, str], object] = {}

    @contextlib.contextmanager
    def timed(self, request: Request, clock: Clock) -> Iterator[Observation]:
        """Count one try, and how long it took."""
        observation = Observation()
        started = clock.monotonic()
        try:
            yield observation
        finally:
            self._count(observation.code, request.method)
            if self._detailed:
                self._observe(
                    "rest_client_request_duration_seconds",
                    "Request latency in seconds. Broken down by verb, and host.",
                    request,
                    clock.monotonic() - started,
                    _SECONDS,
                )
                self._observe(
                    "rest_client_request_size_bytes",
                    "Request size in bytes. Broken down by verb and host.",
                    request,
                    float(len(request.body or b"")),
                    _BYTES,
                )

    def received(self, request: Request, size: int) -> None:
        """Record the size of an answer."""
        if self._detailed:
            self._observe(
                "rest_client_response_size_bytes",
                "Response size in bytes. Broken down by verb and host.",
                request,
                float(size),
                _BYTES,
            )

    def limited(self, request: Request, seconds: float) -> None:
        """Record how long a request waits for the client's own limit."""
        if self._detailed:
            self._observe(
                "rest_client_rate_limiter_duration_seconds",
                "Client side rate limiter latency in seconds. Broken down by verb, and host.",
                request,
                seconds,
                _SECONDS,
            )

    def retried(self, request: Request, error: ClientError) -> None:
        """Count one more try."""
        if self._detailed:
            code = str(error.status) if isinstance(error, ApiError) else "<error>"
            self._metrics.counter(
                "rest_client_request_retries_total",
                "Number of request retries, partitioned by status code, verb, and host.",
                ["code", "verb", "host"],
            ).labels(code, request.method, self._host).inc()

    def _count(self, code: str, method: str) -> None:
        child = self._counters.get((code, method))
        if child is None:
            child = self._counters[code, method] = self._metrics.counter(
                "rest_client_requests_total",
                "Number of HTTP requests, partitioned by status code, method, and host.",
                ["code", "method", "host"],
            ).labels(code, method, self._host)
        child.inc()  # type: ignore[attr-defined]

    def _observe(
        self, name: str, text: str, request: Request, value: float, buckets: tuple[float, ...]
    ) -> None:
        self._metrics.histogram(name, text, ["verb", "host"], buckets=buckets).labels(
            request.method, self._host
        ).observe(value)
