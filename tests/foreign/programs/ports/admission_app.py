from appsdk_operator import App, Kind, MutableObject, Object
from appsdk_operator.webhooks import Denied, admission_request

app = App("admission")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


@app.validate(Widget, resources=["widgets", "widgets/status"])
def check(widget: Object) -> list[str]:
    request = admission_request()
    assert request is not None
    color = widget.spec.get("color")
    differs = color != (widget.status or {}).get("color")
    if request.subresource == "status":
        if differs:
            raise Denied("status.color: not that of the spec")
        return []
    if color == "pink" and not request.dry_run:
        raise Denied("spec.color: any but this one")
    if color == "octarine":
        raise Denied("spec.color: there are seven", code=409, reason="Conflict")
    return ["a user agent asks"] + ["status.color: change it as well"] * differs


@app.default(Widget, object_selector={"matchLabels": {"heavy": "yes"}})
def weigh(draft: MutableObject) -> None:
    draft.spec["weight"] = 123
