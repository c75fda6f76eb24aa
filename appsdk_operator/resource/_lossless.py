"""Annotations that carry what a version of a kind cannot hold, and the merge that brings it back.

The annotation on an object of one version has the parts of the same object in another version that
were lost by the conversion. cluster-api's ``MarshalData`` keeps the whole object the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from appsdk_operator.resource import _codec, _deep_json
from appsdk_operator.resource._kind import Kind
from appsdk_operator.resource._renaming import convert
from appsdk_operator.resource._typed_overlay import overlay

__all__ = [
    "MOST_ANNOTATION_BYTES",
    "annotation_bytes",
    "fits",
    "lost_parts",
    "parts_of",
    "read_annotation",
    "restored",
    "with_defaults",
    "without_annotation",
    "written_annotation",
]

MOST_ANNOTATION_BYTES: Final = 256 * 1024
"""The keys and values of all annotations of an object, as API servers accept them."""

_HEADER: Final = ("apiVersion", "kind", "metadata")

Parts = dict[str, Any]
"""The top-level fields of an object except for its header: spec, status and others."""


def parts_of(data: Mapping[str, Any]) -> Parts:
    """The top-level fields except for ``apiVersion``, ``kind`` and ``metadata``."""
    return {name: value for name, value in data.items() if name not in _HEADER}


def read_annotation(text: object) -> tuple[str, Parts] | None:
    """The version and the parts of an annotation; None if it is not one of this kit.

    Everybody who may write the object may have changed it.
    """
    if not isinstance(text, str):
        return None
    try:
        content = _codec.decode(text.encode())
    except (_codec.DecodeError, UnicodeError):
        return None
    version = content.get("apiVersion") if isinstance(content, dict) else None
    return (version, parts_of(content)) if isinstance(version, str) else None


def written_annotation(version: str, lost: Parts) -> str:
    """The text of an annotation; a part that the object did not have is null."""
    return _codec.encode({"apiVersion": version, **lost}).decode()


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
                made[name] = _codec.to_plain(convert(parts[name], view), kind.rename)
    return made


def restored(kept: Parts, known: Parts, new: Parts) -> Parts:
    """The kept parts with the changes from ``known`` to ``new``; the other parts of ``new``.

    Args:
        kept: parts of an annotation: the object as it was in this version.
        known: what two conversions, to the other version and back, make of ``kept``.
        new: what the conversion makes of the object as it is in the other version.
    """
    made = {name: value for name, value in new.items() if name not in kept}
    for name, value in kept.items():
        if value is None:
            found = None if _equal(known.get(name), new.get(name)) else new.get(name)
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
                convert(parts[name], view)
    except _codec.DECODE_ERRORS:
        return False
    return True


def _view(kind: Kind, name: str) -> Any:
    return {"spec": kind.spec_view, "status": kind.status_view}.get(name)


def _is_same(view: Any, before: Any, back: Any, rename: str | None) -> bool:
    """Whether two values are equal, or have the same meaning for the type they are read with.

    A value with its defaults written out is the same as without. A field that the type does not
    know counts: the value that came back cannot have it.
    """
    if before is None or back is None or view is None or _equal(before, back):
        return _equal(before, back)
    try:
        one = _codec.to_builtins(convert(before, view), rename)
        other = _codec.to_builtins(convert(back, view), rename)
    except (*_codec.DECODE_ERRORS, TypeError):
        return False
    return _equal(one, other) and _is_part(before, one)


def _is_part(part: Any, whole: Any) -> bool:
    """Whether all fields in ``part`` are in ``whole``."""
    pending = [(part, whole)]
    while pending:
        one, other = pending.pop()
        if isinstance(one, dict):
            if not isinstance(other, dict) or not one.keys() <= other.keys():
                return False
            pending.extend((one[key], other[key]) for key in one)
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            pending.extend(zip(one, other, strict=True))
    return True


def _equal(one: Any, other: Any) -> bool:
    return _deep_json.equal_by(one, other, _equal_leaves)


def _equal_leaves(one: Any, other: Any) -> bool:
    # To Python True is 1, to JSON it is not.
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
