from __future__ import annotations

import json
from pathlib import Path

import pytest

from appsdk_operator import client as c
from appsdk_operator.client import JsonPatch, MergePatch, StrategicMergePatch
from appsdk_operator.resource import DecodeError, Kind, MutableObject, Object, WrongKindError
from tests.client.conftest import GADGET, WIDGET, answer, failure, page, widget

BASE = "/apis/example.com/v1/namespaces/x/widgets"


def draft(**metadata):
    return MutableObject(WIDGET, widget(**metadata))


def sent(server):
    return [(r.method, r.target) for r in server.requests]


def test_get_reads_one_object(serve, connect):
    server = serve(answer(widget("a")))
    obj = connect(server).get(WIDGET, "a", namespace="x")
    assert isinstance(obj, Object)
    assert (obj.name, obj.namespace) == ("a", "x")
    assert sent(server) == [("GET", f"{BASE}/a")]


@pytest.mark.parametrize("kind", ["Widget", "", {"kind": "Widget"}, Kind])
@pytest.mark.parametrize("wrap", [lambda client: client, lambda c_: c.NamespacedClient(c_, "x")])
def test_what_is_no_kind_is_refused_before_anything_is_sent(serve, connect, kind, wrap):
    server = serve()
    client = wrap(connect(server))
    for verb in (
        lambda: client.get(kind, "a", namespace="x"),
        lambda: list(client.list(kind)),
        lambda: client.watch(kind),
        lambda: client.patch(kind, "a", MergePatch({}), namespace="x"),
        lambda: client.delete(kind, "a", namespace="x"),
        lambda: client.delete_collection(kind, namespace="x"),
        lambda: client.subresource("status").get(kind, "a", namespace="x"),
    ):
        with pytest.raises(TypeError, match=r"is not a Kind.*kinds\.core\.v1"):
            verb()
    assert sent(server) == []


@pytest.mark.parametrize("verb", ["create", "update", "apply"])
@pytest.mark.parametrize("wrap", [lambda client: client, lambda c_: c.NamespacedClient(c_, "x")])
def test_a_plain_dict_is_no_object_and_the_text_says_what_is(serve, connect, verb, wrap):
    client = wrap(connect(serve()))
    for target in (client, client.subresource("status")):
        with pytest.raises(
            TypeError, match=r"a dict is not an object: .*MutableObject\(kind, {…}\)"
        ):
            getattr(target, verb)(widget())
        with pytest.raises(TypeError, match=r"a str is not an object: .*MutableObject\.new"):
            getattr(target, verb)("a")


def test_a_plain_dict_is_no_patch_and_the_text_says_what_is(serve, connect):
    client = connect(serve())
    for target in (client, client.subresource("status")):
        with pytest.raises(TypeError, match=r"a dict is not a patch.*MergePatch\({…}\)"):
            target.patch(WIDGET, "a", {"spec": {}}, namespace="x")
        with pytest.raises(TypeError, match=r"a list is not a patch.*JsonPatch\(\[…\]\)"):
            target.patch(WIDGET, "a", [{"op": "remove"}], namespace="x")


def test_an_answer_of_another_kind_is_an_error(serve, connect):
    with pytest.raises(WrongKindError):
        connect(serve(answer({**widget(), "kind": "Other"}))).get(WIDGET, "a", namespace="x")


def test_list_fetches_pages_while_it_is_iterated(serve, connect):
    server = serve(page("a", "b", token="t 1"), page("c"))
    listing = connect(server).list(
        WIDGET,
        namespace="x",
        label_selector={"app": "web"},
        field_selector="a=b",
        limit=2,
        resource_version="5",
        resource_version_match="NotOlderThan",
    )
    assert not server.requests
    assert next(listing).name == "a"
    assert len(server.requests) == 1
    assert [obj.name for obj in listing] == ["b", "c"]
    query = f"{BASE}?labelSelector=app%3Dweb&fieldSelector=a%3Db"
    assert sent(server) == [
        (
            "GET",
            f"{query}&limit=2&resourceVersion=5&resourceVersionMatch=NotOlderThan",
        ),
        ("GET", f"{query}&limit=2&continue=t+1"),
    ]


