"""Field paths such as ``spec.replicas``, and the comparison of JSON values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, final

from appsdk_operator.resource import Kind, Object, wire_steps

_STEP = re.compile(
    r"""\.?(?P<name>[A-Za-z_][-\w]*)|\['(?P<single>[^']+)'\]|\["(?P<double>[^"]+)"\]"""
    r"""|\[(?P<index>\d+)\]"""
)
_EXAMPLE = "write for example spec.replicas, spec.containers[0].image or metadata.labels['app']"


@final
class FieldPath:
    """A path to a field of an object: ``spec.replicas`` or ``metadata.labels['app']``.

    Fields of a kind's classes have their names on the wire, or those of Python.
    """

    __slots__ = ("_steps", "_text")

    def __init__(self, text: str) -> None:
        """Parse ``text``.

        Raises:
            ValueError: it is no path; the text shows the part that cannot be parsed.
        """
        self._text = text
        self._steps = _parse(text)

    def has_changed(self, old: Object, new: Object) -> bool:
        """Whether the field differs; a missing one and null are the same."""
        return not is_same_json(self.value(old), self.value(new))

    def value(self, obj: Object) -> Any:
        """The value of the field; None when it is missing."""
        value: Any = obj.get(self.root)
        for step in self.steps_of(obj.kind)[1:]:
            if isinstance(step, str):
                value = value.get(step) if isinstance(value, Mapping) else None
            else:
                value = value[step] if isinstance(value, list) and step < len(value) else None
        return value

    def steps_of(self, kind: Kind) -> tuple[str | int, ...]:
        """Its names on the wire, and its indexes."""
        return wire_steps(kind, self._steps)

    @property
    def root(self) -> str:
        """The first name of the path."""
        return str(self._steps[0])

    def __str__(self) -> str:
        return self._text


def _parse(text: str) -> tuple[str | int, ...]:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no path to a field: {_EXAMPLE}")
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        # A name needs a dot before it, but not at the start.
        if found is None or (found["name"] and (text[position] == ".") is not bool(steps)):
            raise ValueError(
                f"{text!r} is no path to a field: do not know what {text[position:]!r} means; "
                f"{_EXAMPLE}"
            )
        name = found["name"] or found["single"] or found["double"]
        steps.append(name or int(found["index"]))
        position = found.end()
    if not steps or not isinstance(steps[0], str):
        raise ValueError(f"{text!r} does not begin with a field of the object: {_EXAMPLE}")
    if steps[0] == "metadata" and steps[1:2] in (["labels"], ["annotations"]) and len(steps) > 3:
        # Keys of labels have dots, and what lies below a label's value never changes.
        key = ".".join(map(str, steps[2:]))
        raise ValueError(
            f"{text!r} leads below the text of a label or annotation: write metadata.{steps[1]}"
            f"['{key}']"
        )
    return tuple(steps)


def is_same_json(one: Any, two: Any) -> bool:
    """Whether two values are equal as JSON."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(is_same_json(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(is_same_json, one, two))
    # In Python 1 equals True, in JSON it does not.
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    return bool(one == two)
