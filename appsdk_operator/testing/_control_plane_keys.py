"""The keys and certificates of a control plane that lives for one test session."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["write_keys"]

_LIFETIME: Final = dt.timedelta(days=30)


def write_keys(folder: Path, host: str, now: float) -> bytes:
    """Write ``serving.crt``, ``serving.key`` and ``service-accounts.key``, the keys private.

    Args:
        folder: where to.
        host: the IP address that is served.
        now: the time in seconds since 1970.

    Returns:
        The PEM certificate of the authority that clients are to trust.
    """
    start = dt.datetime.fromtimestamp(now, dt.UTC) - dt.timedelta(minutes=5)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("appsdk-operator-test-ca")
    authority = (
        _builder(authority_name, authority_name, authority_key, start)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName(
        [
            x509.IPAddress(ipaddress.ip_address(host)),
            x509.DNSName("localhost"),
            x509.DNSName("kubernetes.default.svc"),
        ]
    )
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(_name("kube-apiserver"), authority_name, key, start)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    (folder / "serving.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(folder / "serving.key", key)
    _write_key(folder / "service-accounts.key", ec.generate_private_key(ec.SECP256R1()))
    return authority.public_bytes(serialization.Encoding.PEM)


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


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    # The form of openssl's own tools, which every release of kube-apiserver reads.
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
