"""JSON of any depth: decoding, encoding, copying and comparison without recursion.

API servers store thousands of levels in fields without a schema. msgspec stops at Python's
recursion limit, and a higher limit would overflow the C stack. So callers try msgspec first, and
after a :class:`RecursionError` they use these slower functions.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from appsdk_operator.resource._spec_types import decode_hook, encode_hook

__all__ = [
    "Path",
    "convert",
    "decode",
    "deep_copy",
    "elements",
    "encode",
    "equal",
    "equal_by",
    "fields_of",
    "members",
    "path_text",
    "walk",
]

_T = TypeVar("_T")

Path = tuple[Any, ...]
"""The path to a value, as a pair of its container's path and the last step; ``()`` at the root."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(enc_hook=encode_hook).encode

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN: Final = re.compile(
    rb"[ \t\n\r]*+(?:([{}\[\],:])|(" + _STRING + rb")|([-0-9a-zA-Z.+]++)|(\Z))", re.DOTALL
)
_MARK: Final = re.compile(_STRING + rb"|[{}\[\],]", re.DOTALL)
_KEY: Final = re.compile(rb"[ \t\n\r]*+(" + _STRING + rb")[ \t\n\r]*+:", re.DOTALL)
# A deeper value contains itself: API servers read 10,000 levels at most.
_DEEPEST: Final = 100_000
_SPACE: Final = b" \t\n\r"
_SCALARS: Final = (str, int, float, bool, type(None))


# -- Reading ---------------------------------------------------------------------------------


def decode(raw: bytes) -> Any:
    """Any JSON text as plain Python values, as strictly as msgspec reads it.

    Raises:
        msgspec.DecodeError: the text is not JSON.
        UnicodeError: a string in it is not UTF-8.
    """
    root: list[Any] = []
    container: Any = root
    key: str | None = None
    outer: list[tuple[Any, str | None]] = []
    position, match = 0, _TOKEN.match
    # The next token: "value", "first" (a value or the end), "key", "first key", ":" or "next".
    awaited = "value"
    while True:
        token = match(raw, position)
        if token is None:
            raise _malformed(raw, position)
        mark, text, word, end = token.groups()
        begin, position = position, token.end()
        if end is not None:
            if outer or awaited != "next":
                raise msgspec.DecodeError("Input data was truncated")
            return root[0]
        if awaited in ("key", "first key") and text is not None:
            key, awaited = _decode(text), ":"
            continue
        if mark == b":" and awaited == ":":
            awaited = "value"
            continue
        if mark == b"," and awaited == "next" and outer:
            awaited = "key" if type(container) is dict else "value"
            continue
        if mark in (b"}", b"]"):
            wanted = b"}" if type(container) is dict else b"]"
            if not outer or mark != wanted or awaited not in ("next", "first", "first key"):
                raise _malformed(raw, begin)
            container, key = outer.pop()
            awaited = "next"
            continue
        if awaited not in ("value", "first"):
            raise _malformed(raw, begin)
        value: Any
        if mark == b"{":
            value = {}
        elif mark == b"[":
            value = []
        elif mark is None:
            value = _decode(text if text is not None else word)
        else:
            raise _malformed(raw, begin)
        if type(container) is dict:
            container[key] = value
        else:
            container.append(value)  # pyright: ignore[reportAttributeAccessIssue] - a list
        if mark is None:
            awaited = "next"
        else:
            outer.append((container, key))
            container = value
            awaited = "first key" if mark == b"{" else "first"


def _malformed(raw: bytes, position: int) -> msgspec.DecodeError:
    while raw[position : position + 1] in (b" ", b"\t", b"\n", b"\r"):
        position += 1
    return msgspec.DecodeError(f"JSON is malformed: invalid character (byte {position})")


def convert(raw: bytes, kind: type[_T]) -> _T:
    """JSON text as ``kind``, as ``msgspec.json.decode(raw, type=kind)`` reads it."""
    return msgspec.convert(decode(raw), kind, dec_hook=decode_hook)


def members(raw: bytes) -> dict[str, bytes]:
    """The members of a JSON object as raw text; the values are not checked.

    Raises:
        msgspec.DecodeError: it is no object, or the ends of its members cannot be found.
    """
    found: dict[str, bytes] = {}
    for begin, end in _parts(raw, b"{"):
        key = _KEY.match(raw, begin, end)
        if key is None:
            raise _malformed(raw, begin)
        found[_decode(key.group(1))] = raw[key.end() : end].strip(_SPACE)
    return found


def elements(raw: bytes) -> list[bytes]:
    """The elements of a JSON array as raw text, which may be invalid JSON.

    An element ends where its brackets and quotes are closed and a comma follows.

    Raises:
        msgspec.DecodeError: it is no array, or the ends of its elements cannot be found.
    """
    return [raw[begin:end].strip(_SPACE) for begin, end in _parts(raw, b"[")]


