from typing import Any

import kopf


@kopf.on.create("widgets")
def report(body: kopf.Body, **_: Any) -> None:
    kopf.event(body, type="Normal", reason="Seen", message="a new widget")
    kopf.info(body, reason="Measured", message="it is small")
    kopf.warn(body, reason="Measured", message="it may grow")
    try:
        raise OSError("no scales")
    except OSError:
        kopf.exception(body, reason="Weighed", message="not yet:")
