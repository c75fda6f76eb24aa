"""Objects from files and folders, and webhook addresses that point to the test's own server."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from appsdk_operator.resource import load_yaml

_SUFFIXES: Final = (".yaml", ".yml", ".json")


def manifests(source: str | Path) -> Iterator[tuple[Path, Any]]:
    """The documents of a YAML or JSON file, or of all such files in a folder, with their file.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not YAML.
    """
    path = Path(source)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    for file in files:
        for document in load_yaml(file.read_bytes()):
            yield file, document


def check_webhook_url(url: str) -> None:
    """Check that an API server can call webhooks at ``url``.

    Raises:
        ValueError: it is not an HTTPS URL, or has a slash at its end.
    """
    if not url.startswith("https://") or url.endswith("/"):
        raise ValueError(
            f"webhook_url={url!r}: API servers call webhooks by https:// only; give the address "
            "without a path, for example 'https://127.0.0.1:9443'"
        )


def point_to_url(client_config: dict[str, Any], url: str, ca_data: bytes) -> None:
    """Replace the service of a ``clientConfig`` by ``url``, as envtest does.

    The service's path is kept. A ``clientConfig`` that has a URL already keeps it.
    """
    service = client_config.pop("service", None)
    if isinstance(service, dict):
        path = str(service.get("path") or "")
        client_config["url"] = url + (path if path.startswith("/") or not path else f"/{path}")
        client_config.pop("caBundle", None)
    if ca_data and not client_config.get("caBundle"):
        client_config["caBundle"] = base64.b64encode(ca_data).decode()
