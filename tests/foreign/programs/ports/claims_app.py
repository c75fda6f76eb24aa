from appsdk_operator import (
    App,
    Kind,
    MergePatch,
    MutableObject,
    Object,
    TerminalError,
    field,
    kinds,
    set_controller_reference,
)

app = App("claims")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))
Claim = kinds.core.v1.PersistentVolumeClaim
app.uses(Claim, verbs=["create", "patch"])


@app.on_add(Widget, result="status.provide.claim")
def provide(widget: Object) -> str:
    size = widget.spec.get("size")
    if not size:
        raise TerminalError("spec.size: none")
    claim = MutableObject.new(
        Claim,
        widget.name,
        namespace=widget.namespace,
        metadata={"labels": dict(widget.labels)},
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": "growing",
        },
    )
    set_controller_reference(widget, claim)
    app.client.create(claim)
    return widget.name


@app.on_update(Widget, when=field("spec.size").changed)
def resize(_old: Object, new: Object) -> None:
    change = MergePatch({"spec": {"resources": {"requests": {"storage": new.spec["size"]}}}})
    app.client.patch(Claim, new.name, change, namespace=new.namespace)


@app.on_update(Widget, when=field("metadata.labels").changed)
def relabel(old: Object, new: Object) -> None:
    change = MergePatch({"metadata": {"labels": {**dict.fromkeys(old.labels), **new.labels}}})
    app.client.patch(Claim, new.name, change, namespace=new.namespace)
