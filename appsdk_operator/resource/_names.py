"""Checks of names and namespaces, which become parts of paths on the API server."""

from __future__ import annotations

import re
from typing import Final

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def check_path_segment(what: str, value: object) -> None:
    """Refuse names that cannot be one segment of a path.

    Raises:
        ValueError: the API server accepts no such name, and a proxy may resolve it to another
            path.
        TypeError: it is not text.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what}={value!r}: give the {what} as text")
    if not value or value in {".", ".."} or "/" in value or "%" in value:
        raise ValueError(
            f"{what} {value!r} cannot be part of a path on the API server: it must not be empty, "
            "'.' or '..', nor contain '/' or '%'"
        )


def check_namespace_name(value: object, option: str = "namespace") -> None:
    """Refuse anything but the name of one namespace, or ``""`` for all.

    Raises:
        ValueError: as :func:`check_path_segment`.
        TypeError: it is not text, for example a list.
    """
    if not isinstance(value, str):
        several = option == "namespace" and isinstance(value, (list, tuple, set, frozenset))
        hint = "; to follow several, give them to a cache, Cache(client, namespaces=[…])"
        raise TypeError(
            f"{option}={value!r}: give the name of one namespace as text, or leave it out for all"
            f"{hint if several else ''}"
            if option == "namespace"
            else f"{option}={value!r}: give names as text"
        )
    if value:
        check_path_segment("namespace", value)


def check_followed_namespace(value: object, option: str = "namespace") -> None:
    """As :func:`check_namespace_name`, and refuse text that is not a valid name of a namespace.

    The API server lists a namespace that cannot exist as empty, so whoever follows it would never
    notice the mistake.

    Raises:
        ValueError: it is a pattern, or another text that is not a name of a namespace.
        TypeError: it is not text.
    """
    check_namespace_name(value, option)
    if not value or _LABEL.fullmatch(str(value)):
        return
    if any(sign in str(value) for sign in "*?["):
        raise ValueError(
            f"{option} has the pattern {value!r}, but takes only names: give each name, or none "
            "for all; App(namespaces=…) and Cache(namespaces=…) take patterns"
        )
    raise ValueError(
        f"{option} has {value!r}, which is not a valid name of a namespace: a name has at most 63 "
        "lower-case letters, digits and '-', and begins and ends with a letter or digit"
    )
