"""The keys and certificates of a control plane that lives for one test session."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from appsdk_operator.apiserver import Authority, private_pem


def write_keys(folder: Path, host: str, authority: Authority) -> None:
    """Write ``ca.crt``, ``serving.crt``, ``serving.key`` and ``service-accounts.key``.

    Args:
        folder: the target; only the user can read the keys.
        host: the IP address of the server.
        authority: signs the certificate.
    """
    certificate, key = authority.serving(host)
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "serving.crt").write_bytes(certificate)
    _write_key(folder / "serving.key", key)
    accounts = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder / "service-accounts.key", private_pem(accounts))


def _write_key(path: Path, pem: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(pem)
