"""Prometheus metrics at almost no cost for the hot path.

Parts count in plain attributes under locks that they hold anyway, and provide samples at a scrape.
prometheus-client is imported when somebody asks for a registry or an instrument.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, final

from appsdk_operator.runtime._fork import fork_safe
from appsdk_operator.runtime._logs.loggers import get_logger
from appsdk_operator.runtime._samples import Family, LocalHistogram, Sample
from appsdk_operator.runtime._user_code import guarded_call
from appsdk_operator.runtime._weak import weak_method

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.metrics_core import Metric


_log = get_logger("appsdk_operator.runtime")
_M = TypeVar("_M")


Source = Callable[[], Iterable[Sample]]


@final
class Metrics:
    """The metrics of all parts of the kit, in one registry, with one family for each name.

    Thread-safe.

    >>> metrics = Metrics()
    >>> metrics.counter("demo_total", "How often.", ["who"]).labels("me").inc()
    >>> metrics.render().splitlines()[2]
    'demo_total{who="me"} 1.0'
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Metrics in ``registry``.

        Args:
            registry: a ``prometheus_client.CollectorRegistry``; default: a new one. It is not
                prometheus-client's process-wide registry, so that two operators in one process do
                not collide.
        """
        self._registry = registry
        self._lock = fork_safe(threading.Lock())
        self._families: dict[str, tuple[tuple[str, ...], Any]] = {}
        self._sources: dict[int, Source] = {}
        # Counts that no source has: counted here, or by a source that has ended.
        self._totals: dict[tuple[Family, tuple[str, ...]], float | LocalHistogram] = {}
        self._next_id = 0
        self._is_registered = False
        if registry is not None:
            self._get_registry()

    @property
    def registry(self) -> CollectorRegistry:
        """The registry, for prometheus-client's own exporters."""
        with self._lock:
            return self._get_registry()

    @property
    def has_registry(self) -> bool:
        """Whether there is a registry, so that others may have put metrics into it."""
        return self._registry is not None

    def add_source(self, source: Source) -> Callable[[], None]:
        """Call ``source`` for its samples at each scrape.

        A bound method is held weakly: when its object is gone, the source ends.

        Returns:
            A function that ends the source; its counters stay in the totals, its gauges disappear.
        """
        with self._lock:
            self._next_id += 1
            key = self._next_id
            self._sources[key] = _weak(source, lambda: self._sources.pop(key, None))
        return lambda: self._retire(key)

    def samples(self) -> list[Sample]:
        """The samples of the kit's parts, as a source for other metrics."""
        return [Sample(*key, value) for key, value in self._all_totals().items()]

    def count(self, family: Family, labels: tuple[str, ...], times: float = 1) -> None:
        """Add to a counter that no source reports.

        >>> metrics = Metrics()
        >>> metrics.count(Family("demo_total", "counter", "How often.", ("who",)), ("me",))
        >>> metrics.value("demo_total", who="me")
        1.0
        """
        key = family, labels
        with self._lock:
            self._totals[key] = self._totals.get(key, 0.0) + times  # type: ignore[operator]

    def observe(self, family: Family, labels: tuple[str, ...], value: float) -> None:
        """Count ``value`` in a histogram with the family's buckets."""
        key = family, labels
        with self._lock:
            histogram = self._totals.get(key)
            if not isinstance(histogram, LocalHistogram):
                histogram = self._totals[key] = LocalHistogram(family.buckets)
            histogram.observe(value)

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """The prometheus-client counter ``name``, the same for all callers.

        Raises:
            ValueError: ``name`` is in use for another type or with other labels.
        """
        from prometheus_client import Counter

        return self._family(
            name, labels, Counter, lambda registry: Counter(name, text, labels, registry=registry)
        )

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """The prometheus-client gauge ``name``; see :meth:`counter`."""
        from prometheus_client import Gauge

        return self._family(
            name, labels, Gauge, lambda registry: Gauge(name, text, labels, registry=registry)
        )

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float]
    ) -> Histogram:
        """The prometheus-client histogram ``name`` with upper bounds ``buckets``."""
        from prometheus_client import Histogram

        return self._family(
            name,
            labels,
            Histogram,
            lambda registry: Histogram(name, text, labels, buckets=buckets, registry=registry),
        )

    def render(self) -> str:
        """All metrics in Prometheus' text format."""
        from appsdk_operator.runtime._exposition import page_of

        page = None if self.has_registry else page_of(self.samples())
        if page is None:
            from prometheus_client import generate_latest

            page = generate_latest(self.registry)
        return page.decode()

    def value(self, name: str, /, **labels: str) -> float | None:
        """The current value of one series; None if there is none. For tests and debugging."""
        value: float | None = self.registry.get_sample_value(name, labels)
        return value

    def collect(self) -> Iterator[Metric]:
        """Collect all families; called by prometheus-client's registry at a scrape."""
        yield from families_of(self.samples())

    def _all_totals(self) -> dict[tuple[Family, tuple[str, ...]], float | LocalHistogram]:
        with self._lock:
            sources = list(self._sources.values())
            totals = dict(self._totals)
            for key, value in self._totals.items():
                if isinstance(value, LocalHistogram):
                    totals[key] = value.copy()  # counting goes on
        # Outside the lock: a source takes its owner's lock, which the owner may hold while it adds
        # a source.
        for source in sources:
            _add(totals, _samples_of(source))
        return totals

    def _retire(self, key: int) -> None:
        source = self._sources.get(key)
        if source is None:
            return
        samples = [each for each in _samples_of(source) if each.family.type != "gauge"]
        # Under one lock, or a scrape in between would see a counter decrease.
        with self._lock:
            if self._sources.pop(key, None) is not None:
                _add(self._totals, samples)

    def _get_registry(self) -> CollectorRegistry:
        if self._registry is None:
            from prometheus_client import CollectorRegistry

            self._registry = CollectorRegistry()
        if not self._is_registered:
            self._is_registered = True
            self._registry.register(_Collector(self))
        return self._registry

    def _family(
        self,
        name: str,
        labels: Sequence[str],
        instrument: type[_M],
        make: Callable[[CollectorRegistry], _M],
    ) -> _M:
        with self._lock:
            known = self._families.get(name)
            if known is None:
                known = self._families[name] = (tuple(labels), make(self._get_registry()))
        known_labels, family = known
        if not isinstance(family, instrument) or known_labels != tuple(labels):
            raise ValueError(
                f"metric {name!r} is in use as a {type(family).__name__.lower()} with labels "
                f"{list(known_labels)}: ask for it so, or choose another name"
            )
        return family


