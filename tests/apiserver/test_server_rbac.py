"""What roles and bindings let users do, and that nobody gives what they do not have."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.apiserver import APIServer
from appsdk_operator.cache import Informer
from appsdk_operator.client import Client, Forbidden
from appsdk_operator.resource import Kind, MutableObject, kinds
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import MemoryServer, running

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
MAPS = "/api/v1/namespaces/default/configmaps"
REVIEWS = "/apis/authorization.k8s.io/v1"


@pytest.fixture
def server(widget_crd: Any) -> Iterator[APIServer]:
    with APIServer(rbac=True, crds=[widget_crd]) as started:
        yield started


@pytest.fixture
def admin(server: Any, connect: Any) -> Any:
    return connect(server, server.token)


@pytest.fixture
def as_user(server: Any, connect: Any) -> Any:
    return lambda name, *groups: connect(server, server.token_for(name, groups=groups))


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "resources": resources.split(),
        "verbs": verbs.split(),
        **more,
    }


def binding(role: str, subject: dict[str, Any], kind: str = "ClusterRole") -> dict[str, Any]:
    return {
        "metadata": {"name": f"{subject['name']}-{role}".replace(":", "-")},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [subject],
    }


@pytest.fixture
def grant(admin: Any) -> Any:
    """Let a subject do what rules allow, everywhere or in one namespace."""

    def make(name: str, *rules: Any, namespace: str = "", kind: str = "User", **more: Any) -> None:
        role = f"role-of-{name}".replace(":", "-")
        subject = {"kind": kind, "name": name, **more}
        kinds, place = "ClusterRole", RBAC
        roles, bindings = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
        if namespace:
            kinds, place = "Role", f"{RBAC}/namespaces/{namespace}"
            roles, bindings = f"{place}/roles", f"{place}/rolebindings"
        made = admin.create(roles, {"metadata": {"name": role}, "rules": list(rules)})
        assert made.status == 201, made.body
        made = admin.create(bindings, binding(role, subject, kinds))
        assert made.status == 201, made.body

    return make


# -- what is refused, in the words of the real server -------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        (
            "GET",
            MAPS,
            (
                'configmaps is forbidden: User "eve" cannot list resource "configmaps" in API '
                'group "" in the namespace "default"'
            ),
        ),
        (
            "GET",
            "/apis/example.com/v1/widgets?watch=1",
            (
                'widgets.example.com is forbidden: User "eve" cannot watch resource "widgets" in '
                'API group "example.com" at the cluster scope'
            ),
        ),
        (
            "PUT",
            "/apis/example.com/v1/namespaces/d/widgets/w/status",
            (
                'widgets.example.com "w" is forbidden: User "eve" cannot update resource '
                '"widgets/status" in API group "example.com" in the namespace "d"'
            ),
        ),
        (
            "DELETE",
            "/apis/none.example.com/v1/namespaces/d/nones",
            (
                'nones.none.example.com is forbidden: User "eve" cannot deletecollection resource '
                '"nones" in API group "none.example.com" in the namespace "d"'
            ),
        ),
        (
            "GET",
            "/api/v1/namespaces/d",
            (
                'namespaces "d" is forbidden: User "eve" cannot get resource "namespaces" in API '
                'group "" in the namespace "d"'
            ),
        ),
        ("GET", "/metrics", 'forbidden: User "eve" cannot get path "/metrics"'),
    ],
)
def test_a_refusal_tells_who_may_not_do_what_where(
    as_user: Any, method: str, path: str, message: str
) -> None:
    refused = as_user("eve")(method, path)
    assert (refused.status, refused["reason"], refused["message"]) == (403, "Forbidden", message)


def test_everybody_may_discover_and_look_at_themselves_and_strangers_only_at_health(
    as_user: Any, connect: Any, server: Any
) -> None:
    eve, stranger = as_user("eve"), connect(server)
    for path in ("/api", "/apis", "/apis/apps/v1", "/version", "/openapi/v2", "/healthz"):
        assert eve.get(path).status == 200, path
    assert eve.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}).status == 201
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert stranger.get(path).status == 200, path
    assert stranger.get("/api").status == 403
    assert eve.get("/healthz/ping").status == 403


# -- what rules allow -------------------------------------------------------------------------


def test_a_verb_is_allowed_alone(as_user: Any, grant: Any, admin: Any) -> None:
    grant("bob", rule("get", "configmaps"))
    admin.map("a")
    bob = as_user("bob")
    assert bob.get(f"{MAPS}/a").status == 200
    assert bob.get(MAPS).status == 403
    assert bob.get(f"{MAPS}?watch=1").status == 403
    assert bob.delete(f"{MAPS}/a").status == 403
    assert bob.delete(MAPS).status == 403


def test_a_name_limits_a_rule_and_lets_a_list_of_that_name_pass(
    as_user: Any, grant: Any, admin: Any
) -> None:
    grant("bob", rule("get list watch", "configmaps", resourceNames=["a"]))
    admin.map("a")
    admin.map("b")
    bob = as_user("bob")
    assert [bob.get(f"{MAPS}/{name}").status for name in "ab"] == [200, 403]
    assert bob.get(MAPS).status == 403
    assert bob.names(f"{MAPS}?fieldSelector=metadata.name%3Da") == ["a"]
    assert bob.get(f"{MAPS}?fieldSelector=metadata.name%3Db").status == 403


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("widgets", (200, 403, 403)),
        ("widgets/status", (403, 200, 403)),
        ("*/status", (403, 200, 403)),
        ("*", (200, 200, 200)),
        ("*/*", (403, 403, 403)),
        ("widgets widgets/scale", (200, 403, 200)),
    ],
)
def test_subresources_have_rules_of_their_own(
    as_user: Any, grant: Any, admin: Any, resources: str, expected: Any, new_widget: Any
) -> None:
    grant("bob", rule("get", resources, "example.com"))
    admin.widget("w", replicas=1)
    bob = as_user("bob")
    path = f"{admin.widgets}/w"
    assert tuple(bob.get(path + end).status for end in ("", "/status", "/scale")) == expected


def test_a_role_counts_in_its_namespace_and_lets_see_that_namespace(
    as_user: Any, grant: Any
) -> None:
    grant("bob", rule("list get", "configmaps namespaces"), namespace="default")
    bob = as_user("bob")
    assert bob.get(MAPS).status == 200
    assert bob.get("/api/v1/configmaps").status == 403
    assert bob.get("/api/v1/namespaces/kube-system/configmaps").status == 403
    assert bob.get("/api/v1/namespaces/default").status == 200
    assert bob.get("/api/v1/namespaces").status == 403


@pytest.mark.parametrize(
    ("urls", "allowed"),
    [(["/metrics"], False), (["/met*"], True), (["*"], True), (["/metrics/*"], True)],
)
def test_urls_may_end_in_a_star(as_user: Any, grant: Any, urls: Any, allowed: bool) -> None:
    grant("bob", {"nonResourceURLs": urls, "verbs": ["get"]})
    assert (as_user("bob").get("/metrics/slis").status != 403) is allowed


def test_groups_and_service_accounts_are_subjects_too(as_user: Any, grant: Any) -> None:
    grant("devs", rule("list", "configmaps"), kind="Group")
    grant("robot", rule("list", "secrets"), kind="ServiceAccount", namespace="default")
    assert as_user("bob", "devs").get(MAPS).status == 200
    assert as_user("bob", "ops").get(MAPS).status == 403
    robot = as_user("system:serviceaccount:default:robot")
    assert robot.get("/api/v1/namespaces/default/secrets").status == 200
    assert robot.get(MAPS).status == 403


def test_rules_count_from_the_moment_of_their_change(as_user: Any, grant: Any, admin: Any) -> None:
    bob = as_user("bob")
    assert bob.get(MAPS).status == 403
    grant("bob", rule("get", "configmaps"))
    assert bob.get(MAPS).status == 403
    admin.patch(f"{RBAC}/clusterroles/role-of-bob", {"rules": [rule("list", "configmaps")]})
    assert bob.get(MAPS).status == 200
    admin.delete(f"{RBAC}/clusterroles/role-of-bob")
    refused = bob.get(MAPS)
    assert refused.status == 403
    assert refused["message"].endswith(f': RBAC: clusterrole.{GROUP} "role-of-bob" not found')
    admin.delete(f"{RBAC}/clusterrolebindings/bob-role-of-bob")
    assert bob.get(MAPS)["message"].endswith('in the namespace "default"')


def test_who_creates_by_an_update_needs_the_verb_for_it(as_user: Any, grant: Any) -> None:
    leases = "/api/v1/namespaces/default/endpoints"
    grant("bob", rule("update", "endpoints"))
    refused = as_user("bob").update(f"{leases}/e", {"metadata": {"name": "e"}})
    assert refused.status == 403
    assert 'cannot create resource "endpoints"' in refused["message"]


# -- roles that every cluster has -----------------------------------------------------------------


def test_roles_for_people_gather_their_rules_and_those_of_others(as_user: Any, admin: Any) -> None:
    roles = {role["metadata"]["name"]: role for role in admin.get(f"{RBAC}/clusterroles")["items"]}
    assert {"cluster-admin", "admin", "edit", "view", "system:basic-user"} <= set(roles)
    verbs = {verb for rule in roles["edit"]["rules"] for verb in rule["verbs"]}
    assert {"create", "get", "impersonate"} <= verbs
    for name in ("view", "edit", "admin"):
        admin.create(BINDINGS, binding(name, {"kind": "User", "name": f"user-{name}"}))
    users = [as_user(f"user-{name}") for name in ("view", "edit", "admin")]
    assert [user.get(MAPS).status for user in users] == [200, 200, 200]
    assert [user.get("/api/v1/namespaces/default/secrets").status for user in users] == [
        403,
        200,
        200,
    ]
    assert [user.get(ROLES).status for user in users] == [403, 403, 200]
    assert [user.get("/api/v1/nodes").status for user in users] == [403, 403, 403]


def test_a_role_with_a_label_is_gathered_and_let_go(as_user: Any, admin: Any) -> None:
    label = f"{GROUP}/aggregate-to-view"
    widgets = rule("list", "widgets", "example.com")
    role = {"metadata": {"name": "w", "labels": {label: "true"}}, "rules": [widgets]}
    admin.create(BINDINGS, binding("view", {"kind": "User", "name": "bob"}))
    bob = as_user("bob")
    assert bob.get(admin.widgets).status == 403
    admin.create(f"{RBAC}/clusterroles", role)
    assert bob.get(admin.widgets).status == 200
    for gathering in ("view", "edit", "admin"):
        assert widgets in admin.get(f"{RBAC}/clusterroles/{gathering}")["rules"]
    admin.delete(f"{RBAC}/clusterroles/w")
    assert bob.get(admin.widgets).status == 403
    assert widgets not in admin.get(f"{RBAC}/clusterroles/view")["rules"]


def test_roles_that_gather_each_other_do_no_harm(admin: Any) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        selector = {"clusterRoleSelectors": [{"matchLabels": {"is": other}}]}
        role = {"metadata": {"name": name, "labels": {"is": name}}, "aggregationRule": selector}
        assert admin.create(f"{RBAC}/clusterroles", role).status == 201
    assert admin.get(f"{RBAC}/clusterroles/a")["rules"] is None


# -- nobody gives what they do not have ----------------------------------------------------------

MANAGE = rule("create update patch", "roles rolebindings clusterroles clusterrolebindings", GROUP)


def test_a_role_may_only_give_what_its_writer_has(as_user: Any, grant: Any, admin: Any) -> None:
    grant("owner", MANAGE, rule("get", "configmaps"))
    owner = as_user("owner")
    mine = {"metadata": {"name": "mine"}, "rules": [rule("get", "configmaps")]}
    more = [rule("get list", "configmaps secrets"), rule("*", "*", "apps")]
    assert owner.create(ROLES, mine).status == 201
    refused = owner.create(ROLES, {"metadata": {"name": "more"}, "rules": more})
    assert refused.status == 403
    assert refused["message"] == (
        f'roles.{GROUP} "more" is forbidden: user "owner" (groups=["system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["configmaps"], Verbs:["list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}\n'
        '{APIGroups:["apps"], Resources:["*"], Verbs:["*"]}'
    )
    # Neither by an update nor by any kind of patch.
    assert owner.update(f"{ROLES}/mine", {**mine, "rules": more}).status == 403
    assert owner.patch(f"{ROLES}/mine", {"rules": more}).status == 403
    replace = [{"op": "replace", "path": "/rules", "value": more}]
    assert owner.patch(f"{ROLES}/mine", replace, "application/json-patch+json").status == 403
    strategic = "application/strategic-merge-patch+json"
    assert owner.patch(f"{ROLES}/mine", {"rules": more}, strategic).status == 403
    applied = {"apiVersion": f"{GROUP}/v1", "kind": "Role", **mine, "rules": more}
    for name in ("mine", "other"):
        config = {**applied, "metadata": {"name": name}}
        path = f"{ROLES}/{name}?fieldManager=x&force=true"
        assert owner.patch(path, config, "application/apply-patch+yaml").status == 403
    assert admin.get(f"{ROLES}/mine")["rules"] == mine["rules"]
    # What decides when it goes may change, and so may what it had already.
    assert owner.patch(f"{ROLES}/mine", {"metadata": {"finalizers": ["a/b"]}}).status == 200
    assert owner.patch(f"{ROLES}/mine", {"metadata": {"labels": {"a": "b"}}}).status == 200


def test_a_binding_may_only_give_what_its_writer_has(as_user: Any, grant: Any) -> None:
    grant("owner", MANAGE, rule("get", "configmaps"))
    owner = as_user("owner")
    zoe = {"kind": "User", "name": "zoe"}
    assert owner.create(BINDINGS, binding("role-of-owner", zoe)).status == 201
    refused = owner.create(BINDINGS, binding("cluster-admin", zoe))
    assert refused.status == 403
    assert refused["message"].endswith('{NonResourceURLs:["*"], Verbs:["*"]}')
    missing = owner.create(BINDINGS, binding("none", zoe))
    assert missing.status == 404
    assert missing["message"] == f'rolebindings.{GROUP} "none" not found'


def test_escalate_and_bind_are_verbs_that_lift_the_limit(as_user: Any, grant: Any) -> None:
    bind = rule("bind", "clusterroles", GROUP, resourceNames=["edit"])
    grant("owner", MANAGE, rule("escalate", "roles", GROUP), bind)
    owner = as_user("owner")
    role = {"metadata": {"name": "r"}, "rules": [rule("*", "*")]}
    assert owner.create(ROLES, role).status == 201
    assert owner.create(f"{RBAC}/clusterroles", role).status == 403
    zoe = {"kind": "User", "name": "zoe"}
    assert owner.create(BINDINGS, binding("edit", zoe)).status == 201
    assert owner.create(BINDINGS, binding("admin", zoe)).status == 403


def test_only_administrators_gather_rules(as_user: Any, grant: Any) -> None:
    grant("owner", MANAGE)
    selector = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    role = {"metadata": {"name": "r"}, "aggregationRule": selector}
    refused = as_user("owner").create(f"{RBAC}/clusterroles", role)
    assert refused["message"] == (
        f'clusterroles.{GROUP} "r" is forbidden: must have cluster-admin privileges to use the '
        "aggregationRule"
    )


# -- impersonation ---------------------------------------------------------------------------


def test_impersonation_is_a_right(as_user: Any, grant: Any) -> None:
    grant("proxy", rule("impersonate", "users"))
    grant("zoe", rule("list", "configmaps"))
    proxy = as_user("proxy")
    assert proxy.get(MAPS, Impersonate_User="zoe").status == 200
    refused = proxy.get(MAPS, Impersonate_User="zoe", Impersonate_Group="devs")
    assert refused["message"] == (
        'groups "devs" is forbidden: User "proxy" cannot impersonate resource "groups" in API '
        'group "" at the cluster scope'
    )
    refused = as_user("eve").get(MAPS, Impersonate_User="zoe")
    assert refused["message"] == (
        'configmaps is forbidden: User "eve" cannot impersonate-on:user-info:list resource '
        '"configmaps" in API group "" in the namespace "default"'
    )


def test_impersonation_can_be_limited_to_some_requests(as_user: Any, grant: Any) -> None:
    group = "authentication.k8s.io"
    grant(
        "proxy",
        rule("impersonate:serviceaccount", "serviceaccounts", group),
        rule("impersonate-on:serviceaccount:list", "configmaps"),
    )
    grant("robot", rule("list get", "configmaps"), kind="ServiceAccount", namespace="default")
    proxy, robot = as_user("proxy"), "system:serviceaccount:default:robot"
    assert proxy.get(MAPS, Impersonate_User=robot).status == 200
    assert proxy.get(f"{MAPS}/a", Impersonate_User=robot).status == 403
    assert proxy.get(MAPS, Impersonate_User="zoe").status == 403


# -- reviews ---------------------------------------------------------------------------


def test_reviews_tell_what_requests_would_be_told(as_user: Any, grant: Any, admin: Any) -> None:
    grant("bob", rule("list", "configmaps"))
    asked = {"verb": "list", "resource": "configmaps", "namespace": "default"}
    because = (
        'RBAC: allowed by ClusterRoleBinding "bob-role-of-bob" of ClusterRole "role-of-bob" to '
        'User "bob"'
    )
    own = f"{REVIEWS}/selfsubjectaccessreviews"
    spec = {"spec": {"resourceAttributes": asked}}
    assert as_user("bob").create(own, spec)["status"] == {"allowed": True, "reason": because}
    assert as_user("eve").create(own, spec)["status"] == {"allowed": False}
    assert admin.create(own, spec)["status"] == {"allowed": True}
    spec["spec"]["user"] = "bob"
    assert admin.create(f"{REVIEWS}/subjectaccessreviews", spec)["status"]["allowed"] is True
    local = f"{REVIEWS}/namespaces/default/localsubjectaccessreviews"
    assert admin.create(local, spec)["status"]["allowed"] is True
    assert as_user("bob").create(f"{REVIEWS}/subjectaccessreviews", spec).status == 403
    rules = as_user("bob").create(
        f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}
    )["status"]
    assert rule("list", "configmaps") in rules["resourceRules"]
    assert rules["incomplete"] is False
    assert {"/version/", "/apis/*"} <= {
        url for each in rules["nonResourceRules"] for url in each["nonResourceURLs"]
    }


@pytest.mark.parametrize(
    ("kind", "body", "code", "message"),
    [
        (
            "selfsubjectaccessreviews",
            {"spec": {}},
            422,
            (
                '.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: '
                "null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
            ),
        ),
        (
            "subjectaccessreviews",
            {"spec": {"resourceAttributes": {"verb": "get"}}},
            422,
            (
                '.authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one '
                "of user or group must be specified"
            ),
        ),
        (
            "namespaces/default/localsubjectaccessreviews",
            {"spec": {"user": "x", "resourceAttributes": {"namespace": "other", "verb": "get"}}},
            422,
            (
                '.authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid '
                'value: "other": must match metadata.namespace'
            ),
        ),
        ("selfsubjectrulesreviews", {"spec": {}}, 400, "no namespace on request"),
    ],
)
def test_reviews_that_make_no_sense_are_refused(
    admin: Any, kind: str, body: Any, code: int, message: str
) -> None:
    refused = admin.create(f"{REVIEWS}/{kind}", body)
    assert (refused.status, refused["message"]) == (code, message)


# -- an operator ---------------------------------------------------------------------------


def test_a_verb_that_an_operator_lacks_shows_up_in_its_test(server: Any, grant: Any) -> None:
    """As in production: the informer needs watch, not only list; the write needs update."""
    widget = Kind(group="example.com", version="v1", kind="Widget")
    account = "system:serviceaccount:default:operator"
    subject = {"kind": "ServiceAccount", "namespace": "default"}
    grant("operator", rule("list get", "widgets", "example.com"), **subject)
    config = server.client_config(token=server.token_for(account), max_retries=0)
    errors: list[Any] = []
    told = threading.Event()

    def note(error: Any) -> None:
        errors.append(error)
        told.set()

    with Client(config, metrics=Metrics()) as client:
        informer = Informer(widget, client, metrics=Metrics(), on_error=note)
        with running(informer, wait=False):
            assert told.wait(30)
        with pytest.raises(Forbidden, match='cannot create resource "widgets"'):
            client.create(MutableObject.new(widget, "w", namespace="default", spec={"size": 1}))
    assert isinstance(errors[0], Forbidden)
    assert 'cannot watch resource "widgets" in API group "example.com"' in str(errors[0])


def test_an_authorizer_of_ones_own_decides_about_every_request(connect: Any) -> None:
    asked: list[Any] = []

    def decide(spec: Any) -> bool:
        asked.append(spec)
        return spec.get("resourceAttributes", {}).get("verb") == "list"

    with APIServer(authorizer=decide, users={"t": {"username": "u"}}) as server:
        user = connect(server, "t")
        assert (user.get(MAPS).status, user.get(f"{MAPS}/a").status) == (200, 403)
        assert user.get("/api").status == 403
        assert connect(server, server.token).get(f"{MAPS}/a").status == 404
        rules = {"spec": {"namespace": "default"}}
        admin = connect(server, server.token)
        review = admin.create(f"{REVIEWS}/selfsubjectrulesreviews", rules)
        assert review["status"]["incomplete"] is False
    assert asked == [
        {
            "user": "u",
            "groups": ["system:authenticated"],
            "resourceAttributes": {
                "namespace": "default",
                "verb": verb,
                "version": "v1",
                "resource": "configmaps",
                **name,
            },
        }
        for verb, name in (("list", {}), ("get", {"name": "a"}))
    ] + [
        {
            "user": "u",
            "groups": ["system:authenticated"],
            "nonResourceAttributes": {"path": "/api", "verb": "get"},
        }
    ]


def test_a_server_in_memory_has_users_and_roles_too() -> None:
    config_map = kinds.core.v1.ConfigMap
    with MemoryServer(rbac=True) as server:
        admin = server.client(metrics=Metrics())
        assert admin.list(config_map, namespace="default") is not None
        client = server.client(metrics=Metrics(), token=server.api.token_for("eve"))
        with pytest.raises(Forbidden, match='User "eve" cannot get'):
            client.get(config_map, "a", namespace="default")
        assert server.api.requests[-1].user == "eve"


def test_a_connection_needs_the_right_to_create_it_however_it_begins(
    as_user: Any, grant: Any, admin: Any
) -> None:
    pods = "/api/v1/namespaces/default/pods"
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert admin.create(pods, pod).status == 201
    grant("reader", rule("get", "pods/exec"))
    reader = as_user("reader")
    refused = reader.get(f"{pods}/a/exec?command=ls")
    assert (refused.status, refused["reason"]) == (403, "Forbidden")
    assert 'cannot create resource "pods/exec" in API group ""' in refused["message"]
    grant("writer", rule("get create", "pods/exec"))
    writer = as_user("writer")
    for reply in (writer.get(f"{pods}/a/exec"), writer.create(f"{pods}/a/exec", {})):
        assert (reply.status, reply["message"]) == (400, "pod a does not have a host assigned")


def test_who_approves_or_signs_a_request_needs_the_verb_on_its_signer(
    as_user: Any, grant: Any, server: APIServer
) -> None:
    group, requests = "certificates.k8s.io", "certificatesigningrequests"
    parts = f"{requests} {requests}/approval {requests}/status"
    grant("jane", rule("create get patch", parts, group))
    grant("one", rule("patch", parts, group), rule("approve", "signers", group))
    sign = rule("sign", "signers", group, resourceNames=["example.com/*"])
    grant("two", rule("patch", parts, group), sign)
    jane, one, two = as_user("jane", "people"), as_user("one"), as_user("two")
    path = f"/apis/{group}/v1/{requests}"
    spec = {"request": "eA==", "signerName": "example.com/s", "usages": ["client auth"]}
    claimed = {"username": "root", "extra": {"a": ["b"]}}
    made = jane.create(path, {"metadata": {"name": "a"}, "spec": {**spec, **claimed}})
    groups = ["people", "system:authenticated"]
    assert made["spec"] == {**spec, "username": "jane", "groups": groups}
    approved = {"type": "Approved", "status": "True", "reason": "a", "message": "b"}
    approval = {"status": {"conditions": [approved]}}
    for other in (jane, two):
        refused = other.patch(f"{path}/a/approval", approval)
        assert refused.status == 403
        assert refused["message"] == (
            f'{requests}.{group} "a" is forbidden: user not permitted to approve requests with '
            'signerName "example.com/s"'
        )
    assert one.patch(f"{path}/a/approval", approval).status == 200
    assert jane.patch(f"{path}/a/status", {"metadata": {"labels": {"a": "b"}}}).status == 200
    signed = {"status": {"certificate": "eA=="}}
    assert one.patch(f"{path}/a/status", signed).status == 403
    assert two.patch(f"{path}/a/status", signed).status == 200
    needed = [each for each in server.accesses() if each.resource == "signers"]
    assert [(each.user, each.verb) for each in needed] == [("one", "approve"), ("two", "sign")]
