import logging

from appsdk_operator import App, Kind, Object, SimpleWatcher
from appsdk_operator.watchers import never_retry

log = logging.getLogger(__name__)

app = App("raw-events", retry_policy=never_retry)
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


def fails(*_: Object) -> None:
    log.info("fails")
    raise OSError("always")


app.watch(Widget, SimpleWatcher(add=fails, update=fails, delete=fails))
app.watch(
    Widget,
    SimpleWatcher(
        add=lambda widget: log.info("sees ADDED"),
        update=lambda old, new: log.info("sees MODIFIED"),
        delete=lambda widget: log.info("sees DELETED"),
    ),
)
