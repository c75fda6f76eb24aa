"""kubernetes-asyncio.

A list, then a ``Watch`` from its version, of ``CustomObjectsApi``, which gives dictionaries, or of
``CoreV1Api``, which gives models. It keeps no store, and it has no informer, no reconciler and no
work queue. Lists are in one piece, as is its default.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks._contestant import Options
from benchmarks._job import Contestant, Group, Variant
from benchmarks._objects import KINDS
from benchmarks.contestants._peer import Listing, asynchronous, main, sink

CONTESTANT = Contestant(
    name="kubernetes-asyncio",
    group=Group.PEER,
    requires="kubernetes-asyncio",
    variants=(Variant(jobs=("watch", "list", "latency"), share={"watch": 0.2}),),
)


def _version_of(obj: Any) -> str:
    """The resource version of a dictionary or of a model."""
    if isinstance(obj, dict):
        return str(obj["metadata"]["resourceVersion"])
    return str(obj.metadata.resource_version)


def _method(api: Any, options: Options) -> tuple[Callable[..., Awaitable[Any]], tuple[str, ...]]:
    """What lists the kind, and its arguments."""
    from kubernetes_asyncio import client

    names = KINDS[options.kind]
    if not names.group:
        return client.CoreV1Api(api).list_pod_for_all_namespaces, ()
    custom = client.CustomObjectsApi(api)
    return custom.list_cluster_custom_object, (names.group, names.version, names.plural)


async def _events(job: str, options: Options) -> dict[str, float]:
    from kubernetes_asyncio import client, config, watch

    await config.load_kube_config()
    taken = sink(job, options, _version_of)
    async with client.ApiClient() as api:
        method, arguments = _method(api, options)
        # A list says its version where an object does.
        version = _version_of(await method(*arguments))
        async with watch.Watch().stream(method, *arguments, resource_version=version) as stream:
            async for event in stream:
                if event["type"] == "MODIFIED" and taken.take(event["object"]):
                    break
    return taken.numbers()


async def _list(options: Options) -> dict[str, float]:
    from kubernetes_asyncio import client, config

    await config.load_kube_config()
    async with client.ApiClient() as api:
        method, arguments = _method(api, options)
        listing = Listing()
        found = await method(*arguments)
        listing.done()
        items = found["items"] if isinstance(found, dict) else found.items
        return listing.numbers(len(items))


if __name__ == "__main__":
    main(asynchronous(_events, _list))
