from typing import Any

import kopf


@kopf.on.create("widgets")
def greet(name: str, **_: Any) -> dict[str, str]:
    return {"text": f"hello, {name}"}
