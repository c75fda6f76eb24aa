"""Go's error texts for a webhook's certificate that fails verification.

OpenSSL verifies; it says neither which names a certificate has nor which authority it could be of.
So the certificate is fetched once more, without verification, and read for the text alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
from typing import TYPE_CHECKING, Final

from appsdk_operator.runtime import system_clock

if TYPE_CHECKING:
    from cryptography import x509


_MOST_NAMES: Final = 100
_INVALID_PURPOSE: Final = 26  # a verification code of OpenSSL, as those below
_EXPIRED: Final = (9, 10)
_OTHER_HOST: Final = (62, 64)
_UNKNOWN: Final = "certificate signed by unknown authority"
_REMEDY: Final = (
    " (an API server verifies the webhook of a service by this name, wherever services= or "
    'set_service() maps it to: add the name to the certificate, such as SelfSigned("{}"))'
)


async def presented_certificate(host: str, port: int, server_name: str) -> bytes | None:
    """The certificate that a server presents, not verified, as DER; None if it does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=server_name
        )
    except OSError:
        return None
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return bytes(found) if found else None
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def certificate_error(
    error: ssl.SSLCertVerificationError,
    presented: bytes | None,
    wanted: str,
    bundle: str,
    *,
    is_service: bool = False,
) -> str:
    """The text of ``crypto/tls`` about a certificate.

    Args:
        error: what OpenSSL says.
        presented: the certificate, as DER; None if it could not be fetched.
        wanted: the name or address that it was verified for.
        bundle: the certificates that are trusted, as PEM.
        is_service: whether ``wanted`` is the name of a service: then the text says the remedy.
    """
    code = getattr(error, "verify_code", 0)
    remedy = _REMEDY.format(wanted) if is_service else ""
    try:
        from cryptography import x509

        found = x509.load_der_x509_certificate(presented or b"")
    except (ImportError, ValueError):
        why = _without_certificate(code, wanted, remedy)
    else:
        # Go looks at the time first, then at the names, then at the authority.
        why = _expiry(found) if code in _EXPIRED or not _is_current(found) else ""
        if not why and (code in _OTHER_HOST or not _is_for(found, wanted)):
            why = _other_names(found, wanted) + remedy
        if not why and code == _INVALID_PURPOSE:
            why = "certificate specifies an incompatible key usage"
        why = why or f"{_UNKNOWN}{_hint(found, bundle)}"
    return f"tls: failed to verify certificate: x509: {why}"


def _without_certificate(code: int, wanted: str, remedy: str) -> str:
    if code in _EXPIRED:
        return "certificate has expired or is not yet valid"
    if code in _OTHER_HOST:
        return f"certificate is not valid for {wanted}{remedy}"
    return _UNKNOWN


def _now() -> dt.datetime:
    return dt.datetime.fromtimestamp(int(system_clock.time()), dt.UTC)


def _is_current(certificate: x509.Certificate) -> bool:
    return certificate.not_valid_before_utc <= _now() <= certificate.not_valid_after_utc


def _expiry(certificate: x509.Certificate) -> str:
    now, start = _now(), certificate.not_valid_before_utc
    relation, bound = (
        ("before", start) if now < start else ("after", certificate.not_valid_after_utc)
    )
    return (
        f"certificate has expired or is not yet valid: current time {now:%Y-%m-%dT%H:%M:%SZ} is "
        f"{relation} {bound:%Y-%m-%dT%H:%M:%SZ}"
    )


def _names(certificate: x509.Certificate) -> tuple[list[str], list[str]]:
    """The DNS names and the addresses of a certificate."""
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return [], []
    names = extension.value
    addresses = names.get_values_for_type(x509.IPAddress)
    return names.get_values_for_type(x509.DNSName), [str(address) for address in addresses]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_for(certificate: x509.Certificate, wanted: str) -> bool:
    names, addresses = _names(certificate)
    if _is_address(wanted):
        return str(ipaddress.ip_address(wanted)) in addresses
    wanted = wanted.lower()
    rest = wanted.partition(".")[2]
    return any(name.lower() in (wanted, f"*.{rest}") for name in names)


def _other_names(certificate: x509.Certificate, wanted: str) -> str:
    names, addresses = _names(certificate)
    kind = "names"
    if _is_address(wanted):
        if not addresses:
            return (
                f"cannot validate certificate for {wanted} because it doesn't contain any IP SANs"
            )
        names, kind = addresses, "IP SANs"
    if len(names) >= _MOST_NAMES:
        return f"certificate is valid for {len(names)} {kind}, but none matched {wanted}"
    if not names:
        return f"certificate is not valid for any names, but wanted to match {wanted}"
    return f"certificate is valid for {', '.join(names)}, not {wanted}"


def _hint(certificate: x509.Certificate, bundle: str) -> str:
    """What Go says about a trusted certificate that has the name of the issuer, but another key."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.x509.oid import NameOID

    try:
        trusted = x509.load_pem_x509_certificates(bundle.encode())
    except ValueError:
        return ""
    for candidate in trusted:
        if candidate.subject != certificate.issuer:
            continue
        try:
            certificate.verify_directly_issued_by(candidate)
        except InvalidSignature:
            key = candidate.public_key()
            why = "x509: Ed25519 verification failure"
            if isinstance(key, ec.EllipticCurvePublicKey):
                why = "x509: ECDSA verification failure"
            elif isinstance(key, rsa.RSAPublicKey):
                why = "crypto/rsa: verification error"
        except (TypeError, ValueError):
            continue
        else:
            continue
        named = [
            attribute.value
            for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
            for attribute in candidate.subject.get_attributes_for_oid(oid)
        ]
        name = str(named[0]) if named else f"serial:{candidate.serial_number}"
        return (
            f' (possibly because of "{why}" while trying to verify candidate authority '
            f'certificate "{name}")'
        )
    return ""
