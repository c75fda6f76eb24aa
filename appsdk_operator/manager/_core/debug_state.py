"""The state of a manager as one JSON document, which the debug page, ``top`` and scripts read."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import platform
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, final

from appsdk_operator import _version
from appsdk_operator.manager._core.groups import Groups
from appsdk_operator.manager._core.runnable import health_of
from appsdk_operator.resource import DecodeError, Object, OwnerReference
from appsdk_operator.runtime import (
    ActivityLog,
    CallRecord,
    Clock,
    FailingCalls,
    error_text,
    guarded_call,
)

T = TypeVar("T")

STATE_VERSION: Final = 1
"""Grows when a field changes its meaning or goes; new fields do not change it."""
_MOST_ROWS: Final = 50
_MOST_PARTS: Final = 200
_MOST_FAILURES: Final = 200
_MOST_EXAMPLES: Final = 5
_MOST_OBJECTS: Final = 500
_MOST_LOOKED_AT: Final = 50_000
"""Objects among which those that an object owns are looked for."""
_MOST_LABELS: Final = 100
_LONGEST_TEXT: Final = 1000
_ROW: Final = ("object", "callback", "why", "attempt", "due_in", "error", "since")


@final
class DebugState:
    """Reads the state of the parts of a manager; nothing is computed unless somebody asks.

    Thread-safe. Every list is bounded, and no object of the API is part of it: names, and for one
    object its labels, finalizers and owners.
    """

    def __init__(
        self,
        name: str,
        groups: Groups,
        *,
        clock: Clock,
        began: float,
        general: Callable[[], dict[str, Any]],
        caches: Callable[[], Sequence[Any]],
        servers: Callable[[], dict[str, Any]],
    ) -> None:
        """The state of these parts.

        Args:
            name: the operator's name.
            groups: the groups of runnables.
            clock: the manager's clock.
            began: when the manager was made, by that clock.
            general: the fields that the manager knows itself.
            caches: the caches, for the metadata of one object.
            servers: the servers by name.
        """
        self._name = name
        self._groups = groups
        self._clock = clock
        self._general = general
        self._caches = caches
        self._servers = servers
        self._began = began
        self._unwell = self._began
        """When somebody who looked last saw something wrong."""

    def state(self) -> dict[str, Any]:
        """The whole state, as JSON values; see ``docs/observability.md`` for the fields."""
        from appsdk_operator.manager._servers.verdict import HELD_AFTER, verdict_of

        now, time = self._clock.monotonic(), self._clock.time()
        parts = self._parts()
        controllers, informers, shards = [], [], []
        failing: list[dict[str, Any]] = []
        for part in parts:
            details = _details(part)
            informers += details.get("informers", ())
            if "shards" in details:
                shards.append(details)
            if "controller" in details:
                log = getattr(part, "activity", None)
                found = log if isinstance(log, ActivityLog) else None
                one = _controller(part, details, found, now, time)
                rows = _failing(details, one, found, now, time)
                one |= _totals(rows, details.get("given_up_total", 0))
                failing += rows
                controllers.append(one)
        logs = _logs(parts)
        aliases = {alias: kind for kind, names in self._kinds().items() for alias in names}
        objects = _objects(logs, now, time)
        running = [call for one in controllers for call in one["running"]]
        for row in (*failing, *objects, *running):
            row["kind"] = aliases.get(row["kind"], row["kind"])
        for one in controllers:
            one["kinds"] = [aliases.get(kind, kind) for kind in one["kinds"]]
        groups = self._groups.snapshot(details=False)
        deleting = self._deleting()
        held = [row["since"] for row in deleting if time - row["since"] >= HELD_AFTER]
        since = max((log.last_trouble for log in logs), default=-math.inf)
        well_since = max(self._unwell, self._began, time - (now - since))
        state = {
            "version": STATE_VERSION,
            "time": time,
            "operator": {
                "name": self._name,
                "kit": _version.__version__,
                "python": platform.python_version(),
                "pid": os.getpid(),
                "started": self._began,
                "well_since": well_since,
                **self._general(),
            },
            "informers": informers[:500],
            "controllers": controllers,
            "failing_total": sum(one["failing_total"] for one in controllers),
            "for_good_total": sum(one["for_good_total"] for one in controllers),
            "failing": sorted(failing, key=_urgency)[:_MOST_OBJECTS],
            "held_total": len(held),
            "held_since": min(held, default=None),
            "deleting": deleting[:_MOST_OBJECTS],
            "failures": _failures(logs, now, time),
            "objects": objects,
            "shards": shards,
            **self._server_state(time),
            "groups": groups,
        }
        state["verdict"] = verdict = verdict_of(state)
        if any(finding["level"] in ("bad", "warn") for finding in verdict):
            self._unwell = time
        return state

    def _deleting(self) -> list[dict[str, Any]]:
        """The cached objects that finalizers keep from being deleted, oldest first."""
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        for kind, store in self._stores():
            for obj in store.list():
                if obj.deletion_timestamp is not None and _finalizers(obj):
                    found[str(kind), obj.namespace, obj.name] = _deletion(obj)
        return sorted(found.values(), key=lambda row: float(row["since"]))

    def timeline(self, namespace: str, name: str, kind: str | None = None) -> dict[str, Any]:
        """What is known of one object, as JSON values: its recorded calls, newest first.

        Labels, finalizers and owners are there if a cache has it; never what a Secret holds.
        """
        now, time = self._clock.monotonic(), self._clock.time()
        parts = self._parts()
        names = set() if kind is None else self._names_of(kind)
        calls = [
            call
            for log in _logs(parts)
            for call in log.timeline(namespace, name)
            if kind is None or call.kind in names
        ]
        calls.sort(key=lambda call: call.started, reverse=True)
        text = f"{namespace}/{name}" if namespace else name
        planned = []
        for part in parts:
            details = _details(part)
            if "controller" in details:
                if kind is not None and names.isdisjoint(_kinds_of(details)):
                    continue
                rows = (*_planned(details), *_rows(details, "given_up"))
                name_of_part = {"controller": details["controller"]}
                planned += [name_of_part | row for row in rows if row["object"] == text]
        return {
            "version": STATE_VERSION,
            "time": time,
            "namespace": namespace,
            "name": name,
            "kind": kind or "",
            "operator": self._name,
            "copies": self._copies(namespace, name, None if kind is None else names),
            "calls": [call.to_json(now, time) for call in calls[:_MOST_ROWS]],
            "planned": planned[:_MOST_ROWS],
        }

    def _stores(self) -> Iterator[tuple[Any, Any]]:
        """Each cached kind with a store of it."""
        for cache in self._caches():
            for kind in getattr(cache, "kinds", ()):
                with contextlib.suppress(Exception):
                    # Of the informers and not of the cache, which may wait for a first list.
                    yield from [(kind, each.store) for each in cache.informers(kind)]

    def _names_of(self, kind: str) -> set[str]:
        """The names of the kinds that ``kind`` may stand for."""
        found = [
            names for names in self._kinds().values() if any(_is_named(n, kind) for n in names)
        ]
        return {kind}.union(*found)

    def _kinds(self) -> dict[str, set[str]]:
        """The texts by which calls and requests name each cached kind."""
        return {
            str(kind): {str(kind), f"{kind.kind}.{kind.group}".rstrip("."), kind.qualified_name}
            for kind, _ in self._stores()
        }

    def _copies(
        self, namespace: str, name: str, kinds: Container[str] | None
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for kind, store in self._stores():
            if kinds is None or str(kind) in kinds:
                obj = store.get(name, namespace)
                if isinstance(obj, Object):
                    found.append({**_metadata(obj), **self._relatives(obj)})
        return found[:_MOST_ROWS]

    def _relatives(self, obj: Object) -> dict[str, list[dict[str, str]]]:
        """The owners of an object, and the cached objects that it owns."""
        uid, looked_at = obj.uid.encode(), 0
        kinds = {(kind.group, kind.kind): kind for kind, _ in self._stores()}
        owned_by, owns = [], list[dict[str, str]]()
        for owner in _owners(obj)[:_MOST_LABELS]:
            group = owner.api_version.rpartition("/")[0]
            kind = kinds.get((group, owner.kind))
            scope = obj.namespace if kind is None or kind.is_namespaced else ""
            text = owner.kind if kind is None else str(kind)
            owned_by.append({"kind": text, "namespace": scope, "name": owner.name})
        for kind, store in self._stores():
            for one in store.list(namespace=obj.namespace or None):
                looked_at += 1
                # The text first: an owner's uid is in few objects, and is found without decoding.
                if uid in one.raw and any(each.uid == obj.uid for each in _owners(one)):
                    owns.append({"kind": str(kind), "namespace": one.namespace, "name": one.name})
                if looked_at >= _MOST_LOOKED_AT or len(owns) >= _MOST_LABELS:
                    return {"owned_by": owned_by, "owns": owns}
        return {"owned_by": owned_by, "owns": owns}

    def _parts(self) -> list[Any]:
        found: list[Any] = []
        for runnable in self._groups.members:
            inner = getattr(runnable, "controllers", None)
            found += inner if isinstance(inner, list) else [runnable]
        return found[:_MOST_PARTS]

    def _server_state(self, time: float) -> dict[str, Any]:
        servers, certificates, webhooks = [], [], []
        for name, server in self._servers().items():
            servers.append({"name": name, "address": str(getattr(server, "address", ""))})
            source = getattr(server, "certificates", None)
            if source is not None:
                row: dict[str, Any] = {"server": name, "expires": None, "text": ""}
                try:
                    expires = float(source.pair().expires)
                    row["expires"] = expires if math.isfinite(expires) else None
                    row["left"] = expires - time if math.isfinite(expires) else None
                except Exception as error:
                    row["text"] = error_text(error)[:1000]
                if (health := health_of(source)) is not None:
                    row["text"] = row["text"] or health.text
                certificates.append(row)
            table = getattr(server, "webhooks", None)
            kinds_of = {
                rule.path: (rule.type, ", ".join(map(str, rule.kinds)))
                for rule in getattr(table, "rules", ())
            }
            for path in getattr(table, "paths", ()):
                kind, objects = kinds_of.get(path, ("conversion or other", ""))
                webhooks.append({"path": path, "type": kind, "kinds": objects})
        return {
            "servers": servers,
            "certificates": certificates,
            "webhooks": webhooks[:_MOST_PARTS],
        }


def _details(part: Any) -> dict[str, Any]:
    snapshot = getattr(part, "debug_snapshot", None)
    if not callable(snapshot):
        return {}
    found: dict[str, Any] = guarded_call(
        "debug_snapshot",
        snapshot,
        failed=lambda error: {"problem": error_text(error)},
        check=lambda value: value if isinstance(value, dict) else {},
    )
    return found


def _logs(parts: Iterable[Any]) -> list[ActivityLog]:
    logs = [getattr(part, "activity", None) for part in parts]
    return [log for log in logs if isinstance(log, ActivityLog)]


def _controller(
    part: Any, details: dict[str, Any], log: ActivityLog | None, now: float, time: float
) -> dict[str, Any]:
    planned, given_up = _planned(details), _rows(details, "given_up")
    running = [] if log is None else log.running()
    health = health_of(part)
    return {
        "name": str(details["controller"]),
        "type": "reconcilers" if "kind" in details else "watchers",
        "kinds": _kinds_of(details),
        "callbacks": [dict(target) for target in details.get("targets", ())][:_MOST_ROWS],
        "workers": details.get("workers"),
        "ready": health is None or health.is_ready,
        "health": str(details.get("health", "")),
        "queued": details.get("queued", 0),
        "oldest_wait": details.get("oldest_wait"),
        "waiting": [r["object"] for r in _rows(details, "planned") if r["due_in"] == 0][
            :_MOST_ROWS
        ],
        "running": _json(running[:_MOST_ROWS], now, time),
        "running_total": len(running),
        "awaiting_total": sum(call.is_awaiting for call in running),
        "planned": planned[:_MOST_ROWS],
        "planned_total": len(planned),
        "given_up": given_up[:_MOST_ROWS],
        "given_up_total": len(given_up),
        "results": details.get("results", {}),
        "paused": [str(each) for each in details.get("paused", ())[:_MOST_ROWS]],
        "paused_total": len(details.get("paused", ())),
        "recent": [] if log is None else _json(log.calls()[:20], now, time),
        "is_limited": log is not None and log.is_limited,
        "p99": None if log is None else _p99(log.calls()),
        "history": None if log is None else log.history(),
    }


def _is_named(name: str, kind: str) -> bool:
    """Whether ``kind`` names a kind, whole or without its group."""
    return kind.casefold() in (name.casefold(), name.partition(".")[0].casefold())


def _kinds_of(details: dict[str, Any]) -> list[str]:
    targets = details.get("targets", ())
    kinds = sorted({str(target["kind"]) for target in targets})
    return kinds or [kind for kind in [str(details.get("kind", ""))] if kind]


def _p99(calls: Sequence[CallRecord]) -> float | None:
    """Of the recorded calls that called something."""
    took = sorted(call.seconds for call in calls if call.callback and call.seconds is not None)
    return took[min(len(took) - 1, int(len(took) * 0.99))] if took else None


def _failing(
    details: dict[str, Any],
    controller: dict[str, Any],
    log: ActivityLog | None,
    now: float,
    time: float,
) -> list[dict[str, Any]]:
    """The calls that failed last and were not made up for: planned, given up, or made just now."""
    known: dict[tuple[str, str], FailingCalls] = {}
    for each in () if log is None else log.failing():
        text = _text_of(each.last)
        known[text, each.last.callback] = known[text, ""] = each
    rows = [
        (row["object"], row["callback"], row["attempt"], row["due_in"], row["error"])
        for row in (*_rows(details, "planned"), *_rows(details, "given_up"))
        if row["due_in"] is None or row["error"] or (row["attempt"] and not row["callback"])
    ]
    seen = {row[0] for row in rows}
    for call in () if log is None else log.running():
        if call.attempt and (text := _text_of(call)) not in seen:
            rows.append((text, call.callback, call.attempt, 0.0, ""))
            seen.add(text)
    kinds = controller["kinds"]
    found = []
    for text, callback, attempt, due_in, error in rows:
        before = known.get((text, callback)) or known.get((text, ""))
        last = None if before is None else before.last
        cause = None if last is None else last.cause
        namespace, _, name = text.rpartition("/")
        kind, _, said = str(error).partition(": ")
        found.append(
            {
                "controller": controller["name"],
                "callback": callback or ("" if last is None else last.callback),
                "kind": last.kind if last is not None else kinds[0] if len(kinds) == 1 else "",
                "namespace": namespace if last is None else last.namespace,
                "name": name if last is None else last.name,
                "why": "" if last is None else last.to_json(now, time)["why"],
                "attempt": attempt,
                "due_in": due_in,
                "since": None if before is None else time - (now - before.since),
                "failures": attempt if before is None else before.count,
                "outcome": "retrying"
                if due_in is not None
                else "terminal"
                if last is not None and last.outcome == "terminal"
                else "given up",
                "type": kind if cause is None else cause.type,
                "text": said[:_LONGEST_TEXT] if cause is None else cause.text,
                "function": "" if cause is None else cause.function,
                "place": "" if cause is None else cause.place,
            }
        )
    return found


def _totals(rows: Sequence[dict[str, Any]], given_up: int) -> dict[str, int]:
    """The numbers of failing objects, and of those that nothing calls again by itself."""
    objects = {(row["namespace"], row["name"]) for row in rows}
    for_good = {(row["namespace"], row["name"]) for row in rows if row["due_in"] is None}
    missing = max(0, given_up - len(for_good))
    return {
        "failing_total": len(objects) + missing,
        "for_good_total": len(for_good) + missing,
    }


def _urgency(row: dict[str, Any]) -> tuple[bool, float]:
    return row["due_in"] is not None, row["since"] or 0.0


def _text_of(call: CallRecord) -> str:
    return f"{call.namespace}/{call.name}" if call.namespace else call.name


def _deletion(obj: Object) -> dict[str, Any]:
    since = 0.0
    with contextlib.suppress(ValueError):
        since = dt.datetime.fromisoformat(str(obj.deletion_timestamp)).timestamp()
    return {
        "kind": str(obj.kind),
        "namespace": obj.namespace,
        "name": obj.name,
        "since": since,
        "finalizers": list(obj.finalizers[:_MOST_LABELS]),
    }


def _planned(details: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls whose time is yet to come, soonest first; those that are due are queued."""
    rows = [row for row in _rows(details, "planned") if row["due_in"]]
    return sorted(rows, key=lambda row: float(row["due_in"]))


