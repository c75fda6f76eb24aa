"""From the API server's bytes to objects, with one partial decode per object, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from appsdk_operator.resource import _deep_json
from appsdk_operator.resource._kind import Kind
from appsdk_operator.resource._spec_types import encode_hook

__all__ = [
    "PARTIAL_METADATA_KIND",
    "PARTIAL_METADATA_VERSION",
    "DecodeError",
    "EncodeError",
    "MetadataOnlyError",
    "WrongKindError",
    "checked_metadata",
    "decode",
    "encode",
]

_T = TypeVar("_T")

PARTIAL_METADATA_KIND = "PartialObjectMetadata"
"""What the server calls an object of any kind of which it sends nothing but the metadata."""
PARTIAL_METADATA_VERSION = "meta.k8s.io/v1"


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
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(enc_hook=encode_hook).encode

# Malformed JSON, or JSON of another shape; text that is not UTF-8; brackets without end.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)
_ENCODE_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)


def decode(raw: bytes) -> Any:
    """Any JSON text as plain Python values; integers keep every digit.

    Raises:
        DecodeError: the text is not JSON.
    """
    try:
        try:
            return _decode_any(raw)
        except RecursionError:
            return _deep_json.decode(raw)
    except DECODE_ERRORS as error:
        raise DecodeError(f"not JSON: {error}; {excerpt(raw)}") from error


def decode_as(decoder: Callable[[bytes], _T], kind: type[_T], raw: bytes) -> _T:
    """What ``decoder`` reads, which is one of ``kind``, be it nested however deep.

    Raises:
        DECODE_ERRORS: the text does not fit.
    """
    try:
        return decoder(raw)
    except RecursionError:
        return _deep_json.convert(raw, kind)


def members(raw: bytes) -> dict[str, Any]:
    """The members of a JSON object by name, each its own text.

    Raises:
        DECODE_ERRORS: it is none.
    """
    try:
        return _members(raw)
    except RecursionError:
        return {name: msgspec.Raw(text) for name, text in _deep_json.members(raw).items()}


def excerpt(raw: bytes | memoryview) -> str:
    """What an error may show of bytes that could not be read.

    The beginning of what is no JSON, for example a proxy's page. Of JSON only its length: it may
    be a Secret's, and errors end up in logs.
    """
    text = bytes(raw[:80])
    if text.lstrip()[:1] in (b"<", b""):
        return f"it begins {text!r}"
    return f"it has {len(raw)} bytes"


def checked_metadata(kind: Kind, raw: bytes) -> Metadata:
    """The metadata that identifies an object, checked to be of ``kind``.

    Raises:
        DecodeError: the text is not JSON of an object with metadata.
        WrongKindError: the object says it is of another kind.
    """
    try:
        header = decode_as(decode_header, Header, raw)
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
        and (header.kind != PARTIAL_METADATA_KIND or header.api_version != PARTIAL_METADATA_VERSION)
    ):
        raise WrongKindError(
            f"expected {kind.api_version} {kind.kind}, got {header.api_version or 'no version of'} "
            f"{header.kind} {header.metadata.namespace or ''}/{header.metadata.name or ''}: check "
            "the kind's plural, group and version"
        )


raw_json_getters: dict[type, Callable[[Any], bytes]] = {}
"""Types that know their own JSON text."""


def encode(value: Any) -> bytes:
    """JSON text of plain values, objects, attrs classes, dataclasses and msgspec structs.

    Raises:
        EncodeError: a value that JSON cannot carry (NaN, infinities, unknown types); the text
            names the path.
    """
    raw_of = raw_json_getters.get(type(value))
    if raw_of is not None:
        return raw_of(value)
    if isinstance(value, Mapping) and not isinstance(value, dict):
        value = dict(value)
    try:
        try:
            raw = _encode(value)
        except RecursionError:
            raw = _deep_json.encode(value)
    except RecursionError as error:
        raise EncodeError("$ contains itself: JSON cannot carry that") from error
    except _ENCODE_ERRORS as error:
        raise EncodeError(
            f"{_unencodable_path(value) or '$'} cannot be written as JSON: {error}"
        ) from error
    # msgspec writes NaN and infinities as null, which would lose them without a word.
    if b"null" in raw and (path := _non_finite_path(value)):
        raise EncodeError(f"{path} is not a finite number, and JSON has no other")
    return bytes(raw)


def plain_copy(value: Any, path: str = "$") -> Any:
    """A copy in plain, changeable JSON values.

    Typed values are written without their fields that are None: an optional field that is not set
    must not reach the server as null, which is a value there. A None in a dict stays.

    Raises:
        EncodeError: a value that JSON cannot carry; the text names the path.
    """

    def leaf(item: Any) -> Any:
        try:
            return without_none(to_builtins(item))
        except _ENCODE_ERRORS as error:
            where = next((way for found, way in _deep_json.walk(value) if found is item), ())
            text = _deep_json.path_text(where, path)
            raise EncodeError(f"{text} cannot be written as JSON: {error}") from error

    try:
        return _deep_json.deep_copy(value, leaf)
    except RecursionError as error:
        raise EncodeError(f"{path} contains itself: JSON cannot carry that") from error


def to_builtins(value: Any) -> Any:
    """A typed value as plain JSON values.

    Raises:
        TypeError, ValueError: it has what JSON has not.
    """
    try:
        return lists(msgspec.to_builtins(value, enc_hook=encode_hook))
    except RecursionError:
        return _deep_json.deep_copy(value, lambda item: _of_one_level(_deep_json.fields_of(item)))


def _of_one_level(value: Any) -> Any:
    return value if isinstance(value, Mapping) else msgspec.to_builtins(value, enc_hook=encode_hook)


def lists(value: Any) -> Any:
    """The same with lists for tuples, as JSON has them."""
    return _deep_json.deep_copy(value, _unchanged)


def without_none(value: Any) -> Any:
    """The same without the fields that are None."""
    return _deep_json.deep_copy(value, _unchanged, keep_none=False)


def _unchanged(value: Any) -> Any:
    return value


def _unencodable_path(value: Any) -> str | None:
    """The path of the first value that cannot be encoded, whatever it contains."""
    for item, path in _deep_json.walk(value):
        own: Any = item
        if isinstance(item, Mapping):
            own = dict.fromkeys(item)
        elif isinstance(item, (list, tuple)):
            continue
        try:
            _encode(own)
        except _ENCODE_ERRORS:
            return _deep_json.path_text(path)
    return None


def _non_finite_path(value: Any) -> str | None:
    for item, path in _deep_json.walk(value):
        if isinstance(item, float):
            if not math.isfinite(item):
                return _deep_json.path_text(path)
        elif not isinstance(item, (str, int, bytes, type(None), Mapping, list, tuple)):
            for part, rest in _deep_json.walk(to_builtins(item)):
                if isinstance(part, float) and not math.isfinite(part):
                    return _deep_json.path_text(path) + _deep_json.path_text(rest, "")
    return None
