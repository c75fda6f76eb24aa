from __future__ import annotations

import pytest

from appsdk_operator import client as c
from appsdk_operator.client import (
    Client,
    ClientConfig,
    ClientLike,
    ClientWrapper,
    DryRunClient,
    FieldOwnerClient,
    Hooks,
    InterceptedClient,
    MergePatch,
    NamespacedClient,
    Reader,
    SubresourceLike,
    Writer,
    live_reader,
)
from appsdk_operator.resource import Kind, MutableObject
from tests.client.conftest import CHUNKED, GADGET, WIDGET, answer, page, widget


def draft(**metadata):
    return MutableObject(WIDGET, widget(**metadata))


PATCH = MergePatch({"spec": {}})


def write_everything(client: ClientLike, namespace: str = "x") -> None:
    client.create(draft())
    client.update(draft())
    client.patch(WIDGET, "a", PATCH, namespace=namespace)
    client.apply(draft(), field_manager="call")
    client.delete(WIDGET, "a", namespace=namespace)
    client.delete_collection(WIDGET, namespace=namespace)
    client.status.create(draft())
    client.status.update(draft())
    client.status.patch(WIDGET, "a", PATCH, namespace=namespace)
    client.status.apply(draft(), field_manager="call")


def read_everything(client: ClientLike, namespace: str = "x") -> None:
    client.get(WIDGET, "a", namespace=namespace)
    client.status.get(WIDGET, "a", namespace=namespace)


def test_a_dry_run_client_marks_every_write_and_no_read(serve, connect):
    server = serve(answer(widget()))
    client = DryRunClient(connect(server))
    write_everything(client)
    assert len(server.requests) == 10
    for request in server.requests:
        if request.method == "DELETE":
            assert request.json["dryRun"] == ["All"]
        else:
            assert "dryRun=All" in request.target
    server.requests.clear()
    read_everything(client)
    assert not any("dryRun" in request.target for request in server.requests)


def test_a_field_owner_signs_every_write_unless_the_call_does(serve, connect):
    server = serve(answer(widget()))
    client = FieldOwnerClient(connect(server), "owner")
    client.apply(draft())
    client.status.apply(draft())
    write_everything(client)
    signed = [
        request.target.partition("fieldManager=")[2].partition("&")[0]
        for request in server.requests
        if request.method != "DELETE"
    ]
    assert signed == [
        "owner", "owner", "owner", "owner", "owner", "call", "owner", "owner", "owner", "call",
    ]  # fmt: skip
    read_everything(client)
    client.create(draft(), field_manager="call")
    assert "fieldManager=call" in server.requests[-1].target


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb"])
def test_an_owner_that_no_server_takes_is_refused(name):
    with pytest.raises(ValueError, match="1 to 128 printable"):
        FieldOwnerClient(Client(ClientConfig(server="http://127.0.0.1:1")), name)


def test_a_namespaced_client_fills_in_its_namespace(serve, connect):
    server = serve(answer(widget(namespace="mine")))
    client = NamespacedClient(connect(server), "mine")
    homeless = draft(namespace="")
    client.get(WIDGET, "a")
    client.create(homeless)
    client.update(homeless)
    client.patch(WIDGET, "a", PATCH)
    client.apply(homeless, field_manager="me")
    client.delete(WIDGET, "a")
    client.delete_collection(WIDGET)
    client.status.get(WIDGET, "a")
    client.status.create(homeless)
    client.status.update(homeless)
    client.status.patch(WIDGET, "a", PATCH)
    client.status.apply(homeless, field_manager="me")
    server.replies = [page()]
    list(client.list(WIDGET))
    client.list_page(WIDGET)
    server.replies = [CHUNKED + b"0\r\n\r\n"]
    client.watch(WIDGET).close()
    assert len(server.requests) == 15
    assert all("/namespaces/mine/" in request.target for request in server.requests)
    assert homeless.namespace == ""
    assert server.requests[1].json["metadata"]["namespace"] == "mine"


