from appsdk_operator import App, Kind, MutableObject, Object, kinds, set_controller_reference

app = App("children")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))
Pod = kinds.core.v1.Pod
app.uses(Pod, verbs=["create"])


@app.on_add(Widget, result="status.make.children")
def make(widget: Object) -> list[str]:
    variable = {"name": "COLOR", "value": widget.spec.get("color", "none")}
    container = {"name": "main", "image": "busybox", "env": [variable]}
    metadata = {"generateName": f"{widget.name}-", "labels": dict(widget.labels)}
    pod = MutableObject.new(
        Pod, namespace=widget.namespace, metadata=metadata, spec={"containers": [container]}
    )
    set_controller_reference(widget, pod)
    return [app.client.create(pod).uid]
