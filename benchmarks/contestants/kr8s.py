"""kr8s, its asynchronous API; the other one is the same code behind a thread.

Lists are in pages of 100 objects, its default, which cannot be changed. With the variant ``raw`` of
the job ``list`` it gives dictionaries and not objects, as its documentation advises where speed
matters.

Its lists do not tell their version, so that a watch begins without one. It keeps no store, and it
has no informer, no reconciler and no work queue.
"""

from __future__ import annotations

from benchmarks._contestant import Options
from benchmarks._job import Contestant, Group, Variant
from benchmarks._objects import KINDS
from benchmarks.contestants._peer import Listing, asynchronous, main, sink

CONTESTANT = Contestant(
    name="kr8s",
    group=Group.PEER,
    requires="kr8s",
    variants=(
        Variant(jobs=("watch", "list", "latency"), share={"watch": 0.03, "list": 0.1}),
        Variant(name="raw", jobs=("list",)),
    ),
)


def _name(options: Options) -> str:
    """What it looks the kind up by."""
    names = KINDS[options.kind]
    return f"{names.plural}.{names.group}" if names.group else names.plural


async def _events(job: str, options: Options) -> dict[str, float]:
    import kr8s.asyncio

    taken = sink(job, options, lambda obj: str(obj.metadata.resourceVersion))
    api = await kr8s.asyncio.api()
    async for event, obj in api.watch(_name(options), namespace=kr8s.ALL):
        if event == "MODIFIED" and taken.take(obj):
            break
    return taken.numbers()


async def _list(options: Options) -> dict[str, float]:
    import kr8s.asyncio

    api = await kr8s.asyncio.api()
    listing = Listing()
    found = api.get(_name(options), namespace=kr8s.ALL, raw=options.variant == "raw")
    items = [item async for item in found]
    listing.done()
    return listing.numbers(len(items))


if __name__ == "__main__":
    main(asynchronous(_events, _list))
