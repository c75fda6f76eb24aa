"""A case carried out on one server: what is sent, what comes back, nothing compared yet."""

from __future__ import annotations

import base64
import copy
import http.client
import json
import re
import secrets
import ssl
import threading
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Self
from urllib.parse import quote, urlsplit

import attrs

from appsdk_operator.resource import apply_merge_patch
from appsdk_operator.runtime import system_clock
from tests.differential import wire
from tests.differential.paths import get
from tests.differential.scripts import Case, ScriptError, shared_definitions, version_of

PATIENCE = 10.0
"""Seconds to wait for the next event of a watch."""
_LONGEST_WAIT = 60.0
"""Seconds to wait for states that will come; a server on a busy machine takes its time."""
_POLL = 0.02
_HEADERS = (
    *("Content-Type", "Warning", "Retry-After", "Location", "Allow", "Cache-Control"),
    "Sec-WebSocket-Protocol",
)
_HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Origin": "http://differential.example.com",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(b"the sample nonce").decode(),
}
_PLACEHOLDER = re.compile(r"\$(\$|\w+)")
_WHOLE = re.compile(r"\$(\w+)")
_FILLER = re.compile(r"x(\d+)")
_ACCEPT = {
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "partial": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "partial-list": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}
_PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@attrs.define
class Server:
    """Where a lane's requests go."""

    name: str
    url: str
    token: str
    ca_data: bytes | None = None

    @cached_property
    def version(self) -> tuple[int, int]:
        """Which Kubernetes it says it is."""
        with Line(self) as line:
            body = json.loads(line.ask("GET", "/version").read())
        return version_of(body["gitVersion"])

    @cached_property
    def context(self) -> ssl.SSLContext:
        """For TLS to it."""
        return ssl.create_default_context(cadata=(self.ca_data or b"").decode())

    def connect(self) -> http.client.HTTPConnection:
        """A connection of its own."""
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=30, context=self.context)
        return http.client.HTTPConnection(host, port, timeout=30)

    def install(self) -> None:
        """Create what all cases share, and wait until it is served."""
        with Line(self) as line:
            install(line, shared_definitions())


class Line:
    """A connection to a server that requests follow each other on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection = server.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, Any] | None = None
    ) -> http.client.HTTPResponse:
        """Send a request; its answer's body is to be read before the next."""
        connection = self._connection
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            own = {
                "Authorization": f"Bearer {self._server.token}",
                "User-Agent": "differential/1.0",
                **({"Content-Length": str(len(body))} if body else {}),
            }
            for name, value in {**own, **(headers or {})}.items():
                for each in value if isinstance(value, list) else [value]:
                    if each is not None:
                        connection.putheader(name, str(each))
            connection.endheaders(body or None)
            return connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def read_within(self, seconds: float) -> None:
        """How long a single read may take."""
        if self._connection.sock is not None:
            self._connection.sock.settimeout(seconds)


def install(line: Line, definitions: list[dict[str, Any]]) -> None:
    """Create CustomResourceDefinitions and wait until their objects can be listed."""
    for crd in definitions:
        answer = line.ask("POST", _DEFINITIONS, json.dumps(crd).encode(), _JSON)
        if answer.status != 201:
            raise ScriptError(f"a definition is refused: {answer.read().decode()}")
        answer.read()
    for crd in definitions:
        spec = crd["spec"]
        for version in spec["versions"]:
            path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
            for _ in _tries():
                answer = line.ask("GET", f"{path}?limit=1")
                answer.read()
                if (answer.status == 200) == version["served"]:
                    break
            else:
                raise ScriptError(f"{path} is still answered with {answer.status}")


_JSON = {"Content-Type": "application/json"}


def _tries() -> Iterator[None]:
    pause, until = threading.Event(), system_clock.monotonic() + _LONGEST_WAIT
    while system_clock.monotonic() < until:
        yield
        pause.wait(_POLL)


