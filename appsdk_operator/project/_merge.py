"""The three-way merge of texts, by lines."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import attrs


def merge_texts(base: str, ours: str, theirs: str) -> str | None:
    """Apply the changes from ``base`` to ``theirs`` to ``ours`` as well.

    As in ``diff3`` and git, changes of both sides that overlap or touch are a conflict, unless they
    are the same.

    Returns:
        The merged text; None for a conflict.

    >>> merge_texts("a\\nb\\nc\\n", "A\\nb\\nc\\n", "a\\nb\\nC\\n")
    'A\\nb\\nC\\n'
    >>> merge_texts("a\\n", "A\\n", "B\\n") is None
    True
    """
    lines = base.splitlines(keepends=True)
    changes = sorted(
        [*_changes(lines, ours, side=0), *_changes(lines, theirs, side=1)],
        key=lambda change: (change.start, change.end),
    )
    merged: list[str] = []
    position = 0
    while changes:
        group = [changes.pop(0)]
        end = group[0].end
        while changes and changes[0].start <= end:
            group.append(changes.pop(0))
            end = max(end, group[-1].end)
        start = group[0].start
        # A side without a change of these lines takes over those of the other.
        texts = {
            side: _applied(lines, start, end, [change for change in group if change.side == side])
            for side in {change.side for change in group}
        }
        first, *others = texts.values()
        if any(other != first for other in others):
            return None
        merged += lines[position:start] + first
        position = end
    return "".join(merged + lines[position:])


@attrs.frozen
class _Change:
    """Lines of the base that one side has replaced."""

    side: int
    start: int
    end: int
    lines: Sequence[str]


def _changes(base: list[str], text: str, *, side: int) -> list[_Change]:
    lines = text.splitlines(keepends=True)
    codes = difflib.SequenceMatcher(None, base, lines, autojunk=False).get_opcodes()
    return [
        _Change(side, start, end, lines[first:last])
        for tag, start, end, first, last in codes
        if tag != "equal"
    ]


def _applied(base: list[str], start: int, end: int, changes: list[_Change]) -> list[str]:
    """Lines of the base from ``start`` to ``end``, with one side's changes."""
    found: list[str] = []
    for change in changes:
        found += [*base[start : change.start], *change.lines]
        start = change.end
    return found + base[start:end]
