"""Prometheus metrics, made once per registry and not before they are needed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["Metrics", "default_metrics"]


@final
class Metrics:
    """Where every part of the kit gets its metrics: one family for each name in one registry.

    Several controllers share a family and differ in its labels, so asking twice for a name gives
    the same family. Thread-safe.

    Args:
        registry: the registry to use; default: one of its own, apart from the process-wide default
            of prometheus-client, so that two operators in one process do not collide.

    >>> metrics = Metrics()
    >>> metrics.counter("demo_total", "How often.", ["who"]).labels("me").inc()
    >>> metrics.render().splitlines()[2]
    'demo_total{who="me"} 1.0'
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._families: dict[str, Any] = {}

    @property
    def registry(self) -> CollectorRegistry:
        """The registry; give it to prometheus-client's own exporters."""
        with self._lock:
            return self._get_registry()

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """The counter ``name``, made at the first call with its help ``text`` and ``labels``."""
        from prometheus_client import Counter

        return self._family(name, lambda registry: Counter(name, text, labels, registry=registry))

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """The gauge ``name``."""
        from prometheus_client import Gauge

        return self._family(name, lambda registry: Gauge(name, text, labels, registry=registry))

    def histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float],
    ) -> Histogram:
        """The histogram ``name`` with upper bounds ``buckets``."""
        from prometheus_client import Histogram

        return self._family(
            name,
            lambda registry: Histogram(name, text, labels, buckets=buckets, registry=registry),
        )

    def render(self) -> str:
        """Everything in Prometheus' text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry).decode()

    def _get_registry(self) -> CollectorRegistry:
        if self._registry is None:
            from prometheus_client import CollectorRegistry

            self._registry = CollectorRegistry()
        return self._registry

    def _family(self, name: str, make: Any) -> Any:
        with self._lock:
            family = self._families.get(name)
            if family is None:
                family = self._families[name] = make(self._get_registry())
            return family


_default = Metrics()


def default_metrics() -> Metrics:
    """The metrics that parts use unless they are given others."""
    return _default
