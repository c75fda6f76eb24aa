"""Roles made of what an operator declares and needed in tests, and the comparison with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import Client, Kind, MutableObject, kinds
from appsdk_operator.app import App, Permission
from appsdk_operator.project import (
    Grants,
    Recording,
    Roles,
    dump_permissions,
    load_permissions,
    roles,
)
from appsdk_operator.resource import dump_yaml, load_yaml
from appsdk_operator.testing import Access, MemoryServer
from tests.hypothesis_profiles import scaled

BUCKET: Kind[Any, Any] = Kind(group="example.com", version="v1", kind="Bucket")
PODS = Permission(groups=[""], resources=["pods"], verbs=["get", "list"], reasons=["it counts"])


def access(verb: str, resource: str, **more: str) -> Access:
    """A request of the operator."""
    whole, _, subresource = resource.partition("/")
    return Access(user="operator", verb=verb, resource=whole, subresource=subresource, **more)


def rules(permissions: Sequence[Permission]) -> list[tuple[str, str, str, str | None]]:
    """Resources or paths, verbs, names and namespace of each."""
    return [
        (
            " ".join([*each.resources, *each.paths]),
            " ".join(each.verbs),
            " ".join(each.names),
            each.namespace,
        )
        for each in permissions
    ]


# -- roles ---------------------------------------------------------------------------------------


def test_each_rule_has_its_reasons_as_comments() -> None:
    text = roles([PODS], name="counter", namespace="n").texts()["role.yaml"]
    assert "rules:\n# it counts\n- apiGroups:\n  - ''\n" in text


@pytest.mark.parametrize("reason", ["two\nlines", "a: b # c", "x " * 200, "- rules: []"])
def test_no_reason_changes_what_the_yaml_says(reason: str) -> None:
    made = roles([PODS], name="counter", namespace="n")
    told = roles(
        [Permission(groups=[""], resources=["pods"], verbs=["get", "list"], reasons=[reason])],
        name="counter",
        namespace="n",
    )
    assert load_yaml(told.texts()["role.yaml"]) == load_yaml(made.texts()["role.yaml"])
    assert max(map(len, told.texts()["role.yaml"].splitlines())) <= 100


def test_the_texts_are_the_objects() -> None:
    made = roles(
        [PODS, Permission(groups=[""], resources=["secrets"], verbs=["get"], namespace="")],
        name="counter",
        namespace="n",
    )
    documents = [each for text in made.texts().values() for each in load_yaml(text)]
    assert documents == [each.to_dict() for each in made.objects]
    assert [each["kind"] for each in documents] == [
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "ClusterRoleBinding",
        "RoleBinding",
    ]


def test_an_app_gives_its_name_its_namespaces_and_its_permissions() -> None:
    app = App("buckets", namespaces=["b", "a"])
    app.on_add(BUCKET)(lambda _: None)
    app.uses(kinds.core.v1.Node, reason="it looks at nodes")
    made = roles(app, namespace="ops")
    assert {each.name for each in made.objects} == {"buckets"}
    assert [(each.kind.kind, each.namespace) for each in made.objects] == [
        ("ServiceAccount", "ops"),
        ("ClusterRole", ""),
        ("Role", "a"),
        ("Role", "b"),
        ("ClusterRoleBinding", ""),
        ("RoleBinding", "a"),
        ("RoleBinding", "b"),
    ]
    assert rules(made.cluster) == [("nodes", "get list watch", "", None)]
    assert {each.resources for each in made.by_namespace["a"]} >= {("buckets",)}


def test_a_rule_for_names_has_no_create_because_a_create_names_nothing() -> None:
    secret = Permission(
        groups=[""], resources=["secrets"], verbs=["get", "create"], names=["cert"], namespace=""
    )
    made = roles([secret], name="counter", namespace="n")
    assert rules(made.by_namespace["n"]) == [
        ("secrets", "create", "", "n"),
        ("secrets", "get", "cert", "n"),
    ]


def test_a_rule_of_the_cluster_for_names_has_no_create_either() -> None:
    crds = Permission(groups=["x"], resources=["crds"], verbs=["get", "create"], names=["a"])
    made = roles([crds], name="counter", namespace="n")
    assert rules(made.cluster) == [("crds", "create", "", None), ("crds", "get", "a", None)]


def test_what_is_allowed_everywhere_is_not_repeated_in_a_namespace() -> None:
    there = Permission(groups=[""], resources=["pods"], verbs=["get", "create"], namespace="n")
    made = roles([PODS, there], name="counter", namespace="n")
    assert rules(made.by_namespace["n"]) == [("pods", "create", "", "n")]


def test_what_tests_needed_is_added_with_the_tests_as_its_reason() -> None:
    recorded = [
        Permission(
            groups=[""], resources=["pods"], verbs=["get", "delete"], reasons=["a", "b", "c"]
        )
    ]
    made = roles([PODS], name="counter", namespace="n", recorded=recorded)
    (rule,) = made.cluster
    assert rule.verbs == ("get", "list", "delete")
    assert rule.reasons == ("it counts", "delete recorded in a, b and 1 more")


def test_what_is_declared_for_the_own_namespace_is_not_recorded_for_all() -> None:
    lease = Permission(groups=["g"], resources=["leases"], verbs=["get"], namespace="")
    seen = Permission(groups=["g"], resources=["leases"], verbs=["get", "list"])
    made = roles([lease], name="counter", namespace="n", recorded=[seen])
    assert rules(made.cluster) == [("leases", "list", "", None)]
    assert rules(made.by_namespace["n"]) == [("leases", "get", "", "n")]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"namespace": "n"}, "name is missing"),
        ({"name": "a b", "namespace": "n"}, "name='a b'"),
        ({"name": "a", "namespace": ""}, "namespace=''"),
    ],
)
def test_names_that_are_none_are_refused(options: dict[str, str], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        roles([PODS], **options)  # type: ignore[arg-type]


# -- recordings ----------------------------------------------------------------------------------


def test_the_namespace_of_a_test_stands_for_all_and_others_for_themselves() -> None:
    recording = Recording()
    recording.add(
        "test_a",
        [access("get", "pods", namespace="t1"), access("get", "secrets", namespace="kube-system")],
        namespaces=["t1"],
    )
    assert rules(recording.permissions()) == [
        ("pods", "get", "", None),
        ("secrets", "get", "", "kube-system"),
    ]


def test_what_is_needed_in_all_namespaces_is_not_recorded_for_one_again() -> None:
    recording = Recording()
    found = [access("list", "pods", namespace=each) for each in ("", "t", "kube-system")]
    recording.add("test", found, namespaces=["t"])
    (only,) = recording.permissions()
    assert (only.is_cluster_wide, only.namespace) == (True, None)


def test_what_is_needed_where_the_operator_works_is_recorded_for_other_namespaces_too() -> None:
    recording = Recording()
    found = [access("get", "pods", namespace=each) for each in ("t", "kube-system")]
    recording.add("test", found, namespaces=["t"])
    assert rules(recording.permissions()) == [
        ("pods", "get", "", None),
        ("pods", "get", "", "kube-system"),
    ]


def test_lists_of_an_operator_of_all_namespaces_are_needed_where_it_works() -> None:
    app = App("counter")
    recording = Recording()
    asked = [access("list", "pods"), access("list", "tools"), access("get", "tools", name="x")]
    recording.add("test", asked, namespaces=["t"])
    made = roles(app, namespace="ops", namespaces=["a"], recorded=recording.permissions())
    assert {each[0] for each in rules(made.cluster)} == {"tools"}, "asked for by name, nowhere"
    assert ("pods", "list", "", "a") in rules(made.by_namespace["a"])


def test_names_are_fixed_if_two_tests_needed_them_and_nobody_made_them() -> None:
    recording = Recording()
    for number in (1, 2):
        recording.add(
            f"test_{number}",
            [
                access("get", "secrets", namespace="t", name="cert"),
                access("create", "secrets", namespace="t", name="cert"),
                access("get", "configmaps", namespace="t", name="w-config"),
                access("get", "services", namespace="t", name=f"only-{number}"),
                access("list", "pods", namespace="t"),
                access("get", "pods", namespace="t", name="p"),
            ],
            others=[access("create", "buckets", namespace="t", name="w")],
            namespaces=["t"],
        )
    assert rules(recording.permissions()) == [
        ("configmaps", "get", "", None),
        ("pods", "get list", "", None),
        ("secrets", "create", "", None),
        ("secrets", "get", "cert", None),
        ("services", "get", "", None),
    ]


def test_whoever_watches_may_list_too_for_servers_without_streaming_lists() -> None:
    recording = Recording()
    recording.add("test", [access("watch", "pods")])
    assert rules(recording.permissions()) == [("pods", "list watch", "", None)]


def test_names_made_of_those_that_the_operator_lists_are_not_fixed() -> None:
    recording = Recording()
    for number in (1, 2):
        recording.add(
            f"test_{number}",
            [
                access("watch", "buckets"),
                access("patch", "buckets/status", name="b"),
                access("update", "services", name="b.web"),
            ],
        )
    assert all(not each.names for each in recording.permissions())


def test_what_everybody_may_do_is_left_out() -> None:
    recording = Recording()
    reviews = {"group": "authorization.k8s.io"}
    recording.add(
        "test",
        [
            Access(user="o", verb="get", path="/apis/apps/v1"),
            Access(user="o", verb="get", path="/metrics"),
            access("create", "selfsubjectaccessreviews", **reviews),
            access("create", "subjectaccessreviews", **reviews),
        ],
    )
    assert rules(recording.permissions()) == [
        ("/metrics", "get", "", None),
        ("subjectaccessreviews", "create", "", None),
    ]


def test_recordings_of_several_processes_are_one() -> None:
    whole, parts = Recording(), [Recording(), Recording()]
    for number, part in enumerate(parts):
        found = [access("get", "secrets", name="cert", namespace="t")]
        for each in (whole, part):
            each.add(f"test_{number}", found, namespaces=["t"])
    merged = Recording()
    for part in parts:
        merged.merge(Recording.from_dict(part.to_dict()))
    assert merged.permissions() == whole.permissions()
    assert rules(merged.permissions()) == [("secrets", "get", "cert", None)]
    assert merged.tests == {"test_0", "test_1"}


def test_a_file_has_the_permissions_that_were_written_to_it(tmp_path: Path) -> None:
    recording = Recording()
    recording.add(
        "t", [access("get", "pods", namespace="n"), Access(user="", verb="get", path="/x")]
    )
    path = tmp_path / "rbac-record.yaml"
    path.write_text(dump_permissions(recording.permissions()))
    assert load_permissions(path) == recording.permissions()


@pytest.mark.parametrize(
    "text", ["", "a: 1", "rules: 1", "rules: [{verbs: get}]", "rules: [{x: 1}]", "[", "1\n---\n2"]
)
def test_a_file_of_something_else_is_refused_with_the_command_that_makes_one(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(ValueError, match="appsdk-operator rbac record"):
        load_permissions(tmp_path / "f.yaml")


# -- comparison ----------------------------------------------------------------------------------


def role(kind: str, name: str, *rules: dict[str, Any], namespace: str = "", **more: Any) -> Any:
    """A role."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, **more},
        "rules": list(rules),
    }


