from appsdk_operator import App, Kind, Object

app = App("minimal")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


@app.on_add(Widget, result="status.greet")
def greet(widget: Object) -> dict[str, str]:
    return {"text": f"hello, {widget.name}"}
