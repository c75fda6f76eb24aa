"""Certificates of servers: read from files that may change at any time, or made on the spot."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, final

import attrs

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

if TYPE_CHECKING:
    import ssl

__all__ = ["CertificatePair", "Certificates", "TLSOptions", "load_certificates"]

_log: Final = get_logger("appsdk_operator.manager")
_READS: Final = Family(
    "certwatcher_read_certificate_total", "counter", "Total number of certificate reads"
)
_ERRORS: Final = Family(
    "certwatcher_read_certificate_errors_total",
    "counter",
    "Total number of certificate read errors",
)


def _path(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else os.fspath(value)


@attrs.frozen(kw_only=True)
class TLSOptions:
    """How a server speaks TLS."""

    cert_file: str | None = attrs.field(default=None, converter=_path)
    """The PEM file with the certificate, and those between it and its authority. Default: a
    certificate that the server makes for itself, which clients can encrypt with, but not verify."""
    key_file: str | None = attrs.field(default=None, converter=_path)
    """The PEM file with the certificate's key, without a password."""
    client_ca_file: str | None = attrs.field(default=None, converter=_path)
    """The PEM file with the authorities whose certificates clients must show; default: clients
    need none. A new file is picked up like a new certificate, but not beside a self-made one."""
    minimum_version: Literal["TLSv1.2", "TLSv1.3"] = attrs.field(
        default="TLSv1.2", validator=attrs.validators.in_(("TLSv1.2", "TLSv1.3"))
    )
    """The oldest version of TLS that is spoken; default 1.2."""
    poll_interval: float = 10.0
    """Seconds between two looks at the files, besides the one before each connection; default
    10."""

    def __attrs_post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("give cert_file and key_file together, or neither of them")
        if not self.poll_interval > 0:
            raise ValueError(f"poll_interval={self.poll_interval}: use more than 0 seconds")


class Certificates(Protocol):
    """Where a server gets its certificate from."""

    def context(self) -> ssl.SSLContext:
        """What to begin the next connection with."""
        ...

    def run(self, stop: StopSignal, /) -> None:
        """Look for new certificates until the stop."""
        ...

    def close(self) -> None:
        """End what is left."""
        ...


def load_certificates(
    options: TLSOptions, host: str, *, clock: Clock, metrics: Metrics
) -> Certificates:
    """The certificates that ``options`` ask for.

    Raises:
        ValueError: the files cannot be used.
        ImportError: there are no files, and the package that makes certificates is missing.
    """
    if options.cert_file is None or options.key_file is None:
        from appsdk_operator.serving._self_signed import SelfSigned

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

    The files may be replaced one after the other, be gone for a while, or be behind the symbolic
    link that the kubelet swaps: until the two fit together again, the old pair stays in use, and
    each read that fails is counted. They are looked at before each connection, which costs a
    ``stat`` each, and each ``poll_interval`` seconds while :meth:`run` runs.

    Thread-safe. Counts ``certwatcher_read_certificate_total`` and ``…_errors_total``, as
    controller-runtime's certwatcher does.

    Args:
        cert_file: the PEM file with the certificate chain.
        key_file: the PEM file with the key, without a password.
        client_ca_file: authorities whose certificates clients must show; default: none needed.
        minimum_version: the oldest TLS version; default ``"TLSv1.2"``.
        poll_interval: seconds between two looks of :meth:`run`; default 10.
        clock: what it waits on.
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
        # Held while files are read, so that of two readers the later one has the last word.
        self._reading = threading.Lock()
        # Guards the rest; notified when callbacks are due.
        self._changed = threading.Condition()
        self._reads = self._errors = 0
        self._callbacks: list[Callable[[], None]] = []
        self._due = False
        self._signature: object = None
        self._contents: list[bytes] = []
        self._context: ssl.SSLContext
        self._forget: Callable[[], None] = lambda: None
        problem = self._read()
        if problem is not None:
            raise ValueError(problem)
        self._due = False
        self._forget = (metrics or default_metrics()).add_source(self._samples)

    def __repr__(self) -> str:
        return f"<CertificatePair {self._cert}, {self._key}>"

    def context(self) -> ssl.SSLContext:
        """What to begin the next connection with: the newest pair that could be read."""
        if self._stat() != self._signature:
            self._read()
        return self._context

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` now, and after each change from :meth:`run` or :meth:`read`.

        What it raises is logged, except now.
        """
        with self._changed:
            self._callbacks.append(callback)
        callback()

    def read(self) -> bool:
        """Read the files now; whether both fit together. Calls the callbacks if they changed."""
        problem = self._read()
        self._call_back()
        return problem is None

    def run(self, stop: StopSignal, /) -> None:
        """Look at the files each ``poll_interval`` seconds until the stop."""
        detach = stop.on_set(self._wake)
        interval = self._options.poll_interval
        try:
            while True:
                with self._changed:
                    deadline = self._clock.monotonic() + interval
                    while not stop.is_set() and not self._due:
                        left = deadline - self._clock.monotonic()
                        if left <= 0:
                            break
                        self._clock.wait(self._changed, left)
                if stop.is_set():
                    return
                if not self._due:
                    self._read()
                self._call_back()
        finally:
            detach()

    def close(self) -> None:
        """Take its series off the gauges; what was counted stays in the totals."""
        self._forget()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _samples(self) -> Iterable[Sample]:
        return (Sample(_READS, (), self._reads), Sample(_ERRORS, (), self._errors))

    def _call_back(self) -> None:
        with self._changed:
            if not self._due:
                return
            self._due = False
            callbacks = list(self._callbacks)
        for callback in callbacks:
            try:
                callback()
            except Exception:
                _log.exception("a callback for a new certificate failed")

    def _stat(self) -> object:
        # Two writes within the file system's resolution of time look alike: the poll reads.
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
        """Read the files, and use them if they fit together; else what is wrong."""
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
                    self._due = True
                    self._changed.notify_all()
            if is_change:
                _log.info("read a new certificate from %s", self._cert)
            return None

    def _load(self) -> ssl.SSLContext:
        # A new one each time: handshakes under way keep theirs, and a pair that does not fit
        # together leaves nothing half done.
        context = new_server_context(self._options)
        context.load_cert_chain(self._cert, self._key, password=_no_password)
        return context

    def _problem(self, error: Exception) -> str:
        names = " and ".join(self._files)
        remedy = "check that the files are there, are PEM, and belong together"
        return f"cannot use the certificate in {names}: {error}: {remedy}"


def _no_password() -> str:
    raise ValueError("the key has a password: store it without one")


def new_server_context(options: TLSOptions) -> ssl.SSLContext:
    """A context for a server, still without its certificate."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions: dict[str, Any] = {
        "TLSv1.2": ssl.TLSVersion.TLSv1_2,
        "TLSv1.3": ssl.TLSVersion.TLSv1_3,
    }
    context.minimum_version = versions[options.minimum_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    with contextlib.suppress(NotImplementedError):
        context.set_alpn_protocols(["http/1.1"])
    if options.client_ca_file is not None:
        try:
            context.load_verify_locations(options.client_ca_file)
        except OSError as error:  # it names no file
            raise ValueError(
                f"client_ca_file={options.client_ca_file}: {error}: name a PEM file of authorities"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
