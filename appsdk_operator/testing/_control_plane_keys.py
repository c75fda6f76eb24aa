"""The keys and certificates of a control plane that lives for one test session."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "write_keys"]

_LIFETIME: Final = dt.timedelta(days=30)


@final
class Authority:
    """A certificate authority that exists for one control plane."""

    def __init__(self, now: float) -> None:
        """A new one; ``now`` in seconds since 1970."""
        self._start = dt.datetime.fromtimestamp(now, dt.UTC) - dt.timedelta(minutes=5)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("appsdk-operator-test-ca")
        certificate = (
            _builder(self._name, self._name, self._key, self._start)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)
        """Its certificate."""

    def issue_serving(self, host: str) -> tuple[bytes, bytes]:
        """A certificate and key to serve an IP address of this machine with."""
        names = x509.SubjectAlternativeName(
            [
                x509.IPAddress(ipaddress.ip_address(host)),
                x509.DNSName("localhost"),
                x509.DNSName("kubernetes.default.svc"),
            ]
        )
        return self._issue(_name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def issue_user(self, name: str, groups: Sequence[str]) -> tuple[bytes, bytes]:
        """A certificate and key by which kube-apiserver knows a user and its groups."""
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        return self._issue(x509.Name(subject), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(subject, self._name, key, self._start)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(identifier, critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _pem(key)


def write_keys(folder: Path, host: str, authority: Authority) -> None:
    """Write ``ca.crt``, ``serving.crt``, ``serving.key`` and ``service-accounts.key``.

    Args:
        folder: where to; the keys are private to the user.
        host: the IP address that is served.
        authority: who signs.
    """
    certificate, key = authority.issue_serving(host)
    (folder / "ca.crt").write_bytes(authority.pem)
    (folder / "serving.crt").write_bytes(certificate)
    _write_key(folder / "serving.key", key)
    _write_key(folder / "service-accounts.key", _pem(ec.generate_private_key(ec.SECP256R1())))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, start: dt.datetime
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


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # The form of openssl's own tools, which every release of kube-apiserver reads.
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _write_key(path: Path, pem: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(pem)
