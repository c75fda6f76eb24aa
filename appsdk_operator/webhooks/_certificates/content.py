"""The content of the Secret of managed certificates, as values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, final

import attrs

from appsdk_operator.serving import KeyPair

CLOCK_DIFFERENCE: Final = 900.0
"""Seconds by which clocks may differ: certificates are valid from that long before they are made,
and an expired authority is removed that long after its end."""


@final
@attrs.frozen
class Certificate:
    """The certificate of an authority."""

    fingerprint: str
    """The SHA-256 of the certificate in hexadecimal digits."""
    pem: bytes = attrs.field(repr=False)
    issued: float
    """When it was made, in seconds since 1970; it is valid from :data:`CLOCK_DIFFERENCE` before."""
    expires: float
    """When it expires, in seconds since 1970."""

    def is_early(self, now: float) -> bool:
        """Whether it is valid only later, by a clock that is right."""
        return now < self.issued - CLOCK_DIFFERENCE

    def is_valid(self, now: float) -> bool:
        """Whether a client with this time accepts it."""
        return now < self.expires and not self.is_early(now)

    def has_gone(self, now: float) -> bool:
        """Whether it has expired by every clock that may be in use."""
        return now > self.expires + CLOCK_DIFFERENCE


@final
@attrs.frozen
class Authority:
    """An authority that signs certificates."""

    certificate: Certificate
    key: bytes = attrs.field(repr=False)
    """Its key in PEM; empty for an authority of somebody else."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its certificate."""
        return self.certificate.fingerprint


@final
@attrs.frozen
class Pair:
    """A certificate of the server, with its key."""

    pair: KeyPair
    authority: str
    """The fingerprint of the authority that signed it."""
    issued: float
    expires: float
    names: frozenset[str]
    """The DNS names and IP addresses that it is for."""

    def is_early(self, now: float) -> bool:
        """Whether it is valid only later, by a clock that is right."""
        return now < self.issued - CLOCK_DIFFERENCE

    def is_valid(self, now: float) -> bool:
        """Whether a client with this time accepts it, if it trusts the authority."""
        return now < self.expires and not self.is_early(now)


@final
@attrs.frozen(kw_only=True)
class Content:
    """The content of the Secret."""

    authority: Authority
    """Signs new pairs."""
    pair: Pair
    trust: tuple[Certificate, ...]
    """The authorities that API servers have to trust, :attr:`authority` and :attr:`next` too."""
    next: Authority | None = None
    """The next authority. It signs nothing until all API servers trust it."""
    trusted: str = ""
    """The fingerprint of :attr:`authority`, once a replica saw that all API servers trust it."""


class Issuer(Protocol):
    """Makes authorities and pairs. The times in what it makes are whole seconds."""

    def authority(self, now: float) -> Authority:
        """A new authority."""
        ...

    def pair(self, authority: Authority, names: frozenset[str], now: float) -> Pair:
        """A new pair, which expires no later than ``authority``."""
        ...


def merged(*groups: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """The certificates of all groups, each once, the newest first."""
    found = {each.fingerprint: each for group in groups for each in group}
    return tuple(sorted(found.values(), key=lambda each: (-each.issued, each.fingerprint)))
