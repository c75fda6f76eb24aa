"""Webhooks in ASGI and WSGI applications, behind the servers and frameworks that carry them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import http.client
import json
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import attrs
import flask
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from appsdk_operator import Client, kinds
from appsdk_operator.client import Forbidden
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.runtime import ManualClock, settle
from appsdk_operator.serving import HTTPHandler, HTTPRequest, HTTPResponse, SelfSigned
from appsdk_operator.testing import APIServer, install_webhooks
from appsdk_operator.webhooks import (
    Admission,
    AdmissionRequest,
    AdmissionResponse,
    Denied,
    Webhooks,
    asgi,
    webhook_configurations,
    webhook_for,
    wsgi,
)
from tests.webhooks.admission_parts import review

LIMIT = 1000
TIMEOUT = 30.0


@attrs.define
class Table:
    """Webhooks by path, without admission: what the applications need of some."""

    webhooks: dict[str, HTTPHandler]
    seen: list[HTTPRequest] = attrs.field(factory=list)
    limit: int = LIMIT
    seconds: float | None = None

    def body_limit(self, path: str) -> int:
        """The same for all."""
        return self.limit

    def time_limit(self, request: HTTPRequest) -> float | None:
        """The same for all."""
        return self.seconds

    def timed_out(self, request: HTTPRequest) -> HTTPResponse:
        """A failure."""
        return HTTPResponse(status=500, body=b"too late")

    def answer(self, request: HTTPRequest) -> HTTPResponse:
        """Answer by path."""
        self.seen.append(request)
        webhook = self.webhooks.get(request.path)
        return HTTPResponse(status=404) if webhook is None else webhook(request)


def echo(request: HTTPRequest) -> HTTPResponse:
    """Answer with the body."""
    return HTTPResponse(body=request.body, content_type="application/json", headers={"X-A": "b"})


# -- without a server ------------------------------------------------------------------------------


async def call_asgi(app: Any, *messages: dict[str, Any], **scope: Any) -> list[dict[str, Any]]:
    """Call an application with these messages, and then a client that waits."""
    sent: list[dict[str, Any]] = []
    queue = list(messages)
    forever = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not queue:
            await forever.wait()
        if "after" in queue[0]:
            await queue[0]["after"].wait()
        return queue.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    given = {
        "type": "http",
        "method": "POST",
        "path": "/echo",
        "query_string": b"timeout=10s",
        "headers": [(b"content-type", b"application/json")],
        "client": ("10.0.0.7", 1234),
        **scope,
    }
    await asyncio.wait_for(app(given, receive, send), TIMEOUT)
    return sent


def body_of(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


def test_an_asgi_application_hands_on_the_whole_request() -> None:
    table = Table({"/echo": echo})
    parts = [body_of(b"ab", more=True), body_of(b"", more=True), body_of(b"c")]
    sent = asyncio.run(call_asgi(asgi(table), *parts))
    start, body = sent
    assert start["status"] == 200
    assert dict(start["headers"]) == {
        b"content-type": b"application/json",
        b"content-length": b"3",
        b"x-a": b"b",
    }
    assert body["body"] == b"abc"
    (request,) = table.seen
    assert (request.method, request.path, request.peer) == ("POST", "/echo", "10.0.0.7")
    assert request.query == {"timeout": ["10s"]}
    assert request.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "root", "wanted"),
    [
        ("/echo", "", "/echo"),
        ("/hooks/echo", "/hooks", "/echo"),
        ("/hooks/echo", "/hooks/", "/echo"),
        ("/echo", "/hooks", "/echo"),  # a server that took it off
        ("/hooks", "/hooks", "/"),
        ("/hooksecho", "/hooks", "/hooksecho"),
        ("", "", "/"),
    ],
)
def test_paths_are_those_below_the_mount_point(path: str, root: str, wanted: str) -> None:
    table = Table({})
    asyncio.run(call_asgi(asgi(table), body_of(b"x"), path=path, root_path=root))
    assert table.seen[0].path == wanted


def test_no_more_than_the_limit_is_read() -> None:
    table = Table({"/echo": echo})
    parts = [body_of(b"x" * 600, more=True) for _ in range(50)]
    asyncio.run(call_asgi(asgi(table), *parts))
    assert len(table.seen[0].body) == LIMIT


def test_a_client_that_leaves_during_the_body_calls_nobody() -> None:
    table = Table({"/echo": echo})
    sent = asyncio.run(
        call_asgi(asgi(table), body_of(b"x", more=True), {"type": "http.disconnect"})
    )
    assert (sent, table.seen) == ([], [])


def test_a_client_that_leaves_stops_a_plain_handler() -> None:
    ended: list[bool] = []

    def slow(request: HTTPRequest) -> HTTPResponse:
        ended.append(request.stop.wait(TIMEOUT))
        return HTTPResponse()

    app = asgi(Table({"/echo": slow}))
    sent = asyncio.run(call_asgi(app, body_of(b"x"), {"type": "http.disconnect"}))
    assert (sent, ended) == ([], [True])


def test_a_client_that_leaves_cancels_an_async_handler(caplog: Any) -> None:
    ended: list[str] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def slow() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        app = asgi(Table({"/echo": lambda request: settle(slow())}))
        gone = {"type": "http.disconnect", "after": begun}
        assert await call_asgi(app, body_of(b"x"), gone) == []

    asyncio.run(main())
    assert ended == ["cancelled"]
    assert "could not be answered" not in caplog.text


def test_a_handler_that_has_claimed_its_answer_gives_it_though_its_time_is_up_by_then() -> None:
    async def main() -> list[dict[str, Any]]:
        loop = asyncio.get_running_loop()

        def last_moment(request: HTTPRequest) -> HTTPResponse:
            assert request.claim_answer("handler")
            # After the loop has seen that the time is up.
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), loop).result(TIMEOUT)
            return HTTPResponse(body=b"in time")

        return await call_asgi(asgi(Table({"/echo": last_moment}, seconds=0.05)), body_of(b"x"))

    sent = asyncio.run(main())
    assert [sent[0]["status"], sent[1]["body"]] == [200, b"in time"]


def test_a_handler_that_takes_too_long_is_answered_for_and_ended() -> None:
    ended: list[bool] = []

    def slow(request: HTTPRequest) -> HTTPResponse:
        ended.append(request.stop.wait(TIMEOUT))
        return HTTPResponse()

    sent = asyncio.run(call_asgi(asgi(Table({"/echo": slow}, seconds=0.05)), body_of(b"x")))
    assert [sent[0]["status"], sent[1]["body"]] == [500, b"too late"]
    assert ended == [True]


def test_async_handlers_run_on_the_loop_of_the_application_with_its_context() -> None:
    color: contextvars.ContextVar[str] = contextvars.ContextVar("color")
    seen: list[Any] = []

    async def look() -> None:
        seen.append((asyncio.get_running_loop(), color.get()))

    def webhook(request: HTTPRequest) -> HTTPResponse:
        seen.append(color.get())
        settle(look())
        return HTTPResponse()

    async def main() -> None:
        color.set("blue")
        await call_asgi(asgi(Table({"/echo": webhook})), body_of(b"x"))
        assert seen == ["blue", (asyncio.get_running_loop(), "blue")]

    asyncio.run(main())


def test_blocking_handlers_do_not_block_the_loop_and_no_more_than_allowed_run() -> None:
    barrier = threading.Barrier(2, timeout=TIMEOUT)
    running = threading.Semaphore(0)
    high: list[int] = []
    count = [0]
    lock = threading.Lock()

    def meet(request: HTTPRequest) -> HTTPResponse:
        with lock:
            count[0] += 1
            high.append(count[0])
        barrier.wait()
        running.release()
        with lock:
            count[0] -= 1
        return HTTPResponse()

    app = asgi(Table({"/echo": meet}), max_concurrent=2)

    async def main() -> None:
        calls = [call_asgi(app, body_of(b"x")) for _ in range(6)]
        assert all(sent[0]["status"] == 200 for sent in await asyncio.gather(*calls))

    asyncio.run(main())
    # Another loop, as of another test of the same application.
    asyncio.run(main())
    assert max(high) == 2


def test_an_error_of_the_webhooks_is_a_500_without_details(caplog: Any) -> None:
    def broken(request: HTTPRequest) -> HTTPResponse:
        raise SystemExit("secret")

    sent = asyncio.run(call_asgi(asgi(Table({"/echo": broken})), body_of(b"x")))
    assert sent[0]["status"] == 500
    assert b"secret" not in sent[1]["body"]
    assert "/echo could not be answered" in caplog.text


def test_a_cancelled_request_cancels_its_handler_and_leaves_no_thread() -> None:
    begun = threading.Event()
    ended: list[str] = []

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def main() -> None:
        app = asgi(Table({"/echo": lambda request: settle(slow())}))
        task = asyncio.ensure_future(call_asgi(app, body_of(b"x")))
        await asyncio.to_thread(begun.wait, TIMEOUT)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["cancelled"]


def test_the_lifespan_is_followed_and_websockets_are_closed() -> None:
    app = asgi(Table({}))
    lifespan = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = asyncio.run(call_asgi(app, *lifespan, type="lifespan"))
    assert [m["type"] for m in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    sent = asyncio.run(call_asgi(app, type="websocket"))
    assert sent == [{"type": "websocket.close", "code": 1000}]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_other_methods_than_post_are_not_allowed(method: str) -> None:
    table = Table({"/echo": echo})
    sent = asyncio.run(call_asgi(asgi(table), method=method))
    assert sent[0]["status"] == 405
    assert dict(sent[0]["headers"])[b"allow"] == b"POST"
    status, headers, _ = call_wsgi(wsgi(table), b"", REQUEST_METHOD=method)
    assert (status, headers["Allow"]) == ("405 Method Not Allowed", "POST")
    assert table.seen == []


def call_wsgi(app: Any, body: bytes, **environ: Any) -> tuple[str, dict[str, str], bytes]:
    """Call an application with this body."""
    import io

    given: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/echo",
        "SCRIPT_NAME": "/hooks",
        "QUERY_STRING": "timeout=10s",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_X_TRACE_ID": "7",
        "REMOTE_ADDR": "10.0.0.7",
        "wsgi.input": io.BytesIO(body),
        **environ,
    }
    answered: list[Any] = []
    parts = app(given, lambda status, headers: answered.append((status, dict(headers))))
    status, headers = answered[0]
    return status, headers, b"".join(parts)


def test_a_wsgi_application_hands_on_the_whole_request() -> None:
    table = Table({"/echo": echo})
    status, headers, body = call_wsgi(wsgi(table), b"abc")
    assert (status, body) == ("200 OK", b"abc")
    assert headers == {"Content-Type": "application/json", "Content-Length": "3", "X-A": "b"}
    (request,) = table.seen
    assert (request.method, request.path, request.peer) == ("POST", "/echo", "10.0.0.7")
    assert request.query == {"timeout": ["10s"]}
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-trace-id"] == "7"


@pytest.mark.parametrize(
    ("body", "environ", "status", "length"),
    [
        (b"x" * 5000, {}, "404 Not Found", LIMIT),
        (b"abc", {"CONTENT_LENGTH": ""}, "404 Not Found", 0),
        (b"abc", {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}, "404 Not Found", 3),
        (b"abc", {"CONTENT_LENGTH": "4"}, "400 Bad Request", None),
        (b"abc", {"CONTENT_LENGTH": "-1"}, "400 Bad Request", None),
        (b"abc", {"CONTENT_LENGTH": "٣"}, "400 Bad Request", None),
    ],
)
def test_the_body_of_a_wsgi_request_is_complete_and_bounded(
    body: bytes, environ: dict[str, Any], status: str, length: int | None
) -> None:
    table = Table({})
    assert call_wsgi(wsgi(table), body, PATH_INFO="/none", **environ)[0] == status
    assert [len(request.body) for request in table.seen] == ([] if length is None else [length])


def test_a_wsgi_path_is_utf_8() -> None:
    table = Table({})
    call_wsgi(wsgi(table), b"x", PATH_INFO="/é".encode().decode("latin-1"))
    assert table.seen[0].path == "/é"


def test_an_async_handler_in_wsgi_has_a_loop() -> None:
    async def answer() -> HTTPResponse:
        await asyncio.sleep(0)
        return HTTPResponse(body=b"later")

    app = wsgi(Table({"/echo": lambda request: settle(answer())}))
    assert call_wsgi(app, b"x")[2] == b"later"


@pytest.mark.parametrize("make", [asgi, wsgi])
def test_what_has_no_webhooks_is_refused(make: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"webhooks=\{\} has no webhooks: give Webhooks\(\)"):
        make({})
    with pytest.raises(TypeError, match="has no webhooks"):
        make(Table)


@pytest.mark.parametrize("make", [asgi, wsgi])
def test_webhooks_themselves_are_taken(make: Callable[[Any], Any]) -> None:
    make(Webhooks())


def test_a_host_is_taken_for_its_webhooks() -> None:
    @attrs.define
    class Host:
        webhooks: Any

    table = Table({"/echo": echo})
    assert call_wsgi(wsgi(Host(table)), b"abc")[2] == b"abc"


def test_nothing_can_run_when_nothing_may_run_at_once() -> None:
    with pytest.raises(ValueError, match="max_concurrent=0: use 1 or more"):
        asgi(Table({}), max_concurrent=0)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_review_that_waits_for_its_turn_is_given_up_with_its_client_or_its_time(
    leaves: bool,
) -> None:
    entered, release, calls = threading.Event(), threading.Event(), []

    def slow(request: HTTPRequest) -> HTTPResponse:
        calls.append(request.query_string)
        entered.set()
        release.wait(TIMEOUT)
        return HTTPResponse()

    async def main() -> None:
        table = Table({"/echo": slow})
        app = asgi(table, max_concurrent=1)
        holder = asyncio.create_task(call_asgi(app, body_of(b"x"), query_string=b"first"))
        await asyncio.to_thread(entered.wait, TIMEOUT)
        table.seconds = None if leaves else 0.01
        gone = [{"type": "http.disconnect"}] if leaves else []
        sent = await call_asgi(app, body_of(b"x"), *gone, query_string=b"second")
        assert [each["status"] for each in sent[:1]] == ([] if leaves else [500])
        release.set()
        await holder
        # The slot is free again, and no other is lost.
        table.seconds = None
        assert (await call_asgi(app, body_of(b"x"), query_string=b"third"))[0]["status"] == 200

    asyncio.run(main())
    assert calls == ["first", "third"]


def test_a_review_that_has_waited_has_less_time_left() -> None:
    entered, release, left = threading.Event(), threading.Event(), {}

    def look(request: AdmissionRequest) -> AdmissionResponse:
        left[request.name] = request.time_left()
        entered.set()
        release.wait(TIMEOUT)
        return AdmissionResponse.allowed()

    clock = ManualClock()
    table = Webhooks()
    table.add("/echo", Admission(look, clock=clock))

    def body(name: str) -> dict[str, Any]:
        return body_of(json.dumps(review(name=name)).encode())

    async def main() -> None:
        app = asgi(table, max_concurrent=1)
        holder = asyncio.create_task(call_asgi(app, body("first")))
        await asyncio.to_thread(entered.wait, TIMEOUT)
        waiting = asyncio.create_task(call_asgi(app, body("second")))
        await asyncio.wait([waiting], timeout=0.05)
        release.set()
        await asyncio.gather(holder, waiting)

    asyncio.run(main())
    assert left["first"] > 9.9
    assert left["second"] < 9.96


def test_an_async_handler_whose_client_leaves_has_not_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handle(request: AdmissionRequest) -> AdmissionResponse:
        leaving.set()
        await asyncio.Event().wait()
        return AdmissionResponse.allowed()

    webhook, table = Admission(handle), Webhooks()
    table.add("/echo", webhook)
    leaving = asyncio.Event()
    gone = {"type": "http.disconnect", "after": leaving}
    body = body_of(json.dumps(review()).encode())
    assert asyncio.run(call_asgi(asgi(table), body, gone)) == []
    assert sum(sample.value for sample in webhook.samples()) == 0
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


# -- behind real servers, called by an API server --------------------------------------------------


def refuse_secrets(request: HTTPRequest) -> HTTPResponse:
    """Deny config maps with a key ``secret``, in an admission review.

    The texts have no word that is the token of another test's client: errors show none of those.
    """
    review = json.loads(request.body)["request"]

    async def verdict() -> dict[str, Any]:
        if "secret" in (review["object"].get("data") or {}):
            return {"allowed": False, "status": {"code": 403, "message": "no hidden keys here"}}
        return {"allowed": True}

    answer = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": review["uid"], **settle(verdict())},
    }
    return HTTPResponse(body=json.dumps(answer).encode(), content_type="application/json")


@attrs.frozen
class Certificate:
    """A certificate for 127.0.0.1 in files."""

    cert: str
    key: str
    pem: bytes


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    own = SelfSigned("127.0.0.1")
    (tmp_path / "tls.crt").write_bytes(own.pair().certificate)
    (tmp_path / "tls.key").write_bytes(own.pair().key)
    return Certificate(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"), own.pem)


@contextlib.contextmanager
def uvicorn_server(app: Any, certificate: Certificate) -> Iterator[str]:
    """Serve an ASGI application by uvicorn."""
    config = uvicorn.Config(
        app,
        port=0,
        ssl_certfile=certificate.cert,
        ssl_keyfile=certificate.key,
        ws="none",
        log_config=None,
        timeout_keep_alive=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    try:
        pause = threading.Event()
        assert any(server.started or pause.wait(0.02) for _ in range(1500))
        yield f"https://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(TIMEOUT)


class ThreadingWSGIServer(socketserver.ThreadingMixIn, WSGIServer):
    """wsgiref with a thread for each connection."""


class Quiet(WSGIRequestHandler):
    """A handler without a log."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named so there
        """Say nothing."""


