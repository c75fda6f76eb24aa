from __future__ import annotations

import pytest

from appsdk_operator.client import (
    ConnectFailed,
    Discovery,
    Forbidden,
    NoSuchKind,
    NotFound,
    ReadTimeout,
    ServerVersion,
    ServiceUnavailable,
    Unauthorized,
)
from appsdk_operator.resource import DecodeError, Scope, encode_json


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
    # The same without a group.
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


@pytest.mark.parametrize(
    ("ask", "path"),
    [
        (lambda discovery: discovery.resources("v1"), "/api/v1"),
        (lambda discovery: discovery.api_versions(), "/api"),
    ],
)
def test_an_answer_from_before_it_was_forgotten_is_not_kept(server, ask, path):
    def get(asked):
        answer = server.get(asked)
        if len(server.asked) == 1:
            discovery.forget()  # as another thread may, while the answer is under way
        return answer

    discovery = Discovery(get)
    assert ask(discovery) == ask(discovery) == ask(discovery)
    assert server.asked.count(path) == 2


def test_another_failure_than_not_found_is_no_missing_kind(discovery, server):
    serve_versions(server, "v1", preferred="v1")

    def fail(path):
        raise ConnectionError("no route")

    broken = Discovery(fail)
    with pytest.raises(ConnectionError):
        broken.kind_for("widgets.example.com")


def break_group(server, failure, path="/apis/metrics.k8s.io/v1beta1"):
    """An aggregated server that is down stays in the list of groups, before those of CRDs."""
    group, version = path.removeprefix("/apis/").split("/")
    server.answers["/apis"]["groups"].insert(0, {"name": group, "versions": [{"version": version}]})
    healthy, asked = server.get, []

    def get(path_asked):
        if path_asked == path:
            asked.append(path)
            raise failure
        return healthy(path_asked)

    server.get = get
    return asked


@pytest.mark.parametrize(
    "failure",
    [
        ServiceUnavailable("the server is currently unable", status=503),
        Forbidden("no", status=403),
        ReadTimeout("nothing came", sent=True),
        DecodeError("not JSON"),
    ],
)
def test_a_broken_group_keeps_no_name_from_being_found_in_the_others(server, failure):
    asked = break_group(server, failure)
    discovery = Discovery(server.get)
    assert str(discovery.kind_for("deploy")) == "deployments.v1.apps"
    assert str(discovery.kind_for("deployments.apps")) == "deployments.v1.apps"
    # From now on it is asked last, so its time-out is paid once.
    assert str(discovery.kind_for("deployments")) == "deployments.v1.apps"
    assert len(asked) == 1


def test_a_name_that_may_be_of_a_broken_group_is_not_said_to_be_unknown(server):
    unavailable = ServiceUnavailable("the server is currently unable", status=503)
    break_group(server, unavailable)
    discovery = Discovery(server.get)
    with pytest.raises(
        NoSuchKind, match=r"metrics\.k8s\.io/v1beta1 did not answer: .*503"
    ) as refused:
        discovery.kind_for("podmetrics")
    assert refused.value.__cause__ is unavailable
    with pytest.raises(ServiceUnavailable):
        discovery.kind_for("podmetrics.metrics.k8s.io")
    with pytest.raises(ServiceUnavailable):
        discovery.kind_for("podmetrics", api_version="metrics.k8s.io/v1beta1")


def test_a_group_that_answers_again_is_asked_in_its_place(server):
    asked = break_group(server, ServiceUnavailable("down", status=503), "/apis/first.io/v1")
    discovery = Discovery(lambda path: server.get(path))  # noqa: PLW0108 - exchanged below
    assert str(discovery.kind_for("deployments")) == "deployments.v1.apps"
    healthy = FakeServer()
    healthy.answers["/apis"] = server.answers["/apis"]
    healthy.answers["/apis/first.io/v1"] = {"resources": [entry("deployments", "Deployment")]}
    server.get = healthy.get
    assert str(discovery.kind_for("deployments.first.io")) == "deployments.v1.first.io"
    assert str(discovery.kind_for("deployments")) == "deployments.v1.first.io"
    assert len(asked) == 1


@pytest.mark.parametrize("failure", [Unauthorized("who?", status=401), ConnectFailed("refused")])
def test_a_failure_of_the_whole_server_is_not_asked_of_each_group(server, failure):
    asked = break_group(server, failure)
    with pytest.raises(type(failure)):
        Discovery(server.get).kind_for("deployments")
    assert len(asked) == 1


def test_failures_that_pass_are_waited_for_only_when_nothing_else_was_found(server):
    break_group(server, ServiceUnavailable("down", status=503))
    patient = []

    def wait(path):
        patient.append(path)
        return server.get(path)

    discovery = Discovery(wait, get_once=server.get)
    discovery.kind_for("deployments")
    assert patient == ["/api", "/apis"]
    with pytest.raises(NoSuchKind):
        discovery.kind_for("nothing")
    assert "/apis/metrics.k8s.io/v1beta1" in patient


def test_what_is_served_in_a_version_that_is_not_preferred_is_found(discovery, server):
    server.answers["/apis/apps/v1beta1"]["resources"].append(
        entry("cronjobs", "CronJob", short=["cj"])
    )
    for name in ("cronjobs", "cj", "CronJob", "cronjobs.apps"):
        assert str(discovery.kind_for(name)) == "cronjobs.v1beta1.apps"


def test_a_preferred_version_of_any_group_comes_before_the_others(discovery, server):
    server.answers["/apis"]["groups"].append({"name": "later.io", "versions": [{"version": "v1"}]})
    server.answers["/apis/later.io/v1"] = {"resources": [entry("cronjobs", "CronJob")]}
    server.answers["/apis/apps/v1beta1"]["resources"].append(entry("cronjobs", "CronJob"))
    assert str(discovery.kind_for("cronjobs")) == "cronjobs.v1.later.io"


@pytest.mark.parametrize(
    "answer", [[], {"resources": [{"kind": "A"}]}, {"resources": 5}, {"resources": ["a"]}, None]
)
def test_an_answer_that_is_no_list_of_resources_is_an_error_that_says_so(discovery, server, answer):
    server.answers["/api/v1"] = answer
    with pytest.raises(DecodeError, match="what the server says of v1 is not a list"):
        discovery.resources("v1")
    assert str(discovery.kind_for("deployments")) == "deployments.v1.apps"


def test_a_resource_whose_name_no_kind_has_hides_no_other(discovery, server):
    server.answers["/apis/broken.io/v1"] = {
        "resources": [
            entry("s0-rabbitmq_Queue", "ExternalMetricValueList"),
            entry("goods", "Good"),
            entry("bads", "-"),
        ]
    }
    assert str(discovery.kind_for("goods")) == "goods.v1.broken.io"
    assert [str(one.kind) for one in discovery.resources("broken.io/v1")] == ["goods.v1.broken.io"]


def test_a_group_without_versions_is_passed_over(discovery, server):
    server.answers["/apis"]["groups"].insert(0, {"name": "empty.io", "versions": []})
    assert str(discovery.kind_for("deployments")) == "deployments.v1.apps"


@pytest.mark.parametrize("name", ["", None, 5, ["pods"]])
def test_a_kind_is_named_by_text(discovery, name):
    with pytest.raises(TypeError, match="name="):
        discovery.kind_for(name)
