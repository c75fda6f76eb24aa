"""Words that are hard to read are found in names and prose."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.words import found_in, main


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("it is told of that", ["told"]),
        ("self.is_told = StoryTable()", ["told", "story"]),
        ("def _numbers(self):", ["_numbers"]),
        ("if source.out_of_touch:", ["out_of_touch"]),
        ("the history of a kind, a folder of theirs, mending", []),
        ("equal_numbers(one, other)", []),
    ],
)
def test_words_are_found_as_parts_of_names_only_where_they_are_whole(
    line: str, words: list[str]
) -> None:
    assert [word for word, _ in found_in(line)] == words


def test_each_place_is_named_with_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# Page\n\nThe timer runs beside it.\n")
    assert main(tmp_path) == 1
    assert capsys.readouterr().out == (
        "docs/page.md:3: beside: write next to, as well as, during\n"
    )


def test_phrases_are_found_in_pages_and_docstrings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("The Rooms.\n\nIt reads the present state.\n")
    (tmp_path / "docs" / "code.py").write_text('"""What differs; the wanted one."""\n')
    (tmp_path / "docs" / "wanted.md").write_text("The wanted one.\n")
    (tmp_path / "docs" / "x.toml").write_text('a = "It is none: it is None."\n')
    assert main(tmp_path) == 1
    assert capsys.readouterr().out == (
        "docs/code.py:1: what differs: write the differences, the changed fields\n"
        "docs/page.md:1: rooms: write packages\n"
        "docs/page.md:3: present state: write current state\n"
        "docs/wanted.md:1: the wanted one: write the desired state\n"
        "docs/x.toml:1: it is none: write it is not one, or the noun\n"
    )


def test_a_noun_that_leaves_the_number_open_is_found_in_texts_and_not_in_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("It deletes the object(s).\n")
    (tmp_path / "docs" / "code.py").write_text('a = 1\nprint(f"{str(s)} box(es)", len(s))\n')
    assert main(tmp_path) == 1
    assert capsys.readouterr().out == (
        "docs/code.py:2: (s): write counted(number, noun)\n"
        "docs/page.md:1: (s): write counted(number, noun)\n"
    )


def test_a_sentence_of_a_page_that_begins_with_what_is_a_question_or_a_title(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    page = (
        "# Page\n\nWhat is a lease? Nothing is lost.\nWhat comes from Go is\nthe order.\n\n"
        "* **What it costs.** One patch.\n* What goes wrong is logged.\n\n"
        "| word | means |\n|---|---|\n| object | What the server stores |\n\n"
        "```python\na = 1\n\n# What it is.\n```\n\n## What you can do\n\nWhat now? What works.\n"
    )
    (tmp_path / "docs" / "page.md").write_text(page)
    (tmp_path / "docs" / "measurements.md").write_text("What it logs is not printed.\n")
    (tmp_path / "docs" / "code.py").write_text("# What it logs is not printed.\n")
    assert main(tmp_path) == 1
    assert capsys.readouterr().out == "".join(
        f"docs/page.md:{number}: What …: write the noun\n" for number in (4, 8, 12, 22)
    )


def test_pages_without_them_are_fine(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Plain words in a room.\n")
    assert main(tmp_path) == 0
