"""A certificate chain with its key, in memory."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs

if TYPE_CHECKING:
    import ssl

__all__ = ["KeyPair"]

_OWNER_ONLY: Final = 0o600


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

    def load_into(self, context: ssl.SSLContext) -> None:
        """Have ``context`` show this certificate.

        Raises:
            ValueError: the key has a password.
            OSError: they are no PEM or do not belong together (``ssl.SSLError``).
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
    with tempfile.TemporaryDirectory(prefix="appsdk-operator-") as folder:
        path = Path(folder) / "serving.pem"
        path.touch(mode=_OWNER_ONLY)
        path.write_bytes(data)
        yield path
