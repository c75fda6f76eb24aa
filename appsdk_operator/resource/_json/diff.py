"""The JSON patch from one plain JSON value to another, without recursion and in linear time.

The result has ``remove``, ``add`` and ``replace`` alone. ``JsonPatch.between`` documents which.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import msgspec

from appsdk_operator.resource._json.pointers import json_pointer
from appsdk_operator.resource._json.values import NAME_FIELDS, same

_MAX_OPERATIONS: Final = 10_000
"""The most operations that an API server takes in one patch."""
_EXCESS: Final = 65_536
"""Bytes by which the changes within an object may be longer than the object.

Nobody wants the label that another writer added to vanish because a new map of labels would have
been shorter. The limit is for thousands of nested objects, whose paths would grow without bound.
"""
_MATCHES_PER_ITEM: Final = 32
"""Equal items that an item of a list has in the other one, on average, up to which the longest
common subsequence is looked for among all of them."""
_ENCODED_LEVELS: Final = 3
"""Levels of an object whose members are first compared as JSON text."""
_MAX_EDITS: Final = 64
"""Added and removed items up to which that is looked for in lists of few different values."""

_ABSENT: Final = object()

_encode = msgspec.json.Encoder().encode


def json_diff(before: Any, after: Any) -> list[dict[str, Any]]:
    """The operations that make ``after`` of ``before``; empty if they are the same.

    Args:
        before: a plain JSON value (dict, list, str, int, float, bool, None) that is a tree.
        after: another. The operations refer to parts of it.
    """
    return _Diff().between(before, after)


class _Path(NamedTuple):
    """A JSON pointer (RFC 6901), as its last step and the path before it."""

    parent: _Path | None
    step: str
    size: int
    """The bytes of the pointer in a JSON text."""
    depth: int
    """The number of steps."""

    def child(self, step: str) -> _Path:
        step = json_pointer([step])
        return _Path(self, step, self.size + len(_encode(step)) - 2, self.depth + 1)

    def __str__(self) -> str:
        steps: list[str] = []
        path: _Path | None = self
        while path is not None:
            steps.append(path.step)
            path = path.parent
        return "".join(reversed(steps))


class _Operation(NamedTuple):
    op: str
    path: _Path
    value: Any


_Pair = tuple[Any, Any, _Path, int]
"""Two values to compare, their path, and the bytes by which changes may exceed a replacement."""


class _Diff:
    """One comparison."""

    def __init__(self) -> None:
        self._operations: list[_Operation] = []
        self._size = 0  # the bytes of the operations
        self._values = _Values()

    def between(self, before: Any, after: Any) -> list[dict[str, Any]]:
        # Each generator yields the pairs within its own, which are compared before it goes on.
        pending = [self._compare((before, after, _Path(None, "", 0, 0), _EXCESS))]
        while pending:
            pair = next(pending[-1], None)
            if pair is None:
                pending.pop()
            else:
                pending.append(self._compare(pair))
        return [
            {"op": op, "path": str(path)} | ({} if op == "remove" else {"value": value})
            for op, path, value in self._operations
        ]

    def _compare(self, pair: _Pair) -> Iterator[_Pair]:
        before, after, path, excess = pair
        count, size = len(self._operations), self._size
        if type(before) is dict and type(after) is dict:
            yield from self._members(before, after, path)
        elif type(before) is list and type(after) is list:
            yield from self._items(before, after, path)
            excess = 0
        else:
            if not same(before, after):
                self._add("replace", path, after)
            return
        # Replace the whole value if its changes are too many or too long.
        made = len(self._operations) - count
        if made > 1 and self._size - size > excess:  # as more than _MAX_OPERATIONS always are
            whole = self._size_of(_Operation("replace", path, after))
            if made > _MAX_OPERATIONS or self._size - size > whole + excess:
                del self._operations[count:]
                self._size = size
                self._add("replace", path, after)

    def _members(
        self, before: dict[str, Any], after: dict[str, Any], path: _Path
    ) -> Iterator[_Pair]:
        for key in before:
            if key not in after:
                self._add("remove", path.child(key))
        for key, value in after.items():
            old = before.get(key, _ABSENT)
            if old is _ABSENT:
                self._add("add", path.child(key), value)
            elif type(value) is str:
                if value != old:
                    yield old, value, path.child(key), _EXCESS
            elif isinstance(value, (dict, list)):
                # Most are the same in all. Not at any depth: each level encodes all below it.
                if path.depth > _ENCODED_LEVELS or not _have_one_text(old, value):
                    yield old, value, path.child(key), _EXCESS
            elif not same(old, value):
                yield old, value, path.child(key), _EXCESS

    def _items(self, before: list[Any], after: list[Any], path: _Path) -> Iterator[_Pair]:
        if self._values.are_same(before, after):
            return
        index = 0  # in the list as the operations so far have made it
        left = len(before)
        for old, new in self._alignment(before, after):
            if new is None:
                self._add("remove", path.child(str(index)))
            elif old is None:
                self._add("add", path.child(str(index) if left else "-"), after[new])
            elif not self._values.are_same(before[old], after[new]):
                yield before[old], after[new], path.child(str(index)), 0
            index += new is not None
            left -= old is not None

    def _alignment(self, before: list[Any], after: list[Any]) -> Iterator[_Match]:
        """The indexes of each item before and after; None for one that is added or removed.

        Equal items are the same item, as many as possible; between them, those of one name; and
        between these, the first with the first, the second with the second.
        """
        token = self._values.token
        equal = _common([token(item) for item in before], [token(item) for item in after])
        for i, j, olds, news in _gaps(equal, range(len(before)), range(len(after))):
            named = _common([_name(before[o]) for o in olds], [_name(after[n]) for n in news])
            for k, m, unlike_olds, unlike_news in _gaps(named, olds, news):
                yield from zip_longest(unlike_olds, unlike_news)
                if k is not None and m is not None:
                    yield k, m
            if i is not None and j is not None:
                yield i, j

    def _add(self, op: str, path: _Path, value: Any = None) -> None:
        operation = _Operation(op, path, value)
        self._operations.append(operation)
        self._size += self._size_of(operation)

    def _size_of(self, operation: _Operation) -> int:
        """The bytes of an operation in a JSON text, with a comma."""
        op, path, value = operation
        size = len('{"op":"","path":""},') + len(op) + path.size
        return size if op == "remove" else size + len(',"value":') + self._values.size(value)


class _Values:
    """Numbers that are equal for equal values, and the bytes of values; each computed once."""

    def __init__(self) -> None:
        # By identity: all values are parts of two trees that live as long as this.
        self._known: dict[int, tuple[int, int]] = {}
        self._tokens: dict[Hashable, int] = {}

    def token(self, value: Any) -> int:
        return self._token_and_size(value)[0]

    def size(self, value: Any) -> int:
        return self._token_and_size(value)[1]

    def are_same(self, one: Any, other: Any) -> bool:
        """Whether two values are equal in all types."""
        # In a patch of a large object, most lists are.
        if id(one) not in self._known and _have_one_text(one, other):
            return True
        return self.token(one) == self.token(other)

    def _token_and_size(self, value: Any) -> tuple[int, int]:
        if not isinstance(value, (dict, list)):
            return self._token_of(_leaf_key(value)), len(_encode(value))
        pending = [value]
        while id(value) not in self._known:
            container = pending[-1]
            items = container.values() if type(container) is dict else container
            unknown = [
                item
                for item in items
                if isinstance(item, (dict, list)) and id(item) not in self._known
            ]
            if unknown:
                pending += unknown
                continue
            pending.pop()
            self._known[id(container)] = self._of_known_items(container)
        return self._known[id(value)]

    def _of_known_items(self, container: Any) -> tuple[int, int]:
        key: Hashable
        if type(container) is dict:
            pairs = [(name, *self._token_and_size(item)) for name, item in container.items()]
            key = frozenset((name, token) for name, token, _ in pairs)
            size = sum(len(_encode(name)) + 1 + part for name, _, part in pairs)
        else:
            items = [self._token_and_size(item) for item in container]
            key = tuple(token for token, _ in items)
            size = sum(part for _, part in items)
        return self._token_of(key), len("[]") + max(0, len(container) - 1) + size

    def _token_of(self, key: Hashable) -> int:
        return self._tokens.setdefault(key, len(self._tokens))


def _have_one_text(one: Any, other: Any) -> bool:
    """Whether two values are the same, keys in the same order; not found out for deep ones."""
    try:
        return type(one) is type(other) and bool(_encode(one) == _encode(other))
    except RecursionError:
        return False


def _leaf_key(value: Any) -> Hashable:
    """A value that is equal for equal leaves alone, and for no container's tokens.

    Numbers become text, since numbers of equal hash are easy to find.
    """
    if type(value) is float:
        return float, value.hex()
    return (int, hex(value)) if type(value) is int else value


def _name(item: Any) -> Hashable:
    """What tells an item of a list from its neighbours, in the usual fields of Kubernetes."""
    if type(item) is dict:
        for field in NAME_FIELDS:
            value = item.get(field)
            if type(value) is str:
                return field, value
    return object()


# -- Lists -----------------------------------------------------------------------------------

_Match = tuple[int | None, int | None]


def _gaps(
    matches: Sequence[tuple[int, int]], olds: range, news: range
) -> Iterator[tuple[int | None, int | None, range, range]]:
    """Each match, after the unmatched parts before it; at the end None and the last parts.

    Args:
        matches: pairs of positions in the two ranges, both ascending.
        olds: a range of indexes of the former list.
        news: a range of indexes of the new one.
    """
    i = j = 0
    for old, new in matches:
        yield olds[old], news[new], olds[i:old], news[j:new]
        i, j = old + 1, new + 1
    yield None, None, olds[i:], news[j:]


def _common(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The positions of a longest common subsequence, both ascending; a shorter one if it would take
    too long."""
    begin, end_a, end_b = 0, len(a), len(b)
    while begin < min(end_a, end_b) and a[begin] == b[begin]:
        begin += 1
    while min(end_a, end_b) > begin and a[end_a - 1] == b[end_b - 1]:
        end_a, end_b = end_a - 1, end_b - 1
    inner = _inner_common(a[begin:end_a], b[begin:end_b])
    return [
        *((i, i) for i in range(begin)),
        *((begin + i, begin + j) for i, j in inner),
        *zip(range(end_a, len(a)), range(end_b, len(b)), strict=True),
    ]


