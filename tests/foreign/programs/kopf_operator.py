"""A kopf operator: creation, change, deletion, a field, an index and a timer."""

from __future__ import annotations

import json
from typing import Any

import kopf


def tell(what: str, about: Any) -> None:
    print(json.dumps({what: about}), flush=True)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = True
    settings.persistence.finalizer = "kopf.dev/test"
    tell("started", True)


@kopf.on.create("kopfexamples")
def created(spec: Any, name: str, retry: int, **_: Any) -> dict[str, Any]:
    if spec.get("size") == 13 and not retry:
        raise kopf.TemporaryError("not the first time", delay=0.2)
    tell("created", name)
    return {"size": spec.get("size")}


@kopf.on.update("kopfexamples")
def updated(name: str, diff: Any, **_: Any) -> None:
    tell("updated", [name, [list(change[:2]) for change in diff]])


@kopf.on.field("kopfexamples", field="spec.size")
def resized(name: str, old: Any, new: Any, **_: Any) -> None:
    tell("resized", [name, old, new])


@kopf.on.delete("kopfexamples")
def deleted(name: str, **_: Any) -> None:
    tell("deleted", name)


@kopf.on.event("configmaps", labels={"watched": "yes"})
def noticed(event: Any, name: str, **_: Any) -> None:
    tell("noticed", [event["type"], name])


@kopf.timer("kopfexamples", interval=0.3)
def ticked(name: str, patch: Any, status: Any, **_: Any) -> None:
    patch.status["ticks"] = status.get("ticks", 0) + 1
    tell("ticked", name)
