"""What becomes of a run's numbers: tables, the page, the guard."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import _guard
from benchmarks._contestants import all_contestants
from benchmarks._goals import goals
from benchmarks._job import Column, Group, Unit
from benchmarks._meaning import losses, worst_losses
from benchmarks._page import measurements, page
from benchmarks._plots import CHARTS, Bar, picture
from benchmarks._report import as_text
from benchmarks._results import CaseResult, EntryResult, Results, advantage, all_jobs

ROOT = Path(__file__).parents[2]

RATE = Column(title="a/s", value=lambda numbers: numbers["a"], more_is_better=True)
TIME = Column(title="t", value=lambda numbers: numbers["t"])


def watch_entry(label: str, group: Group, *rates: float) -> EntryResult:
    return EntryResult(label, group, [{"events": rate, "seconds": 1.0} for rate in rates])


def list_entry(label: str, group: Group, seconds: float, each: float) -> EntryResult:
    numbers = {
        "objects": 1000.0,
        "seconds": seconds,
        "json": 2000.0,
        "rss_before": 4e7,
        "rss_after": 4e7 + 1000 * each,
        "peak": 4e7 + 1000 * each * 1.1,
    }
    return EntryResult(label, group, [numbers])


@pytest.fixture
def results() -> Results:
    entries = [
        watch_entry("floor bulk", Group.FLOOR, 200_000, 240_000, 220_000),
        watch_entry("floor partial", Group.FLOOR, 150_000),
        watch_entry("appsdk watcher-untouched", Group.OURS, 90_000, 100_000, 110_000),
        watch_entry("appsdk watcher-read", Group.OURS, 40_000),
        watch_entry("kopf event", Group.PEER, 2_000),
        watch_entry("kubernetes watch", Group.PEER, 50_000),
        EntryResult(
            "client-go dynamic-informer", Group.PEER, problem="no Go toolchain", is_absent=True
        ),
    ]
    watch = CaseResult(
        "watch", "widgets of 2 KB", entries, "floor bulk", "appsdk watcher-untouched"
    )
    listing = CaseResult(
        "list",
        "20,000 widgets of 2 KB",
        [
            list_entry("floor bulk", Group.FLOOR, 0.01, 2000),
            list_entry("appsdk watcher-untouched", Group.OURS, 0.02, 2500),
            list_entry("kubernetes watch", Group.PEER, 0.2, 9000),
        ],
        "floor bulk",
        "appsdk watcher-untouched",
    )
    return Results({"Cores": "2"}, {"kopf": "kopf 1.0"}, [watch, listing], seconds=90.0)


def test_results_survive_their_json(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == results


def test_newer_results_take_the_place_of_the_same_job(results: Results) -> None:
    newer = Results({}, {"kr8s": "kr8s 1.0"}, [CaseResult("list", "another", [])], seconds=10.0)
    results.replace(newer)
    assert [(case.job, case.title) for case in results.cases] == [
        ("watch", "widgets of 2 KB"),
        ("list", "another"),
    ]
    assert results.versions == {"kopf": "kopf 1.0", "kr8s": "kr8s 1.0"}


def test_an_advantage_is_of_what_is_better() -> None:
    first = EntryResult("first", Group.OURS, [{"a": 10.0, "t": 1.0}])
    second = EntryResult("second", Group.PEER, [{"a": 5.0, "t": 4.0}])
    assert advantage(RATE, first, second) == 2.0
    assert advantage(TIME, first, second) == 4.0
    assert advantage(TIME, first, EntryResult("none", Group.PEER)) is None
    neither = Column(title="t", value=lambda numbers: numbers["t"], more_is_better=None)
    assert advantage(neither, first, second) is None


def test_the_text_has_medians_spread_ratios_and_who_is_absent(results: Results) -> None:
    text = as_text(results, all_jobs())
    assert "100,000 (90,000 - 110,000)" in text
    assert "no Go toolchain" in text
    line = next(line for line in text.splitlines() if line.startswith("kopf event"))
    assert line.split() == ["kopf", "event", "2,000", "0.0091", "×", "50", "×"]


def test_goals_are_judged_by_the_figures(results: Results) -> None:
    outcomes = {(goal.what, goal.wanted): goal.outcome(results) for goal in goals()}
    watch = "watch events to a callback, store updated"
    kopf = outcomes[watch, "50 × kopf"]
    assert kopf is not None
    assert kopf.is_reached
    official = outcomes[watch, "5 × the official client"]
    assert official is not None
    assert not official.is_reached
    assert official.measured == "2.00 × of `kubernetes watch`"
    assert outcomes[watch, "10 × client-go's dynamic informer"] is None
    memory = outcomes["memory per cached object", "at most 1.35 × its JSON"]
    assert memory is not None
    assert memory.is_reached
    assert memory.measured == "1.25 ×"


def test_the_pages_say_what_was_measured_and_where_we_lose(results: Results) -> None:
    text, figures = page(results, all_jobs()), measurements(results, all_jobs())
    assert (
        "| watch events to a callback, store updated | 50 × kopf | 50 × of `kopf event` "
        "| reached, not in each round |" in text
    )
    assert "Not measured: `client-go dynamic-informer`: no Go toolchain." in figures
    lost = (
        "* Watch events to a callback, widgets of 2 KB, events/s: `appsdk watcher-read` 40,000; "
        "ahead: `kubernetes watch` 50,000 (1.25 ×)"
    )
    assert lost in " ".join(figures.split())
    for each in (text, figures):
        prose = [line for line in each.splitlines() if not line.startswith(("|", "!["))]
        assert max(map(len, prose)) <= 100
    # 90 % of 256 MiB, without the 40 MB of the process, at 2,750 bytes an object at the peak.
    assert "| 256 Mi | 73,000 |" in text
    assert "| 2.75 KB |" in figures
    assert "about 2 minutes" in figures


def test_a_sentence_says_where_somebody_is_farthest_ahead(results: Results) -> None:
    watch, listing = results.cases
    watch.entries.append(watch_entry("kr8s", Group.PEER, 60_000))
    (ours,) = [entry for entry in listing.entries if entry.group is Group.OURS]
    for numbers in ours.rounds:
        numbers["seconds"] = 0.8
    found = list(worst_losses(list(losses(results, all_jobs()))))
    assert "\n".join(found) == (
        "* **List and sync:** the official Python client is up to 4.00 × better: "
        "5,000 there, 1,250 here (20,000 widgets of 2 KB, objects/s).\n"
        "* **Watch events to a callback:** `kr8s` is up to 1.50 × better: "
        "60,000 there, 40,000 here (widgets of 2 KB, events/s)."
    )


def test_the_bars_of_a_picture_are_as_long_as_their_figures_are_large() -> None:
    bars = [Bar(label="kopf event", value=2_500), Bar(label="lightkube", value=50_000)]
    bars.append(Bar(label="appsdk watcher-untouched", value=100_000))
    root = ET.fromstring(picture(CHARTS[0], bars, Unit.RATE, longer_is_better=True))
    name = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.attrib["width"]) for bar in root.iter(f"{name}rect")]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 0.5, 0.025], abs=0.001)
    texts = [text.text for text in root.iter(f"{name}text")]
    assert texts[1:] == ["this kit", "100,000", "lightkube", "50,000", "kopf", "2,500"]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_what_the_page_says_of_goals_follows_from_its_figures() -> None:
    text = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    figures = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    rows = [cells(line) for line in text.splitlines() if line.endswith(("reached |", "missed** |"))]
    reached = sum(verdict.startswith("reached") for *_, verdict in rows)
    assert f"Of {len(rows)} goals {reached} are reached" in text
    checked = 0
    for what, wanted, measured, verdict in rows:
        found = re.fullmatch(r"([\d.]+) × of `(.*)`", measured)
        if found is None:
            continue
        factor = {"half": 0.5, "a sixth": 6.0}.get(wanted.partition(" of ")[0])
        needed = factor or float(wanted.partition(" ")[0])
        assert verdict.startswith("reached") is (float(found[1]) >= needed), what
        # The ratio is one that a table of the figures has, or follows from its floor.
        of = re.findall(rf"^\| `{re.escape(found[2])}` \|(.*)$", figures, re.MULTILINE)
        ratios = [cell.removesuffix(" ×") for row in of for cell in cells(row)]
        if found[1] in ratios:
            checked += 1
    assert checked >= 9


def test_the_figures_of_the_readme_are_those_of_the_page() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    figures = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")

    def ratio(what: str, other: str) -> float:
        found = re.search(rf"^\| {what} \|[^|]*\| ([\d.]+) × of `{other}", page, re.MULTILINE)
        assert found
        return float(found[1])

    def bytes_of(label: str) -> float:
        row = rf"^\| \**`{label}`\** \|[^|]*\|[^|]*\|[^|]*\| ([\d.]+) KB \("
        found = re.search(row, figures, re.MULTILINE)
        assert found
        return float(found[1])

    events = "watch events to a callback, store updated"
    client_go, kopf = int(ratio(events, "client-go")), int(ratio(events, "kopf"))
    assert f"{client_go} times as many events per second as client-go's dynamic informer" in text
    assert f"{kopf} times as many as kopf" in text
    assert "client-go's informer takes six times as much memory for each object" in text
    assert 6 <= ratio("memory per cached object", "client-go") < 7
    assert "controller-runtime with Go types takes three times as much" in text
    assert 3 <= bytes_of("controller-runtime typed") / bytes_of("appsdk watcher-untouched") < 4


def scaled(results: Results, label: str, factor: float) -> Results:
    """The same run with an entry of that part of its speed."""
    for case in results.cases:
        for entry in case.entries:
            if entry.label == label:
                for numbers in entry.rounds:
                    numbers["seconds"] /= factor
    return results


def guarded(usual: float) -> _guard.Bound:
    return _guard.Bound(
        job="watch",
        case="widgets of 2 KB",
        label="appsdk watcher-untouched",
        usual=usual,
        column=0,
    )


@pytest.mark.parametrize(("factor", "is_fine"), [(1.0, True), (0.8, True), (0.5, False)])
def test_the_guard_fails_at_half_of_the_speed(
    results: Results, factor: float, is_fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The best of the rounds count: 110,000 of 240,000.
    monkeypatch.setattr(_guard, "BOUNDS", (guarded(110 / 240),))
    told: list[object] = []
    found = _guard.failing(scaled(results, "appsdk watcher-untouched", factor), told.append)
    assert (not found) is is_fine
    assert len(told) == 1


def test_the_guard_fails_for_what_was_not_measured(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_guard, "BOUNDS", (replace(guarded(0.1), case="another"),))
    assert _guard.failing(results, lambda _: None)


def test_what_the_guard_watches_is_measured_in_the_quick_form() -> None:
    quick = {
        (job.name, case.title, entry.label)
        for job in all_jobs()
        for case in job.cases(True)
        for entry in case.entries
    }
    for bound in _guard.BOUNDS:
        assert (bound.job, bound.case, bound.label) in quick
        assert (bound.job, bound.case, bound.floor) in quick


def test_labels_are_unique_in_each_case_and_ratios_have_what_they_need() -> None:
    for job in all_jobs():
        for quick in (False, True):
            cases = job.cases(quick)
            titles = [case.title for case in cases]
            assert len(set(titles)) == len(titles)
            for case in cases:
                labels = [entry.label for entry in case.entries]
                assert len(set(labels)) == len(labels), job.name
                is_absent = all(entry.absent for entry in case.entries)
                assert quick or is_absent or not case.floor or case.floor in labels, job.name


def test_contestants_have_names_of_their_own() -> None:
    names = [one.name for one in all_contestants()]
    assert len(set(names)) == len(names)
    assert {"floor", "appsdk"} <= set(names)
    assert all(one.text for one in all_contestants())
