"""The live page: what it shows, who may see it, and what it never shows."""

from __future__ import annotations

import html
import html.parser
import json
import re
import shlex
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.controllers import (
    Controller,
    ControllerOptions,
    FunctionSource,
    Request,
    RequestQueue,
    TerminalError,
    controller_for,
)
from appsdk_operator.manager import (
    LeaderElection,
    Manager,
    MetricsServerOptions,
    Operator,
    ProfileServer,
    ProfileServerOptions,
    Shards,
)
from appsdk_operator.manager._core.debug_state import DebugState
from appsdk_operator.manager._servers import page as pages
from appsdk_operator.manager._servers.live_page import LivePage
from appsdk_operator.resource import MutableObject, Object, kinds
from appsdk_operator.runtime import ItemExponential, ManualClock, Metrics, StopSignal
from appsdk_operator.serving import (
    HTTPRequest,
    HTTPResponse,
    HTTPServer,
    SelfSigned,
    TLSOptions,
    text_response,
)
from appsdk_operator.testing import MemoryServer, running
from appsdk_operator.webhooks import WebhookServerOptions, webhook_for
from tests.runs import Run
from tests.waiting import eventually

LOCAL = "127.0.0.1:0"
EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>"
CONFIG_MAP, SECRET = kinds.core.v1.ConfigMap, kinds.core.v1.Secret
PATHS = (
    "/debug/",
    "/debug/object?name=a",
    "/debug/controller",
    "/debug/cause",
    "/debug/state.json",
    "/debug/object.json?name=a",
)


