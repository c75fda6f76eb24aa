"""A self-signed certificate, which encrypts connections but does not prove the server's name."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from appsdk_operator.runtime import StopSignal
from appsdk_operator.serving._tls import TLSOptions, new_server_context

if TYPE_CHECKING:
    import ssl

__all__ = ["SelfSigned"]

_LIFETIME: Final = dt.timedelta(days=365)


@final
class SelfSigned:
    """A self-signed certificate, kept in memory while its server runs."""

    def __init__(self, options: TLSOptions, host: str, now: float) -> None:
        """A certificate for ``host``, valid for a year from ``now`` in seconds since 1970.

        Raises:
            ImportError: the package ``cryptography`` is missing; the text names the extra.
        """
        certificate, key = _make_certificate(host, now)
        self.pem: Final = certificate
        """The certificate in PEM; a client verifies the server with it as its authority."""
        self._context = new_server_context(options)
        with _temporary_file(certificate + key) as path:
            self._context.load_cert_chain(path)

    def context(self) -> ssl.SSLContext:
        """The TLS context for the next connection."""
        return self._context

    def run(self, stop: StopSignal, /) -> None:
        """Return at once: the certificate does not change."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


@contextlib.contextmanager
def _temporary_file(data: bytes) -> Iterator[Path]:
    """A temporary file, because ssl loads keys only from files: in memory or a private folder."""
    # In memory first: the file system of many pods is read-only.
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("serving.pem"), "wb") as file:
            file.write(data)
            file.flush()
            yield Path(f"/proc/self/fd/{file.fileno()}")
        return
    with tempfile.TemporaryDirectory(prefix="appsdk-operator-") as folder:
        path = Path(folder) / "serving.pem"
        path.touch(mode=0o600)
        path.write_bytes(data)
        yield path


def _make_certificate(host: str, now: float) -> tuple[bytes, bytes]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as error:
        raise ImportError(
            "a server without cert_file and key_file makes its own certificate, for which it needs "
            "the package cryptography: pip install 'appsdk-operator[webhooks]', or give it files"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "appsdk-operator")])
    names: list[Any] = [x509.DNSName("localhost"), x509.DNSName(socket.gethostname()[:253])]
    addresses = {host, "127.0.0.1", "::1"} - {"::", "0.0.0.0"}  # noqa: S104 - binds nothing
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses)]
    start = dt.datetime.fromtimestamp(now, dt.UTC) - dt.timedelta(minutes=5)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return certificate.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
