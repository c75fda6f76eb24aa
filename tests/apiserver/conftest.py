"""A small client for the tests of the API server: plain requests and streams of events."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import urllib3

from appsdk_operator.apiserver import APIServer
from appsdk_operator.testing import ControlPlane
from tests.shared_plane import SharedPlane

WIDGET_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 10},
                "replicas": {"type": "integer"},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "when": {"type": "string", "format": "date-time"},
                "list": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "port": {"x-kubernetes-int-or-string": True},
                "maybe": {"type": "string", "nullable": True},
                "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        },
        "status": {
            "type": "object",
            "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}},
        },
    },
}

WIDGET_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                ],
            },
            {
                "name": "v1beta1",
                "served": True,
                "storage": False,
                "deprecated": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            },
        ],
    },
}

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@attrs.frozen
class Reply:
    """What the server answered."""

    status: int
    body: Any
    headers: Any

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Stream:
    """An open watch."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self._lines = self._split()

    def _split(self) -> Iterator[bytes]:
        rest = b""
        for part in self.response.stream(65536):
            *lines, rest = (rest + part).split(b"\n")
            yield from lines

    def event(self) -> tuple[str, dict[str, Any]]:
        """The next event; fails when there is none for half a minute."""
        event = json.loads(next(self._lines))
        return event["type"], event["object"]

    def events(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        found = [self.event() for _ in range(count)]
        return [(kind, obj["metadata"].get("name", "")) for kind, obj in found]

    def rest(self) -> list[tuple[str, dict[str, Any]]]:
        """All events until the stream ends."""
        return [(e["type"], e["object"]) for e in map(json.loads, self._lines)]

    def has_more(self) -> bool:
        """Whether the server has sent anything after the last event that was read."""
        found, _, _ = select.select([self.response.connection.sock], [], [], 0)
        return bool(found)

    def close(self) -> None:
        self.response.close()


class Api:
    """Requests to one server."""

    widgets = "/apis/example.com/v1/namespaces/default/widgets"
    maps = "/api/v1/namespaces/default/configmaps"

    def __init__(self, server: APIServer | ControlPlane, token: str | None = None) -> None:
        self.server = server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        options: dict[str, Any] = (
            {"ca_cert_data": server.ca_data.decode()} if server.ca_data else {}
        )
        self._pool = urllib3.PoolManager(retries=False, timeout=30, maxsize=8, **options)
        self._streams: list[Stream] = []

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        type_: str = "application/json",
        **headers: str,
    ) -> Reply:
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        sent = {**self._headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        if data is not None:
            sent["Content-Type"] = type_
        reply = self._pool.request(method, self.server.url + path, body=data, headers=sent)
        try:
            decoded = json.loads(reply.data)
        except ValueError:
            decoded = reply.data.decode(errors="replace")
        found = Reply(reply.status, decoded, reply.headers)
        if isinstance(self.server, ControlPlane) and method in ("POST", "PUT", "PATCH"):
            self._await_caches(method, path, found)
        return found

    def _await_caches(self, method: str, path: str, written: Reply) -> None:
        """Wait until the real server's watch cache has a write.

        An update begins with what the cache has. On a busy machine that is old, and the server
        finds out only after it has asked all webhooks: it asks them again.
        """
        path, _, query = path.partition("?")
        metadata = written.body.get("metadata") if isinstance(written.body, dict) else None
        version = (metadata or {}).get("resourceVersion")
        if written.status not in (200, 201) or not version or "dryRun" in query:
            return
        if method == "POST":
            path = f"{path}/{metadata['name']}"
        self("GET", f"{path}?resourceVersion={version}")

    def get(self, path: str, **headers: str) -> Reply:
        return self("GET", path, **headers)

    def create(self, path: str, body: Any) -> Reply:
        return self("POST", path, body)

    def update(self, path: str, body: Any) -> Reply:
        return self("PUT", path, body)

    def patch(self, path: str, body: Any, type_: str = MERGE) -> Reply:
        return self("PATCH", path, body, type_=type_)

    def delete(self, path: str, body: Any = None) -> Reply:
        return self("DELETE", path, body)

    def widget(self, name: str, /, **spec: Any) -> Reply:
        """Create a widget."""
        reply = self.create(self.widgets, widget(name, **spec))
        assert reply.status == 201, reply.body
        return reply

    def map(self, name: str, labels: dict[str, str] | None = None, **metadata: Any) -> Reply:
        """Create a config map."""
        meta = {"name": name, **({"labels": labels} if labels else {}), **metadata}
        reply = self.create(self.maps, {"metadata": meta})
        assert reply.status == 201, reply.body
        return reply

    def names(self, path: str) -> list[str]:
        """The names in a list."""
        return [item["metadata"]["name"] for item in self.get(path)["items"]]

    def watch(self, path: str, query: str = "", **headers: str) -> Stream:
        """Open a watch; it is closed after the test."""
        url = f"{self.server.url}{path}?watch=1{'&' if query else ''}{query}"
        response = self._pool.request(
            "GET", url, headers={**self._headers, **headers}, preload_content=False
        )
        assert response.status == 200, response.data
        stream = Stream(response)
        self._streams.append(stream)
        return stream

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        # A pool lives on with the responses that came from it, so it is closed by name.
        for key in self._pool.pools.keys():  # noqa: SIM118 - no dict: iterating it is refused
            self._pool.pools[key].close()


def widget(name: str, /, **spec: Any) -> dict[str, Any]:
    """A widget to create."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": 1, **spec},
    }


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer(crds=[WIDGET_CRD]) as running:
        yield running


@pytest.fixture
def api(server: APIServer) -> Iterator[Api]:
    client = Api(server)
    yield client
    client.close()


@pytest.fixture
def connect() -> Iterator[Any]:
    """Make clients for servers a test starts itself."""
    clients: list[Api] = []

    def make(server: APIServer, token: str | None = None) -> Api:
        clients.append(Api(server, token))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def widget_crd() -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(WIDGET_CRD))
    return copied


@pytest.fixture
def new_widget() -> Any:
    return widget


@pytest.fixture(scope="module")
def control_plane(shared_plane: SharedPlane) -> Iterator[ControlPlane]:
    with shared_plane.lent() as plane:
        yield plane


@pytest.fixture
def real_api(control_plane: ControlPlane) -> Iterator[Api]:
    """Requests to the real server."""
    client = Api(control_plane, control_plane.token)
    yield client
    client.close()
