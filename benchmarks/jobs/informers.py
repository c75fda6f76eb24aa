"""Two hundred informers in one process: threads, memory, and CPU time while nothing happens.

Each follows a namespace of its own on the embedded API server, which runs in another process and
sends a bookmark a minute as servers do; one object is in each namespace.

* ours: an InformerController with as many informers.
* cache: one Cache that follows as many namespaces.
* kubernetes: the official client's Watch in as many threads, each with the object it saw.

Once more over TLS: what connections cost.
"""

from __future__ import annotations

import functools
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from appsdk_operator import (
    Client,
    InformerController,
    MutableObject,
    Object,
    SimpleWatcher,
    StopSignal,
    kinds,
)
from appsdk_operator.cache import Cache, CacheOptions, Informer
from appsdk_operator.runtime import Metrics, system_clock
from benchmarks._embedded import Server, serving
from benchmarks._job import Job, Unit
from benchmarks._measures import (
    WIDGET,
    Figures,
    Measure,
    column,
    observed,
    one_case,
    own_cpu,
    resident,
    run,
)


def _namespaces(count: int) -> list[str]:
    return [f"namespace-{number}" for number in range(count)]


def _fill(server: Server, count: int) -> None:
    with Client(server.config(), metrics=Metrics()) as client:
        for namespace in _namespaces(count):
            client.create(MutableObject.new(kinds.core.v1.Namespace, namespace))
            client.create(MutableObject.new(WIDGET, "w", namespace=namespace, spec={"size": 1}))


def _observed(
    run: Callable[[StopSignal], object], ready: Callable[[], bool], count: int, seconds: float
) -> Figures:
    """What ``count`` informers cost, until they are ready, and ``seconds`` long while idle."""
    threads, memory = threading.active_count(), resident()
    began, started = system_clock.monotonic(), own_cpu()
    ending = 0.0

    def observe(stop: StopSignal) -> Figures:
        nonlocal ending
        while not ready():
            stop.wait(0.005)
        synced, used = system_clock.monotonic() - began, own_cpu() - started
        stop.wait(0.2)
        held = resident() - memory
        before, cpu = system_clock.monotonic(), own_cpu()
        stop.wait(seconds)
        idle = (own_cpu() - cpu) / (system_clock.monotonic() - before)
        ending = system_clock.monotonic()
        return {
            "seconds_to_sync": synced,
            "cpu_to_sync": used,
            "threads": threading.active_count() - threads - 1,
            "bytes_per_informer": held / count,
            "idle_share_of_a_core": idle,
        }

    figures = observed(run, observe)
    return figures | {"seconds_to_stop": system_clock.monotonic() - ending}


def ours(*, count: int = 200, seconds: float = 10.0, tls: bool = False) -> Figures:
    """An InformerController."""
    seen: list[Object] = []

    def run(stop: StopSignal) -> None:
        metrics = Metrics()
        controller = InformerController(metrics=metrics)
        for name in _namespaces(count):
            informer = Informer(WIDGET, client, namespace=name, metrics=metrics)
            controller.add_informer(informer, WIDGET)
        controller.add_watcher(SimpleWatcher(add=seen.append), WIDGET)
        controller.run(stop)

    with serving(tls=tls) as server:
        _fill(server, count)
        with Client(server.config(), metrics=Metrics()) as client:
            return _observed(run, lambda: len(seen) >= count, count, seconds)


def cache(*, count: int = 200, seconds: float = 10.0) -> Figures:
    """A Cache."""
    with serving() as server:
        _fill(server, count)
        with Client(server.config(), metrics=Metrics()) as client:
            subject = Cache(client, metrics=Metrics())
            subject.add(WIDGET, CacheOptions(namespaces=_namespaces(count)))
            return _observed(subject.run, lambda: subject.has_synced, count, seconds)


def official(*, count: int = 200, seconds: float = 10.0, tls: bool = False) -> Figures:
    """The official client's Watch, a thread each."""
    import kubernetes

    seen: dict[str, Any] = {}
    make_watch: Any = kubernetes.watch.Watch

    def follow(namespace: str) -> None:
        watch: Any = make_watch()
        listing = api.list_namespaced_custom_object
        with suppress(Exception):
            for event in watch.stream(listing, "example.com", "v1", namespace, "widgets"):
                seen[namespace] = event["object"]

    def run(stop: StopSignal) -> None:
        # They cannot be told to stop while nothing comes: the process ends with them.
        for name in _namespaces(count):
            threading.Thread(target=follow, args=(name,), daemon=True).start()
        stop.wait()

    with serving(tls=tls) as server, tempfile.NamedTemporaryFile("w") as authority:
        _fill(server, count)
        configuration = kubernetes.client.Configuration(host=server.url)
        configuration.connection_pool_maxsize = count
        if server.ca is not None:
            authority.write(server.ca)
            authority.flush()
            configuration.ssl_ca_cert = authority.name
        api = kubernetes.client.CustomObjectsApi(kubernetes.client.ApiClient(configuration))
        figures = _observed(run, lambda: len(seen) >= count, count, seconds)
        del figures["seconds_to_stop"]
        return figures


_PLAIN_MEASURES: dict[str, Measure] = {"ours": ours, "cache": cache, "kubernetes": official}
_TLS_MEASURES: dict[str, Measure] = {
    "ours, TLS": functools.partial(ours, tls=True),
    "kubernetes, TLS": functools.partial(official, tls=True),
}
MEASURES = _PLAIN_MEASURES | _TLS_MEASURES
_PEERS: Final = {"kubernetes": "kubernetes", "kubernetes, TLS": "kubernetes"}
_QUICK: Final = {"count": 10, "seconds": 0.2}

_plain = one_case(
    "benchmarks.jobs.informers", _PLAIN_MEASURES, _QUICK, peers=_PEERS, in_quick=["ours"]
)
_tls = one_case("benchmarks.jobs.informers", _TLS_MEASURES, _QUICK, title="TLS", peers=_PEERS)

JOB = Job(
    name="informers",
    title="200 informers in one process",
    text=(
        "Each follows a namespace of its own, with one object, on the embedded API server, which "
        "runs in another process. How long until all have synced, how many threads and how much "
        "memory they take, and the share of a core that they use while nothing happens. `cache` is "
        "one Cache that follows as many namespaces, `kubernetes` the official client's Watch in as "
        "many threads, without a local copy."
    ),
    columns=(
        column("memory each", "bytes_per_informer", Unit.BYTES),
        column("to sync", "seconds_to_sync", Unit.SECONDS),
        column("CPU to sync", "cpu_to_sync", Unit.SECONDS),
        column("threads", "threads"),
        column("share of a core while idle", "idle_share_of_a_core", Unit.SHARE),
        column("to stop", "seconds_to_stop", Unit.SECONDS),
    ),
    cases=lambda quick: [*_plain(quick), *([] if quick else _tls(quick))],
    rounds=3,
)

if __name__ == "__main__":
    run(MEASURES)
