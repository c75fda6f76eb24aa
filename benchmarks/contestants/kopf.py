"""kopf: an operator for all namespaces, without peering, on asyncio's own event loop.

What it logs is not printed.

* index: a handler of events, which is called for each one, and an index that keeps whole objects,
  as its documentation mirrors resources. No handler is called before all objects are in the index,
  and while they wait for that, each object wakes all others: a start takes a time that grows with
  the square of the objects, so that there are few of them here.
* event: the handler alone; of the objects only what kopf itself remembers is kept.
* create: a handler of creations. For each object kopf itself writes what it has handled.

Handlers are coroutines, which is quicker than functions, which run in threads; but not in the job
``reconcile``, where they are functions, as in most of its documentation, so that the number of
workers is the number of threads (``settings.execution.max_workers``). The calls that they make use
the official client. Lists are in one piece, as is its default. Memory is read when the tasks that
it has made, one for each object, have ended, which they do after 5 seconds without events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from benchmarks._contestant import Laps, Options
from benchmarks._job import Contestant, Group, Variant
from benchmarks._objects import KINDS
from benchmarks.contestants._peer import Listing, main, sink

CONTESTANT = Contestant(
    name="kopf",
    group=Group.PEER,
    requires="kopf",
    variants=(
        Variant(
            name="index",
            jobs=("watch", "list", "latency"),
            share={"watch": 0.05, "list": 0.05},
            most_objects=1000,
        ),
        Variant(
            name="event",
            jobs=("watch", "list", "latency", "reconcile"),
            share={"watch": 0.05, "list": 0.2, "reconcile": 0.2},
        ),
        Variant(name="create", jobs=("reconcile",), share={"reconcile": 0.1}),
    ),
)

# settings.queueing.idle_timeout, and one second more.
_SETTLE = 6.0


def _selector(options: Options) -> str:
    """What it looks the kind up by."""
    names = KINDS[options.kind]
    return ".".join(filter(None, (names.plural, names.version, names.group)))


async def _operate(until: asyncio.Event) -> None:
    """Run an operator until something has happened. It is not stopped: its process ends."""
    import kopf

    @kopf.on.login()
    def log_in(**arguments: Any) -> Any:
        return kopf.login_with_kubeconfig(**arguments)

    operator = asyncio.create_task(kopf.operator(standalone=True, clusterwide=True))
    waiting = asyncio.create_task(until.wait())
    await asyncio.wait({operator, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if operator.done():
        operator.result()
        raise RuntimeError("the operator has ended")


def _mirror(options: Options) -> None:
    """Keep whole objects, if the variant does."""
    import kopf

    if options.variant != "index":
        return

    @kopf.index(_selector(options))
    async def whole_objects(namespace: str | None, name: str, body: Any, **_: Any) -> Any:
        return {(namespace, name): body}


async def _events(job: str, options: Options) -> dict[str, float]:
    import kopf

    is_over = asyncio.Event()
    taken = sink(job, options, lambda body: str(body["metadata"]["resourceVersion"]))
    _mirror(options)

    @kopf.on.event(_selector(options))
    async def note(body: Any, **arguments: Any) -> None:
        if arguments["type"] == "MODIFIED" and taken.take(body):
            is_over.set()

    await _operate(is_over)
    return taken.numbers()


async def _list(options: Options) -> dict[str, float]:
    import kopf

    is_over = asyncio.Event()
    left = options.objects
    _mirror(options)

    @kopf.on.event(_selector(options))
    async def note(**_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            listing.done()
            is_over.set()

    listing = Listing()
    await _operate(is_over)
    await asyncio.sleep(_SETTLE)
    return listing.numbers(options.objects)


async def _reconcile(options: Options) -> dict[str, float]:
    import kopf

    loop, is_over = asyncio.get_running_loop(), asyncio.Event()
    laps, call = Laps(options.events, is_shared=True), _call(options)

    @kopf.on.startup()
    async def configure(settings: Any, **_: Any) -> None:
        settings.execution.max_workers = options.workers

    def handle(namespace: str, name: str, **_: Any) -> None:
        call(namespace, name)
        laps.count_one()
        if not laps.left:
            loop.call_soon_threadsafe(is_over.set)

    decorator: Any = kopf.on.create if options.variant == "create" else kopf.on.event
    decorator(_selector(options))(handle)
    await _operate(is_over)
    return laps.numbers("reconciles")


def _call(options: Options) -> Callable[[str, str], object]:
    """The call that each reconcile makes, if it makes one."""
    if not options.call_ms:
        return lambda _namespace, _name: None
    from kubernetes import client, config

    config.load_kube_config()
    names = KINDS[options.kind]
    if not names.group:
        core = client.CoreV1Api()
        return lambda namespace, name: core.read_namespaced_pod(name, namespace)
    get = client.CustomObjectsApi().get_namespaced_custom_object
    return lambda namespace, name: get(names.group, names.version, namespace, names.plural, name)


def _run(
    job: Callable[[Options], Awaitable[dict[str, float]]], options: Options
) -> dict[str, float]:
    """Run a job in an event loop, which is left as it is at the end."""

    async def whole() -> dict[str, float]:
        return await job(options)

    return asyncio.new_event_loop().run_until_complete(whole())


if __name__ == "__main__":
    main(
        {
            "watch": partial(_run, partial(_events, "watch")),
            "list": partial(_run, _list),
            "latency": partial(_run, partial(_events, "latency")),
            "reconcile": partial(_run, _reconcile),
        }
    )
