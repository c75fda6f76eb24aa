"""The page of metrics names every series that the kit publishes, with its type and labels."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from appsdk_operator import runtime
from appsdk_operator.runtime import Family

PAGE = Path(__file__).parents[2] / "docs/observability.md"
ROW = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram) \| ([^|]*) \|", re.MULTILINE)

Row = tuple[str, str, tuple[str, ...]]


def on_the_page() -> set[Row]:
    text = PAGE.read_text(encoding="utf-8")
    return {
        (name, kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(text)
    }


def publishers() -> set[str]:
    """The modules of the package that publish families."""
    package = Path(runtime.__file__).parents[1]
    return {
        ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for path in package.rglob("*.py")
        if re.search(r"= Family\(", path.read_text(encoding="utf-8"))
    }


def in_the_code() -> set[Row]:
    return {
        (value.name, value.type, value.labels)
        for name in publishers()
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, Family)
    }


def test_the_page_names_each_family_with_its_type_and_labels() -> None:
    assert set(on_the_page()) == in_the_code()


def test_families_are_found_in_the_rooms_that_publish_them() -> None:
    rooms = {name.split(".")[1] for name in publishers()}
    assert rooms == {
        "app",
        "cache",
        "client",
        "controllers",
        "manager",
        "runtime",
        "serving",
        "watchers",
        "webhooks",
    }