@contextlib.contextmanager
def wsgi_server(app: Any, certificate: Certificate) -> Iterator[str]:
    """Serve a WSGI application by wsgiref."""
    server = make_server("127.0.0.1", 0, app, ThreadingWSGIServer, Quiet)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="wsgiref")
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(TIMEOUT)
        server.server_close()


def starlette_app() -> Any:
    """A Starlette application that has webhooks below /hooks."""

    async def page(request: Any) -> PlainTextResponse:
        return PlainTextResponse("the rest of the application")

    hooks = asgi(Table({"/validate": refuse_secrets}, limit=7 << 20))
    return Starlette(routes=[Route("/", page), Mount("/hooks", hooks)])


def flask_app() -> Any:
    """A Flask application that has webhooks below /hooks."""
    app = flask.Flask("test")
    app.add_url_rule("/", view_func=lambda: "the rest of the application")
    hooks = wsgi(Table({"/validate": refuse_secrets}, limit=7 << 20))
    return DispatcherMiddleware(app.wsgi_app, {"/hooks": hooks})


CONFIGURATION = MutableObject(
    kinds.admissionregistration.v1.ValidatingWebhookConfiguration,
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "frameworks"},
        "webhooks": [
            {
                "name": "keys.frameworks.example.com",
                "clientConfig": {
                    "service": {"namespace": "default", "name": "x", "path": "/hooks/validate"}
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["configmaps"],
                        "operations": ["CREATE"],
                    }
                ],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    },
)


