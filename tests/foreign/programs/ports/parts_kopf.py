import logging
from typing import Any

import kopf

log = logging.getLogger(__name__)


@kopf.on.create("widgets")
def make(spec: kopf.Spec, **_: Any) -> None:
    for part in spec.get("parts", []):

        @kopf.subhandler(id=part)
        async def make_part(part: str = part, retry: int = 0, **_: Any) -> None:
            log.info("makes %s", part)
            if part == "wheel" and not retry:
                raise kopf.TemporaryError("it rolls away", delay=0.05)
