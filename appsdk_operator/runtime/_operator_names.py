"""The rules for operators' names, which are parts of finalizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from appsdk_operator._lazy import lazy_pattern

UNNAMED: Final = "operator"
"""The name in the finalizers of operators without one, as in grafana-app-sdk."""
PREVIOUS_NAMES: Final = (UNNAMED,)
_RESERVED: Final = (UNNAMED, "wip")
_LONGEST: Final = 40  # leaves room for the kind in a finalizer's 63 characters
_NAME: Final = lazy_pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def is_operator_name(name: str) -> bool:
    """Whether ``name`` can be the first part of a finalizer."""
    return bool(_NAME.fullmatch(name)) and len(name) <= _LONGEST and name not in _RESERVED


def check_operator_name(name: object, option: str = "name") -> str:
    """Return ``name``, which may be ``""``.

    Raises:
        TypeError: it is not a string.
        ValueError: it cannot be the first part of a finalizer.
    """
    if not isinstance(name, str):
        raise TypeError(f"{option}={name!r}: give the operator's name as a string")
    if name in _RESERVED:
        raise ValueError(
            f"{option}={name!r} is what operators without a name have in their finalizers: give "
            "this one a name of its own, such as 'bucket-operator'"
        )
    if name and not is_operator_name(name):
        raise ValueError(
            f"{option}={name!r} cannot stand in a finalizer: use at most {_LONGEST} lower-case "
            "letters, digits and '-', such as 'bucket-operator'"
        )
    return name


def joined_names(own: Iterable[str], inherited: Iterable[str]) -> tuple[str, ...]:
    """The earlier names of a part of an operator: its own, unless they are the default, and the
    operator's."""
    given = tuple(own)
    return tuple(dict.fromkeys((*(() if given == PREVIOUS_NAMES else given), *inherited)))


def check_previous_names(names: object) -> tuple[str, ...]:
    """Return ``names`` as a tuple.

    Raises:
        TypeError: it is not an iterable of strings.
        ValueError: one of them cannot be the first part of a finalizer.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"previous_names={names!r}: give a series of names, such as ('old-name',)")
    given = tuple(names)
    for name in given:
        if name != UNNAMED:
            check_operator_name(name, "previous_names: name")
        if not name:
            raise ValueError(
                f"previous_names={given!r}: for what was written without a name give {UNNAMED!r}"
            )
    return given
