import logging

from appsdk_operator import App, ConstantBackoff, Kind, Object, each

log = logging.getLogger(__name__)

app = App("parts")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))


@app.on_add(Widget, retry=ConstantBackoff(0.05))
async def make(widget: Object) -> None:
    tried = app.memo(widget).setdefault("tried", set())

    async def make_part(part: str) -> None:
        log.info("makes %s", part)
        if part == "wheel" and part not in tried:
            tried.add(part)
            raise OSError("it rolls away")

    await each(widget.spec.get("parts", []), make_part)
