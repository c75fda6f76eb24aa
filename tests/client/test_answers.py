"""An answer is compared with what was asked, before its connection serves another request."""

from __future__ import annotations

import pytest

from appsdk_operator import client as c
from appsdk_operator.resource import Kind, MutableObject
from tests.client.conftest import GADGET, WIDGET, answer, failure, page, widget


def draft(name="a", **metadata):
    return MutableObject(WIDGET, widget(name, **metadata))


CALLS = {
    "get": lambda client: client.get(WIDGET, "a", namespace="x"),
    "create": lambda client: client.create(draft()),
    "update": lambda client: client.update(draft(uid="u1")),
    "patch": lambda client: client.patch(WIDGET, "a", c.MergePatch({}), namespace="x"),
    "apply": lambda client: client.apply(draft(), field_manager="me"),
    "delete": lambda client: client.delete(WIDGET, "a", namespace="x", uid="u1"),
    "status.get": lambda client: client.status.get(WIDGET, "a", namespace="x"),
    "status.create": lambda client: client.status.create(draft()),
    "status.update": lambda client: client.status.update(draft(uid="u1")),
    "status.patch": lambda client: client.status.patch(
        WIDGET, "a", c.MergePatch({}), namespace="x"
    ),
    "status.apply": lambda client: client.status.apply(draft(uid="u1"), field_manager="me"),
}
KNOW_THE_UID = ("update", "delete", "status.update", "status.apply")


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize(
    "metadata",
    [{"name": "b"}, {"namespace": "y"}, {"name": "b", "namespace": "y"}, {"uid": "u2"}],
    ids=["name", "namespace", "both", "uid"],
)
def test_the_object_of_another_request_is_an_error_and_drops_the_connection(
    serve, connect, verb, metadata
):
    server = serve(answer(widget(**{"name": "a", **metadata})), answer(widget(uid="u1")))
    client = connect(server)
    if "uid" in metadata and verb not in KNOW_THE_UID:
        CALLS[verb](client)
        return
    with pytest.raises(c.WrongAnswer, match="mixes up answers: the connection was dro") as caught:
        CALLS[verb](client)
    text = str(caught.value)
    assert "widgets.example.com" in text
    assert repr(metadata.get("name", "a")) in text
    assert metadata.get("uid", "") in text
    assert ("read the object" in text) == ("get" not in verb)
    assert not client._transport._pool._idle
    CALLS[verb](client)
    assert server.connections == 2


@pytest.mark.parametrize("verb", CALLS)
def test_the_answer_that_was_meant_keeps_the_connection(serve, connect, verb):
    server = serve(answer(widget(uid="u1")))
    client = connect(server)
    for _ in range(3):
        CALLS[verb](client)
    assert server.connections == 1


@pytest.mark.parametrize("verb", [verb for verb in CALLS if verb != "create"])
def test_an_error_about_another_object_is_not_taken_for_ours(serve, connect, verb):
    details = {"name": "b", "group": "example.com", "kind": "widgets"}
    server = serve(failure(404, "NotFound", 'widgets "b" not found', details=details))
    client = connect(server)
    with pytest.raises(c.WrongAnswer, match=r"the answer is about 'b'"):
        CALLS[verb](client)
    assert not client._transport._pool._idle


@pytest.mark.parametrize(
    "details",
    [
        {"name": "a", "group": "example.com", "kind": "widgets"},
        {"name": "x", "kind": "namespaces"},
        {"name": "b", "group": "other.com", "kind": "widgets"},
        {"group": "example.com", "kind": "widgets"},
        {},
    ],
)
def test_an_error_about_ours_or_what_it_needs_is_told(serve, connect, details):
    client = connect(serve(failure(404, "NotFound", details=details)))
    with pytest.raises(c.NotFound):
        CALLS["get"](client)
    assert client._transport._pool._idle


def test_a_delete_that_is_done_for_another_object_is_no_answer(serve, connect):
    done = {"kind": "Status", "status": "Success"}
    ours = {"name": "a", "group": "example.com", "kind": "widgets", "uid": "u1"}
    client = connect(
        serve(answer({**done, "details": ours}), answer({**done, "details": {**ours, "name": "b"}}))
    )
    assert CALLS["delete"](client) is None
    with pytest.raises(c.WrongAnswer, match="about 'b'"):
        CALLS["delete"](client)


def test_a_name_that_the_server_makes_is_not_known_before(serve, connect):
    client = connect(serve(answer(widget("web-x7k2p"))))
    homeless = MutableObject(WIDGET, {"metadata": {"namespace": "x", "generateName": "web-"}})
    assert client.create(homeless).name == "web-x7k2p"


def test_an_object_in_a_namespace_is_no_cluster_scoped_one(serve, connect):
    gadget = {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": "a", "namespace": "x"},
    }
    with pytest.raises(c.WrongAnswer):
        connect(serve(answer(gadget))).get(GADGET, "a")


def test_the_page_of_another_namespace_is_an_error(serve, connect):
    client = connect(serve(page("a")))
    assert client.list_page(WIDGET).items
    assert client.list_page(WIDGET, namespace="x").items
    with pytest.raises(c.WrongAnswer, match=r"list widgets.* in namespace 'y'"):
        client.list_page(WIDGET, namespace="y")


def test_a_subresource_of_another_kind_has_the_name_of_its_parent(serve, connect):
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
    client = connect(
        serve(
            answer({**scale, "metadata": {"name": "a", "namespace": "x", "uid": "u2"}}),
            answer({"apiVersion": "v1", "kind": "Status", "metadata": {}}),
            answer({**scale, "metadata": {"name": "b", "namespace": "x"}}),
        )
    )
    kind = Kind(group="autoscaling", version="v1", kind="Scale")
    new = MutableObject(kind, {"metadata": {"name": "a", "namespace": "x", "uid": "u1"}})
    assert client.subresource("scale").update(new, parent=WIDGET).name == "a"
    assert client.subresource("scale").update(new, parent=WIDGET).kind.kind == "Status"
    with pytest.raises(c.WrongAnswer):
        client.subresource("scale").get(WIDGET, "a", namespace="x")


def test_what_cannot_be_decoded_drops_the_connection(serve, connect):
    server = serve(answer(b"{}"), answer(widget()))
    client = connect(server)
    with pytest.raises(ValueError, match="not an object"):
        CALLS["get"](client)
    assert CALLS["get"](client).name == "a"
    assert server.connections == 2
