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


def serve_versions(server, *versions, preferred):
    server.answers["/apis"]["groups"] = [
        {
            "name": "example.com",
            "versions": [{"version": version} for version in versions],
            "preferredVersion": {"version": preferred},
        }
    ]
    for path in [p for p in server.answers if p.startswith("/apis/example.com/")]:
        del server.answers[path]
    for version in versions:
        server.answers[f"/apis/example.com/{version}"] = {
            "resources": [entry("widgets", "Widget", short=["wi"])]
        }


def test_nothing_is_asked_before_somebody_wants_to_know(server):
    discovery = Discovery(server.get)
    assert server.asked == []
    discovery.resources("v1")
    assert server.asked == ["/api/v1"]


def test_the_preferred_version_comes_first_whatever_the_order_and_stays(discovery, server):
    serve_versions(server, "v1alpha1", "v1", "v2", preferred="v1")
    for _ in range(2):
        assert str(discovery.kind_for("widgets.example.com")) == "widgets.v1.example.com"
        assert str(discovery.kind_for("wi")) == "widgets.v1.example.com"
    # Another version that is preferred from now on changes nothing for who knows the kind.
    serve_versions(server, "v1alpha1", "v1", "v2", preferred="v2")
    assert str(discovery.kind_for("widgets.example.com")) == "widgets.v1.example.com"
    discovery.forget()
    assert str(discovery.kind_for("widgets.example.com")) == "widgets.v2.example.com"


def test_a_version_that_vanished_is_not_found_once_asked_anew(discovery, server):
    serve_versions(server, "v1", "v2", preferred="v1")
    discovery.kind_for("widgets.example.com")
    serve_versions(server, "v2", preferred="v2")
    discovery.forget()
    assert str(discovery.kind_for("widgets.example.com")) == "widgets.v2.example.com"
    with pytest.raises(NoSuchKind, match="in example"):
        discovery.kind_for("Widget", api_version="example.com/v1")


def test_a_version_that_vanished_between_two_questions_is_passed_over(discovery, server):
    serve_versions(server, "v1", "v2", preferred="v1")
    discovery.api_versions()
    serve_versions(server, "v2", preferred="v2")
    # The list of groups is from before; the next version of the group answers.
    assert str(discovery.kind_for("widgets.example.com")) == "widgets.v2.example.com"
    # Without a group only the preferred version is asked; it is gone, so all is asked anew.
    assert str(discovery.kind_for("wi")) == "widgets.v2.example.com"


def test_a_version_that_came_later_is_found_by_its_name(discovery, server):
    serve_versions(server, "v1", preferred="v1")
    discovery.kind_for("widgets.example.com")
    serve_versions(server, "v1", "v3", preferred="v1")
    kind = discovery.kind_for("widgets.v3.example.com")
    assert str(kind) == "widgets.v3.example.com"


def test_a_group_that_is_removed_and_comes_back_is_found_again(discovery, server):
    serve_versions(server, "v1", preferred="v1")
    discovery.kind_for("widgets.example.com")
    groups = server.answers["/apis"].pop("groups")
    discovery.forget()
    with pytest.raises(NoSuchKind):
        discovery.kind_for("widgets.example.com")
    server.answers["/apis"]["groups"] = groups
    assert str(discovery.kind_for("widgets.example.com")) == "widgets.v1.example.com"


def test_another_failure_than_not_found_is_no_missing_kind(discovery, server):
    serve_versions(server, "v1", preferred="v1")

    def fail(path):
        raise ConnectionError("no route")

    broken = Discovery(fail)
    with pytest.raises(ConnectionError):
        broken.kind_for("widgets.example.com")
