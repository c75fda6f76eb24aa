import logging
from typing import Any

import kopf

log = logging.getLogger(__name__)


@kopf.on.create("widgets")
def never(**_: Any) -> None:
    log.info("never")
    raise kopf.PermanentError("once and for all")


@kopf.on.create("widgets")
def in_the_end(retry: int, **_: Any) -> None:
    log.info("in the end")
    if retry < 3:
        raise kopf.TemporaryError("not yet", delay=0.05)


@kopf.on.create("widgets", retries=3, backoff=0.05)
def three_times(**_: Any) -> None:
    log.info("three times")
    raise OSError("always")


@kopf.on.create("widgets", errors=kopf.ErrorsMode.PERMANENT)
def unexpected(**_: Any) -> None:
    log.info("unexpected")
    raise OSError("a bug")