def test_a_namespaced_client_refuses_every_other_namespace(connect):
    client = NamespacedClient(connect("http://127.0.0.1:1"), "mine")
    text = "namespace x of the object a does not match the namespace mine on the client"
    for call in (
        lambda: client.get(WIDGET, "a", namespace="x"),
        lambda: client.create(draft()),
        lambda: client.update(draft().freeze()),
        lambda: client.patch(WIDGET, "a", PATCH, namespace="x"),
        lambda: client.apply(draft(), field_manager="me"),
        lambda: client.delete(WIDGET, "a", namespace="x"),
        lambda: client.status.get(WIDGET, "a", namespace="x"),
        lambda: client.status.create(draft()),
        lambda: client.status.update(draft()),
        lambda: client.status.patch(WIDGET, "a", PATCH, namespace="x"),
        lambda: client.status.apply(draft(), field_manager="me"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    for call in (
        lambda: client.list(WIDGET, namespace="x"),
        lambda: client.list_page(WIDGET, namespace="x"),
        lambda: client.watch(WIDGET, namespace="x"),
        lambda: client.delete_collection(WIDGET, namespace="x"),
    ):
        with pytest.raises(ValueError, match="does not match the namespace mine"):
            call()


def test_cluster_scoped_kinds_pass_a_namespaced_client(serve, connect):
    gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}
    server = serve(answer(gadget))
    client = NamespacedClient(connect(server), "mine")
    client.get(GADGET, "g")
    client.update(MutableObject(GADGET, gadget))
    assert [r.target for r in server.requests] == ["/apis/example.com/v1/gadgets/g"] * 2


def test_an_eviction_through_a_namespaced_client_goes_to_its_pod(serve, connect):
    pod = Kind(group="", version="v1", kind="Pod")
    eviction = Kind(group="policy", version="v1", kind="Eviction")
    server = serve(answer({"kind": "Status", "apiVersion": "v1", "metadata": {}}, 201))
    client = NamespacedClient(connect(server), "mine")
    client.subresource("eviction").create(MutableObject.new(eviction, "p"), parent=pod)
    assert server.requests[0].target == "/api/v1/namespaces/mine/pods/p/eviction"


def test_hooks_stand_in_for_any_verb(connect):
    seen = []

    def hook(name):
        def run(inner, *args, **options):
            seen.append((name, args, options))
            return name

        return run

    verbs = [a.name for a in Hooks.__attrs_attrs__]
    inner = connect("http://127.0.0.1:1")
    client = InterceptedClient(inner, Hooks(**{name: hook(name) for name in verbs}))
    client.get(WIDGET, "a", namespace="x")
    client.list(WIDGET, limit=1)
    client.list_page(WIDGET)
    client.watch(WIDGET)
    write_everything(client)
    client.status.get(WIDGET, "a")
    assert {name for name, _, _ in seen} == set(verbs)
    assert seen[0] == ("get", (WIDGET, "a"), {"namespace": "x"})


def test_verbs_without_a_hook_pass_and_hooks_reach_the_client_below(serve, connect):
    server = serve(answer(widget()))
    tries = []

    def twice(inner, obj, **options):
        tries.append(inner.name if hasattr(inner, "name") else "object")
        if len(tries) == 1:
            raise c.Conflict("by order of the test", status=409)
        return inner.update(obj, **options)

    inner = connect(server)
    client = InterceptedClient(inner, Hooks(update=twice, subresource_update=twice))
    with pytest.raises(c.Conflict):
        client.update(draft())
    client.update(draft(), field_manager="me")
    client.subresource("status").update(draft())
    client.get(WIDGET, "a", namespace="x")
    client.status.get(WIDGET, "a", namespace="x")
    assert tries == ["object", "object", "status"]
    assert len(server.requests) == 4


def test_wrappers_can_be_stacked(serve, connect):
    server = serve(answer(widget(namespace="mine")))
    client = DryRunClient(NamespacedClient(FieldOwnerClient(connect(server), "me"), "mine"))
    client.status.update(draft(namespace=""))
    assert server.requests[0].target == (
        "/apis/example.com/v1/namespaces/mine/widgets/a/status?dryRun=All&fieldManager=me"
    )


def test_a_plain_wrapper_passes_everything_on(serve, connect):
    server = serve(answer(widget()))
    client = ClientWrapper(connect(server))
    read_everything(client)
    write_everything(client)
    server.replies = [page("a")]
    assert [o.name for o in client.list(WIDGET)] == ["a"]
    assert client.list_page(WIDGET).items
    server.replies = [CHUNKED + b"0\r\n\r\n"]
    client.watch(WIDGET).close()
    assert len(server.requests) == 15


def test_clients_and_wrappers_fit_the_protocols(connect):
    client = connect("http://127.0.0.1:1")
    for each in (client, DryRunClient(client), NamespacedClient(client, "x")):
        assert isinstance(each, Reader)
        assert isinstance(each, Writer)


HOOKED = {
    "get": lambda client: client.get(WIDGET, "a", namespace="x"),
    "list": lambda client: [*client.list(WIDGET)],
    "list_page": lambda client: client.list_page(WIDGET),
    "watch": lambda client: client.watch(WIDGET).close(),
    "create": lambda client: client.create(draft()),
    "update": lambda client: client.update(draft()),
    "patch": lambda client: client.patch(WIDGET, "a", PATCH, namespace="x"),
    "apply": lambda client: client.apply(draft(), field_manager="me"),
    "delete": lambda client: client.delete(WIDGET, "a", namespace="x"),
    "delete_collection": lambda client: client.delete_collection(WIDGET, namespace="x"),
    "subresource_get": lambda client: client.status.get(WIDGET, "a", namespace="x"),
    "subresource_create": lambda client: client.status.create(draft()),
    "subresource_update": lambda client: client.status.update(draft()),
    "subresource_patch": lambda client: client.status.patch(WIDGET, "a", PATCH, namespace="x"),
    "subresource_apply": lambda client: client.status.apply(draft(), field_manager="me"),
}


def test_every_hook_is_in_the_table_below():
    assert set(HOOKED) == {field.name for field in Hooks.__attrs_attrs__}


@pytest.mark.parametrize("verb", HOOKED)
def test_one_hook_takes_its_verb_and_leaves_all_others(serve, connect, verb):
    def reply(sock, request):
        is_list = request.method == "GET" and "/widgets/a" not in request.target
        body = page("a") if is_list else answer(widget())
        sock.sendall(CHUNKED + b"0\r\n\r\n" if "watch=" in request.target else body)

    server = serve(reply)
    calls = []

    class Hooked:
        def close(self):
            pass

        def __iter__(self):
            return iter(())

    def hook(inner, *args, **options):
        calls.append(args)
        return Hooked()

    client = InterceptedClient(connect(server), Hooks(**{verb: hook}))
    for name, call in HOOKED.items():
        before = len(server.requests)
        call(client)
        assert len(server.requests) == before + (name != verb), name
    assert len(calls) == 1


def verbs_of(protocol: type) -> set[str]:
    return {name for name in dir(protocol) if not name.startswith("_")}


def test_the_table_above_has_every_verb_of_the_protocols():
    others = {"status", "subresource", "name", "aio", "modify"}
    subresource = {f"subresource_{verb}" for verb in verbs_of(SubresourceLike) - others}
    assert set(HOOKED) == (verbs_of(ClientLike) - others) | subresource


class Answer:
    def close(self):
        pass

    def __iter__(self):
        return iter(())


class Recording(ClientWrapper):
    """Keeps the calls, and answers them itself."""

    def __init__(self):
        super().__init__(Echo())
        self.calls = []

    def _send(self, call, forward):
        self.calls.append((call, forward))
        return Answer()


class Echo:
    """A client whose verbs return what they were called with."""

    def __init__(self, subresource=""):
        self.name = subresource

    def subresource(self, name):
        return Echo(name)

    def __getattr__(self, verb):
        return lambda *args, **options: (verb, self.name, args, options)


@pytest.mark.parametrize("verb", HOOKED)
def test_every_verb_passes_the_hook_once_with_what_it_is(verb):
    client = Recording()
    HOOKED[verb](client)
    ((call, forward),) = client.calls
    subresource, _, name = verb.rpartition("_") if verb.startswith("sub") else ("", "", verb)
    assert (call.verb, call.subresource) == (name, "status" if subresource else "")
    assert call.kind is WIDGET
    assert call.is_write == (name not in {"get", "list", "list_page", "watch"})
    has_body = name in {"create", "update", "patch", "apply"}
    assert (call.body is not None) == has_body
    if name not in {"list", "list_page", "watch"}:
        assert call.namespace == "x"
        assert call.name == ("" if name == "delete_collection" else "a")
    assert forward(call) == (name, call.subresource, call.arguments, call.options)


def test_a_call_by_keywords_is_the_same_call():
    client = Recording()
    client.patch(name="a", kind=WIDGET, patch=PATCH, dry_run=True)
    client.subresource("eviction").create(draft(namespace=""), parent=GADGET, name="b")
    (patch, _), (eviction, _) = client.calls
    assert patch.arguments == (WIDGET, "a", PATCH)
    assert patch.options == {"dry_run": True}
    assert patch.having(namespace="y").options == {"dry_run": True, "namespace": "y"}
    assert (eviction.kind, eviction.namespace, eviction.name) == (GADGET, "", "b")


def test_a_call_shows_no_body():
    client = Recording()
    client.create(MutableObject(WIDGET, widget() | {"spec": {"password": "hunter2"}}))
    client.status.patch(WIDGET, "a", MergePatch({"password": "hunter2"}), namespace="x")
    assert [repr(call) for call, _ in client.calls] == [
        "<create widgets.v1.example.com 'x' 'a'>",
        "<patch widgets.v1.example.com/status 'x' 'a'>",
    ]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda client: InterceptedClient(client, get=print),
            r"InterceptedClient\(client, Hooks\(get",
        ),
        (lambda client: InterceptedClient(client, get=1, list=2), r"Hooks\(get=…, list=…\)"),
        (InterceptedClient, r"Hooks\(get=…\)"),
        (lambda client: InterceptedClient(client, {"get": print}), r"Hooks\(get=…\)"),
        (lambda client: InterceptedClient(client, Hooks), r"Hooks\(get=…\)"),
        (lambda client: InterceptedClient(client, Hooks(get=5)), "get=5: give a function"),
        (lambda client: InterceptedClient(None, Hooks()), "inner=None is not a client"),
        (lambda client: DryRunClient(Client), "inner=.* is not a client"),
        (lambda client: FieldOwnerClient({}, "me"), "inner={} is not a client"),
        (lambda client: NamespacedClient(client.config, "x"), "inner=.* is not a client"),
    ],
)
def test_what_a_wrapper_cannot_wrap_is_refused_with_the_remedy(connect, make, text):
    client = connect("http://127.0.0.1:1")
    with pytest.raises(TypeError, match=text):
        make(client)


def test_the_live_reader_behind_wrappers_has_their_namespace(serve, connect):
    server = serve(answer(widget()))
    live = connect(server)

    class Cached(ClientWrapper):
        """A client that reads from a cache."""

        def __init__(self):
            super().__init__(InterceptedClient(live, Hooks(get=lambda *_, **__: 1 / 0)))
            self.live = live

    reader = live_reader(FieldOwnerClient(NamespacedClient(DryRunClient(Cached()), "x"), "owner"))
    reader.get(WIDGET, "a")
    assert "/namespaces/x/" in server.requests[0].target
    with pytest.raises(ValueError, match="does not match the namespace x on the client"):
        reader.get(WIDGET, "a", namespace="y")
    assert live_reader(Cached()) is live
    assert live_reader(live) is live
