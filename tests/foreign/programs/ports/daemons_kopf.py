import asyncio
import logging
from typing import Any

import kopf

log = logging.getLogger(__name__)


@kopf.daemon("widgets")
def accompany(
    name: str, retry: int, patch: kopf.Patch, stopped: kopf.DaemonStopped, **_: Any
) -> None:
    if retry < 3:
        patch.status["message"] = f"has failed {retry + 1} times"
        raise kopf.TemporaryError("not yet", delay=0.05)
    log.info("accompanies %s", name)
    stopped.wait(0.2)
    patch.status["message"] = "is on its own now"


@kopf.daemon(
    "widgets",
    annotations={"note": "new"},
    cancellation_backoff=0.05,
    cancellation_timeout=1,
)
async def ping(name: str, retry: int, **_: Any) -> None:
    if retry < 3:
        raise kopf.TemporaryError("not yet", delay=0.05)
    log.info("pings %s", name)
    try:
        await asyncio.sleep(3600)
    finally:
        log.info("pings %s no more", name)
