"""Programs that end at their first event, for the time that it takes from the start of a process.

``python -m benchmarks._first_event NAME URL`` prints the time of the machine's monotonic clock
at the first Widget. Nothing is imported before the program is chosen.
"""

from __future__ import annotations

import sys
from typing import Any


def _now() -> None:
    import time

    print(time.monotonic(), flush=True)


def watchers(url: str) -> None:
    """An informer, a watcher, an InformerController."""
    from appsdk_operator import (
        Client,
        ClientConfig,
        InformerController,
        Kind,
        SimpleWatcher,
        StopSignal,
    )
    from appsdk_operator.cache import Informer

    stop = StopSignal()

    def add(_: object) -> None:
        _now()
        stop.set()

    kind = Kind(group="example.com", version="v1", kind="Widget")
    with Client(ClientConfig(server=url)) as client:
        controller = InformerController()
        controller.add_informer(Informer(kind, client), kind)
        controller.add_watcher(SimpleWatcher(add=add), kind)
        controller.run(stop)


def manager(url: str) -> None:
    """A manager with a reconciler."""
    from appsdk_operator import ClientConfig, Kind, Manager, Request, StopSignal, controller_for

    stop = StopSignal()

    def reconcile(_: Request) -> None:
        _now()
        stop.set()

    kind = Kind(group="example.com", version="v1", kind="Widget")
    subject = Manager(ClientConfig(server=url))
    controller_for(subject).for_(kind).complete(reconcile)
    subject.run(stop)


def kubernetes(url: str) -> None:
    """The ``kubernetes`` package's Watch."""
    import kubernetes as package

    configuration = package.client.Configuration(host=url)
    api = package.client.CustomObjectsApi(package.client.ApiClient(configuration))
    listing = api.list_cluster_custom_object
    make_watch: Any = package.watch.Watch
    watch = make_watch()
    for _ in watch.stream(listing, "example.com", "v1", "widgets"):
        _now()
        break


def kopf(url: str) -> None:
    """kopf with a handler of events."""
    import asyncio

    import kopf as package

    stop = asyncio.Event()

    @package.on.login()
    def login(**_: Any) -> Any:
        return package.ConnectionInfo(server=url)

    @package.on.event("example.com", "v1", "widgets")
    async def seen(**_: Any) -> None:
        _now()
        stop.set()

    package.run(standalone=True, clusterwide=True, stop_flag=stop)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
    sys.stdout.flush()
