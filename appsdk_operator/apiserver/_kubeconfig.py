"""Kubeconfigs of test servers."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def kubeconfig(
    server: str,
    ca_data: bytes,
    username: str = "admin",
    *,
    name: str = "embedded",
    token: str | None = None,
    certificate: tuple[bytes, bytes] | None = None,
) -> dict[str, Any]:
    """A kubeconfig for one user of one server.

    Args:
        server: the URL.
        ca_data: the PEM certificate of the authority to trust; empty without TLS.
        username: the name of the user entry.
        name: the name of the cluster and the context.
        token: the bearer token.
        certificate: the client certificate and its key, as PEM.
    """
    cluster: dict[str, Any] = {"server": server}
    if ca_data:
        cluster["certificate-authority-data"] = base64.b64encode(ca_data).decode()
    user: dict[str, Any] = {}
    if token is not None:
        user["token"] = token
    if certificate is not None:
        names = ("client-certificate-data", "client-key-data")
        for field, data in zip(names, certificate, strict=True):
            user[field] = base64.b64encode(data).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": username, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": username}}],
        "current-context": name,
    }


def write_kubeconfig(path: str | os.PathLike[str], config: Mapping[str, Any]) -> None:
    """Write a kubeconfig to a file that only its owner can read."""
    target = Path(path)
    # Write a temporary file first: no reader sees half a file, or one with wider permissions.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yaml.safe_dump(dict(config), file, sort_keys=False)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
