"""Claims that go with their owner, as in kopf's tutorial; ``appsdk-operator run --dev`` runs it."""

import attrs

from appsdk_operator import App, Kind, MutableObject, Object, TerminalError, field, kinds
from appsdk_operator.client import Invalid
from appsdk_operator.controllers import (
    create_or_patch,
    has_owner_reference,
    set_controller_reference,
)
from appsdk_operator.resource import Quantity


@attrs.frozen
class Spec:
    size: Quantity


@attrs.frozen
class Status:
    claim: str = ""


app = App("ephemeral-volumes")
EVC = Kind(group="example.com", version="v1", kind="EphemeralVolumeClaim", spec=Spec, status=Status)
PVC = kinds.core.v1.PersistentVolumeClaim
app.own(EVC, short_names=["evc"])
app.uses(PVC, verbs=["get", "create", "patch"])


@app.on_add(EVC, result="status.claim")
@app.on_sync(EVC, result="status.claim")  # it may have changed while no operator ran
def provide(evc: Object[Spec, Status]) -> str:
    def fill(claim: MutableObject) -> None:
        if claim.resource_version and not has_owner_reference(evc, claim):
            raise TerminalError(f"the claim {claim.name} is somebody else's")
        set_controller_reference(evc, claim)  # it is deleted with its owner
        claim["metadata"]["labels"] = dict(evc.labels)
        spec = claim.data.setdefault("spec", {"accessModes": ["ReadWriteOnce"]})
        spec["resources"] = {"requests": {"storage": evc.spec.size}}

    try:
        draft = MutableObject.new(PVC, evc.name, namespace=evc.namespace)
        done = create_or_patch(app.live_client, draft, fill).result
        app.events.event(evc, "Normal", "Provided", "Provide", f"{evc.spec.size}: {done}")
    except Invalid as error:  # it is smaller, or not bound to a volume yet: tried again later
        app.events.event(evc, "Warning", "Refused", "Provide", f"{evc.spec.size}: {error}")
        raise
    return evc.name


@app.on_update(EVC, when=field("spec.size").changed | field("metadata.labels").changed)
def change(_old: Object[Spec, Status], new: Object[Spec, Status]) -> None:
    provide(new)
