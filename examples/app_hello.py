"""An operator in one file: it greets whoever a Greeting names, and says goodbye.

Run ``appsdk-operator run examples/app_hello.py --dev``, and create Greetings with kubectl.
"""

from __future__ import annotations

import attrs

from appsdk_operator import App, Kind, MergePatch, Object


@attrs.frozen
class GreetingSpec:
    """Who is greeted."""

    name: str = "world"


app = App("hello")
GREETING = app.own(
    Kind(group="hello.example.com", version="v1", kind="Greeting", spec=GreetingSpec)
)


@app.on_add(GREETING)
def greet(greeting: Object[GreetingSpec]) -> None:
    """Write the status of a new object."""
    status = MergePatch({"status": {"text": f"hello {greeting.spec.name}"}})
    app.client.status.patch(GREETING, greeting.name, status, namespace=greeting.namespace)


@app.on_delete(GREETING)
def part(greeting: Object[GreetingSpec]) -> None:
    """Take leave before the object goes."""
    print(f"goodbye {greeting.spec.name}", flush=True)


if __name__ == "__main__":
    app.run()
