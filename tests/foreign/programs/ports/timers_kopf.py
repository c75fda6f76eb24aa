import logging
from typing import Any

import kopf

log = logging.getLogger(__name__)


@kopf.timer("widgets", interval=0.1)
def ping(spec: kopf.Spec, **_: Any) -> None:
    log.info("pings %s", spec["color"])


@kopf.timer("widgets", interval=0.1, idle=0.3)
async def ping_what_rests(name: str, spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    log.info("%s rests", spec["color"])
    patch.status["rests"] = spec["color"]