def families_of(samples: Iterable[Sample]) -> list[Metric]:
    """The samples as prometheus-client's families, each where its first sample is."""
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    makers: dict[str, Any] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }
    families: dict[str, Any] = {}
    for sample in samples:
        family, labels, value = sample.family, sample.labels, sample.value
        made = families.get(family.bare_name)
        if made is None:
            made = families[family.bare_name] = makers[family.type](
                family.name, family.text, labels=family.labels
            )
        if isinstance(value, LocalHistogram):
            made.add_metric(labels, value.cumulative(), value.total)
        else:
            made.add_metric(labels, value)
    return list(families.values())


def _weak(source: Source, when_gone: Callable[[], object]) -> Source:
    if not inspect.ismethod(source):
        return source
    method = weak_method(source, when_gone)

    def samples() -> Iterable[Sample]:
        bound = method()
        return () if bound is None else bound()

    return samples


def _samples_of(source: Source) -> Sequence[Sample]:
    """The samples of a source; none if it fails, which must not hide those of the others."""

    def failed(_: Exception) -> Sequence[Sample]:
        _log.exception("a source of metrics failed: its series are left out")
        return ()

    found: Sequence[Sample] = guarded_call(
        "a source of metrics", source, failed=failed, check=_checked_samples
    )
    return found


def _checked_samples(samples: Iterable[Sample]) -> list[Sample]:
    found = list(samples)
    for each in found:
        if not isinstance(each, Sample):
            raise TypeError(f"it returned a {type(each).__name__} among its samples")
        if not isinstance(each.value, (int, float, LocalHistogram)):
            raise TypeError(f"a sample of {each.family.name} has a {type(each.value).__name__}")
    return found


class _Collector:
    """The collector in the registry. It describes no families, which are known only at a scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        return self._metrics.collect()


def _add(
    totals: dict[tuple[Family, tuple[str, ...]], float | LocalHistogram], samples: Iterable[Sample]
) -> None:
    for sample in samples:
        key = (sample.family, sample.labels)
        before = totals.get(key)
        if isinstance(sample.value, LocalHistogram):
            base = before if isinstance(before, LocalHistogram) else None
            totals[key] = sample.value.plus(base or LocalHistogram(sample.value.bounds))
        else:
            base_value = before if isinstance(before, (int, float)) else 0.0
            totals[key] = base_value + sample.value


_default = Metrics()


def default_metrics() -> Metrics:
    """The process-wide metrics, the default of every part."""
    return _default
