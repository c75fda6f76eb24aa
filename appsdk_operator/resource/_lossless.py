"""Annotations that carry what a version of a kind cannot hold, and the merge that brings it back.

The annotation on an object of one version has the fields of the same object in another version that
were lost by the conversion, and what a conversion back shows in their place::

    {"from": "example.com/v1", "lost": {"spec": {"note": "x"}}, "instead": {"spec": {"note": ""}}}

A field that still shows what is in ``instead`` was not changed meanwhile, and gets its value back.
An object that could not be converted back has its whole parts there, as cluster-api's
``MarshalData`` keeps them, and so had all objects in former releases::

    {"apiVersion": "example.com/v1", "spec": {"note": "x", "size": 3}}
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from appsdk_operator.resource import _codec
from appsdk_operator.resource._json.values import equal_numbers
from appsdk_operator.resource._kind import Kind

MOST_ANNOTATION_BYTES: Final = 256 * 1024
"""The keys and values of all annotations of an object, as API servers accept them."""

_LONG: Final = 32 * 1024
_OF_NO_TYPE: Final = object()
_DEEPEST: Final = 32
"""Levels of objects of which the annotation has the fields that differ."""

_HEADER: Final = ("apiVersion", "kind", "metadata")

Parts = dict[str, Any]
"""The top-level fields of an object except for its header: spec, status and others."""


def parts_of(data: Mapping[str, Any]) -> Parts:
    """The top-level fields except for ``apiVersion``, ``kind`` and ``metadata``."""
    return {name: value for name, value in data.items() if name not in _HEADER}


class Stash(msgspec.Struct, frozen=True):
    """The content of an annotation."""

    version: str
    """The ``apiVersion`` of the fields."""
    lost: Parts
    """The fields that were lost; a part that the object did not have is None."""
    instead: Parts | None
    """What a conversion back shows in their place; None: :attr:`lost` are whole parts."""


def read_annotation(text: object) -> Stash | None:
    """The content of an annotation; None if it is not one of this kit.

    Everybody who may write the object may have changed it.
    """
    if not isinstance(text, str):
        return None
    try:
        content = _codec.decode_json(text.encode())
    except (_codec.DecodeError, UnicodeError):
        return None
    if not isinstance(content, dict):
        return None
    if isinstance(version := content.get("apiVersion"), str):
        return Stash(version, parts_of(content), None)
    version, lost, instead = content.get("from"), content.get("lost"), content.get("instead", {})
    if isinstance(version, str) and isinstance(lost, dict) and isinstance(instead, dict):
        return Stash(version, parts_of(lost), parts_of(instead))
    return None


def written_annotation(version: str, lost: Parts, back: Parts | None) -> str:
    """The text of an annotation.

    Args:
        version: the ``apiVersion`` of the object.
        lost: its parts that do not come back; one that it did not have is None.
        back: the parts that came back; None: it could not be converted back.
    """
    whole = _codec.encode_json({"apiVersion": version, **lost}).decode()
    if back is None:
        return whole
    fields: Parts = {}
    instead: Parts = {}
    for name, value in lost.items():
        other = back.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            fields[name], instead[name] = _differing(value, other)
        else:
            fields[name] = value
            if other is not None:
                instead[name] = other
    content = {"from": version, "lost": fields, **({"instead": instead} if instead else {})}
    text = _codec.encode_json(content).decode()
    # Long lists are there twice: once they get near the limit, the whole may be shorter.
    return whole if len(whole) < len(text) and len(text) > _LONG else text


def _differing(
    before: dict[str, Any], back: dict[str, Any], levels: int = _DEEPEST
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of both that differ, in objects down to some levels; lists are whole."""
    lost: dict[str, Any] = {}
    instead: dict[str, Any] = {}
    for key in {**before, **back}:
        if key not in back:
            lost[key] = before[key]
        elif key not in before:
            instead[key] = back[key]
        elif not equal_numbers(one := before[key], other := back[key]):
            if levels and isinstance(one, dict) and isinstance(other, dict):
                one, other = _differing(one, other, levels - 1)
            lost[key], instead[key] = one, other
    return lost, instead


