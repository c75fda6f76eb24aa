"""The objects of the benchmark are what its page says they are."""

from __future__ import annotations

import json

import pytest

from benchmarks._objects import FIRST_VERSION, Template, widget_fields


@pytest.mark.parametrize(
    ("kind", "size"), [("widgets", 500), ("widgets", 2000), ("widgets", 10_000), ("pods", 5700)]
)
def test_an_object_is_as_large_as_it_is_said_to_be(kind: str, size: int) -> None:
    template = Template(kind, size)
    for index in (0, 7, 999_999):
        obj = template.object(index, FIRST_VERSION + index)
        assert len(obj) == pytest.approx(size, rel=0.03)
        assert len(obj) == template.size
        assert len(template.item(index, FIRST_VERSION + index)) == template.item_size


def test_a_widget_has_its_fields_and_its_own_name() -> None:
    template = Template("widgets")
    widget = json.loads(template.object(12, FIRST_VERSION + 12, generation=3))
    assert widget["metadata"]["name"] == template.name(12) == "widget-0000012"
    assert widget["metadata"]["resourceVersion"] == str(FIRST_VERSION + 12)
    assert widget["metadata"]["generation"] == 3
    assert len(widget["spec"]) == widget_fields(2000) == 35
    assert template.index("widget-0000012") == 12


def test_an_event_is_a_line_that_can_be_cut_at_its_version() -> None:
    template = Template("pods")
    event = template.event("MODIFIED", 5, FIRST_VERSION, generation=2)
    assert event.endswith(b"\n")
    assert event.count(b"\n") == 1
    before, after = template.split_event("MODIFIED", 5, 2)
    assert json.loads(before + b"42" + after)["object"]["metadata"]["resourceVersion"] == "42"
    assert json.loads(event)["type"] == "MODIFIED"


def test_items_of_built_in_kinds_do_not_say_what_they_are() -> None:
    assert "kind" not in json.loads(Template("pods").item(0, FIRST_VERSION))
    assert json.loads(Template("widgets").item(0, FIRST_VERSION))["kind"] == "Widget"
