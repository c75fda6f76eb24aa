import logging

from appsdk_operator import App, ConstantBackoff, Kind, Live, StopSignal, annotation

log = logging.getLogger(__name__)

app = App("daemons", retry_policy=ConstantBackoff(0.05))
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


def call_number(live: Live, function: str) -> int:
    memo = app.memo(live.object)
    memo[function] = memo.get(function, 0) + 1
    return int(memo[function])


@app.background(Widget)
def accompany(live: Live, stop: StopSignal) -> None:
    if (call := call_number(live, "accompany")) <= 3:
        with app.edit(live.object) as draft:
            draft["status"]["message"] = f"has failed {call} times"
        raise OSError("not yet")
    log.info("accompanies %s", live.object.name)
    stop.wait(0.2)
    with app.edit(live.object) as draft:
        draft["status"]["message"] = "is on its own now"


@app.background(Widget, where=annotation("note") == "new")
async def ping(live: Live, stop: StopSignal) -> None:
    if call_number(live, "ping") <= 3:
        raise OSError("not yet")
    log.info("pings %s", live.object.name)
    await stop.wait_async()
    log.info("pings %s no more", live.object.name)
