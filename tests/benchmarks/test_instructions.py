"""The guard by instructions: what it compares, and what it says where it cannot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import instructions
from benchmarks._calibration import LOOPS
from benchmarks._counted import WORK
from benchmarks.instructions import Counts, NotCountable

KNOWN = Counts(
    of={"machine": "x86_64", "CPython": "3.11"},
    packages={"msgspec": "0.22.0"},
    loops={"calls": 10_000, "texts": 20_000},
    work={"watch": 1_000, "list": 5_000},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "instructions.json"
    file.write_text(json.dumps([asdict(KNOWN)]))
    return file


def found(**work: int) -> Counts:
    """What is counted in the environment of the file."""
    return replace(KNOWN, work=work)


def guarded(path: Path, *counts: Counts) -> tuple[bool, str, list[Sequence[str]]]:
    """Whether the guard passes where this is counted in turn, what it says, and what it asks."""
    left, said, asked = list(counts), [], []

    def count(patterns: Sequence[str]) -> Counts:
        asked.append(patterns)
        return left.pop(0)

    is_kept = instructions.is_kept(said.append, count=count, path=path)
    assert not left
    return is_kept, "\n".join(said), asked


@pytest.mark.parametrize("now", [980, 1_000, 1_020])
def test_two_percent_more_are_let_pass(path: Path, now: int) -> None:
    is_kept, said, _ = guarded(path, found(watch=now, list=5_000))
    assert is_kept
    more = f"{now / 1_000 - 1:+.1%}"
    assert f"guard: instructions: watch: {now:,}, 1,000 in the file, {more}: ok" in said


def test_who_has_made_it_cheaper_is_asked_to_write_that(path: Path) -> None:
    is_kept, said, _ = guarded(path, found(watch=970, list=5_000))
    assert is_kept
    assert "watch: 970, 1,000 in the file, -3.0%: ok, and to be written, so that it stays" in said


def test_more_than_that_fails_if_it_is_counted_twice(path: Path) -> None:
    more = found(watch=1_021, list=5_000)
    is_kept, said, asked = guarded(path, more, found(watch=1_021))
    assert not is_kept
    assert said.count("watch: 1,021, 1,000 in the file, +2.1%: TOO MANY") == 2
    assert "instructions --write` in a commit that says why" in said
    assert asked == [("*",), ["watch"]]
    assert guarded(path, more, found(watch=1_000))[0]


def test_without_valgrind_nothing_is_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    said: list[object] = []
    assert instructions.is_kept(said.append, path=path)
    assert said == [
        "guard: instructions: not counted: valgrind is not installed (Debian's package valgrind)"
    ]


def test_an_environment_without_figures_is_shown_what_to_add(path: Path) -> None:
    other = replace(KNOWN, of={"machine": "x86_64", "CPython": "3.12"}, work={"watch": 9_000})
    is_kept, said, _ = guarded(path, other)
    assert is_kept
    assert "not compared: instructions.json has no figures for this environment" in said
    assert (
        "it has machine x86_64, CPython 3.11, msgspec 0.22.0; here CPython 3.12, and not 3.11"
        in said
    )
    assert json.loads(said[said.index("{") :]) == asdict(other)


def test_another_version_of_a_package_is_the_same_environment(path: Path) -> None:
    other = replace(found(watch=1_100), packages={"msgspec": "0.23.0"})
    assert not guarded(path, other, other)[0]


@pytest.mark.parametrize(("texts", "is_same"), [(20_180, True), (20_300, False), (19_700, False)])
def test_an_interpreter_that_was_built_otherwise_is_another_environment(
    path: Path, texts: int, is_same: bool
) -> None:
    other = replace(KNOWN, loops={"calls": 10_000, "texts": texts}, work={"watch": 9_000})
    if is_same:
        assert not guarded(path, other, other)[0]
        return
    is_kept, said, _ = guarded(path, other)
    assert is_kept
    assert f"here the loop of texts takes {texts / 20_000 - 1:+.1%}" in said


def test_new_work_has_no_figure_yet(path: Path) -> None:
    is_kept, said, _ = guarded(path, found(watch=1_000, new=7))
    assert is_kept
    assert "new: 7: not compared: the file has no figure for it in this environment" in said


def test_an_update_through_an_app_takes_at_most_a_quarter_more_than_one_of_a_watcher() -> None:
    # Its events are those of the watcher, and it calls the function 0.8 times as often a second.
    ratios = [
        each.work["watch, 8 workers"] / each.work["watch, on_update of an App, 8 workers"]
        for each in instructions.read(instructions.FILE)
        if "watch, 8 workers" in each.work
    ]
    assert ratios
    assert min(ratios) >= 0.8


def test_figures_take_the_place_of_those_of_the_same_environment(path: Path) -> None:
    other = replace(KNOWN, of={"CPython": "3.12"})
    newer = replace(KNOWN, loops={"calls": 10_010, "texts": 20_000}, work={"watch": 900})
    instructions.write(other, path)
    instructions.write(newer, path)
    assert instructions.read(path) == [other, newer]


def test_what_counts_is_written_between_the_last_two_marks(tmp_path: Path) -> None:
    for name, total in (("7.1", 10), ("7.2", 20), ("7.10", 30), ("7", 40), ("8.11", 50)):
        (tmp_path / name).write_text(f"events: Ir\nsummary: {total}\n\ntotals: {total}\n")
    assert instructions._last_count(tmp_path, 7) == 30
    assert instructions._last_count(tmp_path, 9) == 0


def runs(monkeypatch: pytest.MonkeyPatch, late: dict[str, int], early: dict[str, int]) -> None:
    """Pretends that valgrind is here, and counts this, from later on or from the start."""

    def run(_: Sequence[str], *, from_start: bool) -> object:
        return instructions._Run(counts=early if from_start else late, errors="it broke")

    monkeypatch.setattr(instructions, "_run", run)
    monkeypatch.setattr(instructions, "_compile", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name: name)


ALL = dict.fromkeys(WORK, 100)


def test_where_vgdb_does_not_work_it_counts_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, late={}, early=ALL)
    assert instructions.counted(["list*"]).work == {"list of 10,000": 100}


def test_work_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, late={name: 100 for name in WORK if name != "admission"}, early={})
    with pytest.raises(RuntimeError, match="admission failed under valgrind: it broke"):
        instructions.counted()


@pytest.mark.parametrize("is_able", [True, False])
def test_an_interpreter_that_valgrind_cannot_run_is_none(
    monkeypatch: pytest.MonkeyPatch, is_able: bool
) -> None:
    runs(monkeypatch, late={}, early={})
    monkeypatch.setattr(instructions, "_runs_under_valgrind", lambda: is_able)
    with pytest.raises(RuntimeError if is_able else NotCountable):
        instructions.counted()


def test_marks_that_callgrind_does_not_see_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, late=dict.fromkeys(WORK, 0), early={})
    with pytest.raises(NotCountable, match="does not see"):
        instructions.counted()


def test_the_file_has_figures_for_all_work() -> None:
    environments = instructions.read()
    assert {name for each in environments for name in each.work} == WORK.keys() - LOOPS.keys()
    for each in environments:
        assert each.loops.keys() == LOOPS.keys()
        assert not [
            other for other in environments if other is not each and not other.differences(each)
        ]


@pytest.mark.programs
@pytest.mark.timeout(900)
def test_valgrind_counts_reconciles() -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    counts = instructions.counted(["no-op*"])
    assert list(counts.work) == ["no-op reconcile"]
    assert 10_000 < counts.work["no-op reconcile"] < 1_000_000
    assert counts.loops.keys() == LOOPS.keys()
    assert min(counts.loops.values()) > 1_000
