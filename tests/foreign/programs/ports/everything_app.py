import logging
from collections.abc import Iterator

import tenacity

from appsdk_operator import (
    App,
    ConstantBackoff,
    Kind,
    MutableObject,
    Object,
    SimpleWatcher,
    field,
    kinds,
    set_controller_reference,
)

log = logging.getLogger(__name__)
attempts: list[None] = []

app = App("everything")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))
Pod = kinds.core.v1.Pod
app.uses(Pod, verbs=["create"])


@app.lifespan
def around() -> Iterator[None]:
    log.info("begins")
    connect()
    yield
    log.info("ends")


@tenacity.retry(wait=tenacity.wait_fixed(0.05))
def connect() -> None:
    log.info("connects")
    attempts.append(None)
    if len(attempts) < 3:
        raise OSError("nobody is there yet")


@app.on_add(Widget, result="status.report.percent")
def report(widget: Object) -> int:
    app.events.event(widget, "Normal", "Seen", "Report", "a new widget")
    app.events.event(widget, "Warning", "Measured", "Report", "it may grow")
    return 100


@app.on_add(Widget, result="status.try_twice.percent", retry=ConstantBackoff(0.05))
def try_twice(widget: Object) -> int:
    log.info("tries")
    if not app.memo(widget).setdefault("tried", False):
        app.memo(widget)["tried"] = True
        raise OSError("not at once")
    return 100


@app.on_add(Widget)
def make_pod(widget: Object) -> None:
    pod = MutableObject.new(
        Pod,
        namespace=widget.namespace,
        metadata={"generateName": f"{widget.name}-", "labels": {"made": "yes"}},
        spec={"containers": [{"name": "main", "image": "busybox"}]},
    )
    set_controller_reference(widget, pod)
    app.client.create(pod)


@app.on_update(Widget)
def update(old: Object, new: Object) -> None:
    for name in sorted({*old.spec, *new.spec}):
        if old.spec.get(name) != new.spec.get(name):
            log.info("%s: %s, %s", name, old.spec.get(name), new.spec.get(name))


@app.on_add(Widget)
def first_sizes(widget: Object) -> None:
    log.info("from None to %s", list(widget.spec["sizes"]))


@app.on_update(Widget, when=field("spec.sizes").changed)
def sizes(old: Object, new: Object) -> None:
    log.info("from %s to %s", list(old.spec["sizes"]), list(new.spec["sizes"]))


@app.on_delete(Widget)
def delete(widget: Object) -> None:
    log.info("deletes")


def pod_is_there(*pods: Object) -> None:
    if pods[-1].labels.get("made") == "yes":
        log.info("a pod of ours is there")


def pod_is_gone(pod: Object) -> None:
    if pod.labels.get("made") == "yes":
        log.info("a pod of ours is gone")


app.watch(Pod, SimpleWatcher(add=pod_is_there, update=pod_is_there, delete=pod_is_gone))
