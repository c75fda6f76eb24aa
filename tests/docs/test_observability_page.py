"""The page of metrics names every series that the kit publishes, with its type and labels."""

from __future__ import annotations

import re
from pathlib import Path

from appsdk_operator import runtime
from appsdk_operator.cache import _cache_metrics, _cached_client, _delivery, _informer_metrics
from appsdk_operator.client import _metrics as client_metrics
from appsdk_operator.controllers import (
    _event_feed,
    _event_pipeline,
    _reconcile_metrics,
    _source_thread,
)
from appsdk_operator.manager import _certificates, _elector, _event_recorder
from appsdk_operator.runtime import Family, _workqueue
from appsdk_operator.watchers import _controller_metrics

PAGE = Path(__file__).parents[2] / "docs/observability.md"
ROW = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram) \| ([^|]*) \|", re.MULTILINE)

Row = tuple[str, str, tuple[str, ...]]


def on_the_page() -> set[Row]:
    text = PAGE.read_text(encoding="utf-8")
    return {
        (name, kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(text)
    }


def in_the_code() -> set[Row]:
    modules = (
        _certificates,
        _elector,
        _event_recorder,
        _workqueue,
        _delivery,
        _informer_metrics,
        _cache_metrics,
        _cached_client,
        client_metrics,
        _controller_metrics,
        _reconcile_metrics,
        _event_feed,
        _event_pipeline,
        _source_thread,
    )
    return {
        (value.name, value.type, value.labels)
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Family)
    }


def test_the_page_names_each_family_with_its_type_and_labels() -> None:
    assert set(on_the_page()) == in_the_code()


def test_no_module_publishes_families_that_this_test_does_not_know() -> None:
    package = Path(runtime.__file__).parents[1]
    makers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"= Family\(", path.read_text(encoding="utf-8"))
    }
    assert makers == {
        "cache/_delivery.py",
        "cache/_informer_metrics.py",
        "cache/_cache_metrics.py",
        "cache/_cached_client.py",
        "client/_metrics.py",
        "manager/_certificates.py",
        "manager/_elector.py",
        "manager/_event_recorder.py",
        "controllers/_event_feed.py",
        "controllers/_event_pipeline.py",
        "controllers/_reconcile_metrics.py",
        "controllers/_source_thread.py",
        "runtime/_workqueue.py",
        "watchers/_controller_metrics.py",
    }