def _rows(details: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The rows of a controller's snapshot, without long texts and what only it knows."""
    return [
        {
            field: value[:_LONGEST_TEXT] if isinstance(value, str) else value
            for field, value in row.items()
            if field in _ROW
        }
        for row in details.get(name, ())
    ]


def _failures(logs: Sequence[ActivityLog], now: float, time: float) -> list[dict[str, Any]]:
    """The last failed calls, at most 200, grouped by cause; the most recent cause first."""
    calls = [call for log in logs for call in log.failures()]
    calls.sort(key=lambda call: call.started, reverse=True)
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    for call in calls[:_MOST_FAILURES]:
        cause = call.cause
        if cause is None:
            continue
        key = (call.controller, call.callback, *cause.key)
        group = groups.get(key)
        if group is None:
            newest = call.to_json(now, time)
            group = groups[key] = {
                "controller": call.controller,
                "callback": call.callback,
                "type": cause.type,
                "function": cause.function,
                "place": cause.place,
                "text": cause.text,
                "count": 0,
                "last": newest["started"],
                "first": newest["started"],
                "outcome": call.outcome,
                "next_in": newest["next_in"],
                "objects": [],
                "objects_total": 0,
            }
            group["_seen"] = set()
        group["count"] += 1
        group["first"] = time - (now - call.started)
        if call.key not in group["_seen"]:
            group["_seen"].add(call.key)
            if len(group["objects"]) < _MOST_EXAMPLES:
                group["objects"].append(_reference(call))
    for group in groups.values():
        group["objects_total"] = len(group.pop("_seen"))
    return list(groups.values())


def _objects(logs: Sequence[ActivityLog], now: float, time: float) -> list[dict[str, Any]]:
    """The objects that were called for last."""
    calls: list[CallRecord] = []
    for log in logs:
        calls += log.latest()
    calls.sort(key=lambda call: call.started, reverse=True)
    return [
        {
            **_reference(call),
            "controller": call.controller,
            "outcome": (shown := call.to_json(now, time))["outcome"],
            "why": shown["why"],
            "time": time - (now - call.started),
            "seconds": call.seconds,
        }
        for call in calls[:_MOST_OBJECTS]
    ]


def _reference(call: CallRecord) -> dict[str, str]:
    return {"kind": call.kind, "namespace": call.namespace, "name": call.name}


def _json(calls: Iterable[CallRecord], now: float, time: float) -> list[dict[str, Any]]:
    return [call.to_json(now, time) for call in calls]


def _metadata(obj: Object) -> dict[str, Any]:
    """What a page may show of an object: no annotations, since some hold whole objects."""
    return {
        "kind": str(obj.kind),
        "uid": obj.uid,
        "resource_version": obj.resource_version,
        "generation": obj.generation,
        "deletion_timestamp": obj.deletion_timestamp,
        "labels": dict(list(_labels(obj).items())[:_MOST_LABELS]),
        "finalizers": list(_finalizers(obj)[:_MOST_LABELS]),
        "owners": [f"{owner.kind} {owner.name}" for owner in _owners(obj)[:_MOST_LABELS]],
    }


def _labels(obj: Object) -> Mapping[str, str]:
    return _readable(lambda: obj.labels, {})


def _finalizers(obj: Object) -> Sequence[str]:
    return _readable(lambda: obj.finalizers, ())


def _owners(obj: Object) -> Sequence[OwnerReference]:
    return _readable(lambda: obj.owner_references, ())


def _readable(read: Callable[[], T], default: T) -> T:
    """The value that ``read`` takes from an object; ``default`` if its metadata are invalid, so
    that one object does not hide all others."""
    try:
        return read()
    except DecodeError:
        return default
