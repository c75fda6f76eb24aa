import logging

from appsdk_operator import App, ConstantBackoff, Kind, Object, RetryAfter, TerminalError
from appsdk_operator.watchers import never_retry

log = logging.getLogger(__name__)

app = App("exceptions")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


@app.on_add(Widget)
def never(widget: Object) -> None:
    log.info("never")
    raise TerminalError("once and for all")


@app.on_add(Widget)
def in_the_end(widget: Object) -> None:
    log.info("in the end")
    memo = app.memo(widget)
    memo["calls"] = memo.get("calls", 0) + 1
    if memo["calls"] < 4:
        raise RetryAfter(0.05, "not yet")


@app.on_add(Widget, retry=ConstantBackoff(0.05, max_calls=3))
def three_times(widget: Object) -> None:
    log.info("three times")
    raise OSError("always")


@app.on_add(Widget, retry=never_retry)
def unexpected(widget: Object) -> None:
    log.info("unexpected")
    raise OSError("a bug")
