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
    default_metrics,
    get_logger,
    system_clock,
)
from appsdk_operator.serving._self_signed import SelfSigned
from appsdk_operator.serving._tls import TLSOptions, new_server_context

if TYPE_CHECKING:
    import ssl

__all__ = ["CertificatePair", "Certificates", "load_certificates"]

_log: Final = get_logger("appsdk_operator.manager")
_READS: Final = Family(
    "certwatcher_read_certificate_total", "counter", "Total number of certificate reads"
)
_ERRORS: Final = Family(
    "certwatcher_read_certificate_errors_total",
    "counter",
    "Total number of certificate read errors",
)


class Certificates(Protocol):
    """The source of a server's certificate."""

    def context(self) -> ssl.SSLContext:
        """The TLS context for the next connection."""
        ...

    def run(self, stop: StopSignal, /) -> None:
        """Check for new certificates until the stop."""
        ...

    def close(self) -> None:
        """Release what it holds."""
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
        return SelfSigned(options, host, clock.time())
    return CertificatePair(
        options.cert_file,
        options.key_file,
        client_ca_file=options.client_ca_file,
        minimum_version=options.minimum_version,
        poll_interval=options.poll_interval,
        clock=clock,
        metrics=metrics,
    )


@final
class CertificatePair:
    """A certificate and its key in files, read again when they change.

    The files may be replaced one after the other, be missing for a while, or be behind the symbolic
    link that the kubelet swaps. Until they match again the old pair stays in use, and each failed
    read is counted. They are checked before each connection, which costs one ``stat`` per file, and
    each ``poll_interval`` seconds while :meth:`run` runs.

    Thread-safe. Counts ``certwatcher_read_certificate_total`` and ``…_errors_total``, as
    controller-runtime's certwatcher does.

    Args:
        cert_file: the PEM file with the certificate chain.
        key_file: the PEM file with the key, without a password.
        client_ca_file: authorities of the client certificates that clients must have; default:
            clients need none.
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
        clock: Clock = system_clock,
        metrics: Metrics | None = None,
    ) -> None:
        """See the class."""
        self._options = TLSOptions(
            cert_file=cert_file,
            key_file=key_file,
            client_ca_file=client_ca_file,
            minimum_version=minimum_version,
            poll_interval=poll_interval,
        )
        self._cert, self._key = os.fspath(cert_file), os.fspath(key_file)
        files = [self._cert, self._key]
        self._files = files if client_ca_file is None else [*files, os.fspath(client_ca_file)]
        self._clock = clock
        # Held while files are read, so that a slow reader does not overwrite a later one's result.
        self._reading = threading.Lock()
        # Guards the rest; notified when callbacks are due.
        self._changed = threading.Condition()
        self._reads = self._errors = 0
        self._callbacks: list[Callable[[], None]] = []
        self._callbacks_due = False
        self._signature: object = None
        self._contents: list[bytes] = []
        self._context: ssl.SSLContext
        self._remove_source: Callable[[], None] = lambda: None
        problem = self._read()
        if problem is not None:
            raise ValueError(problem)
        self._callbacks_due = False
        self._remove_source = (metrics or default_metrics()).add_source(self._samples)

    def __repr__(self) -> str:
        return f"<CertificatePair {self._cert}, {self._key}>"

    def context(self) -> ssl.SSLContext:
        """The TLS context for the next connection, with the newest pair that could be read."""
        if self._stat() != self._signature:
            self._read()
        return self._context

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
        interval = self._options.poll_interval
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
        return (Sample(_READS, (), self._reads), Sample(_ERRORS, (), self._errors))

    def _call_back(self) -> None:
        with self._changed:
            if not self._callbacks_due:
                return
            self._callbacks_due = False
            callbacks = list(self._callbacks)
        for callback in callbacks:
            try:
                callback()
            except Exception:
                _log.exception("a callback for a new certificate failed")

    def _stat(self) -> object:
        # Two writes within the file system's time resolution look alike; the poll finds the second.
        found: list[object] = []
        for name in self._files:
            try:
                status = Path(name).stat()
            except OSError as error:
                found.append(error.errno)
            else:
                found.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
        return found

    def _read(self) -> str | None:
        """Read the files and use them if they match; an error text if they do not."""
        with self._reading:
            signature = self._stat()
            try:
                contents = [Path(name).read_bytes() for name in self._files]
                context = None if contents == self._contents else self._load()
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                problem = self._problem(error)
                is_news = signature != self._signature
                with self._changed:
                    self._signature = signature
                    self._reads += 1
                    self._errors += 1
                if is_news and self._contents:
                    _log.error("%s; the certificate read before stays in use", problem)
                return problem
            is_change = context is not None and bool(self._contents)
            with self._changed:
                self._signature = signature
                self._reads += 1
                if context is not None:
                    self._contents, self._context = contents, context
                    self._callbacks_due = True
                    self._changed.notify_all()
            if is_change:
                _log.info("read a new certificate from %s", self._cert)
            return None

    def _load(self) -> ssl.SSLContext:
        # A new one each time: handshakes under way keep theirs, and a pair that does not match
        # leaves the old context unchanged.
        context = new_server_context(self._options)
        context.load_cert_chain(self._cert, self._key, password=_no_password)
        return context

    def _problem(self, error: Exception) -> str:
        names = " and ".join(self._files)
        remedy = "check that the files are there, are PEM, and belong together"
        return f"cannot use the certificate in {names}: {error}: {remedy}"


def _no_password() -> str:
    raise ValueError("the key has a password: store it without one")
