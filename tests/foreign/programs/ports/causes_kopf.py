import logging
from typing import Any

import kopf

log = logging.getLogger(__name__)


@kopf.on.resume("widgets")
def resumed(**_: Any) -> None:
    log.info("resumed")


@kopf.on.create("widgets")
def created(**_: Any) -> None:
    log.info("created")


@kopf.on.resume("widgets")
def resumed_as_well(**_: Any) -> None:
    log.info("resumed, too")


@kopf.on.create("widgets")
def created_as_well(**_: Any) -> None:
    log.info("created, too")


@kopf.on.update("widgets", field="spec")
def updated(old: Any, new: Any, **_: Any) -> None:
    log.info("updated: %s, %s", old, new)


@kopf.on.delete("widgets")
def deleted(**_: Any) -> None:
    log.info("deleted")


@kopf.on.delete("widgets")
def deleted_as_well(**_: Any) -> None:
    log.info("deleted, too")


@kopf.on.field("widgets", field="spec.color")
def colored(old: Any, new: Any, **_: Any) -> None:
    log.info("colored: %s, %s", old, new)
