import logging

from appsdk_operator import App, Kind, Object

log = logging.getLogger(__name__)

app = App("timers")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


@app.every(0.1, Widget)
def ping(widget: Object) -> None:
    log.info("pings %s", widget.spec["color"])


@app.every(0.1, Widget, idle=0.3, result="status.rests")
async def ping_what_rests(widget: Object) -> str:
    log.info("%s rests", widget.spec["color"])
    return str(widget.spec["color"])
