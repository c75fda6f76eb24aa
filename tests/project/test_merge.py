"""The three-way merge of texts."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.project._merge import merge_texts
from tests.hypothesis_profiles import scaled

TEXT = st.lists(st.sampled_from("abcdef"), max_size=10).map(
    lambda ls: "".join(f"{x}\n" for x in ls)
)


@given(base=TEXT, text=TEXT)
@settings(max_examples=scaled(40))
def test_a_side_that_has_not_changed_takes_over_the_other(base: str, text: str) -> None:
    assert merge_texts(base, base, text) == text
    assert merge_texts(base, text, base) == text
    assert merge_texts(base, text, text) == text


@given(base=TEXT, ours=TEXT, theirs=TEXT)
@settings(max_examples=scaled(40))
def test_the_sides_can_be_exchanged(base: str, ours: str, theirs: str) -> None:
    assert merge_texts(base, ours, theirs) == merge_texts(base, theirs, ours)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"),
        ("a\nb\nc\n", "b\nc\n", "a\nb\nc\nd\n", "b\nc\nd\n"),
        ("a\nb\nc\n", "A\nb\nC\n", "A\nb\nc\n", "A\nb\nC\n"),
        ("", "a\n", "a\n", "a\n"),
        # Changes that touch could mean anything.
        ("a\nb\n", "A\nb\n", "a\nB\n", None),
        ("a\n", "a\nx\n", "a\ny\n", None),
        ("a\nb\n", "b\n", "A\nb\n", None),
        ("a\nb", "a\nB", "A\nb\nc", None),
        ("a\nb\nc", "a\nb\nC", "A\nb\nc", "A\nb\nC"),
        ("a\r\nb\r\nc\r\n", "A\r\nb\r\nc\r\n", "a\r\nb\r\nC\r\n", "A\r\nb\r\nC\r\n"),
    ],
)
def test_changes_of_both_sides_come_together(
    base: str, ours: str, theirs: str, merged: str | None
) -> None:
    assert merge_texts(base, ours, theirs) == merged


@pytest.mark.skipif(not shutil.which("git"), reason="needs git to compare with")
@given(
    base=st.lists(st.integers(0, 30), unique=True, min_size=4, max_size=12),
    cuts=st.lists(st.integers(0, 11), max_size=2),
    put=st.lists(st.integers(0, 11), max_size=2),
)
@settings(max_examples=scaled(15))
def test_a_merge_without_conflict_is_that_of_git(
    base: list[int], cuts: list[int], put: list[int]
) -> None:
    ours = [n for at, n in enumerate(base) if at not in cuts]
    theirs = list(base)
    for at in put:
        theirs.insert(at, 100 + at)
    texts = ["".join(f"{n}\n" for n in lines) for lines in (ours, base, theirs)]
    merged = merge_texts(texts[1], texts[0], texts[2])
    with tempfile.TemporaryDirectory() as name:
        for place, text in zip("oba", texts, strict=True):
            (Path(name) / place).write_text(text)
        done = subprocess.run(
            ["git", "merge-file", "-p", "o", "b", "a"],
            check=False,
            cwd=name,
            capture_output=True,
            text=True,
        )
    if merged is not None:
        assert done.returncode == 0
        assert done.stdout == merged
