"""A self-signed certificate, which encrypts connections but does not prove the server's name."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
from typing import Any, Final, final

from appsdk_operator.runtime import Clock, StopSignal, system_clock
from appsdk_operator.runtime.validation import check_environment, check_number
from appsdk_operator.serving._key_pair import KeyPair

_DAY: Final = 86400.0
_CLOCK_DIFFERENCE: Final = dt.timedelta(minutes=5)


@final
class SelfSigned:
    """A self-signed certificate and its key, which exist in memory only.

    For tests and development, and for clients that do not verify the server. Clients that do take
    :attr:`pem` as their authority:

        certificates = SelfSigned("webhooks.example.test")
        server = HTTPServer(":9443", certificates=certificates)
        context = ssl.create_default_context(cadata=certificates.pem.decode())

    It is made once and not renewed. Immutable, so thread-safe.

    Args:
        names: DNS names and IP addresses, besides ``localhost``, ``127.0.0.1``, ``::1`` and the
            name of this machine.
        lifetime: seconds until it expires; default 365 days. It is valid from five minutes ago, for
            clients with another clock.
        clock: the clock that says from when on it is valid.

    Raises:
        TypeError: a name is not text, such as a list of names; the lifetime is not a number.
        ValueError: a name or the lifetime cannot be used.
        ImportError: the package ``cryptography`` is missing; the text names the extra.
    """

    def __init__(
        self, *names: str, lifetime: float = 365 * _DAY, clock: Clock = system_clock
    ) -> None:
        """See the class."""
        given: tuple[Any, ...] = names
        for name in given:
            if not isinstance(name, str):
                example = 'SelfSigned("a.example.com", "b.example.com")'
                raise TypeError(
                    f"name {name!r} is not text: give names one by one, as in {example}"
                )
        check_number("lifetime", lifetime)
        check_environment(clock=clock)
        if not lifetime > 0:
            raise ValueError(f"lifetime={lifetime}: use more than 0 seconds")
        self.names: Final = tuple(dict.fromkeys([*names, *_own_names()]))
        """All names and addresses that it is for."""
        self._pair = _make_pair(self.names, clock.time(), lifetime)
        self.pem: Final = self._pair.certificate
        """The certificate in PEM; a client verifies the server with it as its authority."""

    def __repr__(self) -> str:
        return f"<SelfSigned {', '.join(self.names)}>"

    def pair(self) -> KeyPair:
        """The certificate and its key."""
        return self._pair

    def run(self, stop: StopSignal, /) -> None:
        """Return at once: the certificate does not change."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _own_names() -> list[str]:
    return ["localhost", socket.gethostname()[:253], "127.0.0.1", "::1"]


def _make_pair(names: tuple[str, ...], now: float, lifetime: float) -> KeyPair:
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
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    try:
        end = moment + dt.timedelta(seconds=lifetime)
    except OverflowError as error:
        raise ValueError(
            f"lifetime={lifetime}: it would end after the year 9999; use fewer seconds"
        ) from error
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _CLOCK_DIFFERENCE)
        .not_valid_after(end)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(each, x509) for each in names]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return KeyPair(
        certificate.public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _general_name(name: str, x509: Any) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not name:
        raise ValueError("names: one is empty: leave it out")
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise ValueError(f"name {name!r}: use a DNS name in ASCII, or an IP address") from error