def binding(role: dict[str, Any], subject: str = "operator", namespace: str = "") -> Any:
    """A binding of a role to a service account in the namespace ``ops``."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": "b", "namespace": namespace},
        "roleRef": {"kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": subject, "namespace": "ops"}],
    }


GET_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


def test_what_is_missing_and_what_is_unused_is_said_by_verb() -> None:
    grants = Grants.of([role("ClusterRole", "r", {**GET_PODS, "verbs": ["get", "delete"]})])
    assert rules(grants.missing([PODS])) == [("pods", "list", "", None)]
    unused = grants.unused([PODS])
    assert rules(unused) == [("pods", "delete", "", None)]
    assert unused[0].reasons == ("ClusterRole r",)


def test_of_the_names_in_a_rule_those_that_nothing_needs_are_unused() -> None:
    grants = Grants.of([role("ClusterRole", "r", {**GET_PODS, "resourceNames": ["a", "b"]})])
    (unused,) = grants.unused([attrs.evolve(PODS, names=["a"])])
    assert (unused.names, set(unused.verbs)) == (("b",), set(GET_PODS["verbs"]))


@pytest.mark.parametrize(
    "rule",
    [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["*/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["*"]},
        {"apiGroups": ["", "x"], "resources": ["a", "pods/status"], "verbs": ["patch"]},
    ],
)
def test_wildcards_allow_as_in_kubernetes(rule: dict[str, Any]) -> None:
    grants = Grants.of([role("ClusterRole", "r", rule)])
    status = Permission(groups=[""], resources=["pods/status"], verbs=["patch"])
    assert not grants.missing([status])
    assert all(
        "pods/status" not in each.resources or "" not in each.groups
        for each in grants.unused([status])
    )


def test_only_roles_that_are_bound_to_the_account_count() -> None:
    bound, other = role("ClusterRole", "a", GET_PODS), role("ClusterRole", "b", {**GET_PODS})
    other["rules"][0] = {**GET_PODS, "verbs": ["list"]}
    grants = Grants.of([bound, other, binding(bound), binding(other, "viewer")], account="operator")
    assert rules(grants.missing([PODS])) == [("pods", "list", "", None)]
    assert grants.namespace == "ops"


def test_a_binding_in_a_namespace_allows_there() -> None:
    bound = role("ClusterRole", "a", GET_PODS)
    grants = Grants.of([bound, binding(bound, namespace="x")])
    get = Permission(groups=[""], resources=["pods"], verbs=["get"])
    assert grants.missing([get])
    assert grants.missing([get], namespaces=["x", "y"])
    assert not grants.missing([get], namespaces=["x"])


def test_the_own_namespace_is_that_of_the_account() -> None:
    own = role("Role", "a", GET_PODS, namespace="ops")
    elsewhere = role("Role", "a", GET_PODS, namespace="x")
    get = Permission(groups=[""], resources=["pods"], verbs=["get"], namespace="")
    assert not Grants.of([own, binding(own, namespace="ops")]).missing([get])
    assert Grants.of([elsewhere, binding(elsewhere, namespace="x")]).missing([get])


def test_roles_are_for_all_namespaces_if_they_allow_something_with_objects_there() -> None:
    nodes = {**GET_PODS, "resources": ["nodes"]}
    assert Grants.of([role("ClusterRole", "a", GET_PODS)]).is_for_all_namespaces
    assert not Grants.of([role("ClusterRole", "a", nodes)]).is_for_all_namespaces
    assert not Grants.of([role("Role", "a", GET_PODS, namespace="x")]).is_for_all_namespaces


def test_a_rule_for_names_allows_those_only() -> None:
    grants = Grants.of([role("ClusterRole", "r", {**GET_PODS, "resourceNames": ["a"]})])
    named = Permission(groups=[""], resources=["pods"], verbs=["get"], names=["a", "b"])
    assert rules(grants.missing([named])) == [("pods", "get", "b", None)]
    assert grants.missing([PODS])


def test_aggregated_roles_have_the_rules_of_the_others() -> None:
    whole = role("ClusterRole", "whole")
    whole["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}
    part = role("ClusterRole", "part", {**GET_PODS, "verbs": ["*"]}, labels={"part": "yes"})
    assert not Grants.of([whole, part, binding(whole)]).missing([PODS])


def test_a_folder_is_read_whole_but_for_what_generators_remember(tmp_path: Path) -> None:
    made = roles([PODS], name="counter", namespace="n")
    for path, text in made.texts().items():
        (tmp_path / path).write_text(text)
    (tmp_path / ".appsdk-operator").mkdir()
    (tmp_path / ".appsdk-operator" / "broken.yaml").write_text("{{ .Values }}")
    (tmp_path / "deployment.yaml").write_text(dump_yaml({"kind": "Deployment"}))
    assert not Grants.load(tmp_path, account="counter").missing([PODS])


def test_what_holds_no_role_or_no_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no ClusterRole and no Role"):
        Grants.load(tmp_path)
    chart = tmp_path / "chart.yaml"
    chart.write_text("{{ if .Values.rbac }}")
    with pytest.raises(ValueError, match="no ClusterRole and no Role"):
        Grants.load(tmp_path)
    with pytest.raises(ValueError, match=r"(?s)chart\.yaml: .* helm template"):
        Grants.load(chart)
    with pytest.raises(TypeError, match="give each path as an argument"):
        Grants.load([chart])  # type: ignore[arg-type]


# -- promises ------------------------------------------------------------------------------------

ACCESSES = st.builds(
    Access,
    user=st.just("operator"),
    verb=st.sampled_from(["get", "list", "watch", "create", "update", "patch", "delete"]),
    group=st.sampled_from(["", "example.com"]),
    resource=st.sampled_from(["as", "bs"]),
    subresource=st.sampled_from(["", "status"]),
    namespace=st.sampled_from(["", "test", "kube-system"]),
    name=st.sampled_from(["", "x", "y", "z"]),
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a server with roles."""
    with MemoryServer(rbac=True).client() as client:
        for name in ("ops", "test"):
            client.create(MutableObject.new(kinds.core.v1.Namespace, name))
        yield client


