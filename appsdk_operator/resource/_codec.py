"""The JSON codec: decodes headers and values, encodes objects, and its errors."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from appsdk_operator.resource._json import values as json_values
from appsdk_operator.resource._json.parts import (
    MAX_LEVELS,
    TOO_DEEP,
    is_deeper,
    is_object_deeper,
)
from appsdk_operator.resource._kind import Kind
from appsdk_operator.resource._typed.spec_types import encode_hook

PARTIAL_METADATA_KIND = "PartialObjectMetadata"
"""The kind of an answer with an object's metadata alone."""
PARTIAL_METADATA_VERSION = "meta.k8s.io/v1"


class DecodeError(ValueError):
    """Bytes from the API server are not JSON, or do not fit a type; the text names the path."""


class WrongKindError(DecodeError):
    """An object has another kind than expected."""


class MetadataOnlyError(LookupError):
    """An object with metadata alone was asked for another field."""


class EncodeError(ValueError):
    """A value cannot be written as JSON without loss; the text names the path."""


class Metadata(msgspec.Struct, gc=False, rename="camel"):
    """The metadata that identifies an object."""

    # The API server treats null as absent, and YAML's `namespace:` is a null.
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    deletion_timestamp: str | None = None


class Header(msgspec.Struct, gc=False, rename="camel"):
    """The part of an object that is decoded on arrival."""

    metadata: Metadata
    kind: str | None = None
    api_version: str | None = None


decode_header = msgspec.json.Decoder(Header).decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
members: Callable[[bytes | str], dict[str, msgspec.Raw]] = _members.decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(enc_hook=encode_hook).encode

# Malformed JSON or another type; text that is not UTF-8; nesting that is too deep.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)
_NO_ROOM: Final = "it is nested too deep for the rest of Python's stack"
_LARGE: Final = 64 * 1024
_LEVELS_AROUND: Final = 8
"""Levels that patches, lists and reviews have around the object in them."""
_ENCODE_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)


def decode_json(raw: bytes) -> Any:
    """Any JSON text as plain Python values; integers keep every digit.

    Raises:
        DecodeError: the text is not JSON.
    """
    if is_deeper(raw):
        raise DecodeError(f"not JSON that can be read: {TOO_DEEP}; {excerpt(raw)}")
    try:
        return decode_large(_decode_any, raw)
    except RecursionError:
        raise DecodeError(f"not JSON that can be read: {_NO_ROOM}; {excerpt(raw)}") from None
    except DECODE_ERRORS as error:
        raise DecodeError(f"not JSON: {error}; {excerpt(raw)}") from error


def excerpt(raw: bytes | memoryview) -> str:
    """The part of undecodable bytes that an error may show.

    That is the beginning of an HTML page, as proxies send. Of anything else it is the length alone:
    it may be a Secret, and errors end up in logs.
    """
    text = bytes(raw[:80])
    if text.lstrip()[:1] in (b"<", b""):
        return f"it begins {text!r}"
    return f"it has {len(raw)} bytes"


def decode_large(decoder: Callable[[bytes], Any], raw: bytes) -> Any:
    """What a decoder that calls no Python code makes of ``raw``, without garbage collection.

    Each of a million new containers would be looked at several times, by a thread that nobody can
    interrupt: that is four fifths of the time.
    """
    if len(raw) < _LARGE or not gc.isenabled():
        return decoder(raw)
    gc.disable()
    try:
        return decoder(raw)
    finally:
        gc.enable()


def checked_metadata(kind: Kind, raw: bytes) -> Metadata:
    """The metadata that identifies an object, checked to be of ``kind``.

    Raises:
        DecodeError: the text is not JSON of an object with metadata.
        WrongKindError: the object is of another kind.
    """
    if is_object_deeper(raw):
        raise too_deep(kind, raw)
    try:
        header = decode_header(raw)
    except RecursionError:
        raise too_deep(kind, raw) from None
    except DECODE_ERRORS as error:
        raise DecodeError(f"not an object of kind {kind}: {error}; {excerpt(raw)}") from error
    check_header(kind, header)
    return header.metadata


def too_deep(kind: Kind, raw: bytes) -> DecodeError:
    """The error for an object that is nested too deep."""
    return DecodeError(f"not an object of kind {kind}: {TOO_DEEP}; {excerpt(raw)}")


