import logging

from appsdk_operator import App, Kind, Live, Object, StopSignal, annotation, field, labels

log = logging.getLogger(__name__)

app = App("filters")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


@app.on_add(Widget, where=labels("app=web"))
def label_equals(widget: Object) -> None:
    log.info("label equals")


@app.on_add(Widget, where=labels("app"))
def label_is_there(widget: Object) -> None:
    log.info("label is there")


@app.on_add(Widget, where=labels("!old"))
def label_is_not_there(widget: Object) -> None:
    log.info("label is not there")


@app.on_add(Widget, where=lambda it: it.labels.get("app") == "web" and "color" in it.spec)
def label_passes(widget: Object) -> None:
    log.info("label passes")


@app.on_add(Widget, where=annotation("note") == "new")
def annotation_equals(widget: Object) -> None:
    log.info("annotation equals")


@app.on_add(Widget, where=annotation("note"))
def annotation_is_there(widget: Object) -> None:
    log.info("annotation is there")


@app.on_add(Widget, where=~annotation("other"))
def annotation_is_not_there(widget: Object) -> None:
    log.info("annotation is not there")


@app.on_add(Widget, where=lambda widget: widget.name == "web")
def function_passes(widget: Object) -> None:
    log.info("function passes")


@app.on_add(Widget, where=lambda widget: False)
def never(widget: Object) -> None:
    log.info("never")


@app.on_add(Widget, where=field("spec.color") == "red")
def field_equals(widget: Object) -> None:
    log.info("field equals")


@app.on_add(Widget, where=field("spec.color") == "green")
def field_equals_another(widget: Object) -> None:
    log.info("field equals another")


@app.on_add(Widget, where=field("spec.color").exists)
def field_is_there(widget: Object) -> None:
    log.info("field is there")


@app.on_add(Widget, where=field("spec.weight").exists)
def other_field_is_there(widget: Object) -> None:
    log.info("other field is there")


@app.on_update(Widget, when=field("spec.color").left("red") & field("spec.color").became("blue"))
def from_red_to_blue(_old: Object, _new: Object) -> None:
    log.info("from red to blue")


@app.background(Widget, where=field("spec.color") == "red")
def while_red(live: Live, stop: StopSignal) -> None:
    log.info("%s is red", live.object.name)
    stop.wait()
    log.info("%s is red no more", live.object.name)
