from appsdk_operator import App, Kind, Object

app = App("events")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


@app.on_add(Widget)
def report(widget: Object) -> None:
    app.events.event(widget, "Normal", "Seen", "Report", "a new widget")
    app.events.event(widget, "Normal", "Measured", "Report", "it is small")
    app.events.event(widget, "Warning", "Measured", "Report", "it may grow")
    try:
        raise OSError("no scales")
    except OSError as error:
        app.events.event(widget, "Warning", "Weighed", "Report", f"not yet: {error}")
