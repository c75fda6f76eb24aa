import logging

from appsdk_operator import App, Kind, Object
from appsdk_operator.testing import World

log = logging.getLogger(__name__)

app = App("tested")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


@app.on_add(Widget, result="status.greet")
def greet(widget: Object) -> str:
    log.info("hello, %s", widget.name)
    return "hello"


def main(namespace: str) -> None:
    """The operator's test, without a server."""
    with World(app) as world:
        world.create("web")
        world.settle()
        (widget,) = world.objects()
        assert widget.status == {"greet": "hello"}