def without_annotation(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Metadata without one annotation, and without ``annotations`` if it was the only one."""
    left = dict(metadata)
    annotations = {k: v for k, v in (left.pop("annotations", None) or {}).items() if k != name}
    return {**left, "annotations": annotations} if annotations else left


def annotation_bytes(annotations: Mapping[str, str]) -> int:
    """The size of annotations as API servers count it."""
    return sum(len(text.encode()) for pair in annotations.items() for text in pair)


def lost_parts(kind: Kind, before: Parts, back: Parts) -> Parts:
    """The parts of an object of ``kind`` that a conversion to another version and back changed."""
    return {
        name: before.get(name)
        for name in {**before, **back}
        if not _is_same(_view(kind, name), before.get(name), back.get(name), kind.rename)
    }


def with_defaults(kind: Kind, parts: Parts) -> Parts:
    """The parts with the defaults of their types written out, if they fit these types."""
    made = dict(parts)
    for name in ("spec", "status"):
        view = _view(kind, name)
        if view is not None and parts.get(name) is not None:
            with contextlib.suppress(*_codec.DECODE_ERRORS, TypeError):
                made[name] = _codec.to_plain(_read(parts[name], view), kind.rename)
    return made


def restored(kept: Parts, known: Parts, new: Parts) -> Parts:
    """The kept parts with the changes from ``known`` to ``new``; the other parts of ``new``.

    Args:
        kept: parts of an annotation: the object as it was in this version, or the fields of it
            that were lost.
        known: what two conversions, to the other version and back, made of ``kept``.
        new: what the conversion makes of the object as it is in the other version.
    """
    from appsdk_operator.resource._typed.overlay import overlay

    made = {name: value for name, value in new.items() if name not in kept}
    for name, value in kept.items():
        if value is None:
            found = None if equal_numbers(known.get(name), new.get(name)) else new.get(name)
        elif name in new:
            found = overlay(value, known.get(name), new[name])
        else:
            found = None if name in known else value
        if found is not None:
            made[name] = found
    return made


def fits(kind: Kind, parts: Parts) -> bool:
    """Whether spec and status can be decoded into the types of ``kind``."""
    try:
        for name in ("spec", "status"):
            view = _view(kind, name)
            if view is not None and parts.get(name) is not None:
                _read(parts[name], view)
    except _codec.DECODE_ERRORS:
        return False
    return True


def _read(value: Any, view: Any) -> Any:
    # Loaded here: most programs that declare versions never convert.
    from appsdk_operator.resource._typed.renaming import convert

    return convert(value, view)


def _view(kind: Kind, name: str) -> Any:
    return {"spec": kind.spec_view, "status": kind.status_view}.get(name)


def _is_same(view: Any, before: Any, back: Any, rename: str | None) -> bool:
    """Whether two values are equal, or have the same meaning for the type they are read with.

    A value with its defaults written out is the same as without. A field that the type does not
    know counts: the value that came back cannot have it.
    """
    if before is None or back is None or view is None or equal_numbers(before, back):
        return equal_numbers(before, back)
    try:
        one = _codec.to_plain(_read(before, view), rename, nulls=True)
        other = _codec.to_plain(_read(back, view), rename, nulls=True)
    except (*_codec.DECODE_ERRORS, TypeError):
        return False
    return equal_numbers(one, other) and all(
        path is not None and _is_known(view, before, path) for path in _absent_fields(before, one)
    )


_Path = tuple[str | int, ...]


def _absent_fields(value: Any, read: Any) -> Iterator[_Path | None]:
    """The paths of fields in ``value`` that are not in ``read``, which a type has made of it.

    None stands for an object that the type has made something else of.
    """
    pending: list[tuple[_Path, Any, Any]] = [((), value, read)]
    while pending:
        path, one, other = pending.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            for key, item in one.items():
                if key in other:
                    pending.append(((*path, key), item, other[key]))
                else:
                    yield (*path, key)
        elif isinstance(one, dict):
            yield None
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            for index, (item, counterpart) in enumerate(zip(one, other, strict=True)):
                pending.append(((*path, index), item, counterpart))


def _is_known(view: Any, value: Any, path: _Path) -> bool:
    """Whether the type knows the field, and leaves it out only because it has the default.

    It does if it takes no value at all there.
    """
    changed: Any = copy.copy(value)
    place = changed
    for step in path[:-1]:
        place[step] = copy.copy(place[step])
        place = place[step]
    place[path[-1]] = _OF_NO_TYPE
    try:
        _read(changed, view)
    except (*_codec.DECODE_ERRORS, TypeError):
        return True
    return False