def check_header(kind: Kind, header: Header) -> None:
    """Refuse an object of another kind.

    Raises:
        WrongKindError: the object is of another kind.
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
"""Functions that return a value's JSON text, by type."""


def encode_json(value: Any) -> bytes:
    """JSON text of plain values, objects, and instances of the classes for spec and status.

    Raises:
        EncodeError: a value that JSON cannot carry (NaN, infinities, unknown types); the text
            names the path.
    """
    raw_of = raw_json_getters.get(type(value))
    if raw_of is not None:
        return raw_of(value)
    if not isinstance(value, dict) and isinstance(value, Mapping):
        value = dict(value)
    try:
        raw = bytes(_encode(value))
    except RecursionError:
        raise EncodeError(f"$ contains itself, or {TOO_DEEP}") from None
    except _ENCODE_ERRORS as error:
        raise EncodeError(
            f"{_unencodable_path(value) or '$'} cannot be written as JSON: {error}"
        ) from error
    if is_deeper(raw, MAX_LEVELS + _LEVELS_AROUND):
        raise EncodeError(f"$ cannot be written as JSON: {TOO_DEEP}")
    # msgspec writes NaN and infinities as null.
    if b"null" in raw and (path := _non_finite_path(value)):
        raise EncodeError(f"{path} is not a finite number, and JSON has only finite numbers")
    return raw


def plain_copy(value: Any, path: str = "$", rename: str | None = None) -> Any:
    """A copy in plain, changeable JSON values.

    A None of a typed value's field is left out if that is the field's default: to the server null
    is a value, and not the absence of an optional field. Any other None stays: of a field that has
    another default or none, in a dict, in a list.

    Args:
        value: plain and typed values.
        path: where it is, for errors.
        rename: a kind's ``rename``, by which typed values are written.

    Raises:
        EncodeError: a value that JSON cannot carry; the text names the path.
    """

    def leaf(item: Any) -> Any:
        try:
            return to_plain(item, rename)
        except _ENCODE_ERRORS as error:
            where = next((at for found, at in json_values.walk(value) if found is item), ())
            text = json_values.path_text(where, path)
            raise EncodeError(f"{text} cannot be written as JSON: {error}") from error

    try:
        return json_values.deep_copy(value, leaf)
    except RecursionError as error:
        raise EncodeError(f"{path} contains itself, or {TOO_DEEP}") from error


def renamed_copy(value: Any, rename: str) -> Any:
    """A copy in plain values, with the fields of typed values that are None as nulls.

    Raises:
        EncodeError: a value that JSON cannot carry.
    """
    try:
        return json_values.deep_copy(value, lambda item: to_plain(item, rename, nulls=True))
    except RecursionError as error:
        raise EncodeError(f"$ contains itself, or {TOO_DEEP}") from error
    except _ENCODE_ERRORS:
        return value  # whose encoding says where it is


def to_plain(value: Any, rename: str | None = None, *, nulls: bool = False) -> Any:
    """A typed value as plain JSON values.

    Args:
        value: the value.
        rename: a kind's ``rename``.
        nulls: whether a None of a field whose default is None is a null; default False: such a
            field is absent. Any other None is always a null.

    Raises:
        TypeError, ValueError: JSON cannot carry it.
    """
    from appsdk_operator.resource._typed.renaming import to_wire

    plain = json_values.lists(msgspec.to_builtins(value, enc_hook=encode_hook))
    return to_wire(value, plain, rename, nulls=nulls)


def _unencodable_path(value: Any) -> str | None:
    """The path of the first value that cannot be encoded."""
    for item, path in json_values.walk(value):
        own: Any = item
        if isinstance(item, Mapping):
            own = dict.fromkeys(item)
        elif isinstance(item, (list, tuple)):
            continue
        try:
            _encode(own)
        except _ENCODE_ERRORS:
            return json_values.path_text(path)
    return None


def _non_finite_path(value: Any) -> str | None:
    for item, path in json_values.walk(value):
        if isinstance(item, float):
            if not math.isfinite(item):
                return json_values.path_text(path)
        elif not isinstance(item, (str, int, bytes, type(None), Mapping, list, tuple)):
            for part, rest in json_values.walk(to_plain(item, nulls=True)):
                if isinstance(part, float) and not math.isfinite(part):
                    return json_values.path_text(path) + json_values.path_text(rest, "")
    return None
