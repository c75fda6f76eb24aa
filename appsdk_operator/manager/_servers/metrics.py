"""The endpoint that Prometheus scrapes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from appsdk_operator.client import ClientLike
from appsdk_operator.runtime import Clock, Metrics, StopSignal, default_metrics, system_clock
from appsdk_operator.serving import (
    Certificates,
    HTTPHandler,
    HTTPLimits,
    HTTPRequest,
    HTTPResponse,
    HTTPServer,
    TLSOptions,
    check_address,
    is_off,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["HTTPFilter", "MetricsServer", "MetricsServerOptions"]

_PATH: Final = "/metrics"
_GZIP_LEVEL: Final = 1
_GZIP_FROM: Final = 1024

HTTPFilter = Callable[[HTTPHandler], HTTPHandler]
"""Puts something before a handler, for example the question who asks."""


def _check_handlers(_: object, __: object, value: Mapping[str, HTTPHandler]) -> None:
    for path in value:
        check_extra_path(path)


def check_extra_path(path: str) -> None:
    """Refuse paths that cannot be those of further handlers.

    Raises:
        ValueError: it is the metrics' own, or begins without a slash.
    """
    if path.rstrip("/") == _PATH:
        raise ValueError(f"{path} is where the metrics are: choose another path")
    if not path.startswith("/"):
        raise ValueError(f"path {path!r} does not begin with a slash")


@attrs.frozen(kw_only=True)
class MetricsServerOptions:
    """Where and how metrics are served."""

    address: str = attrs.field(default="127.0.0.1:8080", validator=check_address)
    """``host:port``; default ``127.0.0.1:8080``, which nobody but this machine reaches. Prometheus
    scrapes at the pod's address: name ``":8443"`` to listen on all, best with ``tls`` and
    ``filter_provider``. ``""`` or ``"0"``: no server."""
    tls: TLSOptions | None = None
    """Serve HTTPS; ``TLSOptions()`` makes a certificate on the spot. Default: plain HTTP."""
    filter_provider: Callable[[ClientLike], HTTPFilter] | None = None
    """Makes what every request has to pass, further handlers included, from a client of the
    cluster: :class:`AuthFilter` asks the API server. Default: everybody who reaches the port may
    read."""
    extra_handlers: Mapping[str, HTTPHandler] = attrs.field(factory=dict, validator=_check_handlers)
    """Further handlers by their exact path; none at ``/metrics``."""
    process_metrics: bool = True
    """Whether the process and its interpreter are measured, too (``process_*``, ``python_gc_*``,
    ``python_info``), where the registry does not do so already; default True."""
    only_serve_when_leader: bool = False
    """Whether a manager serves them on the leader alone; default: on all replicas."""
    max_scrapes: int = attrs.field(default=8, validator=attrs.validators.ge(1))
    """How many scrapes are answered at once, each until its answer is read; default 8. Others wait
    for up to ten seconds, and then get 503. Those that come at the same time share a page."""
    shutdown_timeout: float = 60.0
    """Seconds of grace for scrapes under way at a stop; default 60."""

    @property
    def is_enabled(self) -> bool:
        """Whether there is to be a server: False for the addresses ``""`` and ``"0"``."""
        return not is_off(self.address)


@final
class MetricsServer:
    """Serves a registry at ``/metrics``, as text or, where the scraper prefers it, as OpenMetrics.

    Nothing else is served but what was added. The port is bound at the construction, so that a
    taken one is an error at once. A runnable: :meth:`run` serves until its stop signal is set.
    Thread-safe.

    >>> server = MetricsServer(MetricsServerOptions(address="127.0.0.1:0"))
    >>> server.close()

    Raises:
        OSError: the address cannot be bound.
        ValueError: the options switch the server off, or need a client and there is none.
    """

    name: Final = "metrics"

    def __init__(
        self,
        options: MetricsServerOptions | None = None,
        *,
        metrics: Metrics | None = None,
        client: ClientLike | None = None,
        limits: HTTPLimits | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """A server of ``metrics``.

        Args:
            options: where and how; see there.
            metrics: what to serve; default: the kit's own.
            client: what ``filter_provider`` is given.
            limits: what scrapers may ask.
            clock: what time-outs are measured with.
        """
        options = options or MetricsServerOptions()
        if not options.is_enabled:
            raise ValueError(f"address={options.address!r} means no server: do not make one")
        if options.filter_provider is not None and client is None:
            raise ValueError("filter_provider needs a client of the cluster: give client=")
        self._metrics = metrics or default_metrics()
        self._pages = _SharedPages()
        self._collectors = _ProcessCollectors() if options.process_metrics else None
        self._filter: HTTPFilter = lambda handler: handler
        if options.filter_provider is not None and client is not None:
            self._filter = options.filter_provider(client)
        self._server = HTTPServer(
            options.address,
            name=self.name,
            tls=options.tls,
            limits=limits,
            only_serve_when_leader=options.only_serve_when_leader,
            shutdown_timeout=options.shutdown_timeout,
            clock=clock,
            metrics=self._metrics,
        )
        try:
            serve = self._server.limited(self._serve, options.max_scrapes)
            self._server.add_handler(_PATH, self._filter(serve))
            for path, handler in options.extra_handlers.items():
                self.add_handler(path, handler)
        except BaseException:
            self._server.close()
            raise

    @property
    def address(self) -> str:
        """Where it listens, for example ``127.0.0.1:8080``."""
        return self._server.address

    @property
    def url(self) -> str:
        """The address as a URL."""
        return self._server.url

    @property
    def only_serve_when_leader(self) -> bool:
        """Whether it runs on the leader alone."""
        return self._server.only_serve_when_leader

    @property
    def needs_leader_election(self) -> bool:
        """The same, under the name that managers look at."""
        return self._server.needs_leader_election

    @property
    def certificates(self) -> Certificates | None:
        """What it proves its name with; None without TLS."""
        return self._server.certificates

    def __repr__(self) -> str:
        return f"<metrics server on {self.address}>"

    def add_handler(self, path: str, handler: HTTPHandler) -> None:
        """Serve something else at an exact path, behind the same filter; also while it runs.

        Raises:
            ValueError: the path is the metrics' own, or taken.
        """
        check_extra_path(path)
        self._server.add_handler(path, self._filter(handler))

    def run(self, stop: StopSignal, /) -> None:
        """Serve until ``stop`` is set.

        Raises:
            RuntimeError: it ran before or was closed.
            TimeoutError: a handler still runs ``shutdown_timeout`` seconds after the stop.
            OSError: it cannot accept connections.
        """
        try:
            self._server.run(stop)
        finally:
            self._close_filter()

    def close(self) -> None:
        """Let go of the port of a server that is not to run. Harmless after a run, and twice."""
        self._server.close()
        self._close_filter()

    def _close_filter(self) -> None:
        close = getattr(self._filter, "close", None)
        if close is not None:
            close()

    def _serve(self, request: HTTPRequest) -> HTTPResponse:
        encode, content_type = _encoder(request.headers.get("accept", ""))
        may_zip = _accepts_gzip(request.headers.get("accept-encoding", ""))

        def make() -> tuple[bytes, bool]:
            body = encode(_MergedRegistry(self._metrics.registry, self._collectors))
            if not may_zip or len(body) < _GZIP_FROM:
                return body, False
            import gzip

            return gzip.compress(body, compresslevel=_GZIP_LEVEL, mtime=0), True

        body, is_zipped = self._pages.get((content_type, may_zip), make)
        headers = {"Vary": "Accept, Accept-Encoding"}
        if is_zipped:
            headers["Content-Encoding"] = "gzip"
        return HTTPResponse(body=body, content_type=content_type, headers=headers)


def _encoder(accepted: str) -> tuple[Callable[[Any], bytes], str]:
    """What makes the page in the form that the scraper prefers, and the form's name."""
    from prometheus_client.exposition import choose_encoder

    try:
        return choose_encoder(accepted)
    except (ValueError, TypeError):  # a version such as a.b.c: what cannot be read is passed over
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
    """Pages, one made at a time, and shared by all who came before its making began.

    So each is as new as if it had been made for its reader alone. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._begun = 0
        self._waiting = 0
        # The number of the making, and what came of it; kept while somebody may want it.
        self._made: dict[object, tuple[int, tuple[bytes, bool]]] = {}

    def get(self, key: object, make: Callable[[], tuple[bytes, bool]]) -> tuple[bytes, bool]:
        """The page ``key``; what ``make`` raises is raised by the one for whom it was called."""
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
class _ProcessCollectors:
    """What prometheus-client knows of the process, in no registry of its own."""

    def __init__(self) -> None:
        self._collectors: list[Any] = []

    def collect(self) -> list[Metric]:
        if not self._collectors:
            # Into a registry that is thrown away: the user's own may be the process-wide one,
            # which has them already.
            from prometheus_client import (
                CollectorRegistry,
                GCCollector,
                PlatformCollector,
                ProcessCollector,
            )

            registry = CollectorRegistry()
            GCCollector(registry=registry)
            PlatformCollector(registry=registry)
            ProcessCollector(registry=registry)
            self._collectors = [registry]
        return [metric for collector in self._collectors for metric in collector.collect()]


@final
class _MergedRegistry:
    """What an encoder takes for a registry: the user's, and of the process what it has not."""

    def __init__(self, registry: CollectorRegistry, process: _ProcessCollectors | None) -> None:
        self._registry = registry
        self._process = process

    def collect(self) -> list[Metric]:
        metrics = list(self._registry.collect())
        names = {metric.name for metric in metrics}
        process = () if self._process is None else self._process.collect()
        return metrics + [metric for metric in process if metric.name not in names]