def test_a_list_of_all_namespaces_and_without_pages(serve, connect):
    server = serve(page("a"))
    client = connect(server)
    assert [o.name for o in client.list(WIDGET, limit=0)] == ["a"]
    assert sent(server) == [("GET", "/apis/example.com/v1/widgets")]


def test_a_list_page_tells_its_version_and_what_remains(serve, connect):
    got = connect(serve(page("a", token="t", version="42"))).list_page(WIDGET)
    assert (got.resource_version, got.continue_token) == ("42", "t")


def test_a_list_whose_state_is_gone_is_an_error_unless_told_otherwise(serve, connect):
    expired = failure(410, "Expired", metadata={"continue": "later"})
    server = serve(page("a", token="t"), expired)
    listing = connect(server).list(WIDGET)
    assert next(listing).name == "a"
    with pytest.raises(c.Expired):
        next(listing)

    server = serve(page("a", token="t"), expired, page("b"))
    names = [o.name for o in connect(server).list(WIDGET, allow_inconsistent=True)]
    assert names == ["a", "b"]
    assert server.requests[2].target.endswith("continue=later")


def test_a_rest_that_is_gone_as_well_is_an_error(serve, connect):
    rest = [failure(410, "Expired", metadata={"continue": f"later-{i}"}) for i in range(2)]
    server = serve(page("a", token="t"), *rest, page("b"))
    with pytest.raises(c.Expired):
        list(connect(server).list(WIDGET, allow_inconsistent=True))
    assert len(server.requests) == 3


def test_a_first_page_that_is_gone_is_an_error_in_any_case(serve, connect):
    server = serve(failure(410, "Expired", metadata={"continue": "later"}))
    with pytest.raises(c.Expired):
        list(connect(server).list(WIDGET, resource_version="1", allow_inconsistent=True))


def test_create_posts_the_object_with_its_options(serve, connect):
    server = serve(answer(widget(), 201))
    connect(server).create(draft(), dry_run=True, field_manager="me", field_validation="Strict")
    assert sent(server) == [("POST", f"{BASE}?dryRun=All&fieldManager=me&fieldValidation=Strict")]
    assert server.requests[0].json == widget()
    assert server.requests[0].header("Content-Type") == "application/json"


def test_a_taken_name_is_told_from_a_conflict(serve, connect):
    client = connect(serve(failure(409, "AlreadyExists"), failure(409, "Conflict")))
    with pytest.raises(c.AlreadyExists):
        client.create(draft())
    with pytest.raises(c.Conflict):
        client.update(draft())


def test_update_puts_the_object(serve, connect):
    server = serve(answer(widget()))
    connect(server).update(draft().freeze())
    assert sent(server) == [("PUT", f"{BASE}/a")]
    assert server.requests[0].json == widget()


def test_an_object_from_a_list_of_a_built_in_kind_is_sent_with_its_kind(serve, connect):
    pod = Kind(group="", version="v1", kind="Pod")
    server = serve(answer({"metadata": {"name": "a", "namespace": "x"}}))
    connect(server).update(Object.from_json(pod, b'{"metadata":{"name":"a","namespace":"x"}}'))
    assert server.requests[0].json["kind"] == "Pod"
    assert server.requests[0].json["apiVersion"] == "v1"


@pytest.mark.parametrize(
    ("patch", "content_type", "body"),
    [
        (
            JsonPatch([{"op": "remove", "path": "/a"}]),
            "json-patch",
            [{"op": "remove", "path": "/a"}],
        ),
        (MergePatch({"a": None}), "merge-patch", {"a": None}),
        (StrategicMergePatch({"a": [1]}), "strategic-merge-patch", {"a": [1]}),
    ],
)
def test_each_kind_of_patch_has_its_media_type(serve, connect, patch, content_type, body):
    server = serve(answer(widget()))
    connect(server).patch(WIDGET, "a", patch, namespace="x", field_manager="me")
    assert sent(server) == [("PATCH", f"{BASE}/a?fieldManager=me")]
    assert server.requests[0].header("Content-Type") == f"application/{content_type}+json"
    assert server.requests[0].json == body


