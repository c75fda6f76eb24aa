import os
from typing import Any

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        host="127.0.0.1",
        certfile=os.environ["CERTIFICATE"],
        pkeyfile=os.environ["KEY"],
    )
    settings.admission.managed = "admission.example.com"


@kopf.on.validate("widgets")
def greet(headers: kopf.Headers, warnings: list[str], **_: Any) -> None:
    if "User-Agent" in headers:
        warnings.append("a user agent asks")


@kopf.on.validate("widgets")
def check_color(spec: kopf.Spec, dryrun: bool, **_: Any) -> None:
    if spec.get("color") == "pink" and not dryrun:
        raise kopf.AdmissionError("spec.color: any but this one")


@kopf.on.validate("widgets", field="spec.color", value="octarine")
def check_number_of_colors(**_: Any) -> None:
    raise kopf.AdmissionError("spec.color: there are seven", code=409)


@kopf.on.validate("widgets", subresource="*")
def compare(
    spec: kopf.Spec, status: kopf.Status, subresource: str | None, warnings: list[str], **_: Any
) -> None:
    if spec.get("color") != status.get("color"):
        if subresource == "status":
            raise kopf.AdmissionError("status.color: not that of the spec")
        warnings.append("status.color: change it as well")


@kopf.on.mutate("widgets", labels={"heavy": "yes"})
def weigh(patch: kopf.Patch, **_: Any) -> None:
    patch.spec["weight"] = 123
