import asyncio
import logging
from typing import Any

import kopf

log = logging.getLogger(__name__)
stop: asyncio.Event
tasks: dict[str, asyncio.Task[None]] = {}


@kopf.on.startup()
async def prepare(**_: Any) -> None:
    global stop
    stop = asyncio.Event()


@kopf.on.startup()
async def connect(retry: int, **_: Any) -> None:
    log.info("connects")
    if retry < 2:
        raise kopf.TemporaryError("nobody is there yet", delay=0.05)


@kopf.on.login()
def log_in(**kwargs: Any) -> Any:
    return kopf.login_via_client(**kwargs)


@kopf.on.cleanup()
async def clean_up(**_: Any) -> None:
    log.info("cleans up")
    stop.set()
    await asyncio.gather(*tasks.values())


@kopf.on.probe()
async def serving(**_: Any) -> list[str]:
    return sorted(tasks)


@kopf.on.event("pods")
async def serve(name: str, **_: Any) -> None:
    if name not in tasks:
        tasks[name] = asyncio.create_task(follow(name))


async def follow(name: str) -> None:
    log.info("serves %s", name)
    await stop.wait()
    log.info("has served %s", name)
