from __future__ import annotations

import pytest

from appsdk_operator.client import NoSuchKind, NotFound, ServerVersion
from appsdk_operator.client._discovery import Discovery
from appsdk_operator.resource import Scope, encode_json


def entry(name, kind, *, namespaced=True, singular="", short=(), verbs=("get", "watch")):
    return {
        "name": name,
        "kind": kind,
        "namespaced": namespaced,
        "singularName": singular,
        "shortNames": list(short),
        "verbs": list(verbs),
    }


class FakeServer:
    def __init__(self):
        self.asked = []
        self.answers = {
            "/version": {"major": "1", "minor": "29+", "gitVersion": "v1.29.3-eks"},
            "/api": {"versions": ["v1"]},
            "/apis": {
                "groups": [
                    {
                        "name": "apps",
                        "versions": [{"version": "v1beta1"}, {"version": "v1"}],
                        "preferredVersion": {"version": "v1"},
                    },
                    {"name": "broken.io", "versions": [{"version": "v1"}]},
                ]
            },
            "/api/v1": {
                "resources": [
                    entry("pods", "Pod", singular="pod", short=["po"]),
                    entry("pods/status", "Pod"),
                    entry("nodes", "Node", namespaced=False),
                ]
            },
            "/apis/apps/v1": {"resources": [entry("deployments", "Deployment", short=["deploy"])]},
            "/apis/apps/v1beta1": {"resources": [entry("deployments", "Deployment")]},
        }

    def get(self, path):
        self.asked.append(path)
        if path not in self.answers:
            raise NotFound(path, status=404)
        return encode_json(self.answers[path])


@pytest.fixture
def server():
    return FakeServer()


@pytest.fixture
def discovery(server):
    return Discovery(server.get)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pods", "pods.v1"),
        ("Pod", "pods.v1"),
        ("pod", "pods.v1"),
        ("po", "pods.v1"),
        ("nodes", "nodes.v1"),
        ("deploy", "deployments.v1.apps"),
        ("deployments.apps", "deployments.v1.apps"),
        ("Deployment.apps", "deployments.v1.apps"),
        ("deployments.v1beta1.apps", "deployments.v1beta1.apps"),
    ],
)
def test_a_kind_is_found_by_each_of_its_names(discovery, name, expected):
    assert str(discovery.kind_for(name)) == expected


def test_a_kind_is_found_in_the_version_that_is_named(discovery):
    kind = discovery.kind_for("Deployment", api_version="apps/v1beta1")
    assert str(kind) == "deployments.v1beta1.apps"
    with pytest.raises(NoSuchKind, match="in apps/v2"):
        discovery.kind_for("Deployment", api_version="apps/v2")


def test_scope_verbs_and_subresources_are_told(discovery):
    pods, nodes = discovery.resources("v1")
    assert (pods.kind.scope, nodes.kind.scope) == (Scope.NAMESPACED, Scope.CLUSTER)
    assert pods.subresources == {"status"}
    assert pods.verbs == {"get", "watch"}
    assert discovery.api_versions() == ["v1", "apps/v1", "apps/v1beta1", "broken.io/v1"]


def test_answers_are_kept(discovery, server):
    discovery.kind_for("deployments.apps")
    before = len(server.asked)
    discovery.kind_for("deployments.apps")
    assert len(server.asked) == before
    # Only the group in question is asked.
    assert "/api/v1" not in server.asked


def test_a_kind_whose_crd_came_later_is_found_by_asking_anew(discovery, server):
    with pytest.raises(NoSuchKind, match="its CRD is installed"):
        discovery.kind_for("widgets.example.com")
    server.answers["/apis"]["groups"].append(
        {"name": "example.com", "versions": [{"version": "v1"}]}
    )
    server.answers["/apis/example.com/v1"] = {"resources": [entry("widgets", "Widget")]}
    assert str(discovery.kind_for("widgets.example.com")) == "widgets.v1.example.com"


def test_a_group_that_is_not_served_any_more_is_no_obstacle(discovery):
    with pytest.raises(NoSuchKind):
        discovery.kind_for("nothing")


def test_a_version_that_is_not_served_is_not_found(discovery):
    with pytest.raises(NotFound):
        discovery.resources("apps/v9")


def test_the_server_version_is_a_value_that_can_be_compared(discovery, server):
    version = discovery.server_version()
    assert version == ServerVersion(1, 29)
    assert version.git_version == "v1.29.3-eks"
    server.answers["/version"] = {"major": "", "minor": "", "gitVersion": "v1.20.2"}
    assert discovery.server_version() == ServerVersion(1, 20)
    server.answers["/version"] = {}
    assert discovery.server_version() == ServerVersion(0, 0)