_NUMBERS = itertools.count()


def allowed(client: Client, made: Roles, asked: list[Access]) -> list[bool]:
    """What the roles allow on a server."""
    made = attrs.evolve(made, name=f"operator-{next(_NUMBERS)}")
    for each in made.objects:
        client.create(each)
    return [is_allowed(client, made, each) for each in asked]


def is_allowed(client: Client, made: Roles, each: Access) -> bool:
    """Whether the account of the roles may do it."""
    attributes = {
        "verb": each.verb,
        "group": each.group,
        "resource": each.resource,
        "subresource": each.subresource,
        "namespace": each.namespace,
        "name": "" if each.verb == "create" else each.name,
    }
    review = MutableObject.new(kinds.authorization.v1.SubjectAccessReview, "")
    review["spec"] = {
        "user": f"system:serviceaccount:{made.namespace}:{made.name}",
        "resourceAttributes": {key: value for key, value in attributes.items() if value},
    }
    return bool(client.create(review).to_dict()["status"]["allowed"])


def one_less(made: Roles) -> list[Roles]:
    """The roles without one of the verbs or rules, for each."""
    found = []
    for index in range(len(made.cluster)):
        left = made.cluster[:index] + made.cluster[index + 1 :]
        found.append(attrs.evolve(made, cluster=left))
    for place, there in made.by_namespace.items():
        for index in range(len(there)):
            left = there[:index] + there[index + 1 :]
            found.append(attrs.evolve(made, by_namespace={**made.by_namespace, place: left}))
    return found


