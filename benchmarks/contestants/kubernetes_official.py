"""The official client.

* watch: a list, then a ``Watch`` from its version, of ``CustomObjectsApi``, which gives
  dictionaries, or of ``CoreV1Api``, which gives models. It keeps no store.
* dynamic: the same with its ``DynamicClient``.
* informer: its ``SharedInformer``, with a cache and handlers. For pods only: it reads ``items`` of
  what its list function returns as an attribute, and for custom resources that is a dictionary.

Lists are in one piece, as is its default. It has no reconciler and no work queue.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from benchmarks._contestant import Options
from benchmarks._job import Contestant, Group, Variant
from benchmarks._objects import KINDS
from benchmarks.contestants._peer import Listing, main, sink

_JOBS = ("watch", "list", "latency")

CONTESTANT = Contestant(
    name="kubernetes",
    group=Group.PEER,
    requires="kubernetes",
    variants=(
        Variant(name="watch", jobs=_JOBS, share={"watch": 0.2}),
        Variant(name="dynamic", jobs=_JOBS, share={"watch": 0.2, "list": 0.25}),
        Variant(name="informer", jobs=_JOBS, kinds=("pods",), share={"watch": 0.2}),
    ),
)


class _Source(Protocol):
    """A form of the client that lists and watches."""

    def items(self) -> tuple[list[Any], str]:
        """Every object, and the version of the list."""
        ...

    def events(self, since: str) -> Iterator[Any]:
        """The events after a version."""
        ...

    def version_of(self, obj: Any) -> str:
        """The resource version of an object."""
        ...


class _Watch:
    """``Watch`` over the generated methods."""

    def __init__(self, options: Options) -> None:
        from kubernetes import client

        names = KINDS[options.kind]
        self._list: Callable[..., Any] = client.CoreV1Api().list_pod_for_all_namespaces
        self._arguments: tuple[str, ...] = ()
        if names.group:
            self._list = client.CustomObjectsApi().list_cluster_custom_object
            self._arguments = (names.group, names.version, names.plural)

    def items(self) -> tuple[list[Any], str]:
        found = self._list(*self._arguments)
        if isinstance(found, dict):
            return found["items"], found["metadata"]["resourceVersion"]
        return found.items, found.metadata.resource_version

    def events(self, since: str) -> Iterator[Any]:
        from kubernetes import watch

        arguments = self._arguments
        events: Iterator[Any] = watch.Watch().stream(self._list, *arguments, resource_version=since)
        return events

    def version_of(self, obj: Any) -> str:
        return _version_of(obj)


class _Dynamic:
    """``DynamicClient``."""

    def __init__(self, options: Options) -> None:
        from kubernetes import client, dynamic

        names = KINDS[options.kind]
        # What it finds out of a server it writes down, for good if not into our folder.
        cache = Path(os.environ["KUBECONFIG"]).with_name("discovery.json")
        resources = dynamic.DynamicClient(client.ApiClient(), cache_file=str(cache)).resources
        self._resource = resources.get(api_version=names.api_version, kind=names.kind)

    def items(self) -> tuple[list[Any], str]:
        found = self._resource.get()
        return found.items, found.metadata.resourceVersion

    def events(self, since: str) -> Iterator[Any]:
        events: Iterator[Any] = self._resource.watch(resource_version=since)
        return events

    def version_of(self, obj: Any) -> str:
        return str(obj.metadata.resourceVersion)


def _version_of(obj: Any) -> str:
    """The resource version of a dictionary or of a model."""
    if isinstance(obj, dict):
        return str(obj["metadata"]["resourceVersion"])
    return str(obj.metadata.resource_version)


def _source(options: Options) -> _Source:
    from kubernetes import config

    config.load_kube_config()
    return _Dynamic(options) if options.variant == "dynamic" else _Watch(options)


def events(job: str, options: Options) -> dict[str, float]:
    """The MODIFIED events that follow a list."""
    if options.variant == "informer":
        return _informer_events(job, options)
    source = _source(options)
    taken = sink(job, options, source.version_of)
    _, version = source.items()
    for event in source.events(version):
        if event["type"] == "MODIFIED" and taken.take(event["object"]):
            break
    return taken.numbers()


def list_all(options: Options) -> dict[str, float]:
    """Every object."""
    if options.variant == "informer":
        return _informer_list(options)
    source = _source(options)
    listing = Listing()
    items, _ = source.items()
    listing.done()
    return listing.numbers(len(items))


def _informer() -> Any:
    from kubernetes import client, config, informer

    config.load_kube_config()
    return informer.SharedInformer(client.CoreV1Api().list_pod_for_all_namespaces)


def _informer_events(job: str, options: Options) -> dict[str, float]:
    informer, is_over = _informer(), threading.Event()
    taken = sink(job, options, _version_of)

    def modified(obj: Any) -> None:
        if taken.take(obj):
            is_over.set()

    informer.add_event_handler("MODIFIED", modified)
    informer.start()
    is_over.wait()
    return taken.numbers()


def _informer_list(options: Options) -> dict[str, float]:
    informer, is_over = _informer(), threading.Event()
    left = options.objects

    def added(_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            listing.done()
            is_over.set()

    informer.add_event_handler("ADDED", added)
    listing = Listing()
    informer.start()
    is_over.wait()
    return listing.numbers(len(informer.cache.list_keys()))


if __name__ == "__main__":
    main(
        {
            "watch": partial(events, "watch"),
            "list": list_all,
            "latency": partial(events, "latency"),
        }
    )