@attrs.define
class Conversation:
    """A case on a server."""

    case: Case
    server: Server
    values: dict[str, Any] = attrs.field(factory=dict)
    answers: list[dict[str, Any]] = attrs.field(factory=list)
    _watches: dict[str, _Stream] = attrs.field(factory=dict)

    def run(self) -> list[dict[str, Any]]:
        """Carry out all steps.

        Returns:
            what was answered to each step.
        """
        random = secrets.token_hex(5)
        self.values = {"ns": f"case-{random}", "group": f"g{random}.example.com"}
        text = self.case.text
        try:
            with Line(self.server) as line:
                if "$ns" in text:
                    self._set_up(line, "/api/v1/namespaces", {"metadata": {"name": "$ns"}})
                install(line, [self.fill(crd) for crd in self.case.crds])
                for step in _spread(self.case.setup):
                    answer = self._step(line, step)
                    if answer is not None and answer["status"] >= 400:
                        raise ScriptError(f"{self.case.id}: set-up: {step}: {answer}")
                for step in _spread(self.case.steps):
                    answer = self._step(line, step)
                    if answer is not None:
                        self.answers.append(answer)
        finally:
            for stream in self._watches.values():
                stream.close()
        return self.answers

    def _set_up(self, line: Line, path: str, body: dict[str, Any]) -> None:
        answer = line.ask("POST", path, json.dumps(self.fill(body)).encode(), _JSON)
        if answer.status != 201:
            raise ScriptError(f"{self.case.id}: {path}: {answer.read().decode()}")
        answer.read()

    def fill(self, value: Any) -> Any:
        """The value with what its placeholders stand for."""
        if isinstance(value, dict):
            return {self.fill(key): self.fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if not isinstance(value, str):
            return value
        if (whole := _WHOLE.fullmatch(value)) is not None:
            return copy.deepcopy(self._value(whole[1]))
        return _PLACEHOLDER.sub(
            lambda found: "$" if found[1] == "$" else str(self._value(found[1])), value
        )

    def _value(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        if filler := _FILLER.fullmatch(name):
            return "x" * int(filler[1])
        raise ScriptError(f"{self.case.id}: ${name} stands for nothing: save it, or write $${name}")

    # -- steps -------------------------------------------------------------------------------

    def _step(self, line: Line, step: dict[str, Any]) -> dict[str, Any] | None:
        if "each" in step:
            self.values["each"] = self.fill(step["each"])
        if "close" in step:
            self._watches.pop(step["close"]).close()
            return None
        if "read" in step:
            events = self._watches[step["read"]].events(step.get("events", "end"))
            answer = {"step": f"read {step['read']}", "events": events}
        else:
            answer = self._request(line, step)
        for name, path in step.get("save", {}).items():
            self.values[name] = get(answer, path)
        return {**answer, "ignore": step.get("ignore", ()), "differs": step.get("differs", ())}

    def _request(self, line: Line, step: dict[str, Any]) -> dict[str, Any]:
        method, _, path = step["do"].partition(" ")
        path = quote(self.fill(path.strip()), safe="/?&=%,!()~:;+*@[]|'\"<>{}^`\\")
        path = path.replace('"', "%22")
        if method in ("WATCH", "SOCKET"):
            return self._watch(path, step, _HANDSHAKE if method == "SOCKET" else {})
        headers, body = self._headers_and_body(method, step)
        for _ in _tries():
            response = line.ask(method, path, body, headers)
            answer = {"step": step["do"], **_answer(response)}
            wanted = step.get("wait")
            if wanted is None or all(get(answer, at) == self.fill(v) for at, v in wanted.items()):
                break
        if "only" in step:
            find = wire.find if isinstance(answer["body"], bytes) else get
            picked = [self.fill(path) for path in step["only"]]
            answer["body"] = {path: find(answer["body"], path) for path in picked}
        return answer

    def _headers_and_body(self, method: str, step: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        headers = self.fill(step.get("headers", {}))
        if "accept" in step:
            headers["Accept"] = _ACCEPT.get(step["accept"], step["accept"])
        body = b""
        if "raw" in step:
            body = self.fill(step["raw"]).encode()
        elif "body" in step or "onto" in step:
            content = self.fill(step.get("body", {}))
            if "onto" in step:
                content = apply_merge_patch(copy.deepcopy(self.values[step["onto"]]), content)
            body = json.dumps(content).encode()
        if body and "Content-Type" not in headers:
            kind = "application/json"
            if method == "PATCH":
                kind = _PATCHES[step.get("patch", "merge")]
            headers["Content-Type"] = kind
        return headers, body

    def _watch(self, path: str, step: dict[str, Any], handshake: dict[str, str]) -> dict[str, Any]:
        headers, _ = self._headers_and_body("GET", step)
        headers = {**handshake, **headers}
        path += "&watch=true" if "?" in path else "?watch=true"
        line = Line(self.server)
        made = _Socket if handshake else _Stream
        stream = made(line, line.ask("GET", path, headers=headers))
        answer = {"step": step["do"], **_head(stream.response)}
        try:
            if stream.response.status not in (200, 101):
                return {**answer, "body": _content(stream.response)}
            if "open" in step:
                self._watches[step["open"]] = stream
                return answer
            return {**answer, "events": stream.events(step.get("events", "end"))}
        finally:
            if "open" not in step:
                stream.close()


@attrs.frozen
class _Stream:
    """A watch that is being read."""

    line: Line
    response: http.client.HTTPResponse

    def events(self, count: int | str) -> list[Any]:
        """The next ``count`` events, or all until its ``end``."""
        found: list[Any] = []
        self.line.read_within(PATIENCE)
        while count == "end" or len(found) < int(count):
            try:
                line = self.next()
            except TimeoutError:
                found.append({"type": "nothing came in time"})
                break
            if not line:
                if count != "end":
                    found.append({"type": "the server ended the watch"})
                break
            found.append(json.loads(line))
        return found

    def next(self) -> bytes:
        """The next event; empty at the end."""
        return self.response.readline()

    def close(self) -> None:
        """Hang up."""
        self.response.close()
        self.line.__exit__()


@attrs.frozen
class _Socket(_Stream):
    """A watch over WebSocket, whose events are messages."""

    def next(self) -> bytes:
        found = self.response.fp
        kind, size = found.read(2) or (0x88, 0)
        if size >= 126:
            size = int.from_bytes(found.read(2 if size == 126 else 8), "big")
        content = found.read(size)
        if kind == 0x81:
            return content
        if kind == 0x88:  # the end, with its code
            return b""
        return json.dumps({"type": f"a frame of the kind {kind:#x}"}).encode()


def _spread(steps: tuple[dict[str, Any], ...]) -> Iterator[dict[str, Any]]:
    """Steps with ``each``, once for each value."""
    for step in steps:
        if "each" in step:
            for value in step["each"]:
                yield {**step, "each": value}
        else:
            yield step


def _answer(response: http.client.HTTPResponse) -> dict[str, Any]:
    return {**_head(response), "body": _content(response)}


def _head(response: http.client.HTTPResponse) -> dict[str, Any]:
    found = {}
    for name in _HEADERS:
        values = response.headers.get_all(name)
        if values:
            found[name] = values[0] if len(values) == 1 else values
    return {"status": response.status, "headers": found}


def _content(response: http.client.HTTPResponse) -> Any:
    body = response.read()
    if response.headers.get("Content-Type", "").endswith("protobuf"):
        return body
    text = body.decode()
    if text and "json" in response.headers.get("Content-Type", ""):
        return json.loads(text)
    return text
