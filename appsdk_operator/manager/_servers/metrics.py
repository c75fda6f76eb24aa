"""The endpoint for Prometheus' scrapes."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import attrs

from appsdk_operator.client import ClientLike
from appsdk_operator.manager._servers.endpoint_server import (
    EndpointOptions,
    EndpointServer,
    HTTPFilter,
)
from appsdk_operator.runtime import (
    Clock,
    Metrics,
    Sample,
    accepted_format,
    families_of,
    page_of,
    present_clock,
    present_metrics,
    process_samples,
)
from appsdk_operator.serving import (
    HTTPHandler,
    HTTPLimits,
    HTTPRequest,
    HTTPResponse,
    HTTPServer,
    check_address,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from appsdk_operator.serving import TLSOptions


_PATH: Final = "/metrics"
_GZIP_LEVEL: Final = 1
_GZIP_FROM: Final = 1024
_GZIP_FORMAT: Final = 31
"""zlib's code for gzip's header with the largest window; the module gzip loads bz2 and others."""


def _check_handlers(_: object, __: object, value: Mapping[str, HTTPHandler]) -> None:
    for path in value:
        check_extra_path(path)


def check_extra_path(path: str) -> None:
    """Refuse a path that a further handler cannot have.

    Raises:
        ValueError: it is ``/metrics``, or begins without a slash.
    """
    if path.rstrip("/") == _PATH:
        raise ValueError(f"{path} is where the metrics are: choose another path")
    if not path.startswith("/"):
        raise ValueError(f"path {path!r} does not begin with a slash")


@attrs.frozen(kw_only=True)
class MetricsServerOptions(EndpointOptions):
    """Options of a :class:`MetricsServer`."""

    address: str = attrs.field(default="127.0.0.1:8080", validator=check_address)
    """``host:port``; default ``127.0.0.1:8080``, which only this machine reaches. Prometheus
    scrapes the pod's address: use ``":8443"`` to listen on all addresses, preferably with ``tls``
    and ``filter_provider``. ``""`` or ``"0"``: no server."""
    tls: TLSOptions | None = None
    """Serve HTTPS; ``TLSOptions()`` makes a self-signed certificate. Default: plain HTTP."""
    filter_provider: Callable[[ClientLike], HTTPFilter] | None = None
    """Makes a filter for all handlers from a client of the cluster, for example
    :class:`AuthFilter`, which asks the API server. Default: everyone who reaches the port may
    read."""
    extra_handlers: Mapping[str, HTTPHandler] = attrs.field(factory=dict, validator=_check_handlers)
    """Further handlers by exact path; not ``/metrics``."""
    process_metrics: bool = True
    """Whether to add the metrics of the process and the interpreter (``process_*``,
    ``python_gc_*``, ``python_info``) unless the registry has them; default True."""
    only_serve_when_leader: bool = False
    """Whether a manager serves the metrics only on the leader; default: on all replicas."""
    max_scrapes: int = attrs.field(default=8, validator=attrs.validators.ge(1))
    """The most scrapes at once; default 8. A scrape counts until its client has read the answer.
    Others wait for up to ten seconds and then get 503. Scrapes that come at the same time share a
    page."""
    shutdown_timeout: float = 60.0
    """Seconds at a stop for scrapes that are being answered; default 60."""


@final
class MetricsServer(EndpointServer):
    """Serves a registry at ``/metrics``, as text or, if the scraper prefers it, as OpenMetrics.

    Besides ``/metrics`` it serves only added handlers. The constructor binds the port, so that a
    taken port is an error at once. It is a runnable: :meth:`run` serves until its stop signal is
    set. Thread-safe.

    >>> server = MetricsServer(MetricsServerOptions(address="127.0.0.1:0"))
    >>> server.close()

    Raises:
        OSError: the address cannot be bound.
        ValueError: the options switch the server off, or need a client and there is none.
    """

    name: ClassVar[str] = "metrics"

    def __init__(
        self,
        options: MetricsServerOptions | None = None,
        *,
        metrics: Metrics | None = None,
        client: ClientLike | None = None,
        limits: HTTPLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        """A server of ``metrics``.

        Args:
            options: the address, TLS, the filter and further handlers.
            metrics: the metrics to serve; default: the environment's, else
                :func:`~appsdk_operator.runtime.default_metrics`.
            client: the client for ``filter_provider``.
            limits: limits for scrapers.
            clock: the clock of its time-outs.
        """
        options = options or MetricsServerOptions()
        self._options = options
        self._metrics = present_metrics(metrics)
        self._pages = _SharedPages()
        super().__init__(
            options,
            tls=options.tls,
            limits=limits,
            only_serve_when_leader=options.only_serve_when_leader,
            clock=present_clock(clock),
            metrics=self._metrics,
            filter_provider=options.filter_provider,
            client=client,
        )

    def _add_routes(self, server: HTTPServer) -> None:
        serve = server.limited(self._serve, self._options.max_scrapes)
        server.add_handler(_PATH, self._filter(serve))
        for path, handler in self._options.extra_handlers.items():
            self.add_handler(path, handler)

    def add_handler(self, path: str, handler: HTTPHandler) -> None:
        """Add a handler at an exact path, behind the same filter; the server may run already.

        Raises:
            ValueError: the path is ``/metrics``, is taken, or does not begin with a slash.
        """
        check_extra_path(path)
        self._server.add_handler(path, self._filter(handler))

    def _serve(self, request: HTTPRequest) -> HTTPResponse:
        encode, content_type = self._encoder(request.headers.get("accept", ""))
        may_zip = _accepts_gzip(request.headers.get("accept-encoding", ""))

        def make() -> tuple[bytes, bool]:
            body = encode()
            if not may_zip or len(body) < _GZIP_FROM:
                return body, False
            return zlib.compress(body, level=_GZIP_LEVEL, wbits=_GZIP_FORMAT), True

        body, is_zipped = self._pages.get((content_type, may_zip), make)
        headers = {"Vary": "Accept, Accept-Encoding"}
        if is_zipped:
            headers["Content-Encoding"] = "gzip"
        return HTTPResponse(body=body, content_type=content_type, headers=headers)

    def _encoder(self, accepted: str) -> tuple[Callable[[], bytes], str]:
        """What makes the page in the format that the scraper prefers, and its media type."""
        found = accepted_format(accepted)
        if found is None or self._metrics.has_registry:
            encode, content_type = _package_encoder(accepted)
            return lambda: encode(self._merged()), content_type
        is_openmetrics, content_type = found

        def make() -> bytes:
            samples = self._metrics.samples()
            names = {sample.family.name for sample in samples}
            samples += [each for each in self._process() if each.family.name not in names]
            page = page_of(samples, is_openmetrics=is_openmetrics)
            return _package_encoder(accepted)[0](self._merged()) if page is None else page

        return make, content_type

    def _process(self) -> list[Sample]:
        return process_samples() if self._options.process_metrics else []

    def _merged(self) -> _MergedRegistry:
        return _MergedRegistry(self._metrics.registry, self._process())


def _package_encoder(accepted: str) -> tuple[Callable[[Any], bytes], str]:
    """The encoder of prometheus-client for the format that the scraper prefers, and its type."""
    from prometheus_client.exposition import choose_encoder

    try:
        return choose_encoder(accepted)
    except (ValueError, TypeError):  # a version such as a.b.c: skip entries that cannot be parsed
        return choose_encoder(",".join(e for e in accepted.split(",") if _is_readable(e)))


def _is_readable(entry: str) -> bool:
    from prometheus_client.exposition import choose_encoder

    try:
        choose_encoder(entry)
    except (ValueError, TypeError):
        return False
    return True


@final
class _SharedPages:
    """Makes one page at a time, and shares it with all requests that came before that began.

    So each page is as new as if it had been made for its request alone. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._begun = 0
        self._waiting = 0
        # By key: the number of the page, and the page; cleared when no request waits.
        self._made: dict[object, tuple[int, tuple[bytes, bool]]] = {}

    def get(self, key: object, make: Callable[[], tuple[bytes, bool]]) -> tuple[bytes, bool]:
        """The page ``key``; an exception of ``make`` is raised to the request that called it."""
        with self._lock:
            arrived = self._begun
            self._waiting += 1
        try:
            with self._making:
                made = self._made.get(key)
                if made is not None and made[0] > arrived:
                    return made[1]
                with self._lock:
                    self._begun = number = self._begun + 1
                page = make()
                self._made[key] = (number, page)
                return page
        finally:
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._made.clear()


def _accepts_gzip(accepted: str) -> bool:
    for entry in accepted.lower().split(","):
        coding, _, parameters = entry.partition(";")
        if coding.strip() in ("gzip", "*"):
            quality = parameters.replace(" ", "")
            return quality not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


@final
class _MergedRegistry:
    """A registry for encoders: the user's metrics, and those of the process that it lacks."""

    def __init__(self, registry: CollectorRegistry, process: Sequence[Sample]) -> None:
        self._registry = registry
        self._process = process

    def collect(self) -> list[Metric]:
        metrics = list(self._registry.collect())
        names = {metric.name for metric in metrics}
        process = families_of(self._process)
        return metrics + [metric for metric in process if metric.name not in names]
