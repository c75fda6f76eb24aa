"""Claims of storage that go with their owner: the EphemeralVolumeClaim of kopf's tutorial.

Run ``appsdk-operator run --dev examples/ephemeral_volume_claim.py``, and create some with kubectl.
"""

import attrs

from appsdk_operator import App, Kind, MergePatch, MutableObject, Object, field, kinds
from appsdk_operator.client import AlreadyExists, Invalid, NotFound
from appsdk_operator.controllers import has_owner_reference, set_controller_reference
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


@app.on_add(EVC)
@app.on_sync(EVC)  # after a restart, for those that were handled before
def create(evc: Object[Spec, Status]) -> None:
    size = {"requests": {"storage": evc.spec.size}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": size}
    claim = MutableObject.new(PVC, evc.name, namespace=evc.namespace, spec=spec)
    set_controller_reference(evc, claim)  # it is deleted with its owner
    try:
        app.client.create(claim)
        app.events.event(evc, "Normal", "Created", "Create", f"a claim of {evc.spec.size}")
    except AlreadyExists:
        found = app.live_client.get(PVC, evc.name, namespace=evc.namespace)
        if not has_owner_reference(evc, found):
            raise  # somebody else's
        resize(evc, evc)  # its size may have changed while no operator ran
    status = MergePatch({"status": {"claim": claim.name}})
    app.client.status.patch(EVC, evc.name, status, namespace=evc.namespace)


@app.on_update(EVC, when=field("spec.size").changed)
def resize(old: Object[Spec, Status], new: Object[Spec, Status]) -> None:
    size = MergePatch({"spec": {"resources": {"requests": {"storage": new.spec.size}}}})
    try:
        app.client.patch(PVC, new.name, size, namespace=new.namespace)
    except Invalid as error:  # it is smaller, or not bound to a volume yet: tried again later
        note = f"from {old.spec.size} to {new.spec.size}: {error}"
        app.events.event(new, "Warning", "Refused", "Resize", note)
        raise


@app.object_reconciler(EVC, owns=[PVC])  # labels are no part of a spec
def label(evc: Object[Spec, Status]) -> None:
    try:
        claim = app.client.get(PVC, evc.name, namespace=evc.namespace)
    except NotFound:
        return  # it is called again when there is one
    if has_owner_reference(evc, claim) and claim.labels != evc.labels:
        labels = MutableObject.new(PVC, evc.name, namespace=evc.namespace)
        labels.labels.update(evc.labels)
        app.client.apply(labels, force=True)  # labels that are gone are taken away, too
