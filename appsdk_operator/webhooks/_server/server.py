"""The HTTPS server of webhooks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import attrs

from appsdk_operator.cache import Health
from appsdk_operator.client import ClientLike
from appsdk_operator.runtime import (
    ActivityObserver,
    Clock,
    LoopThread,
    Metrics,
    PartMetrics,
    StopSignal,
    Waiters,
    get_logger,
    present_clock,
    system_clock,
    validation,
)
from appsdk_operator.serving import (
    Certificates,
    HTTPLimits,
    HTTPRequest,
    HTTPResponse,
    HTTPServer,
    TLSOptions,
    is_off,
    parse_address,
)
from appsdk_operator.webhooks._rules import WebhookRule
from appsdk_operator.webhooks._server.options import (
    DEFAULT_LIMITS,
    WebhookServerOptions,
    default_delay,
    default_tls,
)
from appsdk_operator.webhooks._server.webhooks import WebhookHandler, Webhooks

if TYPE_CHECKING:
    import socket

_log: Final = get_logger("appsdk_operator.webhooks")
_DIAL_SECONDS: Final = 10.0
_DIAL_PAUSE: Final = 0.1
_LAST_JOIN: Final = 1.0
"""Seconds that cancelled coroutines have to end."""


@final
class WebhookServer:
    """Serves webhooks over HTTPS; the constructor binds its port.

    A manager runs it on every replica, before the caches, and has a ready check for it. It also
    works alone: :meth:`run` serves until its stop signal is set. Webhooks can be added at any time.
    Thread-safe.

        server = WebhookServer(certificates=CertificateFiles("tls.crt", "tls.key"))
        server.add("/admit", Admission(admit))
        Manager(config, webhook_server=server).run()

    If a handler takes nearly as long as the API server waits (the ``timeout`` in its query), the
    server answers with a failure that names the handler, so that users see more than a time-out.

    Args:
        address: ``host:port``; default ``":9443"``, on all addresses. ``""`` or ``"0"``: no port is
            opened, and webhooks can still be added.
        certificates: the source of the certificate, for example :class:`CertificateFiles` or
            :class:`ManagedCertificates`; the server runs and closes it. Default: the files of
            ``tls``.
        tls: the certificate files, unless ``certificates`` is given; the CAs of client
            certificates; the oldest allowed version of TLS. Default: ``tls.crt`` and ``tls.key`` in
            ``<tmp>/k8s-webhook-server/serving-certs``, and TLS 1.3.
        limits: limits for clients; default: 256 connections, which may be idle for 120 seconds.
        shutdown_timeout: seconds at a stop for running requests; default 60.
        shutdown_delay: seconds after the stop for which it still accepts connections and answers
            requests; each answer then closes its connection. A Service sends requests to a pod
            until all nodes know that it ends. Default: 3 in a pod, else 0.
        webhooks: the webhooks; default: none yet.
        clock: the clock of its time-outs; default: the environment's.
        metrics: the metrics that it writes to; default: the manager's.

    Raises:
        OSError: the address cannot be bound; the text says why and what to do.
        ValueError: an option is out of range, or the certificates cannot be used.
    """

    name: ClassVar[str] = "webhooks"
    runnable_group: ClassVar[str] = "webhooks"
    """The group of a manager that runs it: before the caches."""
    needs_leader_election: ClassVar[bool] = False
    """Whether a manager runs it on the leader only: no, on every replica."""

    def __init__(
        self,
        address: str = ":9443",
        *,
        certificates: Certificates | None = None,
        tls: TLSOptions | None = None,
        limits: HTTPLimits | None = None,
        shutdown_timeout: float = 60.0,
        shutdown_delay: float | None = None,
        webhooks: Webhooks | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """See the class."""
        options = WebhookServerOptions(
            address=address,
            certificates=certificates,
            tls=tls,
            limits=limits,
            shutdown_timeout=shutdown_timeout,
            shutdown_delay=shutdown_delay,
        )
        validation.check_environment(clock=clock, metrics=metrics)
        if webhooks is not None:
            validation.check_instance("webhooks", webhooks, Webhooks, "Webhooks()")
        self.clock: Clock = present_clock(clock)
        """The clock of its time-outs."""
        self._metrics = PartMetrics(metrics)
        self._webhooks = webhooks or Webhooks(clock=self.clock, metrics=self._metrics.metrics)
        self._loop = LoopThread("webhooks")
        self._lock = threading.RLock()  # also of signal handlers, which may close it
        self._waiters = Waiters(self.clock)
        self._state = "new"
        self._ending: StopSignal | None = None
        self._certificates = certificates
        self._http: HTTPServer | None = None
        if not is_off(address):
            self._http = self._new_server(options)

    def _new_server(self, options: WebhookServerOptions) -> HTTPServer:
        tls = options.tls
        if options.certificates is None and (tls is None or tls.cert_file is None):
            default = default_tls()
            tls = default if tls is None else _with_files(tls, default)
        elif tls is None:
            tls = TLSOptions(minimum_version="TLSv1.3")
        server = HTTPServer(
            options.address,
            name=self.name,
            tls=tls,
            certificates=options.certificates,
            limits=options.limits or DEFAULT_LIMITS,
            shutdown_timeout=options.shutdown_timeout,
            shutdown_delay=default_delay()
            if options.shutdown_delay is None
            else options.shutdown_delay,
            clock=self.clock,
            metrics=self._metrics.metrics,
        )
        self._certificates = server.certificates
        server.add_handler("/", self._answer, methods=None, is_prefix=True, limits=self._webhooks)
        return server

    @classmethod
    def of_options(
        cls,
        options: WebhookServerOptions,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> WebhookServer:
        """A server with these options.

        Raises:
            OSError, ValueError: as the class.
        """
        return cls(**attrs.asdict(options, recurse=False), clock=clock, metrics=metrics)

    # -- webhooks --------------------------------------------------------------------------------

    @property
    def webhooks(self) -> Webhooks:
        """Its webhooks by path."""
        return self._webhooks

    @property
    def rules(self) -> tuple[WebhookRule, ...]:
        """The rules of its admission webhooks, see :attr:`Webhooks.rules`."""
        return self._webhooks.rules

    @property
    def conversions(self) -> tuple[tuple[str, Any], ...]:
        """Its conversions, see :attr:`Webhooks.conversions`."""
        return self._webhooks.conversions

    def add(self, path: str, webhook: WebhookHandler, *, rule: WebhookRule | None = None) -> None:
        """Serve ``path`` with ``webhook`` from now on; see :meth:`Webhooks.add`."""
        self._webhooks.add(path, webhook, rule=rule)

    def observe_activity(self, observer: ActivityObserver) -> Callable[[], None]:
        """Call ``observer`` for each review; returns a function that ends this."""
        return self._webhooks.observe_activity(observer)

    def _answer(self, request: HTTPRequest) -> HTTPResponse:
        with self._loop.bound():
            return self._webhooks.answer(request)

    # -- status ----------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The address it listens on, for example ``127.0.0.1:9443``; empty if it opens no port."""
        return "" if self._http is None else self._http.address

    @property
    def port(self) -> int:
        """The port it listens on; 0 if it opens none."""
        return 0 if self._http is None else self._http.port

    @property
    def url(self) -> str:
        """The address as a URL; empty if it opens no port."""
        return "" if self._http is None else self._http.url

    @property
    def certificates(self) -> Certificates | None:
        """The source of its certificate; None if it opens no port."""
        return self._certificates

    def __repr__(self) -> str:
        where = f"on {self.address}" if self._http is not None else "without a port"
        return f"<webhook server {where}>"

    def health(self) -> Health:
        """Whether it can be called: it runs, has a certificate, and accepts a TLS connection.

        It connects to itself, with a time-out of 10 seconds.
        """
        if self._http is None:
            return Health(True, "the webhook server is off")
        if self._state != "running":
            return Health(False, f"the webhook server {_STATES[self._state]}")
        source = getattr(self._certificates, "health", None)
        own = source() if callable(source) else None
        if isinstance(own, Health) and not own.is_ready:
            return own
        problem = self._dial()
        if problem is not None:
            return Health(False, f"the webhook server is not reachable: {problem}")
        return Health(True, f"the webhook server answers on {self.address}")

    def wait_until_ready(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait until it runs, has its certificate, and accepts a TLS connection.

        Returns:
            False when stopped, when its run has ended, or after ``timeout`` seconds.
        """
        validation.check_wait(stop, timeout)
        clock = self.clock
        deadline = None if timeout is None else clock.monotonic() + timeout

        def left() -> float | None:
            return None if deadline is None else max(0.0, deadline - clock.monotonic())

        self._waiters.wait(lambda: self._state != "new", stop, timeout)
        if self._state != "running" or stop.is_set():
            return False
        if self._http is None:
            return True
        ready = getattr(self._certificates, "wait_until_ready", None)
        if callable(ready) and not ready(stop, left()):
            return False
        while (problem := self._dial(left(), stop)) is not None:
            remaining = left()
            if self._state != "running" or remaining == 0.0:
                _log.warning("the webhook server is not reachable: %s", problem)
                return False
            if stop.wait(_DIAL_PAUSE if remaining is None else min(_DIAL_PAUSE, remaining)):
                return False
        return not stop.is_set()

    def _dial(self, left: float | None = None, stop: StopSignal | None = None) -> str | None:
        """Do a TLS handshake with itself; the problem, if any.

        Args:
            left: the most seconds, of which one at least is given; default and most: 10.
            stop: ends it.
        """
        import socket
        import ssl

        host, port = parse_address(self.address)
        own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound here
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        # Whose certificate it is, is for the callers to check.
        context.verify_mode = ssl.CERT_NONE
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        # An SSLSocket is left open where the connection is reset before its handshake.
        tls = context.wrap_bio(received, sent)
        seconds = _DIAL_SECONDS if left is None else min(_DIAL_SECONDS, max(left, 1.0))
        deadline = system_clock.monotonic() + seconds
        try:
            with (
                socket.create_connection((own, port), seconds) as plain,
                contextlib.ExitStack() as exits,
            ):
                if stop is not None:
                    exits.callback(stop.on_set(lambda: _cut(plain)))
                while True:
                    try:
                        tls.do_handshake()
                    except ssl.SSLWantReadError:
                        plain.settimeout(max(0.001, deadline - system_clock.monotonic()))
                        plain.sendall(sent.read())
                        if data := plain.recv(16_384):
                            received.write(data)
                        else:
                            received.write_eof()
                    else:
                        plain.sendall(sent.read())
                        return None
        except OSError as error:  # ssl.SSLError is one
            return str(error) or type(error).__name__

    # -- for managers ----------------------------------------------------------------------------

    def attach(self, *, client: ClientLike) -> None:
        """Give certificates that are stored in the cluster a client; managers call this.

        Args:
            client: a client that may write on every replica, leader or not.
        """
        attach = getattr(self._certificates, "attach", None)
        if callable(attach):
            attach(
                client=client,
                metrics=self._metrics.metrics,
                clock=self.clock,
                webhooks=self._webhooks,
            )

    # -- start and stop --------------------------------------------------------------------------

    def run(self, stop: StopSignal, /) -> None:
        """Serve until ``stop`` is set and ``shutdown_delay`` has passed, then finish.

        Running requests have ``shutdown_timeout`` seconds.

        Raises:
            RuntimeError: it was run before or was closed.
            TimeoutError: handlers still run after that; the text names their paths.
            OSError: it cannot accept connections.
        """
        ending = stop.child()
        self._enter("new", "running", ending)
        self._metrics.publish()
        with contextlib.ExitStack() as exits:
            exits.callback(self._enter, "running", "ended")
            exits.callback(ending.set)
            exits.callback(self._close_loop)
            if self._http is None:
                _log.info("the webhook server is off")
                ending.wait()
            else:
                self._http.run(ending)

    def _close_loop(self) -> None:
        if self._loop.close(_LAST_JOIN):
            raise TimeoutError(
                "async handlers of the webhook server still run after its stop, though they were "
                "cancelled: what they await in a thread, such as asyncio.to_thread(…), has to end "
                "by itself"
            )

    def _enter(self, before: str, after: str, ending: StopSignal | None = None) -> None:
        with self._lock:
            if self._state != before:
                raise RuntimeError("the webhook server ran before or was closed: make a new one")
            self._state, self._ending = after, ending
        self._waiters.wake()

    def close(self) -> None:
        """Close the port. Harmless after a run, and twice.

        If the server runs, this stops it like its stop signal, and does not wait for it: the port
        is closed once ``run`` returns.
        """
        with self._lock:
            ending = self._ending
            if ending is None:
                self._state = "ended"
        if ending is not None:
            ending.set()
            return
        self._waiters.wake()
        if self._http is not None:
            self._http.close()
        self._loop.close()


_STATES: Final = {"new": "has not been started yet", "ended": "has ended"}


def _with_files(tls: TLSOptions, default: TLSOptions) -> TLSOptions:
    return attrs.evolve(tls, cert_file=default.cert_file, key_file=default.key_file)


def _cut(plain: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended
        plain.shutdown(2)  # both directions
