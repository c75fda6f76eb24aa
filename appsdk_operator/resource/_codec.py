"""From the API server's bytes to objects, with one partial decode per object, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from appsdk_operator.resource._kind import Kind

__all__ = [
    "PARTIAL",
    "PARTIAL_VERSION",
    "DecodeError",
    "EncodeError",
    "MetadataOnlyError",
    "WrongKindError",
    "decode",
    "encode",
    "header_of",
]

PARTIAL = "PartialObjectMetadata"
"""What the server calls an object of any kind of which it sends nothing but the metadata."""
PARTIAL_VERSION = "meta.k8s.io/v1"


class DecodeError(ValueError):
    """Bytes from the API server, or a typed view's type, do not fit; the text names the place."""


class WrongKindError(DecodeError):
    """An object of another kind came where one of a certain kind was expected."""


class MetadataOnlyError(LookupError):
    """More than the metadata was asked of an object of which only that is kept."""


class EncodeError(ValueError):
    """A value cannot be written as JSON without loss; the text names the place."""


class Metadata(msgspec.Struct, gc=False, rename="camel"):
    """What identifies an object."""

    # To the API server null is the same as absent, and YAML's `namespace:` is a null.
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    deletion_timestamp: str | None = None


class Header(msgspec.Struct, gc=False, rename="camel"):
    """As much of an object as is decoded on arrival."""

    metadata: Metadata
    kind: str | None = None
    api_version: str | None = None


decode_header = msgspec.json.Decoder(Header).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

# Malformed JSON, or JSON of another shape; text that is not UTF-8; brackets without end.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)
_ENCODE_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)


def decode(raw: bytes) -> Any:
    """Any JSON text as plain Python values; integers keep every digit.

    Raises:
        DecodeError: the text is not JSON.
    """
    try:
        return _decode_any(raw)
    except DECODE_ERRORS as error:
        raise DecodeError(f"not JSON: {error}; {excerpt(raw)}") from error


def excerpt(raw: bytes | memoryview) -> str:
    """What an error may show of bytes that could not be read.

    The beginning of what is no JSON, for example a proxy's page. Of JSON only its length: it may
    be a Secret's, and errors end up in logs.
    """
    text = bytes(raw[:80])
    if text.lstrip()[:1] in (b"<", b""):
        return f"it begins {text!r}"
    return f"it has {len(raw)} bytes"


def header_of(kind: Kind, raw: bytes) -> Metadata:
    """The metadata that identifies an object, checked to be of ``kind``.

    Raises:
        DecodeError: the text is not JSON of an object with metadata.
        WrongKindError: the object says it is of another kind.
    """
    try:
        header = decode_header(raw)
    except DECODE_ERRORS as error:
        raise DecodeError(f"not an object of kind {kind}: {error}; {excerpt(raw)}") from error
    check_header(kind, header)
    return header.metadata


def check_header(kind: Kind, header: Header) -> None:
    """Refuse an object of another kind.

    Raises:
        WrongKindError: the object says it is of another kind.
    """
    # Items of a list of built-in kinds carry neither kind nor version.
    if (
        header.kind
        and (header.kind != kind.kind or header.api_version != kind.api_version)
        and (header.kind != PARTIAL or header.api_version != PARTIAL_VERSION)
    ):
        raise WrongKindError(
            f"expected {kind.api_version} {kind.kind}, got {header.api_version or 'no version of'} "
            f"{header.kind} {header.metadata.namespace or ''}/{header.metadata.name or ''}: check "
            "the kind's plural, group and version"
        )


raw_by_type: dict[type, Callable[[Any], bytes]] = {}
"""Types that know their own JSON text."""


def encode(value: Any) -> bytes:
    """JSON text of plain values, objects, attrs classes, dataclasses and msgspec structs.

    Raises:
        EncodeError: a value that JSON cannot carry (NaN, infinities, unknown types); the text
            names the path.
    """
    raw_of = raw_by_type.get(type(value))
    if raw_of is not None:
        return raw_of(value)
    if isinstance(value, Mapping) and not isinstance(value, dict):
        value = dict(value)
    try:
        raw = _encode(value)
    except RecursionError as error:
        raise EncodeError("$ is nested too deep for JSON, or contains itself") from error
    except _ENCODE_ERRORS as error:
        raise EncodeError(f"{_culprit(value) or '$'} cannot be written as JSON: {error}") from error
    # msgspec writes NaN and infinities as null, which would lose them without a word.
    if b"null" in raw and (path := _non_finite(value)):
        raise EncodeError(f"{path} is not a finite number, and JSON has no other")
    return bytes(raw)


def plain(value: Any, path: str = "$") -> Any:
    """A copy in plain, changeable JSON values.

    Typed values are written without their fields that are None: an optional field that is not set
    must not reach the server as null, which is a value there. A None in a dict stays.

    Raises:
        EncodeError: a value that JSON cannot carry; the text names the path.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {key: plain(child, f"{path}.{key}") for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(child, f"{path}[{index}]") for index, child in enumerate(value)]
    try:
        return without_none(lists(msgspec.to_builtins(value)))
    except _ENCODE_ERRORS as error:
        raise EncodeError(f"{path} cannot be written as JSON: {error}") from error


def lists(value: Any) -> Any:
    """The same with lists for tuples, as JSON has them."""
    if isinstance(value, dict):
        return {key: lists(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [lists(item) for item in value]
    return value


def without_none(value: Any) -> Any:
    """The same without the fields that are None."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_none(item) for item in value]
    return value


def _culprit(value: Any, path: str = "$") -> str | None:
    for child, name in _children(value, path):
        if found := _culprit(child, name):
            return found
    try:
        _encode(value)
    except _ENCODE_ERRORS:
        return path
    return None


def _non_finite(value: Any, path: str = "$") -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if not isinstance(value, (str, int, bytes, type(None), Mapping, list, tuple)):
        value = msgspec.to_builtins(value)
    for child, name in _children(value, path):
        if found := _non_finite(child, name):
            return found
    return None


def _children(value: Any, path: str) -> list[tuple[Any, str]]:
    if isinstance(value, Mapping):
        return [(child, f"{path}.{key}") for key, child in value.items()]
    if isinstance(value, (list, tuple)):
        return [(child, f"{path}[{index}]") for index, child in enumerate(value)]
    return []
