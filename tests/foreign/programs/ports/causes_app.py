import logging

from appsdk_operator import App, Kind, Object, field

log = logging.getLogger(__name__)

app = App("causes")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


@app.on_sync(Widget)
def resumed(widget: Object) -> None:
    log.info("resumed")


@app.on_add(Widget)
def created(widget: Object) -> None:
    log.info("created")


@app.on_sync(Widget)
def resumed_as_well(widget: Object) -> None:
    log.info("resumed, too")


@app.on_add(Widget)
def created_as_well(widget: Object) -> None:
    log.info("created, too")


@app.on_update(Widget)
def updated(old: Object, new: Object) -> None:
    log.info("updated: %s, %s", dict(old.spec), dict(new.spec))


@app.on_delete(Widget)
def deleted(widget: Object) -> None:
    log.info("deleted")


@app.on_delete(Widget)
def deleted_as_well(widget: Object) -> None:
    log.info("deleted, too")


@app.on_add(Widget)
def colored_at_first(widget: Object) -> None:
    if "color" in widget.spec:
        log.info("colored: %s, %s", None, widget.spec["color"])


@app.on_update(Widget, when=field("spec.color").changed)
def colored(old: Object, new: Object) -> None:
    log.info("colored: %s, %s", old.spec.get("color"), new.spec.get("color"))
