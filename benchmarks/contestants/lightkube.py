"""lightkube.

A list, then a watch from its version: of a generic resource, whose objects are dictionaries, or of
its model of pods. It keeps no store, and it has no informer, no reconciler and no work queue. Lists
are in one piece, as is its default.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks._contestant import Options
from benchmarks._job import Contestant, Group, Variant
from benchmarks._objects import KINDS
from benchmarks.contestants._peer import Listing, main, sink

CONTESTANT = Contestant(
    name="lightkube",
    group=Group.PEER,
    requires="lightkube",
    variants=(Variant(jobs=("watch", "list", "latency"), share={"watch": 0.5}),),
)


def _resource(options: Options) -> Any:
    """The class of the kind's objects."""
    from lightkube.generic_resource import create_namespaced_resource
    from lightkube.resources.core_v1 import Pod

    names = KINDS[options.kind]
    if not names.group:
        return Pod
    return create_namespaced_resource(names.group, names.version, names.kind, names.plural)


def events(job: str, options: Options) -> dict[str, float]:
    """The MODIFIED events that follow a list."""
    from lightkube import Client

    client, kind = Client(), _resource(options)
    taken = sink(job, options, lambda obj: str(obj.metadata.resourceVersion))
    found = client.list(kind, namespace="*")
    for _ in found:
        pass  # its version is known when it was gone through
    for event, obj in client.watch(kind, namespace="*", resource_version=found.resourceVersion):
        if event == "MODIFIED" and taken.take(obj):
            break
    return taken.numbers()


def list_all(options: Options) -> dict[str, float]:
    """Every object."""
    from lightkube import Client

    client, kind = Client(), _resource(options)
    listing = Listing()
    items = list(client.list(kind, namespace="*"))
    listing.done()
    return listing.numbers(len(items))


if __name__ == "__main__":
    main(
        {
            "watch": partial(events, "watch"),
            "list": list_all,
            "latency": partial(events, "latency"),
        }
    )
