"""A certificate chain with its key, in memory."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs

if TYPE_CHECKING:
    import ssl


_OWNER_ONLY: Final = 0o600
_PEM: Final = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.*?)-----END", re.DOTALL)
# Tags of DER.
_VERSION, _UTC_TIME = 0xA0, 0x17
_BEFORE_VALIDITY: Final = 3
"""The serial number, the algorithm of the signature and the issuer."""


@final
@attrs.frozen
class KeyPair:
    """A certificate with its intermediate certificates, and its key, in PEM.

    Its repr has no key.

    >>> KeyPair(b"-----BEGIN CERTIFICATE-----...", b"-----BEGIN PRIVATE KEY-----...")
    KeyPair(certificate=b'-----BEGIN CERTIFICATE-----...')
    """

    certificate: bytes
    """The certificate in PEM, followed by the intermediate certificates, if there are any."""
    key: bytes = attrs.field(repr=False)
    """The key of the certificate in PEM, without a password."""

    @property
    def expires(self) -> float:
        """When the certificate expires, in seconds since 1970; not a number if that cannot be read.

        Of the certificate itself; an intermediate one may expire earlier.
        """
        return _expiry_of(self.certificate)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Have ``context`` show this certificate.

        Raises:
            ValueError: the key has a password.
            OSError: they are not PEM or do not belong together (``ssl.SSLError``).
        """
        with _temporary_file(self.certificate + b"\n" + self.key) as path:
            context.load_cert_chain(path, password=_no_password)


def _no_password() -> str:
    raise ValueError("the key has a password: store it without one")


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
    import tempfile

    with tempfile.TemporaryDirectory(prefix="appsdk-operator-") as folder:
        path = Path(folder) / "serving.pem"
        path.touch(mode=_OWNER_ONLY)
        path.write_bytes(data)
        yield path


@functools.lru_cache(maxsize=16)
def _expiry_of(pem: bytes) -> float:
    """``notAfter`` of the first certificate; RFC 5280, section 4.1."""
    found = _PEM.search(pem)
    try:
        if found is None:
            return float("nan")
        _, certificate, _ = _der(base64.b64decode(found[1]))
        _, signed, _ = _der(certificate)
        tag, _, rest = _der(signed)
        fields = rest if tag == _VERSION else signed
        for _ in range(_BEFORE_VALIDITY):
            _, _, fields = _der(fields)
        _, validity, _ = _der(fields)
        _, _, rest = _der(validity)
        tag, text, _ = _der(rest)
        # Years of two digits are those of 1950 to 2049.
        digits = text.decode()
        year = ("19" if digits >= "50" else "20") if tag == _UTC_TIME else ""
        moment = dt.datetime.strptime(f"{year}{digits}+0000", "%Y%m%d%H%M%SZ%z")
    except (ValueError, IndexError):
        return float("nan")
    return moment.timestamp()


def _der(data: bytes) -> tuple[int, bytes, bytes]:
    """The first element of DER: its tag and content, and what follows it."""
    tag, length, begin = data[0], data[1], 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(data[2:begin])
    return tag, data[begin : begin + length], data[begin + length :]
