from __future__ import annotations

import datetime as dt

import pytest

from appsdk_operator.client import from_model, to_model
from appsdk_operator.resource import Kind, MutableObject

client = pytest.importorskip("kubernetes.client")

POD = Kind(group="", version="v1", kind="Pod")
LEASE = Kind(group="coordination.k8s.io", version="v1", kind="Lease")

DATA = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "x",
        "creationTimestamp": "2024-05-01T10:00:00Z",
        "labels": {"a": "b"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "o", "uid": "u"}],
    },
    "spec": {
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}],
        "nodeSelector": {"k": "v"},
    },
    "status": {"phase": "Running", "podIP": "10.0.0.1"},
}


def test_an_object_survives_the_way_through_a_model():
    model = to_model(MutableObject(POD, DATA).freeze(), "V1Pod")
    assert isinstance(model, client.V1Pod)
    assert model.spec.containers[0].ports[0].container_port == 80
    assert model.metadata.creation_timestamp == dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)
    assert from_model(POD, model).to_dict() == DATA


def test_a_model_made_by_hand_gets_its_kind():
    model = client.V1Pod(
        metadata=client.V1ObjectMeta(name="web", namespace="x"),
        spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="i")]),
    )
    draft = from_model(POD, model)
    assert draft.to_dict() == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "x"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


def test_times_of_a_lease_keep_the_six_digits_that_servers_want():
    when = dt.datetime(2024, 5, 1, 10, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    model = client.V1Lease(
        metadata=client.V1ObjectMeta(name="l", creation_timestamp=when.replace(tzinfo=None)),
        spec=client.V1LeaseSpec(renew_time=when),
    )
    draft = from_model(LEASE, model)
    assert draft["spec"] == {"renewTime": "2024-05-01T08:00:00.000000Z"}
    assert draft["metadata"]["creationTimestamp"] == "2024-05-01T10:00:00Z"


def test_fields_the_package_does_not_know_are_left_out():
    data = {**DATA, "future": 1, "spec": {**DATA["spec"], "futureField": {"a": 1}}}
    assert from_model(POD, to_model(MutableObject(POD, data), "V1Pod")).to_dict() == DATA


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="MutableObject"):
        from_model(POD, {"kind": "Pod"})
    with pytest.raises(ValueError, match="is a v1 Pod, not a"):
        from_model(LEASE, to_model(MutableObject(POD, DATA), "V1Pod"))
    for name in ("V1Nonsense", "ApiClient"):
        with pytest.raises(ValueError, match=f"no model '{name}'"):
            to_model(MutableObject(POD, DATA), name)


def test_an_object_that_does_not_fit_is_named():
    broken = MutableObject(POD, {**DATA, "metadata": {"name": "web", "creationTimestamp": "soon"}})
    with pytest.raises(ValueError, match="mutable Pod web"):
        to_model(broken, "V1Pod")
