"""Refuses words that make a name or a sentence hard to read, in the package and its pages.

A word counts where it is a part of a name, too: ``is_told`` and ``StoryTable`` are found. Run it as
``python hack/words.py``; it prints each place, with what to write instead.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

INSTEAD = {
    "befall": "happen to, apply to",
    "befalls": "happens to, applies to",
    "beside": "next to, as well as, during",
    "drips": "sends a byte now and then",
    "fate": "write fault, outcome",
    "fates": "write faults, outcomes",
    "haste": "without time",
    "keeper": "the class's own noun",
    "keepers": "the class's own noun",
    "kin": "the like",
    "mend": "fix, correct",
    "mended": "fixed, corrected",
    "mends": "fixes, corrects",
    "owed": "due, pending",
    "stories": "timelines",
    "story": "timeline",
    "told": "called, asked, reported",
}
NAMES = {
    "out_of_touch": "unreachable",
    "wait_for_room": "wait_for_space",
    "_numbers": "the noun of what is counted",
    "_says": "the noun of what it writes to",
}
"""Names as a whole, and what they end with."""
PHRASES = {
    "it is none": "it is not one, or the noun",
    "present state": "current state",
    "rooms": "packages",
    "tells of": "describes, reports, shows",
    "wanted state": "desired state",
    "way of an event": "path of an event",
    "what differs": "the differences, the changed fields",
}
"""Phrases of pages and docstrings: the field has words of its own, or a noun is missing."""
PAGES_ALONE = {
    "is who": "the noun",
    "to be had": "available",
    "made up for": "catches up with, after an active subject",
    "the wanted one": "the desired state",
}
"""Phrases that are right in code, where the one may be a type or a mark on the live page."""
_HEADLESS = re.compile(r"(?:^|[.:;?] |[|*] )(What [a-z][^.?!|]*)(?=[.?!|]|$)")
"""A sentence that begins with a clause in place of a noun, with the mark that ends it."""
_MADE = {"fidelity.md", "measurements.md"}
"""Pages that programs write, from the texts of other files."""
_BOTH_NUMBERS = re.compile(r"\w\(e?s\)")
"""A noun that leaves open whether there is one thing."""
_UPSTREAM = "apiserver"
"""Whose texts are those of Kubernetes."""
_PLACES = ("README.md", "CONTRIBUTING.md", "docs", "examples", "appsdk_operator")
_SUFFIXES = {".py", ".pyi", ".md", ".toml", ".j2", ".html"}
_ALLOWED = {"equal_numbers", "public_numbers"}


def found_in(line: str) -> Iterator[tuple[str, str]]:
    """Each word of a line that is to be replaced, with what to write instead."""
    for name in re.findall(r"\w+", line):
        parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
        for part in parts:
            if part in INSTEAD:
                yield part, INSTEAD[part]
        for ending, instead in NAMES.items():
            if name.endswith(ending) and name not in _ALLOWED:
                yield name, instead


def phrases_in(line: str, *, of_page: bool) -> Iterator[tuple[str, str]]:
    """Each phrase of a line that is to be replaced, with what to write instead."""
    for phrase, instead in (PHRASES | (PAGES_ALONE if of_page else {})).items():
        first, rest = phrase[0], phrase[1:]
        if re.search(rf"\b[{first}{first.upper()}]{rest}\b", line):
            yield phrase, instead


def both_numbers_in(path: Path, text: str) -> Iterator[int]:
    """The line of each text for people that has "object(s)"."""
    if _UPSTREAM in path.parts:
        return
    if path.suffix not in (".py", ".pyi"):
        lines = enumerate(text.splitlines(), 1)
        yield from (number for number, line in lines if _BOTH_NUMBERS.search(line))
        return
    for node in ast.walk(ast.parse(text)):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and _BOTH_NUMBERS.search(text):
            yield node.lineno


def headless_in(path: Path, text: str) -> Iterator[int]:
    """The line of each sentence of a page that begins with "What …" and is no question.

    Headings and the bold words in front of a paragraph may: they are titles.
    """
    if path.suffix != ".md" or path.name in _MADE:
        return
    is_code, number = False, 1
    for paragraph in re.split(r"(\n\n+)", text):
        lines = paragraph.splitlines()
        if not is_code and not paragraph.startswith(("#", "```")):
            joined = " ".join(lines)
            for found in _HEADLESS.finditer(joined):
                if joined[found.end() : found.end() + 1] != "?":
                    yield number + paragraph[: found.start(1)].count("\n")
        is_code ^= sum(line.startswith("```") for line in lines) % 2 == 1
        number += paragraph.count("\n")


def files(root: Path) -> Iterator[Path]:
    """What people read: the package, its examples and its pages."""
    for place in _PLACES:
        path = root / place
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (each for each in found if each.suffix in _SUFFIXES)


def main(root: Path) -> int:
    """Print what is found; returns the exit status."""
    status = 0
    for path in files(root):
        text = path.read_text(encoding="utf-8")
        for number in both_numbers_in(path, text):
            print(f"{path.relative_to(root)}:{number}: (s): write counted(number, noun)")
            status = 1
        for number in headless_in(path, text):
            print(f"{path.relative_to(root)}:{number}: What …: write the noun")
            status = 1
        for number, line in enumerate(text.splitlines(), 1):
            found = [*found_in(line), *phrases_in(line, of_page=path.suffix == ".md")]
            for word, instead in found:
                print(f"{path.relative_to(root)}:{number}: {word}: write {instead}")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1]))
