"""TLS options of a server, and the TLS contexts that they make."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

import attrs

from appsdk_operator.runtime import get_logger
from appsdk_operator.serving._key_pair import KeyPair

if TYPE_CHECKING:
    import ssl


_log: Final = get_logger("appsdk_operator.serving")


def _path(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else os.fspath(value)


@attrs.frozen(kw_only=True)
class TLSOptions:
    """The TLS options of a server.

    ``client_ca_file`` and ``minimum_version`` hold for a certificate from any source.
    """

    cert_file: str | None = attrs.field(default=None, converter=_path)
    """The PEM file with the certificate and its intermediate certificates. Default: a self-signed
    certificate that the server makes, which encrypts but which clients cannot verify. Not together
    with a server's ``certificates``."""
    key_file: str | None = attrs.field(default=None, converter=_path)
    """The PEM file with the certificate's key, without a password."""
    client_ca_file: str | None = attrs.field(default=None, converter=_path)
    """The PEM file with the authorities of client certificates, which clients then must have;
    default: clients need none. A changed file is read again; one that cannot be used leaves the
    authorities read before in force."""
    minimum_version: Literal["TLSv1.2", "TLSv1.3"] = attrs.field(
        default="TLSv1.2", validator=attrs.validators.in_(("TLSv1.2", "TLSv1.3"))
    )
    """The oldest accepted version of TLS; default 1.2. A client that speaks 1.3 gets it."""
    poll_interval: float = 10.0
    """Seconds between two checks of the files, besides the one before each connection; default
    10."""

    def __attrs_post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("give cert_file and key_file together, or neither of them")
        if not self.poll_interval > 0:
            raise ValueError(f"poll_interval={self.poll_interval}: use more than 0 seconds")


def new_server_context(options: TLSOptions) -> ssl.SSLContext:
    """A TLS context for a server, without its certificate.

    Raises:
        ValueError: the file of client authorities cannot be used.
    """
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


def file_signature(name: str) -> object:
    """A value that differs once the file was written; for a missing file the error number.

    Two writes within the file system's time resolution look alike.
    """
    try:
        status = Path(name).stat()
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


@final
class ServerContexts:
    """The TLS context of a server, made anew when its pair or its client authorities change.

    Handshakes under way keep theirs. Thread-safe.
    """

    def __init__(self, options: TLSOptions, pair: Callable[[], KeyPair], name: str) -> None:
        """The contexts of ``pair()`` under these options, for the server called ``name``.

        Raises:
            ValueError: the authorities, or the pair that there is already, cannot be used.
        """
        self._options = options
        self._pair = pair
        self._name = name
        self._lock = threading.Lock()
        self._made_from: tuple[KeyPair, object] | None = None
        self._refused: tuple[KeyPair, object] | None = None
        self._context: ssl.SSLContext | None = None
        new_server_context(options)
        try:
            made_from = self._present()
        except OSError:
            return  # there is none yet
        try:
            self._context = self._new(made_from[0])
        except OSError as error:
            raise ValueError(f"the {name} server cannot use its certificate: {error}") from error
        self._made_from = made_from

    def get(self) -> ssl.SSLContext:
        """The context for the next connection.

        A pair or an authority that cannot be used is logged once, and leaves the context before in
        use. It is tried again at each call, since what was missing may have been a descriptor.

        Raises:
            OSError: there is no certificate, and there was none before.
        """
        made_from = self._present()
        with self._lock:
            if made_from != self._made_from:
                try:
                    self._context = self._new(made_from[0])
                except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                    if made_from != self._refused:
                        self._log(error)
                    self._refused = made_from
                else:
                    self._made_from = made_from
            context = self._context
        if context is None:
            raise OSError(f"the {self._name} server has no certificate that it can use")
        return context

    def _present(self) -> tuple[KeyPair, object]:
        name = self._options.client_ca_file
        return self._pair(), None if name is None else file_signature(name)

    def _new(self, pair: KeyPair) -> ssl.SSLContext:
        context = new_server_context(self._options)
        pair.load_into(context)
        return context

    def _log(self, error: Exception) -> None:
        kept = "" if self._context is None else "; the one before stays in use"
        _log.error("the %s server cannot use its certificate: %s%s", self._name, error, kept)
