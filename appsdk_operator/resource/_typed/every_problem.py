"""All the fields of a value that do not fit a class; msgspec stops at the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from appsdk_operator.resource._typed.class_fields import (
    ClassField,
    alternatives,
    array_items,
    class_fields,
    class_of,
    is_typed_dict,
    mapping_types,
)
from appsdk_operator.resource._typed.renaming import (
    STYLES,
    Renamed,
    is_array_like,
    problems_of_model,
    renamed_view,
)
from appsdk_operator.resource._typed.spec_types import (
    decode_hook,
    has_fields,
    is_pydantic_model,
    path_and_problem,
)

_MOST_PROBLEMS: Final = 100
_MOST_READINGS: Final = 1000  # about 20 ms, of small values
_LARGEST: Final = 64 * 1024
_ABSENT: Final = (None, type(None), msgspec.UnsetType)

Problem = tuple[str, str]
"""A path from the value, ``.jobs[0].name``, and what is wrong there."""


def every_problem(view: Any, rename: str | None, raw: bytes) -> list[Problem]:
    """What does not fit, in the order of the class's fields, at most 100; empty if all fits.

    Validators of a whole object run only if all of its fields fit, and of the validators of an
    attrs class only the first that fails is found.

    Args:
        view: the class.
        rename: the kind's ``rename``.
        raw: the value as JSON; of more than 64 KB nothing is found.

    Raises:
        msgspec.DecodeError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    if len(raw) > _LARGEST:
        return []
    return _Search(rename).of(view, msgspec.json.decode(raw))[:_MOST_PROBLEMS]


class _Search:
    def __init__(self, rename: str | None) -> None:
        self._rename = rename
        self._readings = 0
        self._fields: dict[int, tuple[Any, list[tuple[str, ClassField]]]] = {}

    def reading(self, view: Any, value: Any) -> Problem | None:
        """The first problem of reading a value; None if it fits."""
        self._readings += 1
        renamed = renamed_view(view, self._rename)
        try:
            if isinstance(renamed, Renamed):
                renamed.convert(value)
            else:
                msgspec.json.decode(msgspec.json.encode(value), type=view, dec_hook=decode_hook)
        except RecursionError:
            raise
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            return path_and_problem(error)
        return None

    def of(self, view: Any, value: Any) -> list[Problem]:
        first = self.reading(view, value)
        if first is None:
            return []
        found: list[Problem] = []
        for step, below in self._below(view, value):
            found += [(step + place, problem) for place, problem in below]
            if self._readings > _MOST_READINGS or len(found) > _MOST_PROBLEMS:
                break
        # What is wrong with the parts together, or was not found in them.
        if not any(first[1].startswith(problem) for _, problem in found):
            found.insert(0, first)
        return found

    def _below(self, view: Any, value: Any) -> Iterator[tuple[str, list[Problem]]]:
        """Steps to parts that do not fit, with their problems; none if they are unknown."""
        members = [one for one in alternatives(view) if one not in _ABSENT]
        if len(members) != 1:
            return
        (member,) = members
        if is_pydantic_model(class_of(member)):
            yield "", problems_of_model(class_of(member), self._rename, value)
        elif isinstance(value, dict):
            yield from self._below_object(member, value)
        elif isinstance(value, list) and (array := array_items(member)):
            types = array[0] if array[1] else array[0] * len(value)
            for index, (type_, item) in enumerate(zip(types, value, strict=False)):
                if below := self.of(type_, item):
                    yield f"[{index}]", below

    def _below_object(
        self, view: Any, value: dict[str, Any]
    ) -> Iterator[tuple[str, list[Problem]]]:
        if pair := mapping_types(view):
            for key, item in value.items():
                if below := self.of(pair[1], item):
                    yield f"[{key}]", below
            return
        if not (has_fields(class_of(view)) or is_typed_dict(view)) or is_array_like(view):
            return
        for name, field in self._fields_of(view):
            if name in value:
                if below := self.of(field.type, value[name]):
                    yield f".{name}", below
            elif not field.has_default and getattr(field.source, "init", True):
                yield "", [("", f"Object missing required field `{name}`")]

    def _fields_of(self, view: Any) -> list[tuple[str, ClassField]]:
        """The fields of a class with their names on the wire; a type may have no hash."""
        found = self._fields.get(id(view))
        if found is None:
            style = None if self._rename is None else STYLES[self._rename]
            fields = [(field.wire_name(style), field) for field in class_fields(view)]
            found = self._fields[id(view)] = (view, fields)
        return found[1]