@pytest.mark.parametrize(
    ("make_app", "serve"), [(starlette_app, uvicorn_server), (flask_app, wsgi_server)]
)
def test_an_api_server_asks_webhooks_in_an_application_of_a_framework(
    make_app: Callable[[], Any], serve: Any, certificate: Certificate
) -> None:
    def config_map(name: str, key: str) -> MutableObject:
        draft = MutableObject.new(kinds.core.v1.ConfigMap, name, namespace="default")
        draft["data"] = {key: "1"}
        return draft

    with serve(make_app(), certificate) as url, APIServer() as server:
        with Client(server.client_config()) as client:
            install_webhooks(client, [CONFIGURATION], webhook_url=url, webhook_ca=certificate.pem)
            for number in range(5):
                client.create(config_map(f"fine-{number}", "public"))
                with pytest.raises(Forbidden, match="denied the request: no hidden keys here"):
                    client.create(config_map("wrong", "secret"))
        # The rest of the application answers, too.
        context = ssl.create_default_context(cadata=certificate.pem.decode())
        host, _, port = url.removeprefix("https://").partition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=TIMEOUT)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"the rest of the application"
        connection.close()


def test_the_builder_s_webhooks_are_carried_with_async_handlers_on_the_loop_of_the_application(
    certificate: Certificate,
) -> None:
    loops: list[Any] = []
    hooks = Webhooks()

    async def default(obj: MutableObject) -> None:
        loops.append(asyncio.get_running_loop())
        obj.setdefault("data", {}).setdefault("color", "blue")

    def check(obj: Object) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        if obj.to_dict()["data"]["color"] == "red":
            raise Denied("red is no color")

    webhook_for(hooks, kinds.core.v1.ConfigMap).default(default).validate(create=check).complete()

    async def own_loop(request: Any) -> PlainTextResponse:
        loops.append(asyncio.get_running_loop())
        return PlainTextResponse("")

    app = Starlette(routes=[Route("/", own_loop), Mount("/hooks", asgi(hooks))])
    with uvicorn_server(app, certificate) as url, APIServer() as server:
        with Client(server.client_config()) as client:
            for draft in webhook_configurations(
                hooks, name="colors", url=url, prefix="/hooks", ca=certificate.pem
            ):
                client.create(draft)
            obj = MutableObject.new(kinds.core.v1.ConfigMap, "a", namespace="default")
            assert client.create(obj).to_dict()["data"] == {"color": "blue"}
            red = MutableObject.new(kinds.core.v1.ConfigMap, "b", namespace="default")
            red["data"] = {"color": "red"}
            with pytest.raises(Forbidden, match="red is no color"):
                client.create(red)
        context = ssl.create_default_context(cadata=certificate.pem.decode())
        host, _, port = url.removeprefix("https://").partition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=TIMEOUT)
        connection.request("GET", "/")
        connection.getresponse().read()
        connection.close()
    assert len(set(loops)) == 1


