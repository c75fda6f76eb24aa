"""Server certificates: read from files and read again when these change, or self-signed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, final

from appsdk_operator.runtime import (
    Clock,
    Family,
    Metrics,
    Sample,
    StopSignal,
    get_logger,
    guarded_call,
    present_clock,
    present_metrics,
)
from appsdk_operator.serving._key_pair import KeyPair
from appsdk_operator.serving._self_signed import SelfSigned
from appsdk_operator.serving._tls import TLSOptions, file_signature, new_server_context

if TYPE_CHECKING:
    import ssl


_log: Final = get_logger("appsdk_operator.serving")
_READS: Final = Family(
    "certwatcher_read_certificate_total", "counter", "Total number of certificate reads"
)
_ERRORS: Final = Family(
    "certwatcher_read_certificate_errors_total",
    "counter",
    "Total number of certificate read errors",
)
_EXPIRY: Final = Family(
    "certwatcher_certificate_expiry_seconds",
    "gauge",
    "Seconds until the certificate in use expires, by the file that it is from.",
    ("file",),
)
_ANY_ADDRESS: Final = ("::", "0.0.0.0")  # noqa: S104 - binds nothing


class Certificates(Protocol):
    """The source of a server's certificate.

    A source belongs to one server, which calls :meth:`pair` before each connection, in several
    threads at once, and runs and closes the source. The server makes the TLS contexts itself, so
    that :class:`TLSOptions` hold for every source.
    """

    def pair(self) -> KeyPair:
        """The certificate for the next connection; quick, and the same object while it is the same.

        Raises:
            OSError: there is none yet; the connection is closed.
        """
        ...

    def run(self, stop: StopSignal, /) -> None:
        """Look for new certificates until the stop; may return at once if there are none."""
        ...

    def close(self) -> None:
        """Release what it holds; twice is harmless."""
        ...


def load_certificates(
    options: TLSOptions, host: str, *, clock: Clock, metrics: Metrics
) -> Certificates:
    """The certificates for these options: a pair of files, or a self-signed certificate.

    Raises:
        ValueError: the files cannot be used.
        ImportError: there are no files, and the package that makes certificates is missing.
    """
    if options.cert_file is None or options.key_file is None:
        hosts = () if host in _ANY_ADDRESS else (host,)
        return SelfSigned(*hosts, clock=clock)
    return CertificateFiles(
        options.cert_file,
        options.key_file,
        client_ca_file=options.client_ca_file,
        minimum_version=options.minimum_version,
        poll_interval=options.poll_interval,
        clock=clock,
        metrics=metrics,
    )


@final
class CertificateFiles:
    """A certificate and its key in files, read again when they change.

    The files may be replaced one after the other, be missing for a while, or be behind the symbolic
    link that the kubelet swaps. Until they match again the old pair stays in use, and each failed
    read is counted. They are checked before each connection, which costs one ``stat`` per file, and
    each ``poll_interval`` seconds while :meth:`run` runs. Such files come from a mounted Secret,
    as cert-manager writes it:

        server = HTTPServer(":9443", certificates=CertificateFiles("/tls/tls.crt", "/tls/tls.key"))

    Thread-safe. Counts ``certwatcher_read_certificate_total`` and ``…_errors_total``, as
    controller-runtime's certwatcher does, and publishes when the certificate expires.

    Args:
        cert_file: the PEM file with the certificate chain.
        key_file: the PEM file with the key, without a password.
        client_ca_file: authorities of the client certificates that clients must have; default:
            clients need none. This and ``minimum_version`` hold for :meth:`context`, and for a
            server without ``tls``.
        minimum_version: the oldest TLS version; default ``"TLSv1.2"``.
        poll_interval: seconds between two checks of :meth:`run`; default 10.
        clock: the clock of ``poll_interval``.
        metrics: where reads are counted; default: the kit's own.

    Raises:
        ValueError: the files cannot be used; the text names them and says why.
    """

    def __init__(
        self,
        cert_file: str | os.PathLike[str],
        key_file: str | os.PathLike[str],
        *,
        client_ca_file: str | os.PathLike[str] | None = None,
        minimum_version: Literal["TLSv1.2", "TLSv1.3"] = "TLSv1.2",
        poll_interval: float = 10.0,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """See the class."""
        self.tls: Final = TLSOptions(
            cert_file=cert_file,
            key_file=key_file,
            client_ca_file=client_ca_file,
            minimum_version=minimum_version,
            poll_interval=poll_interval,
        )
        """Its options, which are those of its server, too, if that was given none."""
        self._cert, self._key = os.fspath(cert_file), os.fspath(key_file)
        files = [self._cert, self._key]
        self._files = files if client_ca_file is None else [*files, os.fspath(client_ca_file)]
        self._clock = present_clock(clock)
        # Held while files are read, so that a slow reader does not overwrite a later one's result.
        self._reading = threading.Lock()
        # Guards the rest; notified when callbacks are due.
        self._changed = threading.Condition()
        self._reads = self._errors = 0
        self._callbacks: list[Callable[[], None]] = []
        self._callbacks_due = False
        self._signature: object = None
        self._refused: object = None
        """The signature of the files that could not be used, and were reported."""
        self._contents: list[bytes] = []
        self._pair: KeyPair
        self._context: ssl.SSLContext
        self._remove_source: Callable[[], None] = lambda: None
        problem = self._read()
        if problem is not None:
            raise ValueError(problem)
        self._callbacks_due = False
        self._remove_source = present_metrics(metrics).add_source(self._samples)

    def __repr__(self) -> str:
        return f"<CertificateFiles {self._cert}, {self._key}>"

    def pair(self) -> KeyPair:
        """The newest pair that could be read."""
        self._refresh()
        return self._pair

    def context(self) -> ssl.SSLContext:
        """A TLS context for the next connection of a server of your own, with the newest pair."""
        self._refresh()
        return self._context

    def _refresh(self) -> None:
        if self._stat() != self._signature:
            self._read()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` now, and after each change from :meth:`run` or :meth:`read`.

        Its exceptions are logged, except for the call now, which raises them.
        """
        with self._changed:
            self._callbacks.append(callback)
        callback()

    def read(self) -> bool:
        """Read the files now; whether they match. Calls the callbacks if they changed."""
        problem = self._read()
        self._call_back()
        return problem is None

    def run(self, stop: StopSignal, /) -> None:
        """Check the files each ``poll_interval`` seconds until the stop."""
        detach = stop.on_set(self._wake)
        interval = self.tls.poll_interval
        try:
            while True:
                with self._changed:
                    deadline = self._clock.monotonic() + interval
                    while not stop.is_set() and not self._callbacks_due:
                        left = deadline - self._clock.monotonic()
                        if left <= 0:
                            break
                        self._clock.wait(self._changed, left)
                if stop.is_set():
                    return
                if not self._callbacks_due:
                    self._read()
                self._call_back()
        finally:
            detach()

    def close(self) -> None:
        """Take its series off the gauges; its counts stay in the totals."""
        self._remove_source()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _samples(self) -> Iterable[Sample]:
        left = self._pair.expires - self._clock.time()
        return (
            Sample(_READS, (), self._reads),
            Sample(_ERRORS, (), self._errors),
            Sample(_EXPIRY, (self._cert,), left),
        )

    def _call_back(self) -> None:
        with self._changed:
            if not self._callbacks_due:
                return
            self._callbacks_due = False
            callbacks = list(self._callbacks)
        for callback in callbacks:
            guarded_call(
                "a callback",
                callback,
                failed=lambda _: _log.exception("a callback for a new certificate failed"),
            )

    def _stat(self) -> list[object]:
        # The poll finds what two quick writes hide.
        return [file_signature(name) for name in self._files]

    def _read(self) -> str | None:
        """Read the files and use them if they match; an error text if they do not."""
        with self._reading:
            signature = self._stat()
            try:
                contents = [Path(name).read_bytes() for name in self._files]
                pair = KeyPair(contents[0], contents[1])
                context = None if contents == self._contents else self._load(pair)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                problem = self._problem(error)
                is_news = signature != self._refused
                self._refused = signature
                with self._changed:
                    # What was missing may have been a descriptor: then the next connection's look
                    # reads the files again.
                    self._signature = None if _is_of_system(error, signature) else signature
                    self._reads += 1
                    self._errors += 1
                if is_news and self._contents:
                    _log.error("%s; the certificate read before stays in use", problem)
                return problem
            self._refused = None
            is_change = context is not None and bool(self._contents)
            with self._changed:
                self._signature = signature
                self._reads += 1
                if context is not None:
                    # A server that has them need not make a context when only an authority changed.
                    if not is_change or pair != self._pair:
                        self._pair = pair
                    self._contents, self._context = contents, context
                    self._callbacks_due = True
                    self._changed.notify_all()
            if is_change:
                _log.info("read a new certificate from %s", self._cert)
            return None

    def _load(self, pair: KeyPair) -> ssl.SSLContext:
        # A new one each time: handshakes under way keep theirs, and a pair that does not match
        # leaves the old context unchanged.
        context = new_server_context(self.tls)
        pair.load_into(context)
        return context

    def _problem(self, error: Exception) -> str:
        names = " and ".join(self._files)
        remedy = "check that the files are there, are PEM, and belong together"
        return f"cannot use the certificate in {names}: {error}: {remedy}"


def _is_of_system(error: BaseException, signature: list[object]) -> bool:
    """Whether files that are there, by their signature, could not be read or loaded."""
    import ssl

    error = error.__cause__ or error
    is_of_content = isinstance(error, (ValueError, ssl.SSLError))
    return not is_of_content and all(isinstance(each, tuple) for each in signature)