def test_apply_sends_what_the_owner_wants(serve, connect):
    server = serve(answer(widget()))
    connect(server).apply(draft(), field_manager="me", force=True, dry_run=True)
    assert sent(server) == [("PATCH", f"{BASE}/a?dryRun=All&fieldManager=me&force=true")]
    assert server.requests[0].header("Content-Type") == "application/apply-patch+yaml"


def test_apply_needs_an_owner(connect):
    with pytest.raises(ValueError, match="FieldOwnerClient"):
        connect("http://127.0.0.1:1").apply(draft())


def test_delete_says_under_which_conditions(serve, connect):
    server = serve(answer({"kind": "Status", "status": "Success"}), answer(widget()), answer(b""))
    client = connect(server)
    assert client.delete(WIDGET, "a", namespace="x") is None
    waiting = client.delete(
        WIDGET,
        "a",
        namespace="x",
        uid="u",
        resource_version="7",
        propagation="Foreground",
        grace_period=1.5,
        dry_run=True,
    )
    assert waiting is not None
    assert waiting.name == "a"
    assert client.delete(WIDGET, "a", namespace="x") is None
    assert server.requests[0].body == b""
    assert server.requests[1].json == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 2,
        "dryRun": ["All"],
    }


def test_a_negative_grace_period_is_refused(connect):
    with pytest.raises(ValueError, match="0 or more seconds"):
        connect("http://127.0.0.1:1").delete(WIDGET, "a", namespace="x", grace_period=-1)


def test_delete_collection_stays_in_its_namespace(serve, connect):
    server = serve(answer({"kind": "Status"}))
    client = connect(server)
    client.delete_collection(
        WIDGET, namespace="x", label_selector="a=b", field_selector="c=d", propagation="Orphan"
    )
    assert sent(server) == [("DELETE", f"{BASE}?labelSelector=a%3Db&fieldSelector=c%3Dd")]
    assert server.requests[0].json["propagationPolicy"] == "Orphan"
    with pytest.raises(ValueError, match="live in namespaces"):
        client.delete_collection(WIDGET)


def test_an_error_about_a_namespace_names_what_the_method_has(connect):
    client = connect("http://127.0.0.1:1")
    placeless = MutableObject.new(WIDGET, "a")
    option, in_object = "give namespace=…", "set metadata.namespace of a"
    for text, call in [
        (option, lambda: client.get(WIDGET, "a")),
        (option, lambda: client.delete(WIDGET, "a")),
        (option, lambda: client.delete_collection(WIDGET)),
        (option, lambda: client.patch(WIDGET, "a", MergePatch({}))),
        (option, lambda: client.status.get(WIDGET, "a")),
        (option, lambda: client.subresource("scale").create(placeless)),
        (in_object, lambda: client.create(placeless)),
        (in_object, lambda: client.update(placeless)),
        (in_object, lambda: client.apply(placeless, field_manager="m")),
        (in_object, lambda: client.status.update(placeless)),
        (in_object, lambda: client.status.apply(placeless, field_manager="m")),
    ]:
        with pytest.raises(ValueError, match=text) as raised:
            call()
        assert (in_object in str(raised.value)) is (text == in_object)
    with pytest.raises(ValueError, match=r"g has metadata\.namespace 'x': leave it out"):
        client.create(MutableObject.new(GADGET, "g", namespace="x"))


def test_cluster_scoped_kinds_have_no_namespace(serve, connect):
    gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}
    server = serve(answer(gadget))
    client = connect(server)
    client.get(GADGET, "g")
    assert sent(server) == [("GET", "/apis/example.com/v1/gadgets/g")]
    with pytest.raises(ValueError, match="cluster-scoped"):
        client.get(GADGET, "g", namespace="x")
    with pytest.raises(ValueError, match="cluster-scoped"):
        client.list_page(GADGET, namespace="x")


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get(WIDGET, "a"),
        lambda client: client.get(WIDGET, "", namespace="x"),
        lambda client: client.get(WIDGET, "../secrets", namespace="x"),
        lambda client: client.get(WIDGET, "a", namespace="../x"),
        lambda client: client.list_page(WIDGET, namespace="x/y"),
        lambda client: client.create(draft(namespace="")),
        lambda client: client.update(draft(name="")),
        lambda client: client.subresource("a/b"),
    ],
)
def test_what_leads_nowhere_is_refused_before_it_is_sent(connect, call):
    with pytest.raises(ValueError, match=r"namespace|name|path"):
        call(connect("http://127.0.0.1:1"))