def _parts(raw: bytes, opening: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of each part between the commas of a container's text."""
    start = len(raw) - len(raw.lstrip(_SPACE))
    if raw[start : start + 1] != opening:
        raise _malformed(raw, start)
    depth, begin, is_first = 0, start + 1, True
    for mark in _MARK.finditer(raw, start + 1):
        what = mark.group()
        if what in (b"{", b"["):
            depth += 1
        elif what in (b"}", b"]"):
            depth -= 1
            if depth < 0:
                end = mark.start()
                if not (is_first and not raw[begin:end].strip(_SPACE)):
                    yield begin, end
                if raw[mark.end() :].strip(_SPACE):
                    raise _malformed(raw, mark.end())
                return
        elif what == b"," and not depth:
            yield begin, mark.start()
            begin, is_first = mark.end(), False
    raise msgspec.DecodeError("Input data was truncated")


# -- Writing ---------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """JSON text of plain values, which may contain typed ones.

    Raises:
        RecursionError: a value contains itself.
        TypeError, ValueError, OverflowError: as msgspec's encoder.
    """
    parts: list[bytes] = []
    add = parts.append
    # The open containers: the remaining items, the closing bracket, and the container's id.
    opened: list[tuple[Iterator[Any], bytes, int]] = []
    open_ids: set[int] = set()
    current: Any = value
    while True:
        if not isinstance(current, _SCALARS):
            current = fields_of(current)
        if isinstance(current, (Mapping, list, tuple)):
            if id(current) in open_ids:
                raise RecursionError("a value contains itself")
            open_ids.add(id(current))
            is_mapping = isinstance(current, Mapping)
            add(b"{" if is_mapping else b"[")
            inner = iter(current.items() if isinstance(current, Mapping) else current)
            opened.append((inner, b"}" if is_mapping else b"]", id(current)))
            is_first = True
        else:
            add(_encode(current))
            is_first = False
        while opened:
            left, closing, identity = opened[-1]
            try:
                current = next(left)
            except StopIteration:
                opened.pop()
                open_ids.discard(identity)
                add(closing)
                is_first = False
                continue
            if not is_first:
                add(b",")
            if closing == b"}":
                key, current = current
                add(_encode({key: None})[1:-5])
            break
        else:
            return b"".join(parts)


def fields_of(value: Any) -> Any:
    """A typed value as a mapping of its fields; any other value unchanged."""
    if isinstance(value, (Mapping, list, tuple)):
        return value
    names = getattr(value, "__struct_encode_fields__", None)
    if names is not None:
        fields = getattr(value, "__struct_fields__", ())
        values = {name: getattr(value, f) for name, f in zip(names, fields, strict=True)}
        return {name: item for name, item in values.items() if item is not msgspec.UNSET}
    for listing in ("__attrs_attrs__", "__dataclass_fields__"):
        found = getattr(value, listing, None)
        if found is not None and not isinstance(value, type):
            names = list(found) if isinstance(found, Mapping) else [field.name for field in found]
            return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return value


# -- Plain values ----------------------------------------------------------------------------


def deep_copy(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A copy in plain dicts and lists; ``leaf`` converts values that are not JSON.

    The result of ``leaf`` is copied as well.

    Args:
        value: mappings, lists and tuples of any depth.
        leaf: called for each value that is neither one of these nor text, number, bool or None.

    Raises:
        RecursionError: a value contains itself.
    """
    holder: list[Any] = [value]
    pending: list[tuple[Any, int]] = [(holder, 0)]
    while pending:
        container, depth = pending.pop()
        if depth > _DEEPEST:
            raise RecursionError("a value contains itself")
        pairs = container.items() if type(container) is dict else enumerate(container)
        for key, item in pairs:
            kind = type(item)
            if kind in _SCALARS:
                continue
            # Most are plain: the checks for others take longer than the copy.
            if kind is dict or kind is list:
                item = item.copy()
            else:
                if not isinstance(item, (Mapping, list, tuple)):
                    item = leaf(item)
                # dict.copy and list.copy copy frozen containers without freezing their items.
                if isinstance(item, dict):
                    item = dict.copy(item)
                elif isinstance(item, Mapping):
                    item = dict(item)
                elif isinstance(item, list):
                    item = list.copy(item)
                elif isinstance(item, tuple):
                    item = list(item)
                else:
                    container[key] = item
                    continue
            container[key] = item
            pending.append((item, depth + 1))
    return holder[0]


def walk(value: Any) -> Iterator[tuple[Any, Path]]:
    """``value`` and all values in it with their paths, containers before their contents."""
    pending: list[tuple[Any, Path]] = [(value, ())]
    while pending:
        found, path = pending.pop()
        yield found, path
        if isinstance(found, Mapping):
            children = [(child, (path, f".{key}")) for key, child in found.items()]
        elif isinstance(found, (list, tuple)):
            children = [(child, (path, f"[{index}]")) for index, child in enumerate(found)]
        else:
            continue
        pending.extend(reversed(children))


def path_text(path: Path, root: str = "$") -> str:
    """A path as text that begins with ``root``."""
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(step)
    return root + "".join(reversed(steps))


def equal_by(one: Any, other: Any, equal_leaves: Callable[[Any, Any], bool] | None = None) -> bool:
    """Whether two JSON values are equal, with their leaves compared by ``equal_leaves``.

    Args:
        one: a JSON value.
        other: another.
        equal_leaves: compares two values that are neither both mappings nor both lists; default:
            ``==``.
    """
    leaves = operator.eq if equal_leaves is None else equal_leaves
    pending = [(one, other)]
    while pending:
        a, b = pending.pop()
        if a is b and equal_leaves is None:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            if a.keys() != b.keys():
                return False
            pending.extend((a[key], b[key]) for key in a)
        elif isinstance(a, list) and isinstance(b, list):
            if len(a) != len(b):
                return False
            pending.extend(zip(a, b, strict=True))
        elif isinstance(a, (dict, list)) or isinstance(b, (dict, list)) or not leaves(a, b):
            return False
    return True


def equal(one: Any, other: Any) -> bool:
    """``one == other``, at any depth."""
    try:
        return bool(one == other)
    except RecursionError:
        return equal_by(one, other)
