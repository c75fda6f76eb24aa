"""TLS contexts from certificate files or data, rebuilt when they change."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading

from appsdk_operator.client._auth.config import ClientConfig
from appsdk_operator.client._auth.config_files import check_regular, memory_file
from appsdk_operator.client._auth.credentials import RenewalLog
from appsdk_operator.client._errors import ConfigError, TLSFailed
from appsdk_operator.runtime import fork_safe, forks_wait

_OPEN_FILES = "/proc/self/fd"
"""The open files of this process on Linux, files in memory included."""

_Stamp = tuple[tuple[str, int, int, int], ...]


class TLSContexts:
    """The TLS context for new connections, rebuilt when a certificate file changes.

    Thread-safe.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._files = [
            str(path) for path in (config.ca_file, config.cert_file, config.key_file) if path
        ]
        self._lock = fork_safe(threading.Lock())
        self._context: ssl.SSLContext | None = None
        self._stamp: object = None
        self._number = 0
        self._renewal = RenewalLog("TLS certificates")

    def get(self, pair: tuple[bytes, bytes] | None) -> ssl.SSLContext:
        """The context for a new connection.

        Raises:
            ConfigError: as :meth:`numbered`.
        """
        return self.numbered(pair)[1]

    def numbered(self, pair: tuple[bytes, bytes] | None) -> tuple[int, ssl.SSLContext]:
        """The context for a new connection with this certificate, after its number.

        The number is greater for each context: a connection of a smaller one than the present is
        not to be reused.

        During a rotation, certificate and key may not fit for a moment: then the former context
        stays in use.

        Raises:
            ConfigError: a file cannot be read, or a key does not fit its certificate, and there is
                no former context.
        """
        with self._lock:
            stamp = (self._file_stamps(), pair)
            if self._context is not None and stamp == self._stamp:
                return self._number, self._context
            try:
                with forks_wait:
                    context = _make(self._config, pair)
            except ConfigError as error:
                if self._context is None:
                    raise
                self._renewal.failed(error)
                return self._number, self._context
            self._renewal.succeeded()
            self._context, self._stamp = context, stamp
            self._number += 1
            return self._number, context

    def _file_stamps(self) -> _Stamp:
        stamps = []
        for path in self._files:
            try:
                status = os.stat(path)  # noqa: PTH116 - follows the symlinks that kubelet swaps
            except OSError:
                stamps.append((path, 0, 0, 0))
            else:
                stamps.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(stamps)


def verifying_context(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """A context that verifies servers by these CAs; default: the machine's."""
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    # Python 3.13 turned strict checks of RFC 5280 on, which the CAs of many clusters and proxies
    # do not pass and no other Kubernetes client makes.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _make(config: ClientConfig, pair: tuple[bytes, bytes] | None) -> ssl.SSLContext:
    ca = config.ca_data.decode("ascii", "replace") if config.ca_data else None
    for path in (config.ca_file, config.cert_file, config.key_file):
        # OpenSSL would read a device for ever. A missing file fails below.
        if path:
            with contextlib.suppress(OSError):
                check_regular(path)
    try:
        context = verifying_context(cafile=config.ca_file, cadata=ca)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the CA {config.ca_file or 'in ca_data'} cannot be used: {error}; give certificates "
            "in PEM form"
        ) from error
    # This client speaks HTTP/1.1 only; the server must not choose HTTP/2.
    context.set_alpn_protocols(["http/1.1"])
    if config.unsafe_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        _load_pair_data(context, *pair)
    elif config.cert_file:
        _load_pair(context, str(config.cert_file), str(config.key_file or config.cert_file))
    elif config.cert_data:
        _load_pair_data(context, config.cert_data, config.key_data or b"")
    return context


def _load_pair(context: ssl.SSLContext, cert: str, key: str) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the client certificate {cert} with key {key} cannot be used: {error}; both must be "
            "PEM, belong together, and the key must have no password"
        ) from error


def _load_pair_data(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    # ssl reads certificates from files only. A file in memory leaves no copy of the key.
    if os.path.isdir(_OPEN_FILES):  # noqa: PTH112 - pathlib is slow to load
        with memory_file() as file:
            file.write(cert + b"\n" + key)
            file.flush()
            _load_pair_file(context, f"{_OPEN_FILES}/{file.fileno()}")
        return
    try:
        # mkstemp makes a file that only this user can read.
        import tempfile

        descriptor, path = tempfile.mkstemp(prefix="appsdk-operator-")
    except OSError as error:
        raise ConfigError(
            f"the client certificate in cert_data needs a file for a moment: {error}; set $TMPDIR "
            "to a folder that can be written, or give cert_file and key_file"
        ) from error
    try:
        with os.fdopen(descriptor, "wb") as named:
            named.write(cert + b"\n" + key)
        _load_pair_file(context, path)
    finally:
        os.unlink(path)  # noqa: PTH108 - as above


def _load_pair_file(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_cert_chain(path, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the client certificate in cert_data cannot be used: {error}; cert_data and "
            "key_data must be PEM, belong together, and the key must have no password"
        ) from None


def _no_password() -> str:
    # Without this callback OpenSSL asks on the terminal, and the program hangs.
    raise ValueError("the key is protected by a password")


# OpenSSL's X509_V_ERR_* numbers.
_HANDSHAKE_REMEDIES = {
    9: "the clocks of this machine and of the issuer may differ: the certificate is not valid yet",
    10: "the server's certificate has expired: renew it",
    18: "the server's certificate is self-signed: give it as ca_file or ca_data if it is yours",
    19: "give the cluster's CA as ca_file or ca_data (certificate-authority in a kubeconfig)",
    20: "give the cluster's CA as ca_file or ca_data (certificate-authority in a kubeconfig)",
    21: "give the cluster's CA as ca_file or ca_data (certificate-authority in a kubeconfig)",
    62: "connect by a name that is in the certificate, or set tls_server_name to one of them",
    64: "connect by an address that is in the certificate, or set tls_server_name to a name in it",
}


def tls_failure(peer: str, error: ssl.SSLError) -> TLSFailed:
    """The error for a failed handshake, with the remedy for the most common reasons."""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _HANDSHAKE_REMEDIES.get(error.verify_code, "check the server's certificate chain")
        return TLSFailed(
            f"the certificate of {peer} is not trusted: {error.verify_message}; {remedy}"
        )
    reason = error.reason or str(error)
    remedy = "check the TLS versions on both sides"
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"}:
        remedy = "the server does not speak TLS on this port: check the port, or use http://"
    elif "ALERT" in reason or "CERTIFICATE_REQUIRED" in reason:
        remedy = "the server refused us: check the client certificate, its key and its expiry"
    return TLSFailed(f"no TLS connection to {peer}: {reason}; {remedy}")