# -- subresources -----------------------------------------------------------------------------


def test_status_takes_and_gives_the_object(serve, connect):
    server = serve(answer(widget()))
    client = connect(server)
    assert client.status.name == "status"
    assert client.status.get(WIDGET, "a", namespace="x").kind is WIDGET
    client.status.update(draft(), field_manager="me")
    client.status.patch(WIDGET, "a", MergePatch({"status": {}}), namespace="x", dry_run=True)
    client.status.apply(draft(), field_manager="me", force=True)
    assert sent(server) == [
        ("GET", f"{BASE}/a/status"),
        ("PUT", f"{BASE}/a/status?fieldManager=me"),
        ("PATCH", f"{BASE}/a/status?dryRun=All"),
        ("PATCH", f"{BASE}/a/status?fieldManager=me&force=true"),
    ]
    assert str(server.requests[0].method) == "GET"


def test_scale_is_of_a_kind_of_its_own(serve, connect):
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "a", "namespace": "x"},
        "spec": {"replicas": 3},
    }
    server = serve(answer(scale))
    scaling = connect(server).subresource("scale")
    got = scaling.get(WIDGET, "a", namespace="x")
    assert (got.kind.kind, got.kind.api_version) == ("Scale", "autoscaling/v1")
    scaling.update(got.mutable_copy(), parent=WIDGET)
    assert sent(server)[1] == ("PUT", f"{BASE}/a/scale")


def test_an_eviction_is_posted_to_the_pod(serve, connect):
    pod = Kind(group="", version="v1", kind="Pod")
    eviction = Kind(group="policy", version="v1", kind="Eviction")
    server = serve(
        answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, 201),
        failure(429, "TooManyRequests", details={"causes": [{"reason": "DisruptionBudget"}]}),
    )
    evictions = connect(server).subresource("eviction")
    body = MutableObject.new(eviction, "p", namespace="x")
    done = evictions.create(body, parent=pod)
    assert done.kind.kind == "Status"
    assert sent(server) == [("POST", "/api/v1/namespaces/x/pods/p/eviction")]
    with pytest.raises(c.TooManyRequests):
        evictions.create(body, parent=pod)
    assert len(server.requests) == 2


def test_a_token_request_needs_no_name_of_its_own(serve, connect):
    account = Kind(group="", version="v1", kind="ServiceAccount")
    token = Kind(group="authentication.k8s.io", version="v1", kind="TokenRequest")
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "status": {"token": "t"},
    }
    server = serve(answer(body, 201))
    got = (
        connect(server)
        .subresource("token")
        .create(
            MutableObject.new(token, spec={"audiences": ["a"]}),
            parent=account,
            name="robot",
            namespace="x",
        )
    )
    assert got.status["token"] == "t"
    assert sent(server) == [("POST", "/api/v1/namespaces/x/serviceaccounts/robot/token")]


def test_forbidden_names_the_subresource(serve, connect):
    with pytest.raises(c.Forbidden, match=r"verb 'update' on widgets\.example\.com/status in"):
        connect(serve(failure(403, "Forbidden"))).status.update(draft())


# -- patches ----------------------------------------------------------------------------------


def test_a_merge_patch_is_made_from_two_states(serve):
    before = MutableObject(WIDGET, widget(labels={"a": "1", "b": "2"}))
    before["spec"] = {"list": [1], "flag": True, "deep": {"x": 1, "y": 2}}
    after = MutableObject(WIDGET, before.freeze().to_dict())
    after.labels.pop("a")
    after["spec"] = {"list": [1, 2], "flag": 1, "deep": {"x": 1, "y": 3}}
    assert MergePatch.between(before, after).fields == {
        "metadata": {"labels": {"a": None}},
        "spec": {"list": [1, 2], "flag": 1, "deep": {"y": 3}},
    }
    assert MergePatch.between(before, before.freeze()).fields == {}


