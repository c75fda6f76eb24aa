"""Checks and conversions of the options of a client configuration, as attrs calls them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import attrs

from appsdk_operator.client._errors import ConfigError
from appsdk_operator.runtime.validation import (
    check_count,
    check_flag,
    check_function,
    check_instance,
    check_number,
    check_text,
    checked_texts,
)


def path_text(value: str | os.PathLike[str] | None) -> str | None:
    """A path as text."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def pem_bytes(value: str | bytes | None) -> bytes | None:
    """PEM text as bytes."""
    return value.encode() if isinstance(value, str) else value


def as_float(value: float) -> float:
    """An int as a float, so that equal configurations print alike."""
    return float(value) if type(value) is int else value


def check_path(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse an empty path."""
    if value is not None:
        # An unset variable would otherwise mean the system's CA, or no credentials.
        check_text(attribute.name, value, empty=False)


def check_pem(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse anything but PEM bytes. The text does not show the value."""
    if value is not None and not (isinstance(value, bytes) and value):
        given = "empty" if isinstance(value, bytes) else f"of type {type(value).__name__}"
        raise TypeError(f"{attribute.name} is {given}: give PEM text, or leave it out")


def check_secret(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse anything but text. The text of the error does not show the value."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{attribute.name} is of type {type(value).__name__}: give text")


def check_flag_option(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse anything but a bool."""
    check_flag(attribute.name, value)


def check_function_option(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse anything but a callable."""
    check_function(attribute.name, value)


def host_names(value: Sequence[str]) -> tuple[str, ...]:
    """The hosts of ``no_proxy``."""
    return checked_texts("no_proxy", value)


def check_server(_: object, __: object, value: str) -> None:
    """Refuse a server address with more than scheme, host, port and path."""
    parts = _url(value, "server")
    if parts.query or parts.fragment or parts.username:
        raise ConfigError(
            "server must be an address without user, query and fragment, for example "
            "'https://10.0.0.1:6443'"
        )


def check_proxy(_: object, __: object, value: str | None) -> None:
    """Refuse a proxy address without scheme and host."""
    if value is not None:
        _url(value, "proxy_url")


def _url(value: str, option: str) -> Any:
    check_instance(option, value, str, "'https://10.0.0.1:6443'")
    # What may carry a password is not shown.
    is_plain = option == "server" and not any(c in value for c in "@?#")
    given = f", not {value!r}" if is_plain else ""
    problem = ConfigError(f"{option} must be 'http://host:port' or 'https://host:port'{given}")
    # Of what can be printed in ASCII, the space alone is white.
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise problem
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise problem from None
    if parts.scheme not in {"http", "https"} or not _is_host_name(parts.hostname or ""):
        raise problem
    return parts


def check_server_name(_: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    """Refuse what TLS cannot ask a server for."""
    check_header_text(_, attribute, value)
    if value and not _is_host_name(value):
        raise ConfigError(
            f"{attribute.name}={value!r} is not a name of a server: give one that is in its "
            "certificate, for example 'api.example.com'"
        )


def _is_host_name(value: str) -> bool:
    """Whether Python can encode a name for TLS and DNS."""
    if value.isascii():  # without the tables of the codec
        return all(0 < len(label) < 64 for label in value.removesuffix(".").split("."))
    try:
        value.encode("idna")
    except UnicodeError:
        return False
    return True


def check_header_text(_: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    """Refuse text that would break out of its header line."""
    if value is None:
        return
    check_text(attribute.name, value)
    if not value.isprintable():
        raise ConfigError(f"{attribute.name} must be one line of printable text")


def _check_number_type(attribute: attrs.Attribute[Any], value: float | None) -> None:
    if "int" in str(attribute.type):
        check_count(attribute.name, value)
    else:
        check_number(attribute.name, value)


def check_positive(_: object, attribute: attrs.Attribute[Any], value: float | None) -> None:
    """Refuse a number that is not positive and finite."""
    if value is None and "None" in str(attribute.type):
        return
    _check_number_type(attribute, value)
    if value is None or not 0 < value < float("inf"):
        raise ConfigError(f"{attribute.name} is {value}: use more than 0")


def check_not_negative(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    """Refuse a number that is negative or infinite."""
    _check_number_type(attribute, value)
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{attribute.name} is {value}: use 0 or more")
