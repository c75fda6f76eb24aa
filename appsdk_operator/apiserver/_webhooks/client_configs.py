"""Validation of the ``clientConfig`` of webhooks and of conversion webhooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from appsdk_operator.apiserver._values.names import subdomain_problems
from appsdk_operator.apiserver._values.status import FieldError

_FORM: Final = "; desired format: https://host[/path]"


def client_config_errors(config: Mapping[str, Any], at: str) -> Iterator[FieldError]:
    """The validation errors of a ``clientConfig``."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield FieldError.required(at, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_errors(str(url), f"{at}.url")
    elif isinstance(service, dict):
        yield from _service_errors(service, f"{at}.service")


def _url_errors(url: str, at: str) -> Iterator[FieldError]:
    broken = next(
        (
            url[i : i + 3]
            for i, char in enumerate(url)
            if char == "%" and not _is_hex(url[i + 1 : i + 3])
        ),
        None,
    )
    if broken is not None:
        yield FieldError.required(
            at, f'url must be a valid URL: parse "{url}": invalid URL escape "{broken}"{_FORM}'
        )
        return
    parts = urlsplit(url)
    if parts.scheme != "https":
        detail = f"'https' is the only allowed URL scheme{_FORM}"
        yield FieldError.invalid(at, parts.scheme, detail)
    user, sign, host = parts.netloc.rpartition("@")
    if not host:
        yield FieldError.invalid(at, host, f"host must be specified{_FORM}")
    if sign:
        yield FieldError.invalid(at, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield FieldError.invalid(at, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield FieldError.invalid(at, parts.query, "query parameters are not permitted in the URL")


def _is_hex(text: str) -> bool:
    return len(text) == 2 and all(char in "0123456789abcdefABCDEF" for char in text)


def _service_errors(service: Mapping[str, Any], at: str) -> Iterator[FieldError]:
    for name in ("name", "namespace"):
        if not service.get(name):
            yield FieldError.required(f"{at}.{name}")
    port = service.get("port", 443)
    if not isinstance(port, int) or not 1 <= port <= 65535:
        detail = "port is not valid: must be between 1 and 65535, inclusive"
        yield FieldError.invalid(f"{at}.port", port, detail)
    path = service.get("path")
    if path is None or path in ("", "/"):
        return
    field = f"{at}.path"
    if not path.startswith("/"):
        yield FieldError.invalid(field, path, "must start with a '/'")
    steps = path[1:].removesuffix("/").split("/") if len(path) > 1 else [""]
    for index, step in enumerate(steps):
        if not step:
            yield FieldError.invalid(field, path, f"segment[{index}] may not be empty")
        elif problems := subdomain_problems(step):
            yield FieldError.invalid(field, path, f"segment[{index}]: {problems[0]}")