def _inner_common(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    if not a or not b:
        return []
    places = defaultdict(list)
    for j, item in enumerate(b):
        places[item].append(j)
    matches = sum(len(places.get(item, ())) for item in a)
    if matches <= _MATCHES_PER_ITEM * (len(a) + len(b)):
        return _common_by_places(a, places)
    found = _common_by_edits(a, b)
    if found is None:
        return [(i, i) for i, (one, other) in enumerate(zip(a, b, strict=False)) if one == other]
    return found


_Links = tuple[Any, int, int, int]
"""The links before it, then a run of equal items: its positions and its length."""


def _common_by_places(
    a: Sequence[Hashable], places: dict[Hashable, list[int]]
) -> list[tuple[int, int]]:
    """Hunt and Szymanski's algorithm: a longest ascending sequence of matches."""
    last: list[int] = []  # by length, the smallest last position of a sequence
    links: list[_Links] = []
    for i, item in enumerate(a):
        for j in reversed(places.get(item, ())):
            length = bisect_left(last, j)
            link = (links[length - 1] if length else None, i, j, 1)
            if length == len(last):
                last.append(j)
                links.append(link)
            else:
                last[length], links[length] = j, link
    return _unlinked(links[-1] if links else None)


def _common_by_edits(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]] | None:
    """Myers' greedy algorithm; None if there are more than :data:`_MAX_EDITS` edits."""
    # By diagonal: how far in `a` that many edits reach, and the runs of equal items on the way.
    reached: dict[int, tuple[int, _Links | None]] = {1: (0, None)}
    for edits in range(_MAX_EDITS + 1):
        for diagonal in range(-edits, edits + 1, 2):
            below, above = reached.get(diagonal + 1), reached.get(diagonal - 1)
            if above is None or (below is not None and above[0] < below[0]):
                assert below is not None
                i, link = below
            else:
                i, link = above[0] + 1, above[1]
            start = i
            while i < len(a) and i - diagonal < len(b) and a[i] == b[i - diagonal]:
                i += 1
            if i > start:
                link = (link, start, start - diagonal, i - start)
            reached[diagonal] = (i, link)
            if i >= len(a) and i - diagonal >= len(b):
                return _unlinked(link)
    return None


def _unlinked(link: _Links | None) -> list[tuple[int, int]]:
    runs: list[_Links] = []
    while link is not None:
        runs.append(link)
        link = link[0]
    return [(i + n, j + n) for _, i, j, length in reversed(runs) for n in range(length)]