def test_uvicorn_answers_others_while_a_handler_blocks_and_a_client_that_left_stops_it(
    certificate: Certificate,
) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def slow(request: HTTPRequest) -> HTTPResponse:
        begun.set()
        if request.stop.wait(TIMEOUT):
            stopped.set()
        return HTTPResponse()

    app = asgi(Table({"/slow": slow, "/echo": echo}))
    context = ssl.create_default_context(cadata=certificate.pem.decode())
    with uvicorn_server(app, certificate) as url:
        host, _, port = url.removeprefix("https://").partition(":")

        def connect() -> http.client.HTTPSConnection:
            return http.client.HTTPSConnection(host, int(port), context=context, timeout=TIMEOUT)

        leaving, staying = connect(), connect()
        leaving.request("POST", "/slow", b"x")
        assert begun.wait(TIMEOUT)
        staying.request("POST", "/echo", b"hello")
        assert staying.getresponse().read() == b"hello"
        leaving.close()
        assert stopped.wait(TIMEOUT)
        staying.close()


def test_uvicorn_cuts_no_answer_when_a_body_is_too_large(certificate: Certificate) -> None:
    app = asgi(Table({"/size": lambda request: HTTPResponse(body=str(len(request.body)).encode())}))
    context = ssl.create_default_context(cadata=certificate.pem.decode())
    with uvicorn_server(app, certificate) as url:
        host, _, port = url.removeprefix("https://").partition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=TIMEOUT)
        connection.request("POST", "/size", base64.b64encode(b"x" * 30_000))
        assert connection.getresponse().read() == str(LIMIT).encode()
        connection.close()
