"""A certificate authority in memory, and the certificates it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = dt.timedelta(days=365)


@final
class Authority:
    """Signs the certificates of one server and of its clients."""

    def __init__(self, now: float) -> None:
        """A new authority whose certificates are valid from ``now``, in seconds since 1970."""
        self._start = dt.datetime.fromtimestamp(now, dt.UTC) - dt.timedelta(minutes=5)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("appsdk-operator-test-ca")
        certificate = (
            _builder(self._name, self._name, self._key, self._start)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate: bytes = certificate.public_bytes(serialization.Encoding.PEM)
        """The CA certificate that clients trust, as PEM."""

    def serving(self, host: str) -> tuple[bytes, bytes]:
        """A server certificate for ``host`` and loopback, and its key, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(_names(host))
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        return self._sign(_name("kube-apiserver"), key, usage, names), private_pem(key)

    def context(self, host: str) -> ssl.SSLContext:
        """A TLS context to serve ``host``; it accepts client certificates of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.certificate.decode())
        _load(context, *self.serving(host))
        return context

    def client(self, username: str, groups: Iterable[str]) -> tuple[bytes, bytes]:
        """A client certificate of a user, and its key, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._sign(_name(username, groups), key, ExtendedKeyUsageOID.CLIENT_AUTH)
        return signed, private_pem(key)

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None = None,
    ) -> bytes:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(name, self._name, key, self._start)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(identifier, critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _name(common: str, organizations: Iterable[str] = ()) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key in OpenSSL's traditional PEM format, which every kube-apiserver reads."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    start: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _names(host: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes.default.svc"),
        x509.IPAddress(ipaddress.IPv4Address("127.0.0.1")),
        x509.IPAddress(ipaddress.IPv6Address("::1")),
    ]
    try:
        own: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        own = x509.DNSName(host)
    return names if own in names else [*names, own]


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate into the context, from a temporary file: ssl reads only files."""
    with tempfile.TemporaryDirectory(prefix="appsdk-operator-") as folder:
        path = Path(folder) / "serving.pem"
        path.touch(mode=0o600)
        path.write_bytes(certificate + key)
        context.load_cert_chain(path)
