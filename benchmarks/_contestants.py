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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import contestants
from benchmarks._job import Entry, Group
from benchmarks._replay import Spec

__all__ = ["Contestant", "Variant", "all_contestants", "entries_for"]

_LEAST_LISTED = 5000


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A form of a contestant, which takes part in some of the jobs."""

    name: str = ""
    """What the table calls it, behind the contestant's name; also ``variant`` of its options."""
    jobs: Sequence[str]
    """The names of the jobs it can do."""
    kinds: Sequence[str] = ("widgets", "pods")
    """The kinds with which it can do them."""
    sizes: Sequence[int] = ()
    """The sizes of widgets that it can do; none given: all."""
    share: Mapping[str, float] = field(default_factory=dict)
    """By job: which part of the events (or objects, for ``list``) is enough to know its speed, so
    that the slow do not hold up the run; not named: all of them."""
    most_workers: int = 1_000_000
    """The most workers that it can have."""
    most_objects: int = 1_000_000_000
    """The most objects with which it ends in reasonable time."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A program that takes part."""

    name: str
    """What tables and the command line call it."""
    group: Group
    variants: Sequence[Variant]
    requires: str = ""
    """The distribution that must be installed, whose version is told."""
    command: Sequence[str] = ()
    """What runs it; default: the module that declares it, in this interpreter."""
    version: str = ""
    """Its version; default: that of the distribution."""
    absent: str = ""
    """Why it cannot be run here; default: that the distribution is missing, if so."""
    text: str = ""
    """How it does its jobs, for the page; default: the docstring of its module."""


@functools.cache
def all_contestants() -> tuple[Contestant, ...]:
    """Floors first, then ours, then the peers by name."""
    found = [*_of_python(), *_of_others()]
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


def _of_others() -> Sequence[Contestant]:
    try:
        peers = importlib.import_module("benchmarks._peers")
    except ModuleNotFoundError:
        return ()
    found: Sequence[Contestant] = peers.contestants()
    return found


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
                given["events"] = max(1, int(spec.events * share))
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
