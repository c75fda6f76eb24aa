"""The dashboards as files: current, whole, and about metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_observability_page import on_the_page

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dashboards"
BOARDS = sorted(path.stem for path in FOLDER.glob("*.json"))
# What each Python process, and Prometheus itself, have.
OF_OTHERS = re.compile(r"process_\w+|python_\w+|up|ALERTS")


def board(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def panels(name: str) -> Iterator[dict[str, Any]]:
    yield from (panel for panel in board(name)["panels"] if panel["type"] != "row")


def queries(name: str) -> list[str]:
    return [target["expr"] for panel in panels(name) for target in panel["targets"]]


def test_the_files_are_what_the_library_of_grafana_makes() -> None:
    pytest.importorskip("grafana_foundation_sdk")
    from hack.dashboards import texts

    made = texts()
    committed = {
        path.name: path.read_text(encoding="utf-8")
        for path in FOLDER.iterdir()
        if path.suffix in {".json", ".yaml"}
    }
    assert committed == made, "run python hack/dashboards.py"


def test_there_is_a_dashboard_for_each_part() -> None:
    assert BOARDS == [
        "controllers",
        "informers",
        "leader",
        "overview",
        "runtime",
        "watchers",
        "webhooks",
    ]
    assert len({board(name)["uid"] for name in BOARDS}) == len(BOARDS)


@pytest.mark.parametrize("name", BOARDS)
def test_each_panel_has_a_title_a_description_a_unit_and_a_legend(name: str) -> None:
    titles = []
    for panel in panels(name):
        titles.append(panel["title"])
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        if panel["type"] != "table":
            assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_chosen_by_namespace_operator_instance_and_controller(name: str) -> None:
    variables = {each["name"]: each for each in board(name)["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "operator", "instance", "controller"]
    known = {"__rate_interval", *variables}
    for query in queries(name):
        assert set(re.findall(r"\$(\w+)", query)) <= known
        for metric, selected in re.findall(r"(\w+)\{([^}]*)\}", query):
            if metric != "ALERTS":
                assert {"$namespace", "$operator"} <= set(re.findall(r"\$\w+", selected)), query
    for panel in panels(name):
        assert panel["datasource"]["uid"] == "${datasource}"


def test_each_metric_of_the_kit_is_in_a_dashboard_and_no_others_are() -> None:
    shown = set()
    for name in BOARDS:
        for query in queries(name):
            shown |= set(re.findall(r"(\w+)\{", query))
    types = {name: kind for name, kind, _ in on_the_page()}
    found = set()
    for metric in shown:
        plain = re.sub(r"_(bucket|count|sum)$", "", metric)
        found.add(plain if types.get(plain) == "histogram" else metric)
    assert {metric for metric in found if not OF_OTHERS.fullmatch(metric)} == {
        metric for metric in types if not OF_OTHERS.fullmatch(metric)
    }


def test_counters_are_shown_as_rates_and_grouped_by_labels_that_they_have() -> None:
    page = {name: (kind, set(labels)) for name, kind, labels in on_the_page()}
    of_prometheus = {"namespace", "job", "instance", "le", "pod"}
    for name in BOARDS:
        for query in queries(name):
            there = set(of_prometheus)
            for metric in re.findall(r"(\w+)\{", query):
                plain = re.sub(r"_(bucket|count|sum)$", "", metric)
                kind, labels = page.get(metric) or page.get(plain) or ("", {"version"})
                there |= labels
                if kind == "counter":
                    assert re.search(rf"(rate|increase)\({metric}\{{", query), query
            grouped = {
                label
                for group in re.findall(r"by \(([^)]*)\)", query)
                for label in group.split(", ")
            }
            if "python_" not in query:
                assert grouped <= there, query
