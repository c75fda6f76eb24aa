"""Owner references: who owns what, in which place of the list, and what cannot be."""

from __future__ import annotations

import pytest

from appsdk_operator.controllers import (
    AlreadyOwnedError,
    OwnerError,
    controller_of,
    has_controller_reference,
    has_owner_reference,
    remove_controller_reference,
    remove_owner_reference,
    set_controller_reference,
    set_owner_reference,
)
from appsdk_operator.resource import Kind, MutableObject, Object, ReadOnlyError, Scope, kinds

DEPLOYMENT = kinds.apps.v1.Deployment
BETA = Kind(group="apps", version="v1beta1", kind="Deployment")
POD = kinds.core.v1.Pod
NODE = kinds.core.v1.Node
CLUSTER = Kind(group="example.com", version="v1", kind="Zone", scope=Scope.CLUSTER)


def owner(name: str = "web", uid: str = "u1", kind: Kind = DEPLOYMENT, namespace: str = "x"):
    metadata = {"name": name, "uid": uid, "namespace": namespace}
    return Object.from_dict(kind, {"metadata": {k: v for k, v in metadata.items() if v}})


def pod(**metadata) -> MutableObject:
    draft = MutableObject.new(POD, "web-1", namespace="x")
    draft.metadata.update(metadata)
    return draft


def reference(**fields):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u1", **fields}


def test_a_controller_is_set_once_and_can_be_found():
    obj = pod()
    assert not has_controller_reference(obj)
    assert set_controller_reference(owner(), obj) is True
    assert obj.metadata["ownerReferences"] == [reference(controller=True, blockOwnerDeletion=True)]
    assert set_controller_reference(owner(), obj) is False
    for view in (obj, obj.freeze()):
        assert has_controller_reference(view)
        assert has_owner_reference(owner(), view)
        assert not has_owner_reference(owner("other"), view)
        found = controller_of(view)
        assert found is not None
        assert (found.name, found.uid, found.block_owner_deletion) == ("web", "u1", True)


def test_blocking_the_deletion_of_the_owner_can_be_left_out():
    obj = pod()
    set_controller_reference(owner(), obj, block_owner_deletion=False)
    assert obj.metadata["ownerReferences"][0]["blockOwnerDeletion"] is False


def test_a_plain_owner_is_no_controller_and_comes_at_the_end():
    obj = pod(ownerReferences=[reference(name="first", uid="u0")])
    assert set_owner_reference(owner(), obj) is True
    assert obj.metadata["ownerReferences"][1] == reference()
    assert controller_of(obj) is None
    assert set_owner_reference(owner(), obj) is False
    assert set_owner_reference(owner(), obj, block_owner_deletion=True) is True
    assert obj.metadata["ownerReferences"][1] == reference(blockOwnerDeletion=True)


def test_the_same_owner_in_another_version_or_with_another_uid_is_replaced_in_its_place():
    old = reference(apiVersion="apps/v1beta1", uid="u0", controller=True)
    other = reference(name="other", uid="u7")
    obj = pod(ownerReferences=[old, other])
    assert set_controller_reference(owner(), obj) is True
    assert obj.metadata["ownerReferences"] == [
        reference(controller=True, blockOwnerDeletion=True),
        other,
    ]


def test_doubles_of_one_owner_become_one():
    obj = pod(ownerReferences=[reference(controller=True), reference(apiVersion="apps/v1beta1")])
    assert set_owner_reference(owner(), obj) is True
    assert obj.metadata["ownerReferences"] == [reference(controller=True)]


def test_setting_a_plain_owner_does_not_take_control_away():
    obj = pod()
    set_controller_reference(owner(), obj)
    assert set_owner_reference(owner(), obj) is False
    assert has_controller_reference(obj)


def test_a_second_controller_is_refused_and_both_are_named():
    obj = pod(ownerReferences=[reference(name="first", uid="u0", controller=True)])
    with pytest.raises(
        AlreadyOwnedError, match=r"Pod x/web-1 .* Deployment first \(uid u0\)"
    ) as it:
        set_controller_reference(owner(), obj)
    assert it.value.owner.name == "first"
    assert it.value.obj is obj
    assert len(obj.metadata["ownerReferences"]) == 1


@pytest.mark.parametrize("group", ["other", ""])
def test_a_controller_of_the_same_name_in_another_group_is_another(group):
    version = f"{group}/v1" if group else "v1"
    obj = pod(ownerReferences=[reference(apiVersion=version, controller=True)])
    with pytest.raises(AlreadyOwnedError):
        set_controller_reference(owner(), obj)


@pytest.mark.parametrize("put", [set_controller_reference, set_owner_reference])
def test_what_cannot_own_is_refused_with_a_remedy(put):
    with pytest.raises(OwnerError, match="create it first"):
        put(owner(uid=""), pod())
    with pytest.raises(OwnerError, match="create it first"):
        put(MutableObject.new(DEPLOYMENT, "web", namespace="x"), pod())
    with pytest.raises(OwnerError, match="in namespace x: owners are in the same namespace"):
        put(owner(namespace="y"), pod())
    with pytest.raises(OwnerError, match="without a namespace yet"):
        put(owner(), MutableObject.new(POD, "web-1"))
    with pytest.raises(OwnerError, match=r"own the cluster-scoped Node n1: .* finalizer"):
        put(owner(), MutableObject.new(NODE, "n1"))


@pytest.mark.parametrize("put", [set_controller_reference, set_owner_reference])
def test_a_cluster_scoped_owner_may_own_everything(put):
    zone = owner("z", "u3", CLUSTER, "")
    for obj in (pod(), MutableObject.new(NODE, "n1")):
        assert put(zone, obj) is True
        assert has_owner_reference(zone, obj)


def test_a_changeable_copy_may_be_the_owner():
    obj = pod()
    set_owner_reference(owner().mutable_copy(), obj)
    assert obj.metadata["ownerReferences"] == [reference()]


@pytest.mark.parametrize(
    "change",
    [
        set_controller_reference,
        set_owner_reference,
        remove_owner_reference,
        remove_controller_reference,
    ],
)
def test_a_read_only_object_is_refused_with_the_way_out(change):
    with pytest.raises(ReadOnlyError, match=r"mutable_copy\(\)"):
        change(owner(), pod().freeze())
    with pytest.raises(TypeError, match="not a MutableObject"):
        change(owner(), {"metadata": {}})


def test_references_are_removed_in_whatever_version():
    other = reference(name="other", uid="u7")
    obj = pod(ownerReferences=[reference(apiVersion="apps/v1beta1"), other])
    assert remove_owner_reference(owner(), obj) is True
    assert obj.metadata["ownerReferences"] == [other]
    assert remove_owner_reference(owner(), obj) is False
    assert remove_owner_reference(owner("other"), obj) is True
    assert "ownerReferences" not in obj.metadata


def test_only_the_controller_itself_is_removed_as_controller():
    obj = pod(ownerReferences=[reference(), reference(name="boss", uid="u9", controller=True)])
    assert remove_controller_reference(owner(), obj) is False
    assert remove_controller_reference(owner("boss"), obj) is True
    assert obj.metadata["ownerReferences"] == [reference()]


def test_asking_adds_nothing_and_nonsense_is_no_owner():
    bare = MutableObject(POD, {})
    assert not has_owner_reference(owner(), bare)
    assert not remove_owner_reference(owner(), bare)
    assert bare.data == {}
    assert not has_owner_reference(owner(), pod(ownerReferences=None))
    assert not has_owner_reference(owner(), pod(ownerReferences=[{"apiVersion": "a/b/c"}, {}]))
