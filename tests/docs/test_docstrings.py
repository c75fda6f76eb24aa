"""The first lines of docstrings, for what a rename leaves behind that reads prose as code."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "appsdk_operator"

_CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)
# A name with a capital inside, and more of the sentence: no other verb or noun is written so.
_BEGINNING = re.compile(r'"""([A-Z][a-z]+[A-Z]\w*)(?= (?!is\b|has\b))')


def test_no_docstring_begins_with_a_class_in_place_of_a_verb() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    classes = {name for text in sources.values() for name in _CLASS.findall(text)}
    found = [
        f"{path.relative_to(PACKAGE)}: {word} …"
        for path, text in sources.items()
        for word in _BEGINNING.findall(text)
        if word in classes
    ]
    assert {"ResourceResponse", "NotifyCallback"} <= classes  # as "Answer" and "Tell" were renamed
    assert found == [], "put the class in backticks, or begin with a verb or a noun"
