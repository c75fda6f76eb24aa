import logging
from typing import Any

import kopf

log = logging.getLogger(__name__)


@kopf.on.event("widgets")
def fails(**_: Any) -> None:
    log.info("fails")
    raise OSError("always")


@kopf.on.event("widgets")
def sees(event: kopf.RawEvent, **_: Any) -> None:
    log.info("sees %s", event["type"] or "ADDED")  # None: listed, and not watched
