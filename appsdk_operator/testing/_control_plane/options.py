"""The options of a control plane, from arguments and from the environment, as in envtest."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Flags: TypeAlias = Mapping[str, "str | Sequence[str] | None"]

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
"""Logs user, request and status of each request, without bodies."""

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def timeout_option(
    name: str, given: float | None, variable: str, default: float, *, least: float
) -> float:
    """A time-out in seconds, from the argument, the environment variable, or the default.

    Args:
        name: the name of the argument, for errors.
        given: its value, None where it was not given.
        variable: the environment variable, a Go duration: ``20s``, ``1m30s``.
        default: seconds.
        least: 0.0 where 0 is allowed; else the value must be more than 0.

    Raises:
        ValueError: it is out of range, or not a duration.
    """
    value, source = given, name
    if value is None:
        text = os.environ.get(variable, "")
        value, source = (_duration(variable, text) if text else default), variable
    if not 0 <= value < math.inf or (not value and least > 0):
        bound = "more than 0" if least > 0 else "0 or more"
        raise ValueError(f"{source}={value}: use {bound} seconds")
    return value


def _duration(variable: str, text: str) -> float:
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{variable}={text!r} is not a duration: write for example 20s or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def attach_output(given: bool | None) -> bool:
    """Whether the servers write to this process's standard error instead of their logs."""
    if given is not None:
        return given
    return os.environ.get("KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT", "").lower() in ("true", "1")


def checked_flags(flags: Flags) -> dict[str, str | tuple[str, ...] | None]:
    """Check the flags of a server's command line.

    Raises:
        ValueError: a name contains its dashes or its value.
        TypeError: a value is not a string.
    """
    checked: dict[str, str | tuple[str, ...] | None] = {}
    for name, value in flags.items():
        if not name or name.startswith("-") or "=" in name or name != name.strip():
            raise ValueError(
                f"flag {name!r}: give names without dashes and values apart, for example "
                "{'feature-gates': 'WatchList=true'}"
            )
        if value is None or isinstance(value, str):
            checked[name] = value
        elif _are_texts(value):
            checked[name] = tuple(value)
        else:
            raise TypeError(
                f"flag {name!r}: {value!r} is not text; write 'true' for a switch, a list of texts "
                "for a flag that is given several times, and None to leave it out"
            )
    return checked


def _are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def flag_texts(flags: Flags) -> list[str]:
    """The arguments of the command line."""
    found = []
    for name, value in flags.items():
        if value is None:
            continue
        values = [value] if isinstance(value, str) else value
        found += [f"--{name}={item}" for item in values]
    return found


def check_names(name: str, *values: Any) -> None:
    """Check names of users and groups.

    Raises:
        ValueError: one is empty or has characters that are not printable.
    """
    for value in values:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError(f"{name} {value!r}: use one line of text that is not empty")
