import logging
import threading

from appsdk_operator import App, ClientConfig, Kind, MutableObject, Object, StopSignal
from appsdk_operator.controllers import until, wait_for

log = logging.getLogger(__name__)
greeted = threading.Event()
Widget = Kind(group="example.com", version="v1", kind="Widget")


def operator(namespace: str, greeting: str, farewell: str) -> App:
    app = App("embedded", namespaces=[namespace])

    @app.on_add(Widget)
    def greet(widget: Object) -> None:
        log.info(greeting, widget.name)
        greeted.set()

    @app.on_delete(Widget)
    def part(widget: Object) -> None:
        log.info(farewell, widget.name)

    return app


def main(namespace: str) -> None:
    """A program that has something else to do, too."""
    manager = operator(namespace, "hello, %s", "good bye, %s").manager(ClientConfig.load())
    stop = StopSignal()
    thread = threading.Thread(target=manager.run, args=(stop,))
    thread.start()
    manager.elected.wait()
    for name in ("first", "second"):
        greeted.clear()
        manager.client.create(MutableObject.new(Widget, name, namespace=namespace))
        greeted.wait()
        manager.client.delete(Widget, name, namespace=namespace)
        wait_for(manager.client, Widget, name, until.deleted(), namespace=namespace)
    stop.set()
    thread.join()
