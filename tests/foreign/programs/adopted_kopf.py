"""An operator with kopf, whose objects an App adopts afterwards."""

from __future__ import annotations

import json
import sys
from typing import Any

import kopf


def tell(what: str, name: str) -> None:
    sys.stdout.write(json.dumps({what: name}) + "\n")  # at once: it has several threads
    sys.stdout.flush()


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.queueing.idle_timeout = 0.1  # else it waits for its workers when it ends


@kopf.on.create("widgets")
def make(name: str, spec: Any, **_: Any) -> None:
    if spec.get("size") == 13:
        tell("stuck", name)
        raise kopf.TemporaryError("not now", delay=3600)
    tell("made", name)


@kopf.on.create("widgets")
def note(name: str, **_: Any) -> None:
    tell("noted", name)


@kopf.on.update("widgets", field="spec.size")
def resize(name: str, new: Any, **_: Any) -> None:
    if new == 14:
        tell("stuck", name)
        raise kopf.TemporaryError("not now", delay=3600)
    tell("resized", name)


@kopf.on.delete("widgets")
def remove(name: str, labels: Any, **_: Any) -> None:
    if "holds" in labels:
        tell("holds", name)
        raise kopf.TemporaryError("not now", delay=3600)
    tell("removed", name)


@kopf.timer("gadgets", interval=3600)
def measure(name: str, **_: Any) -> None:
    tell("measured", name)


@kopf.on.update("gadgets")
def change(name: str, **_: Any) -> None:
    tell("changed", name)
