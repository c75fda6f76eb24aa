"""X.509: makes authorities and pairs, and reads them from PEM. Needs the package cryptography."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

from appsdk_operator.serving import KeyPair
from appsdk_operator.webhooks._certificates.content import (
    CLOCK_DIFFERENCE,
    Authority,
    Certificate,
    Pair,
)

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import (
        CertificateIssuerPrivateKeyTypes as PrivateKey,
    )


KeyType: TypeAlias = Literal["EC-P256", "EC-P384", "RSA-2048", "RSA-4096"]
KEY_TYPES: Final[tuple[KeyType, ...]] = ("EC-P256", "EC-P384", "RSA-2048", "RSA-4096")

_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL
)
_EXPONENT: Final = 65537


def check_cryptography() -> None:
    """Check that the package is there.

    Raises:
        ImportError: it is not; the text names the extra.
    """
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "managed certificates need the package cryptography: pip install "
            "'appsdk-operator[webhooks]', or mount certificates and use CertificateFiles"
        ) from error


@final
class X509Issuer:
    """Makes authorities and pairs."""

    def __init__(
        self, name: str, *, key_type: KeyType, ca_lifetime: float, lifetime: float
    ) -> None:
        """Authorities have ``name`` in their subject; lifetimes are in seconds."""
        self._name = name
        self._key_type: KeyType = key_type
        self._ca_lifetime = ca_lifetime
        self._lifetime = lifetime

    def authority(self, now: float) -> Authority:
        """A new authority that signs itself."""
        from cryptography import x509

        key = _new_key(self._key_type)
        serial = x509.random_serial_number()
        # Each has another subject: a client finds the issuer by its name, too.
        subject = _subject(f"{self._name[:40]} {serial:x}"[:64])
        builder = (
            _builder(now, now + self._ca_lifetime)
            .serial_number(serial)
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )
        made = builder.sign(key, _hash_for(key))
        return Authority(_certificate_of(made), _pem_of_key(key))

    def pair(self, authority: Authority, names: frozenset[str], now: float) -> Pair:
        """A new pair for ``names``."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from cryptography.x509.oid import ExtendedKeyUsageOID

        issuer = x509.load_pem_x509_certificate(authority.certificate.pem)
        signing_key: Any = load_pem_private_key(authority.key, None)
        key = _new_key(self._key_type)
        listed = sorted(names, key=lambda name: (-name.count("."), name))
        end = min(now + self._lifetime, authority.certificate.expires)
        builder = (
            _builder(now, end)
            .serial_number(x509.random_serial_number())
            .subject_name(_subject(listed[-1][:64]))
            .issuer_name(issuer.subject)
            .public_key(key.public_key())
            .add_extension(
                x509.SubjectAlternativeName([_general_name(name) for name in listed]),
                critical=False,
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()),
                critical=False,
            )
        )
        made = builder.sign(signing_key, _hash_for(signing_key))
        from cryptography.hazmat.primitives.serialization import Encoding

        pem = made.public_bytes(Encoding.PEM)
        return _pair_of(made, pem, _pem_of_key(key), authority.fingerprint)


def read_authorities(pem: bytes) -> tuple[Certificate, ...]:
    """The certificates in ``pem``, without those that cannot be read."""
    found = []
    for block in _CERTIFICATE.findall(pem):
        loaded = _load(block)
        if loaded is not None:
            found.append(_certificate_of(loaded))
    return tuple(found)


def read_pair(certificate: bytes, key: bytes, authority: Certificate) -> Pair:
    """The pair in PEM.

    Raises:
        ValueError: it cannot be read, or does not belong together; the text has no part of a key.
    """
    blocks = _CERTIFICATE.findall(certificate)
    loaded = _load(blocks[0]) if blocks else None
    if loaded is None:
        raise ValueError("tls.crt has no certificate in PEM")
    if not key_matches(key, blocks[0]):
        raise ValueError("tls.key is not the key of tls.crt")
    return _pair_of(loaded, certificate, key, authority.fingerprint)


def signer_of(certificate: bytes, authorities: tuple[Certificate, ...]) -> Certificate | None:
    """The one of ``authorities`` that signed the first certificate in PEM; None: none of them."""
    from cryptography import x509

    blocks = _CERTIFICATE.findall(certificate)
    loaded = _load(blocks[0]) if blocks else None
    if loaded is None:
        return None
    signers = ((each, x509.load_pem_x509_certificate(each.pem)) for each in authorities)
    return next((each for each, signer in signers if _has_signed(signer, loaded)), None)


def _has_signed(signer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(signer)
    except Exception:  # InvalidSignature, ValueError, TypeError
        return False
    return True


def key_matches(key: bytes, certificate: bytes) -> bool:
    """Whether the key is the one of a certificate, both in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
    )

    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
        own = load_pem_private_key(key, None).public_key()
    except Exception:  # its text may have parts of a key
        return False
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    return bool(own.public_bytes(*form) == public.public_bytes(*form))


def _load(pem: bytes) -> x509.Certificate | None:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(pem)
    except (ValueError, x509.InvalidVersion):
        return None


def _certificate_of(loaded: x509.Certificate) -> Certificate:
    from cryptography.hazmat.primitives.serialization import Encoding

    der = loaded.public_bytes(Encoding.DER)
    issued, expires = _times(loaded)
    pem = loaded.public_bytes(Encoding.PEM)
    return Certificate(hashlib.sha256(der).hexdigest(), pem, issued, expires)


def _pair_of(loaded: x509.Certificate, pem: bytes, key: bytes, authority: str) -> Pair:
    issued, expires = _times(loaded)
    return Pair(KeyPair(pem, key), authority, issued, expires, _names_of(loaded))


def _times(loaded: x509.Certificate) -> tuple[float, float]:
    return (
        loaded.not_valid_before_utc.timestamp() + CLOCK_DIFFERENCE,
        loaded.not_valid_after_utc.timestamp(),
    )


def _names_of(loaded: x509.Certificate) -> frozenset[str]:
    from cryptography import x509

    try:
        extension = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
        ValueError,
    ):
        return frozenset()
    names = extension.value.get_values_for_type(x509.DNSName)
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    return frozenset(certified_name(str(name)) for name in (*names, *addresses))


def certified_name(name: str) -> str:
    """A DNS name or an address in the one form in which they are compared.

    >>> certified_name("2001:DB8::1"), certified_name("Hooks.Test")
    ('2001:db8::1', 'hooks.test')
    """
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower()


def _general_name(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _subject(name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "appsdk-operator"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _builder(now: float, end: float) -> Any:
    from cryptography import x509

    start = dt.datetime.fromtimestamp(int(now), dt.UTC) - dt.timedelta(seconds=CLOCK_DIFFERENCE)
    return (
        x509.CertificateBuilder()
        .not_valid_before(start)
        .not_valid_after(dt.datetime.fromtimestamp(int(end), dt.UTC))
    )


def _usage(*, signs_certificates: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _hash_for(key: Any) -> Any:
    """The hash that signatures with this key are made of; the Edwards curves bring their own."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ed448, ed25519

    edwards = ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey
    return None if isinstance(key, edwards) else hashes.SHA256()


def _new_key(key_type: KeyType) -> PrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if key_type == "EC-P256":
        return ec.generate_private_key(ec.SECP256R1())
    if key_type == "EC-P384":
        return ec.generate_private_key(ec.SECP384R1())
    bits = 2048 if key_type == "RSA-2048" else 4096
    return rsa.generate_private_key(public_exponent=_EXPONENT, key_size=bits)


def _pem_of_key(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
