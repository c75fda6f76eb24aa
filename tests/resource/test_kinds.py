"""The table of built-in kinds."""

from __future__ import annotations

import copy
import pickle

import pytest

from appsdk_operator.resource import Kind, Scope, kinds


def test_kinds_are_reached_by_group_version_and_name() -> None:
    assert kinds.core.v1.ConfigMap == Kind(group="", version="v1", kind="ConfigMap")
    assert kinds.rbac.v1.ClusterRole.scope is Scope.CLUSTER
    assert str(kinds.apps.v1.Deployment) == "deployments.v1.apps"
    assert kinds.networking.v1.Ingress.plural == "ingresses"
    assert kinds.autoscaling.v1.HorizontalPodAutoscaler.version == "v1"


@pytest.mark.parametrize(
    ("where", "name", "text"),
    [
        (kinds.apps.v1, "Deploymnt", "did you mean Deployment"),
        (kinds.core.v1, "configmap", "did you mean ConfigMap"),
        (kinds.coordination.v1, "Zebra", "there are Lease"),
        (kinds.apps, "v2", "did you mean v1"),
    ],
)
def test_an_unknown_name_is_told_with_those_that_look_alike(
    where: object, name: str, text: str
) -> None:
    with pytest.raises(AttributeError) as unknown:
        getattr(where, name)
    assert text in str(unknown.value)


def test_the_table_tells_what_discovery_tells() -> None:
    found = {str(entry.kind): entry for entry in kinds.builtin_kinds()}
    deployment = found["deployments.v1.apps"]
    assert deployment.singular == "deployment"
    assert deployment.short_names == ("deploy",)
    assert deployment.categories == ("all",)
    assert deployment.subresources == ("scale", "status")
    assert found["customresourcedefinitions.v1.apiextensions.k8s.io"].categories == (
        "api-extensions",
    )
    assert found["tokenreviews.v1.authentication.k8s.io"].verbs == ("create",)


def test_every_kind_is_there_once_and_groups_list_theirs() -> None:
    entries = list(kinds.builtin_kinds())
    assert len({str(entry.kind) for entry in entries}) == len(entries) > 50
    assert kinds.core.v1.Pod in list(kinds.core)
    assert {kind.group for kind in kinds.storage} == {"storage.k8s.io"}
    assert "Deployment" in dir(kinds.apps.v1)
    assert "v1" in dir(kinds.apps)
    assert repr(kinds.apps.v1) == "<kinds of kinds.apps.v1>"
    assert repr(kinds.core) == "<kinds of the core group>"


def test_kinds_can_be_copied_and_pickled() -> None:
    kind = kinds.core.v1.Pod
    assert copy.deepcopy(kind) == kind
    assert pickle.loads(pickle.dumps(kind)) == kind
