import logging
from collections.abc import Iterator

import tenacity

from appsdk_operator import App, Live, StopSignal, kinds

log = logging.getLogger(__name__)
attempts: list[None] = []
served: set[str] = set()

app = App("hooks")


@app.lifespan
def around() -> Iterator[None]:
    connect()
    yield
    log.info("cleans up")


@tenacity.retry(wait=tenacity.wait_fixed(0.05))
def connect() -> None:
    log.info("connects")
    attempts.append(None)
    if len(attempts) < 3:
        raise OSError("nobody is there yet")


@app.check
def serving() -> str | None:
    return None if served else "no pod is served"


@app.background(kinds.core.v1.Pod)
async def serve(live: Live, stop: StopSignal) -> None:
    name = live.object.name
    served.add(name)
    log.info("serves %s", name)
    await stop.wait_async()
    log.info("has served %s", name)
    served.remove(name)
