"""Who there is: every module in ``benchmarks.contestants``, and the peers in other languages.

A module there declares itself as ``CONTESTANT``, without importing what it is about, and is run as
a process of its own: ``python -m benchmarks.contestants.NAME JOB OPTIONS``.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks import _peers, contestants
from benchmarks._job import Contestant, Entry, Group
from benchmarks._replay import Spec

__all__ = ["all_contestants", "entries_for"]

_LEAST_LISTED = 5000


@functools.cache
def all_contestants() -> tuple[Contestant, ...]:
    """Floors first, then ours, then the peers by name."""
    found = [*_of_python(), *_peers.contestants()]
    order = list(Group)
    return tuple(sorted(found, key=lambda one: (order.index(one.group), one.name)))


def _of_python() -> Iterator[Contestant]:
    for module in pkgutil.iter_modules(contestants.__path__):
        if module.name.startswith("_"):
            continue
        path = f"{contestants.__name__}.{module.name}"
        source = importlib.import_module(path)
        contestant: Contestant = source.CONTESTANT
        absent, version = contestant.absent, contestant.version
        if contestant.requires:
            try:
                version = importlib.metadata.version(contestant.requires)
            except importlib.metadata.PackageNotFoundError:
                absent = f"{contestant.requires} is not installed"
        command = contestant.command or (sys.executable, "-m", path)
        yield replace(
            contestant,
            command=command,
            version=version,
            absent=absent,
            text=contestant.text or inspect.cleandoc(source.__doc__ or ""),
        )


def entries_for(job: str, spec: Spec, **options: Any) -> list[Entry]:
    """Everyone who can do ``job`` on a server with ``spec``."""
    entries = []
    for contestant in all_contestants():
        for variant in contestant.variants:
            if job not in variant.jobs or spec.kind not in variant.kinds:
                continue
            if variant.sizes and spec.kind == "widgets" and spec.size not in variant.sizes:
                continue
            if options.get("workers", 1) > variant.most_workers:
                continue
            if job != "list" and spec.objects > variant.most_objects:
                continue
            own, given = spec, {**options, "variant": variant.name}
            share = variant.share.get(job, 1.0)
            if job == "list":
                # With too few, what a client needs once would be counted as its objects' share.
                least = min(spec.objects // 4, _LEAST_LISTED)
                objects = min(max(least, int(spec.objects * share)), variant.most_objects)
                own = replace(spec, objects=objects)
            else:
                given["events"] = max(1, min(int(spec.events * share), variant.most_events))
            entries.append(
                Entry(
                    label=f"{contestant.name} {variant.name}".strip(),
                    group=contestant.group,
                    command=tuple(contestant.command),
                    job=job,
                    options=given,
                    spec=own,
                    absent=contestant.absent,
                )
            )
    return entries
