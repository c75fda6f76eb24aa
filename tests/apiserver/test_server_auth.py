"""Who a request comes from: tokens, certificates, service accounts, impersonation."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator.apiserver import APIServer
from appsdk_operator.client import Client, Impersonation
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import ManualClock, Metrics, RealClock

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
SECRETS = "/api/v1/namespaces/default/secrets"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
USERS = {
    "alice": {"username": "alice", "uid": "u1", "groups": ["devs"], "extra": {"Scope": ["a"]}},
    "bob": {"username": "bob"},
}


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer(users=USERS) as running:
        yield running


def who(api: Any, **headers: str) -> Any:
    """What the server takes a client for."""
    reply = api("POST", WHO, {}, **headers)
    assert reply.status == 201, reply.body
    return reply["status"]["userInfo"]


def test_a_token_tells_the_user_with_all_that_belongs_to_it(server: Any, connect: Any) -> None:
    assert who(connect(server, "alice")) == {
        "username": "alice",
        "uid": "u1",
        "groups": ["devs", "system:authenticated"],
        "extra": {"scope": ["a"]},
    }
    assert who(connect(server, server.token))["groups"][0] == "system:masters"
    assert who(connect(server)) == {
        "username": "system:anonymous",
        "groups": ["system:unauthenticated"],
    }


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer wrong", 401),
        ("bearer alice", 201),
        ("Bearer  alice", 201),
        ("Bearer ", 201),
        ("Basic YTpi", 201),
        ("nonsense", 201),
    ],
)
def test_only_a_wrong_token_is_refused_and_everything_else_is_anonymous(
    server: Any, connect: Any, authorization: str, status: int
) -> None:
    reply = connect(server)("POST", WHO, {}, Authorization=authorization)
    assert reply.status == status
    if status == 401:
        assert reply.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        }


def test_tokens_change_while_the_server_runs(connect: Any) -> None:
    with APIServer(token="one", users={"x": {"username": "u"}}) as server:
        one, two, user = (connect(server, token) for token in ("one", "two", "x"))
        server.token = "two"
        assert (one.get(one.maps).status, two.get(two.maps).status) == (401, 200)
        made = connect(server, server.token_for("made", groups=["g"]))
        server.set_users({})
        assert user.get(user.maps).status == 401
        assert who(made)["groups"] == ["g", "system:authenticated"]
        with pytest.raises(ValueError, match="cannot be switched off; give another token"):
            server.token = None


def test_an_open_server_asks_nobody_and_has_no_tokens_to_change(server: Any, connect: Any) -> None:
    with APIServer() as open_server:
        assert open_server.token is None
        for token in (None, "any"):
            assert who(connect(open_server, token))["username"] == "admin"
        with pytest.raises(ValueError, match="this server has no authentication"):
            open_server.token = "x"
        with pytest.raises(ValueError, match="this server has no authentication"):
            open_server.set_users({})


@pytest.mark.parametrize(
    "users",
    [
        {"t": {}},
        {"t": {"username": ""}},
        {"t": {"username": "u", "groups": "g"}},
        {"t": {"username": "u", "extra": ["x"]}},
        {"t": {"username": "u", "roles": []}},
        {"": {"username": "u"}},
        {"two words": {"username": "u"}},
    ],
)
def test_users_that_make_no_sense_are_refused(users: Any) -> None:
    with pytest.raises(ValueError, match=r"user|token"):
        APIServer(users=users)


def test_roles_and_a_function_do_not_both_decide() -> None:
    with pytest.raises(ValueError, match="give only one of them"):
        APIServer(rbac=True, authorizer=lambda spec: True)


def test_a_server_for_a_network_asks_for_credentials() -> None:
    with pytest.raises(ValueError, match="other machines can reach the server"):
        APIServer(host="0.0.0.0")
    APIServer(host="0.0.0.0", token="t")
    APIServer(host="localhost")
    APIServer(host="::1")


def test_the_log_of_requests_tells_the_user(server: Any, connect: Any) -> None:
    connect(server, "alice").get("/api")
    admin = connect(server, server.token)
    admin.get("/api", Impersonate_User="bob")
    assert [request.user for request in server.requests] == ["alice", "bob"]


# -- client certificates ---------------------------------------------------------------------


def test_a_client_certificate_tells_name_and_groups(tmp_path: Path) -> None:
    with APIServer(tls=True, users={}) as server:
        config = server.kubeconfig("carol", groups=["devs", "ops"])
        (user,) = config["users"]
        assert user["name"] == "carol"
        files = {}
        for name, data in user["user"].items():
            files[name] = tmp_path / name
            files[name].write_bytes(base64.b64decode(data))
        context = ssl.create_default_context(cadata=server.ca_data.decode())
        context.load_cert_chain(files["client-certificate-data"], files["client-key-data"])
        request = urllib.request.Request(
            server.url + WHO, b"{}", {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, context=context, timeout=30) as reply:
            info = json.load(reply)["status"]["userInfo"]
    assert info["username"] == "carol"
    assert info["groups"] == ["devs", "ops", "system:authenticated"]
    (digest,) = info["extra"]["authentication.kubernetes.io/credential-id"]
    assert digest.startswith("X509SHA256=")


def test_a_kubeconfig_without_tls_holds_a_token_of_the_user(server: Any, connect: Any) -> None:
    config = server.kubeconfig("system:serviceaccount:ns:robot")
    token = config["users"][0]["user"]["token"]
    assert who(connect(server, token)) == {
        "username": "system:serviceaccount:ns:robot",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
    }


# -- service accounts ------------------------------------------------------------------------


@pytest.fixture
def admin(server: Any, connect: Any) -> Any:
    api = connect(server, server.token)
    assert api.create(ACCOUNTS, {"metadata": {"name": "robot"}}).status == 201
    return api


def request_token(admin: Any, **spec: Any) -> str:
    reply = admin.create(f"{ACCOUNTS}/robot/token", {"spec": spec})
    assert reply.status == 201, reply.body
    return str(reply["status"]["token"])


def test_a_token_of_a_service_account_opens_the_server_as_that(
    admin: Any, server: Any, connect: Any
) -> None:
    info = who(connect(server, request_token(admin)))
    assert info["username"] == "system:serviceaccount:default:robot"
    assert info["uid"] == admin.get(f"{ACCOUNTS}/robot")["metadata"]["uid"]
    assert info["groups"][:2] == ["system:serviceaccounts", "system:serviceaccounts:default"]
    assert info["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


def test_a_token_ends_with_its_time_by_the_servers_clock(connect: Any) -> None:
    clock = ManualClock(start=1_700_000_000.0)
    with APIServer(users={}, clock=clock) as server:
        admin = connect(server, server.token)
        admin.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        made = admin.create(f"{ACCOUNTS}/robot/token", {"spec": {"expirationSeconds": 600}})
        assert made["status"]["expirationTimestamp"] == "2023-11-14T22:23:20Z"
        robot = connect(server, made["status"]["token"])
        clock.advance(599)
        assert robot.get("/api").status == 200
        clock.advance(62)  # a minute is forgiven for clocks that differ
        assert robot.get("/api").status == 401
        review = admin.create(REVIEW, {"spec": {"token": made["status"]["token"]}})
        assert review["status"] == {
            "user": {},
            "error": "[invalid bearer token, service account token has expired]",
        }


def test_a_token_ends_with_its_account_and_with_what_it_is_bound_to(
    admin: Any, server: Any, connect: Any
) -> None:
    admin.create(SECRETS, {"metadata": {"name": "s"}})
    bound = {"kind": "Secret", "apiVersion": "v1", "name": "s"}
    tied = connect(server, request_token(admin, boundObjectRef=bound))
    free = connect(server, request_token(admin))
    assert tied.get("/api").status == 200
    admin.delete(f"{SECRETS}/s")
    assert (tied.get("/api").status, free.get("/api").status) == (401, 200)
    admin.delete(f"{ACCOUNTS}/robot")
    assert free.get("/api").status == 401
    admin.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    assert free.get("/api").status == 401  # another account of that name


def test_a_token_of_a_pod_tells_pod_and_node(admin: Any, server: Any, connect: Any) -> None:
    pods = "/api/v1/namespaces/default/pods"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pod["spec"] |= {"serviceAccountName": "robot", "nodeName": "n"}
    made = admin.create(pods, pod)
    assert made.status == 201, made.body
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    extra = who(connect(server, request_token(admin, boundObjectRef=bound)))["extra"]
    prefix = "authentication.kubernetes.io/"
    assert extra[f"{prefix}pod-name"] == ["p"]
    assert extra[f"{prefix}pod-uid"] == [made["metadata"]["uid"]]
    assert extra[f"{prefix}node-name"] == ["n"]


def test_a_token_for_somebody_else_does_not_open_the_server(
    admin: Any, server: Any, connect: Any
) -> None:
    token = request_token(admin, audiences=["vault"])
    assert connect(server, token).get("/api").status == 401
    review = admin.create(REVIEW, {"spec": {"token": token, "audiences": ["vault", "other"]}})
    assert review["status"]["audiences"] == ["vault"]
    assert review["status"]["authenticated"] is True


def test_a_token_that_was_tampered_with_opens_nothing(
    admin: Any, server: Any, connect: Any
) -> None:
    head, claims, signature = request_token(admin).split(".")
    forged = json.loads(base64.urlsafe_b64decode(claims + "=="))
    forged["sub"] = "system:serviceaccount:kube-system:root"
    claims = base64.urlsafe_b64encode(json.dumps(forged).encode()).decode().rstrip("=")
    for token in (f"{head}.{claims}.{signature}", f"{head}.{claims}.", "a.b.c", "..", "ä.b.c"):
        api = connect(server)
        header = f"Bearer {token}".encode().decode("latin-1")
        assert api.get("/api", Authorization=header).status == 401


def test_the_keys_of_tokens_are_published(admin: Any) -> None:
    request_token(admin)
    document = admin.get("/.well-known/openid-configuration")
    assert document["issuer"] == "https://kubernetes.default.svc"
    assert document["id_token_signing_alg_values_supported"] == ["ES256"]
    (key,) = admin.get("/openid/v1/jwks")["keys"]
    assert (key["kty"], key["crv"], key["alg"]) == ("EC", "P-256", "ES256")


# -- impersonation ---------------------------------------------------------------------------


def test_an_administrator_is_whoever_it_wants_to_be(admin: Any) -> None:
    assert who(admin, Impersonate_User="zoe") == {
        "username": "zoe",
        "groups": ["system:authenticated"],
    }
    assert who(
        admin,
        **{
            "Impersonate_User": "zoe",
            "Impersonate_Group": "g",
            "Impersonate_Uid": "7",
            "Impersonate-Extra-acme.com%2fX": "v",
        },
    ) == {
        "username": "zoe",
        "uid": "7",
        "groups": ["g", "system:authenticated"],
        "extra": {"acme.com/x": ["v"]},
    }
    assert who(admin, Impersonate_User="system:serviceaccount:ns:sa")["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:ns",
        "system:authenticated",
    ]
    assert who(admin, Impersonate_User="system:anonymous")["groups"] == ["system:unauthenticated"]


def test_groups_of_nobody_are_refused(admin: Any) -> None:
    refused = admin("POST", WHO, {}, Impersonate_Group="g")
    assert (refused.status, refused["reason"]) == (400, "BadRequest")
    assert refused["message"] == (
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, '
        "Extra:map[string][]string(nil)} without impersonating a user name"
    )


def test_a_client_of_the_kit_acts_as_a_user_of_the_server() -> None:
    kind = kinds.authentication.v1.SelfSubjectReview
    with APIServer(tls=True, users={}) as server:
        config = server.client_config(token=server.token_for("zoe"))
        with Client(config, metrics=Metrics()) as client:
            review = client.create(MutableObject.new(kind)).to_dict()
    assert review["status"]["userInfo"]["username"] == "zoe"


def test_a_client_of_the_kit_acts_as_a_user_in_any_script_and_in_many_groups() -> None:
    kind = kinds.authentication.v1.SelfSubjectReview
    groups = ["日本", "José", *(f"group-{number}" for number in range(300))]
    user = Impersonation(user="Łukasz", groups=groups)
    with APIServer() as server, Client(server.client_config(impersonate=user)) as client:
        found = client.create(MutableObject.new(kind)).to_dict()["status"]["userInfo"]
    assert found["username"] == "Łukasz"
    assert {*groups} <= {*found["groups"]}


def test_an_open_server_lets_any_token_in_but_knows_none_of_them(connect: Any) -> None:
    with APIServer() as open_server:
        api = connect(open_server, "whatever")
        assert "system:masters" in who(api)["groups"]
        for audiences in ([], ["api"], ["other"]):
            spec = {"token": "whatever", "audiences": audiences}
            status = api("POST", REVIEW, {"spec": spec})["status"]
            assert not status.get("authenticated")
            assert status["user"] == {}
            assert "invalid bearer token" in status["error"]


def test_an_authorizer_may_ask_the_server_while_others_do(connect: Any) -> None:
    others: list[threading.Thread] = []

    def allow(_spec: Any) -> bool:
        others.append(threading.Thread(target=lambda: server.requests))
        others[-1].start()
        lifecycle = server._thread.lifecycle
        while lifecycle.acquire(blocking=False):  # until the other one waits for an answer
            lifecycle.release()
        return server.resource_version > 0

    with APIServer(authorizer=allow, users={"t": {"username": "u"}}) as server:
        clock = RealClock()
        began = clock.monotonic()
        assert connect(server, "t").get("/version").status == 200
        assert clock.monotonic() - began < 8
        for other in others:
            other.join(30)


def test_a_user_may_have_any_name_that_a_header_can_hold(connect: Any) -> None:
    with APIServer() as server:
        headers = {"Impersonate_User": "\xff", "Impersonate_Extra_a": "\xfe"}
        found = connect(server)("POST", WHO, {}, **headers)
    assert found.status == 201
    assert found["status"]["userInfo"]["username"] == "\ufffd"
    assert found["status"]["userInfo"]["extra"] == {"a": ["\ufffd"]}