@settings(max_examples=scaled(8))
@given(
    tests=st.lists(st.lists(ACCESSES, max_size=8), min_size=1, max_size=3),
    works_in=st.sampled_from([[], ["test"]]),
)
def test_a_role_of_a_record_allows_what_was_recorded_and_one_rule_less_does_not(
    client: Client, tests: list[list[Access]], works_in: list[str]
) -> None:
    recording = Recording()
    for number, found in enumerate(tests):
        recording.add(f"test_{number}", found, namespaces=["test"])
    asked = [each for found in tests for each in found]
    recorded = recording.permissions()
    made = roles((), name="operator", namespace="ops", namespaces=works_in, recorded=recorded)
    assert all(allowed(client, made, asked))
    grants = Grants.of([each.to_dict() for each in made.objects])
    assert not grants.missing(made.besides, namespaces=works_in)
    for fewer in one_less(made):
        assert not all(allowed(client, fewer, asked))
        grants = Grants.of([each.to_dict() for each in fewer.objects])
        assert grants.missing(made.besides, namespaces=works_in)


SUBJECTS = st.one_of(
    st.fixed_dictionaries(
        {
            "kind": st.just("ServiceAccount"),
            "name": st.sampled_from(["operator", "other"]),
            "namespace": st.sampled_from(["ops", "default"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("Group"),
            "name": st.sampled_from(
                [
                    "system:serviceaccounts",
                    "system:serviceaccounts:ops",
                    "system:serviceaccounts:default",
                    "system:authenticated",
                    "system:masters",
                ]
            ),
            "apiGroup": st.just("rbac.authorization.k8s.io"),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("User"),
            "name": st.sampled_from(
                [
                    "system:serviceaccount:ops:operator",
                    "system:serviceaccount:ops:other",
                    "operator",
                ]
            ),
            "apiGroup": st.just("rbac.authorization.k8s.io"),
        }
    ),
)


@settings(max_examples=scaled(30))
@given(subjects=st.lists(SUBJECTS, max_size=3), place=st.sampled_from(["", "x", "ops"]))
def test_grants_count_the_bindings_that_the_authorizer_counts(
    subjects: list[dict[str, str]], place: str
) -> None:
    get = Permission(groups=[""], resources=["pods"], verbs=["get"])
    bound = role("ClusterRole", "a", GET_PODS)
    at = {**binding(bound, namespace=place), "subjects": subjects}
    if not place:
        del at["metadata"]["namespace"]
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "operator", "namespace": "ops"},
    }
    grants = Grants.of([account, bound, at], account="operator")
    with MemoryServer(rbac=True).client() as client:
        for name in ("ops", "x"):
            client.create(MutableObject.new(kinds.core.v1.Namespace, name))
        client.create(MutableObject(kinds.rbac.v1.ClusterRole, bound))
        kind = kinds.rbac.v1.RoleBinding if place else kinds.rbac.v1.ClusterRoleBinding
        ref = {**at["roleRef"], "apiGroup": "rbac.authorization.k8s.io"}
        client.create(MutableObject(kind, {**at, "roleRef": ref}))
        for namespace in ("x", "ops"):
            review = MutableObject.new(kinds.authorization.v1.SubjectAccessReview, "")
            review["spec"] = {
                "user": "system:serviceaccount:ops:operator",
                "groups": [
                    *("system:serviceaccounts", "system:serviceaccounts:ops"),
                    "system:authenticated",
                ],
                "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": namespace},
            }
            is_allowed = client.create(review).to_dict()["status"]["allowed"]
            assert is_allowed == (not grants.missing([get], namespaces=[namespace]))