class Elements(html.parser.HTMLParser):
    """The elements of a page, and the names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def call(**changes: Any) -> dict[str, Any]:
    write = {"verb": EVIL, "resource": EVIL, "namespace": EVIL, "name": EVIL, "error": EVIL}
    error = {"type": EVIL, "text": EVIL, "function": EVIL, "place": EVIL}
    return {
        **dict.fromkeys(("controller", "callback", "kind", "namespace", "name", "action"), EVIL),
        "reasons": [EVIL],
        "why": EVIL,
        "attempt": 1,
        "started": 1.0,
        "seconds": 2.0,
        "outcome": EVIL,
        "next_in": 3.0,
        "error": error,
        "omitted_writes": 3,
        "writes": [{**write, "status": 0, "seconds": 1.0}],
        **changes,
    }


def state() -> dict[str, Any]:
    """One in which every text is hostile."""
    planned = {"object": f"{EVIL}/{EVIL}", "callback": EVIL, "why": EVIL, "attempt": 1}
    return {
        "version": 1,
        "time": 100.0,
        "operator": {
            "name": EVIL,
            "kit": EVIL,
            "python": EVIL,
            "pid": 1,
            "started": 1.0,
            "ready": False,
            "health": EVIL,
            "stopping": True,
            "leader_election": {"identity": EVIL, "leader": EVIL, "is_leader": False},
        },
        "informers": [
            {
                "kind": EVIL,
                "resource": EVIL,
                "namespace": EVIL,
                "selection": EVIL,
                "objects": 1,
                "bytes": 1,
                "synced": True,
                "ready": False,
                "health": EVIL,
                "last_event": 1.0,
                "watch_age": None,
                "relists": 1,
                "rewinds": 1,
                "undecodable": 1,
                "last_error": EVIL,
                "unreachable_for": 5.0,
            }
        ],
        "controllers": [
            {
                "name": EVIL,
                "type": EVIL,
                "kinds": [EVIL],
                "callbacks": [],
                "workers": 1,
                "ready": False,
                "health": EVIL,
                "queued": 1,
                "running": [call()],
                "running_total": 1,
                "awaiting_total": 0,
                "planned": [{**planned, "due_in": 1.0, "error": EVIL}],
                "planned_total": 1,
                "given_up": [{**planned, "due_in": None, "error": EVIL}],
                "given_up_total": 1,
                "results": {},
                "recent": [call()],
                "is_limited": True,
                "failing_total": 1,
                "for_good_total": 1,
                "oldest_wait": 3.0,
                "p99": 0.5,
                "history": {
                    "seconds": 10.0,
                    **{name: [0] * 59 + [7] for name in ("calls", "failures", "queued")},
                },
            }
        ],
        "failures": [
            {
                **dict.fromkeys(("controller", "callback", "type", "function", "place"), EVIL),
                "text": EVIL,
                "count": 1,
                "first": 1.0,
                "last": 1.0,
                "outcome": EVIL,
                "next_in": None,
                "objects_total": 9,
                "objects": [{"kind": EVIL, "namespace": EVIL, "name": EVIL}],
            }
        ],
        "failing_total": 1,
        "for_good_total": 0,
        "failing": [
            {
                **dict.fromkeys(("controller", "callback", "kind", "namespace", "name"), EVIL),
                **dict.fromkeys(("why", "outcome", "type", "text", "function", "place"), EVIL),
                "attempt": 1,
                "due_in": 1.0,
                "since": 1.0,
                "failures": 2,
            }
        ],
        "held_total": 1,
        "held_since": 1.0,
        "deleting": [
            {"kind": EVIL, "namespace": EVIL, "name": EVIL, "since": 1.0, "finalizers": [EVIL]}
        ],
        "verdict": [{"text": EVIL, "level": "bad", "about": "failing", "controller": EVIL}],
        "objects": [{**call(), "time": 1.0, "why": EVIL}],
        "shards": [{"shards": EVIL, "count": 2, "held": [1], "members": [EVIL]}],
        "servers": [{"name": EVIL, "address": EVIL}],
        "certificates": [{"server": EVIL, "expires": None, "text": EVIL}],
        "webhooks": [{"path": EVIL, "type": EVIL, "kinds": EVIL}],
        "groups": {EVIL: {"runnables": [{"name": EVIL, "state": EVIL, "ready": True}]}},
    }


def timeline(namespace: str, name: str, kind: str | None) -> dict[str, Any]:
    copy = {"kind": EVIL, "uid": EVIL, "resource_version": EVIL, "generation": 1}
    copy |= {"deletion_timestamp": EVIL, "labels": {EVIL: EVIL}, "finalizers": [EVIL]}
    planned = {"object": EVIL, "callback": EVIL, "why": EVIL, "attempt": 1, "error": EVIL}
    reference = dict.fromkeys(("kind", "namespace", "name"), EVIL)
    return {
        "version": 1,
        "time": 100.0,
        "namespace": namespace,
        "name": name,
        "kind": kind,
        "operator": EVIL,
        "copies": [{**copy, "owners": [EVIL], "owned_by": [reference], "owns": [reference]}],
        "calls": [call()],
        "planned": [{**planned, "due_in": 1.0}],
    }


def make(**options: Any) -> ProfileServer:
    more = {name: options.pop(name) for name in ("clock", "client") if name in options}
    return ProfileServer(
        ProfileServerOptions(address=LOCAL, **options), state=state, timeline=timeline, **more
    )


@pytest.mark.parametrize(
    "path",
    [
        '/debug/?rows=all&q="onfocus="alert(3)',
        '/debug/object?name=%3Cscript%3Ealert(1)&x="onfocus="alert(3)',
        f"/debug/controller?{urllib.parse.urlencode({'name': EVIL})}",
        "/debug/cause?"
        + urllib.parse.urlencode(
            dict.fromkeys(("controller", "callback", "type", "function", "place"), EVIL)
        ),
    ],
)
def test_text_of_objects_makes_no_element_and_no_attribute(serve: Any, path: str) -> None:
    page = serve(make()).get(path)
    assert page.status == 200
    found = Elements(page.text)
    assert not found.names & {"img", "iframe", "object", "style", "image", "foreignobject", "use"}
    assert page.text.count("<script") == 1, "the page's own"
    assert not {name for name in found.attributes if name.startswith("on") or name == "style"}
    assert "&lt;script&gt;alert(1)" in page.text


def test_a_call_that_is_held_is_red_with_its_line_and_an_overdue_one_says_so(serve: Any) -> None:
    shown = state()
    controller = shown["controllers"][0]
    served = serve(
        ProfileServer(ProfileServerOptions(address=LOCAL), state=lambda: shown, timeline=timeline)
    )
    controller["running"] = [call(held_at="", seconds=29.0)]
    controller["planned"][0]["due_in"] = 5.0
    page = served.get("/debug/").text
    assert "29 s" in page
    assert "held for" not in page
    assert "in 5.0 s" in page
    controller["running"] = [call(held_at="make (app.py:12)", seconds=112.0)]
    controller["planned"][0]["due_in"] = -112.0
    page = served.get("/debug/").text
    assert '<span class="state bad">held for 1 min 52 s</span>' in page
    assert "make (app.py:12)" in page
    assert "overdue for 1 min 52 s" in page
    controller["running"] = [call(held_at="make (app.py:12)", seconds=112.0, awaiting=True)]
    controller["running_total"] = controller["awaiting_total"] = 3000
    page = served.get("/debug/").text
    assert "awaits for 1 min 52 s" in page
    assert "held for" not in page
    assert ": 0 of 1 worker busy, 3,000 calls await something." in page
    assert "3,000 calls running" in page


def test_events_carry_the_same_escaped_panels(serve: Any) -> None:
    served = serve(make())
    with served.connect() as client:
        client.sendall(b"GET /debug/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        data = b""
        while b"event: panels" not in data or not data.endswith(b"\n\n"):
            data += client.recv(65536)
    text = data.decode().split("data: ", 1)[1].splitlines()[0]
    panels = json.loads(text)
    assert {"process", "failures", "controllers", "kinds", "objects"} <= set(panels)
    for panel in panels.values():
        assert "<script" not in panel
        assert "<img" not in panel


def test_pages_are_read_only_and_allow_nothing_from_elsewhere(serve: Any) -> None:
    served = serve(make())
    for path in (*PATHS, "/debug/page.css", "/debug/page.js"):
        page = served.get(path)
        assert page.status == 200, path
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert served.get(path, method="HEAD").text == ""
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert served.get(path, method=method).status == 405
        assert "http" + "://" not in page.text.replace("http" + "://127", "")
    assert served.get("/debug/object").status == 400
    for path in ("/", "/debug"):
        assert served.get(path, accept="text/html").headers["location"] == "/debug/"
    assert "/debug/state.json" in served.get("/debug").text


def test_a_filter_guards_every_page(serve: Any) -> None:
    def refuse(_: object) -> Any:
        return lambda handler: (
            lambda request: (
                handler(request)
                if request.headers.get("authorization")
                else text_response(401, "401 who are you?")
            )
        )

    served = serve(make(filter_provider=refuse, client=object()))
    others = ("/debug/page.css", "/debug/events", "/debug/threads", "/debug/queues", "/debug")
    for path in (*PATHS, *others):
        assert served.get(path).status == 401, path
    assert served.get("/debug/", authorization="Bearer me").status == 200


def test_other_addresses_than_loopback_need_a_filter() -> None:
    for address in (":6060", "0.0.0.0:6060", "[::]:6060", "10.0.0.1:6060"):
        with pytest.raises(ValueError, match="give filter_provider=AuthFilter"):
            ProfileServerOptions(address=address)
    for address in ("127.0.0.1:0", "[::1]:0", "localhost:0", "0", ""):
        ProfileServerOptions(address=address)
    assert ProfileServerOptions(address=":6060", unsafe_open=True).is_enabled
    with pytest.raises(ValueError, match="needs a client"):
        ProfileServer(
            ProfileServerOptions(address=LOCAL, filter_provider=lambda _: lambda handler: handler)
        )


def follow(served: Any) -> socket.socket:
    client: socket.socket = served.connect()
    client.sendall(b"GET /debug/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client


def test_at_most_eight_follow_and_one_that_leaves_makes_room(serve: Any) -> None:
    clock = ManualClock()
    served = serve(make(clock=clock))
    clients = [follow(served) for _ in range(8)]
    try:
        assert all(client.recv(12) == b"HTTP/1.1 200" for client in clients)
        assert served.get("/debug/events").status == 503
        assert served.get("/debug/").status == 200
        clients.pop().close()

        def has_room() -> bool:
            clock.advance(1.0)
            with follow(served) as client:
                return client.recv(12) == b"HTTP/1.1 200"

        eventually(has_room)
    finally:
        for client in clients:
            client.close()


def test_a_stop_ends_those_who_follow_at_once() -> None:
    server = make(clock=ManualClock())
    stop = StopSignal()
    running = threading.Thread(target=server.run, args=(stop,))
    running.start()
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(b"GET /debug/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        stop.set()
        running.join(10)
        assert not running.is_alive()


def test_a_reader_of_a_stream_that_stands_still_is_dropped(serve: Any) -> None:
    clock, ended = ManualClock(), threading.Event()

    def pieces() -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * 1_000_000
        finally:
            ended.set()

    server = HTTPServer(LOCAL, name="stream", clock=clock)
    server.add_handler("/", lambda _: HTTPResponse(stream=pieces()))
    served = serve(server)
    with served.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"

        def is_dropped() -> bool:
            clock.advance(10.0)
            return ended.is_set()

        eventually(is_dropped)


# -- a manager -----------------------------------------------------------------------------------


@pytest.fixture
def operator() -> Iterator[Any]:
    """A manager of a reconciler, which writes or fails as the name says, on a server in memory."""
    with MemoryServer() as server, server.client() as client:
        manager = Manager(client, name="sites", metrics=Metrics())

        def reconcile(request: Request) -> None:
            if request.name == "bad":
                raise ValueError("no template")
            if request.name == "hopeless":
                raise TerminalError("no such color")
            obj = manager.live_client.get(SECRET, request.name, namespace=request.namespace)
            if "seen" not in obj.labels:
                changed = obj.mutable_copy()
                changed["metadata"]["labels"] = {"seen": "yes"}
                manager.client.update(changed)

        options = ControllerOptions(rate_limiter=lambda: ItemExponential(base=600.0))
        build = controller_for(manager).for_(SECRET).named("page-test").with_options(options)
        build.complete(reconcile)
        run = Run(manager).start()
        yield manager, client
        assert run.end() == []


def create(client: Any, *names: str) -> None:
    for name in names:
        obj = MutableObject.new(SECRET, name, namespace="default")
        obj["stringData"] = {"password": "hunter2"}
        obj["metadata"]["annotations"] = {"copy": "hunter2"}
        client.create(obj)


def test_the_state_and_the_timeline_of_a_running_operator(operator: Any) -> None:
    manager, client = operator
    create(client, "good", "bad", "hopeless")
    eventually(lambda: len(manager.debug_state()["failures"]) == 2)
    eventually(lambda: len(manager.debug_timeline("default", "good")["calls"]) >= 1)
    found = manager.debug_state()
    assert found["version"] == 1
    (informer,) = found["informers"]
    assert (informer["resource"], informer["synced"], informer["objects"]) == ("secrets", True, 3)
    assert informer["watch_age"] >= 0
    (controller,) = found["controllers"]
    assert (controller["name"], controller["type"]) == ("page-test", "reconcilers")
    assert [row["object"] for row in controller["given_up"]] == ["default/hopeless"]
    (planned,) = controller["planned"]
    assert planned["object"] == "default/bad"
    assert planned["error"] == "ValueError: no template"
    assert {group["type"] for group in found["failures"]} == {"ValueError", "TerminalError"}
    # The event of its own write may come a moment later.
    eventually(lambda: manager.debug_timeline("default", "good")["copies"][0]["labels"] != {})
    known = manager.debug_timeline("default", "good")
    (copy,) = known["copies"]
    assert copy["labels"] == {"seen": "yes"}
    writes = [write for one in known["calls"] for write in one["writes"]]
    assert [(write["verb"], write["name"]) for write in writes] == [("update", "good")]
    bad = manager.debug_timeline("default", "bad")
    assert bad["planned"][0]["controller"] == "page-test"
    for shown in (found, known, manager.debug_snapshot()):
        text = json.dumps(shown)
        assert "hunter2" not in text
        assert "aHVudGVyMg" not in text, "the same in base64"


def test_servers_certificates_webhooks_and_shards_are_parts_of_the_state() -> None:
    with MemoryServer() as server, server.client() as client:
        manager = Manager(
            client,
            name="parts",
            metrics=Metrics(),
            metrics_server=MetricsServerOptions(address=LOCAL, tls=TLSOptions()),
            webhook_server=WebhookServerOptions(address=LOCAL, certificates=SelfSigned()),
        )
        manager.webhooks.add("/convert", lambda _: HTTPResponse())
        webhook_for(manager, CONFIG_MAP).validate(create=lambda _: None).complete()
        shards = Shards(client, LeaderElection(id="parts", namespace="default"), 2)
        manager.add(shards)
        run = Run(manager).start()
        eventually(lambda: manager.debug_state()["shards"][0]["held"] == [0, 1])
        found = manager.debug_state()
        assert run.end() == []
    assert [one["name"] for one in found["servers"]] == ["metrics", "webhooks"]
    assert {one["server"] for one in found["certificates"]} == {"metrics", "webhooks"}
    assert all(300 * 86400 < one["left"] < 400 * 86400 for one in found["certificates"])
    assert found["shards"][0]["members"] == [shards.identity]
    paths = {one["path"]: one["type"] for one in found["webhooks"]}
    assert paths.pop("/convert") == "conversion or other"
    assert list(paths.values()) == ["validating"]


def test_ten_thousand_waiting_requests_make_a_page_of_bounded_size(serve: Any) -> None:
    def start(queue: RequestQueue[Request], _: StopSignal) -> None:
        for number in range(10_000):
            queue.add(Request("default", f"object-{number}"), after=60.0 + number)

    with MemoryServer() as server, server.client() as client:
        manager = Manager(client, metrics=Metrics(), name="many")
        controller: Controller[Request] = Controller("page-many", lambda _: None)
        controller.watch(FunctionSource(start))
        operator = Operator()
        operator.add_controller(controller)
        manager.add(operator)
        run = Run(manager).start()
        eventually(lambda: _planned_of(manager) == 10_000)
        page = ProfileServer(
            ProfileServerOptions(address=LOCAL),
            state=manager.debug_state,
            timeline=manager.debug_timeline,
        )
        served = serve(page)
        shown = served.get("/debug/").text
        assert run.end() == []
    assert '<td class="num wide" data-label="Planned">10,000</td>' in shown
    assert shown.count("/debug/object?") == 10
    assert len(shown) < 40_000


def test_an_object_is_found_by_each_name_of_its_kind_and_its_relatives_are_links(
    operator: Any,
) -> None:
    manager, client = operator
    create(client, "good")
    owner = client.get(SECRET, "good", namespace="default")
    child = MutableObject.new(SECRET, "child", namespace="default")
    child["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Secret", "name": "good", "uid": owner.uid}
    ]
    client.create(child)
    eventually(lambda: manager.debug_timeline("default", "child")["copies"] != [])
    eventually(lambda: manager.debug_timeline("default", "good")["calls"] != [])
    for kind in ("secrets.v1", "secrets", "Secret", "secret"):
        known = manager.debug_timeline("default", "good", kind)
        assert known["calls"] != [], kind
        (copy,) = known["copies"]
        assert copy["owns"] == [{"kind": "secrets.v1", "namespace": "default", "name": "child"}]
    assert manager.debug_timeline("default", "good", "configmaps")["calls"] == []
    assert manager.debug_timeline("default", "good", "configmaps")["copies"] == []
    (copy,) = manager.debug_timeline("default", "child")["copies"]
    assert copy["owned_by"] == [{"kind": "secrets.v1", "namespace": "default", "name": "good"}]


def _planned_of(manager: Manager) -> int:
    found = manager.debug_state()["controllers"]
    return found[0]["planned_total"] if found else 0


class Part:
    """A runnable whose health cannot be told."""

    needs_leader_election = False

    def run(self, stop: StopSignal) -> None:
        stop.wait()

    def health(self) -> None:
        raise ConnectionError("the database is gone")


class Feed:
    """A source of one request."""

    def __init__(self, key: object, after: float) -> None:
        self.key, self.after = key, after

    def start(self, queue: RequestQueue[object], stop: StopSignal) -> None:
        queue.add(self.key, after=self.after)


KEYS = ["caf\udce9", Request("a\udcff", "b\udcff"), ("\ud800",), b"\xff", 7]


@pytest.mark.parametrize("after", [0.0, float("inf"), 1e300])
@pytest.mark.parametrize("key", KEYS)
def test_no_key_delay_or_health_takes_the_page_down(key: object, after: float) -> None:
    controller = Controller[object]("odd", lambda request: None, metrics=Metrics())
    controller.watch(Feed(key, after))
    mgr = Manager(MemoryServer().client(), metrics=Metrics())
    mgr.add(controller)
    mgr.add(Part())
    with running(mgr):
        if not after:
            eventually(lambda: bool(controller.activity.calls()))
        else:
            eventually(lambda: controller.next_due is not None)
        live = LivePage(mgr.debug_state, mgr.debug_timeline, clock=mgr.clock)
        for path, page in live.pages().items():
            if path not in ("/", "/debug/events"):
                answer = page(HTTPRequest(method="GET", path=path, query_string="name=a"))
                assert answer.status == 200, path
                if path.endswith(".json"):
                    json.loads(answer.body)
        assert "its health failed: ConnectionError" in mgr.health().text


# -- odd names and objects -----------------------------------------------------------------------


class Members:
    """Groups whose runnables are these parts."""

    def __init__(self, *parts: Any) -> None:
        self.members = parts

    def snapshot(self, *, details: bool = True) -> dict[str, Any]:
        return {}


class Copies:
    """A cache of one kind that has these objects, which is its own informer and store."""

    def __init__(self, *objects: Object) -> None:
        self.objects = objects
        self.kinds = [CONFIG_MAP]
        self.store = self

    def informers(self, kind: object) -> list[Any]:
        return [self]

    def list(self, *, namespace: str | None = None) -> list[Object]:
        return [*self.objects]

    def get(self, name: str, namespace: str) -> Object | None:
        return next((obj for obj in self.objects if obj.name == name), None)


def debug_state(*parts: Any, cache: Copies | None = None) -> DebugState:
    clock = ManualClock()
    return DebugState(
        "odd",
        Members(*parts),  # type: ignore[arg-type]
        clock=clock,
        began=clock.time(),
        general=lambda: {"ready": True},
        caches=lambda: [] if cache is None else [cache],
        servers=dict,
    )


def config_map(name: str, **metadata: Any) -> Object:
    known = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**known, **metadata}}
    return Object.from_json(CONFIG_MAP, json.dumps(data).encode())


@pytest.mark.parametrize(
    "invalid",
    [{"finalizers": {"a": 1}}, {"labels": ["uid-good"]}, {"ownerReferences": [{"uid": 7}]}],
    ids=str,
)
def test_an_object_with_invalid_metadata_hides_no_other(invalid: dict[str, Any]) -> None:
    deleted = {"deletionTimestamp": "1970-01-01T00:00:00Z"}
    known = debug_state(
        cache=Copies(
            config_map("bad", annotations={"of": "uid-good"}, **deleted, **invalid),
            config_map("good", finalizers=["example.com/a"], **deleted),
        )
    )
    assert [row["name"] for row in known.state()["deleting"]] == ["good"]
    (copy,) = known.timeline("default", "good")["copies"]
    assert copy["finalizers"] == ["example.com/a"]
    (copy,) = known.timeline("default", "bad")["copies"]
    assert copy["uid"] == "uid-bad"
    assert copy["labels"] == {}


@pytest.mark.parametrize("name", ["x; touch owned", "$(touch owned)", "a'b", "system:a"])
def test_the_command_to_copy_has_the_name_of_an_object_as_one_word(name: str) -> None:
    known = timeline("team", name, None)
    known["copies"][0]["kind"] = "roles.v1.rbac.authorization.k8s.io"
    shown = pages.panels_of(pages.Asked(view="object", name=name), known)["object"]
    (command,) = re.findall(r'class="copy"[^>]*><code>(.*?)</code>', shown)
    words = shlex.split(html.unescape(command))
    kind = "roles.v1.rbac.authorization.k8s.io"
    assert words == ["kubectl", "get", "-n", "team", kind, name, "-o", "yaml"]


def test_the_details_of_a_controller_stay_its_own_when_the_order_changes() -> None:
    def ids() -> dict[str, str]:
        shown = pages.panels_of(pages.Asked(), known)["controllers"]
        found = re.findall(r'<details id="([^"]*)"><summary>Details of ([^<]*)', shown)
        return {name: id_ for id_, name in found}

    known = state()
    one, other = ({**known["controllers"][0], "name": name} for name in ("a", "b"))
    known["controllers"] = [one, other]
    before = ids()
    other["failing_total"] = 7
    assert list(ids()) == ["b", "a"]
    assert ids() == before


@pytest.mark.parametrize(
    ("path", "panel"),
    [
        ("/debug/?name=web", "verdict"),
        ("/debug/controller", "controller"),
        ("/debug/cause", "cause"),
        ("/debug/object?name=web", "timeline"),
    ],
)
def test_each_page_follows_the_panels_that_it_shows(path: str, panel: str) -> None:
    live = LivePage(state, timeline, clock=ManualClock()).pages()

    def ask(asked: str) -> HTTPResponse:
        place, _, query = asked.partition("?")
        return live[place](HTTPRequest(method="GET", path=place, query_string=query))

    (events,) = re.findall(r'data-events="([^"]*)"', ask(path).body.decode())
    stream = ask(html.unescape(events)).stream
    assert isinstance(stream, Iterator)
    next(stream)
    panels = json.loads(next(stream).decode().partition("data: ")[2])
    stream.close()  # type: ignore[attr-defined]
    assert panel in panels


def test_the_names_of_threads_may_be_anything(serve: Any) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="caf\udce9; a\nb 1", daemon=True)
    thread.start()
    try:
        served = serve(make())
        threads, profile = served.get("/debug/threads"), served.get("/debug/profile?seconds=0.05")
        assert (threads.status, profile.status) == (200, 200)
        lines = profile.text.splitlines()
        assert all(line.rpartition(" ")[2].isdigit() and ";" in line for line in lines)
        assert any(line.startswith("caf?: a b 1;") for line in lines)
    finally:
        ended.set()
        thread.join()
