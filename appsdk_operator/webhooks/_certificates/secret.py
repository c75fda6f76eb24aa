"""The format of the Secret of managed certificates.

==================  ==================================================================
key                 value
==================  ==================================================================
``tls.crt``         the certificate that is served, in PEM
``tls.key``         its key
``ca.crt``          all authorities to be trusted, in PEM, the newest first
``ca.key``          the key of the one of them that signs
``next-ca.key``     during a rotation: the key of the one of them that signs next
``trusted``         the SHA-256 of the signing authority once all API servers trust it
==================  ==================================================================

The type is ``kubernetes.io/tls``, so other programs can use the Secret as they would one of
cert-manager; a Secret of another type works as well. Other keys stay as they are.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import attrs

from appsdk_operator.webhooks._certificates.content import Authority, Certificate, Content
from appsdk_operator.webhooks._certificates.issuing import (
    key_matches,
    read_authorities,
    read_pair,
    signer_of,
)

SECRET_TYPE: Final = "kubernetes.io/tls"  # noqa: S105 - a type
_KEYS: Final = ("tls.crt", "tls.key", "ca.crt", "ca.key", "next-ca.key", "trusted")


@attrs.frozen(kw_only=True)
class Reading:
    """What the data of a Secret says."""

    content: Content | None = None
    problem: str = ""
    """Why there is no content; has no part of a key."""
    authority: Authority | None = None
    """An authority that is usable although the rest is not."""


def read(data: Any) -> Reading:
    """The content of a Secret that replicas of this operator write."""
    try:
        values = _decoded(data)
        authorities, signer = _authorities(values)
        following = _owner(values["next-ca.key"], authorities)
    except ValueError as error:
        return Reading(problem=str(error))
    if following is not None and following.fingerprint == signer.fingerprint:
        following = None
    try:
        if signer_of(values["tls.crt"], (signer.certificate,)) is None:
            raise ValueError("tls.crt was not signed with ca.key")
        pair = read_pair(values["tls.crt"], values["tls.key"], signer.certificate)
    except ValueError as error:
        return Reading(problem=str(error), authority=signer)
    return Reading(
        content=Content(
            authority=signer,
            pair=pair,
            trust=authorities,
            next=following,
            trusted=values["trusted"].decode("ascii", "replace").strip(),
        )
    )


def read_foreign(data: Any) -> Reading:
    """The content of a Secret that cert-manager writes."""
    try:
        values = _decoded(data)
        authorities = read_authorities(values["ca.crt"])
        if not authorities:
            raise ValueError("ca.crt has no certificate: use an issuer that has a CA")
        signer = signer_of(values["tls.crt"], authorities) or authorities[0]
        pair = read_pair(values["tls.crt"], values["tls.key"], signer)
    except ValueError as error:
        return Reading(problem=str(error))
    return Reading(content=Content(authority=Authority(signer, b""), pair=pair, trust=authorities))


def data_of(content: Content) -> dict[str, str | None]:
    """The data of a Secret with this content; None: the key is removed."""
    following = content.next
    values = {
        "tls.crt": content.pair.pair.certificate,
        "tls.key": content.pair.pair.key,
        "ca.crt": b"".join(each.pem for each in content.trust),
        "ca.key": content.authority.key,
        "next-ca.key": None if following is None else following.key,
        "trusted": content.trusted.encode(),
    }
    return {
        key: None if value is None else base64.b64encode(value).decode()
        for key, value in values.items()
    }


def _decoded(data: Any) -> dict[str, bytes]:
    given = data if isinstance(data, Mapping) else {}
    values = {}
    for key in _KEYS:
        text = given.get(key) or ""
        try:
            values[key] = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise ValueError(f"{key} is not in base64") from None
    return values


def _authorities(values: Mapping[str, bytes]) -> tuple[tuple[Certificate, ...], Authority]:
    if not any(values.values()):
        raise ValueError("it is empty")
    authorities = read_authorities(values["ca.crt"])
    signer = _owner(values["ca.key"], authorities)
    if signer is None:
        raise ValueError("ca.key is not the key of a certificate in ca.crt")
    return authorities, signer


def _owner(key: bytes, authorities: tuple[Certificate, ...]) -> Authority | None:
    """The authority to which the key belongs."""
    if not key:
        return None
    found = [each for each in authorities if key_matches(key, each.pem)]
    return Authority(found[0], key) if found else None