def test_an_optimistic_lock_puts_the_version_into_the_patch():
    before = draft()
    patch = MergePatch.between(before, before, optimistic_lock=True)
    assert patch.fields == {"metadata": {"resourceVersion": "1"}}
    assert patch.is_guarded
    with pytest.raises(ValueError, match="get it from the server first"):
        MergePatch.between(draft(resourceVersion=""), draft(), optimistic_lock=True)


def test_a_patch_is_guarded_when_the_server_checks_the_version():
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "1"}
    assert JsonPatch([test]).is_guarded
    assert not JsonPatch([{"op": "test", "path": "/spec"}]).is_guarded
    assert not MergePatch({"metadata": None}).is_guarded
    assert StrategicMergePatch({"metadata": {"resourceVersion": "1"}}).is_guarded
    assert "hunter2" not in repr(MergePatch({"data": "hunter2"}))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("http://127.0.0.1:1", r"ClientConfig\(server='http://127.0.0.1:1'\)"),
        (None, r"ClientConfig\.load\(\)"),
        ("kubeconfig", r"ClientConfig\.load\('kubeconfig'\)"),
        (Path("/etc/kubeconfig"), r"ClientConfig\.load\('/etc/kubeconfig'\)"),
    ],
)
def test_what_is_no_configuration_is_refused(config, text):
    with pytest.raises(TypeError, match=f"is not a ClientConfig: give one, for example {text}$"):
        c.Client(config)


def test_a_list_gives_all_that_can_be_read_and_then_names_the_rest(serve, connect):
    odd = {**widget("odd"), "metadata": {**widget("odd")["metadata"], "generation": "many"}}
    body = {"metadata": {"resourceVersion": "7"}, "items": [widget("a"), odd, widget("b")]}
    client = connect(serve(answer(body), answer(body)))
    with pytest.raises(DecodeError, match=r"x/odd: .*generation.*use list_page"):
        list(client.list(WIDGET))
    for_each = client.list(WIDGET)
    assert [next(for_each).name, next(for_each).name] == ["a", "b"]
    with pytest.raises(DecodeError, match=r"1 of the widgets\.example\.com cannot be read"):
        next(for_each)


def test_a_page_has_what_cannot_be_read_beside_the_rest(serve, connect):
    odd = {**widget("odd"), "metadata": {"name": "odd", "namespace": "x", "generation": "many"}}
    body = {"metadata": {"resourceVersion": "7"}, "items": [widget("a"), odd]}
    got = connect(serve(answer(body))).list_page(WIDGET)
    assert [obj.name for obj in got.items] == ["a"]
    assert [str(item) for item in got.undecodable] == ["x/odd"]


@pytest.mark.parametrize(
    ("pages", "what", "names"),
    [
        ([page("a", token="t"), page("b", token="t")], "same continue token", ["a"]),
        ([page("a", "b", token="t"), page("a", "b", token="u")], "x/a came twice", ["a", "b"]),
        ([page(token=f"t{n}") for n in range(10)], "10 pages in a row had no items", []),
    ],
    ids=["token", "items", "empty"],
)
def test_a_list_without_end_is_an_error(serve, connect, pages, what, names):
    server = serve(*pages)
    listed = connect(server).list(WIDGET)
    assert [next(listed).name for _ in names] == names
    with pytest.raises(c.BadResponse, match=f"widgets.*does not end: .*{what}"):
        next(listed)
    assert len(server.requests) == len(pages)


def test_an_object_that_is_too_deep_is_an_error_and_the_others_of_a_list_arrive(serve, connect):
    deep = b'{"metadata":{"name":"deep"},"spec":' + b'{"a":' * 500 + b"1" + b"}" * 501
    good = json.dumps(widget("good")).encode()
    body = b'{"metadata":{"resourceVersion":"7"},"items":[%s,%s]}' % (deep, good)
    client = connect(serve(answer(deep), answer(body)))
    with pytest.raises(DecodeError, match="more than 500 levels deep"):
        client.get(WIDGET, "deep", namespace="x")
    listed = client.list(WIDGET)
    assert next(listed).name == "good"
    with pytest.raises(DecodeError, match="deep"):
        next(listed)
