"""The page of metrics names every series that the kit publishes, with its type and labels."""

from __future__ import annotations

import re
from pathlib import Path

from appsdk_operator import runtime
from appsdk_operator.cache._cache import metrics
from appsdk_operator.cache._client import cached_client
from appsdk_operator.cache._delivery import delivery
from appsdk_operator.cache._informer import metrics as _informer_metrics
from appsdk_operator.client._transport import metrics as client_metrics
from appsdk_operator.controllers._engine import metrics as _reconcile_metrics
from appsdk_operator.controllers._sources import event_feed, event_pipeline, thread
from appsdk_operator.manager._election import elector
from appsdk_operator.manager._events import recorder
from appsdk_operator.runtime import Family, _workqueue
from appsdk_operator.serving import _certificates
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
        elector,
        recorder,
        _workqueue,
        delivery,
        _informer_metrics,
        metrics,
        cached_client,
        client_metrics,
        _controller_metrics,
        _reconcile_metrics,
        event_feed,
        event_pipeline,
        thread,
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
        "cache/_delivery/delivery.py",
        "cache/_informer/metrics.py",
        "cache/_cache/metrics.py",
        "cache/_client/cached_client.py",
        "client/_transport/metrics.py",
        "serving/_certificates.py",
        "manager/_election/elector.py",
        "manager/_events/recorder.py",
        "controllers/_sources/event_feed.py",
        "controllers/_sources/event_pipeline.py",
        "controllers/_engine/metrics.py",
        "controllers/_sources/thread.py",
        "runtime/_workqueue.py",
        "watchers/_controller_metrics.py",
    }
