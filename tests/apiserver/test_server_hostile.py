"""Whatever is sent, the server answers in the words of an API server and goes on."""

from __future__ import annotations

import copy
import http.client
import json
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.apiserver import APIServer
from tests.definitions import SCALE, widget_definition

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
CORE = "/api/v1/namespaces/default"
JSON = "application/json"
APPLY = "application/apply-patch+yaml"
CRD = widget_definition(
    {
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer"},
                    "share": {"type": "number"},
                    "name": {"type": "string", "pattern": "^(a+)+$"},
                    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        }
    },
    scale=SCALE,
)
WIDGET = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "labels": {"a": "b"}, "finalizers": ["example.com/f"]},
    "spec": {"replicas": 1, "share": 0.5, "name": "aaa", "any": {"deep": [1]}},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "annotations": {"a": "b"}},
    "spec": {
        "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        ]
    },
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 1,
        "strategy": {"rollingUpdate": {"maxSurge": "25%"}},
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]},
    },
}
APPS = "/apis/apps/v1/namespaces/default/deployments"


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(f"{record.getMessage()}: {record.exc_info and record.exc_info[1]!r}")


class Wire:
    """One connection, which sends bytes as they are."""

    def __init__(self, server: APIServer) -> None:
        self._place = server.url.removeprefix("http://")
        self._connection = http.client.HTTPConnection(self._place, timeout=20)

    def __call__(self, method: str, path: str, body: bytes, type_: str = JSON) -> tuple[int, Any]:
        self._connection.request(method, path, body, {"Content-Type": type_} if type_ else {})
        answer = self._connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data.startswith(b"{") else data

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def server() -> Iterator[APIServer]:
    with APIServer(crds=[CRD]) as running:
        yield running


@pytest.fixture
def wire(server: APIServer) -> Iterator[Wire]:
    """A connection; the test fails if the server met what it was not made for."""
    faults = _Faults()
    log = logging.getLogger("appsdk_operator")
    log.addHandler(faults)
    made = Wire(server)
    try:
        yield made
        assert made("GET", "/readyz", b"")[0] == 200
        assert not faults.found
    finally:
        made.close()
        log.removeHandler(faults)


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("method", "path", "type_", "body"),
    [
        # Python converts no more than 4300 digits; Go's numbers end with float64.
        ("POST", f"{CORE}/configmaps", JSON, b'{"metadata":{"name":%s}}' % (b"9" * 5000)),
        ("POST", WIDGETS, JSON, b'{"spec":{"any":{"n":%s}}}' % (b"9" * 400)),
        ("PATCH", f"{WIDGETS}/w", APPLY, b'{"metadata":{"name":"w","generation":' + b"9" * 5000),
        ("POST", WIDGETS, "application/yaml", b"n: 0x" + b"f" * 300),
        ("POST", WIDGETS, "application/yaml", b"n: .inf"),
        ("POST", WIDGETS, "application/yaml", b"n: !!bool maybe"),
        ("PATCH", f"{WIDGETS}/w", APPLY, b"n: !!timestamp yesterday"),
        ("POST", WIDGETS, JSON, b'{"spec":{"any":{"n":1e400}}}'),
        ("DELETE", f"{CORE}/pods/none", JSON, b'{"gracePeriodSeconds":%s}' % (b"9" * 5000)),
        # Texts that are not Unicode.
        ("POST", WIDGETS, "application/yaml", rb'{"kind":"\ud800"}'),
        ("POST", WIDGETS, JSON, b'{"kind":"\xed\xa0\x80"}'),
        ("PATCH", f"{WIDGETS}/w", APPLY, b'{"a\xed\xa0\x80":1}'),
        ("PATCH", f"{WIDGETS}/w", APPLY, rb'{"apiVersion":"example.com/v1","kind":"\ud800"}'),
        # Depth, and YAML that takes minutes to read.
        ("POST", WIDGETS, JSON, b"[" * 3_000_000),
        ("PATCH", f"{WIDGETS}/w", APPLY, b"{" * 3_000_000),
        ("PATCH", f"{WIDGETS}/w", APPLY, b"a: b\n" * 500_000),
        ("PATCH", f"{WIDGETS}/w", "application/merge-patch+json", b'{"spec":' * 100_000),
        ("POST", f"{CORE}/configmaps", "", b"NaN"),
    ],
    ids=lambda value: value[:40] if isinstance(value, bytes) else str(value),
)
def test_a_body_that_no_server_can_take_is_refused(
    wire: Wire, method: str, path: str, type_: str, body: bytes
) -> None:
    status, said = wire(method, f"{path}?fieldManager=me", body, type_)
    assert status in (400, 404, 413), said
    assert said["kind"] == "Status"


@pytest.mark.parametrize(
    ("method", "query"),
    [
        ("GET", "limit=" + "9" * 5000),
        ("GET", "limit=%C2%B2"),
        ("GET", "resourceVersion=" + "9" * 5000),
        ("GET", "resourceVersion=1_0"),
        ("DELETE", "gracePeriodSeconds=All"),
        ("DELETE", "gracePeriodSeconds=" + "9" * 5000),
    ],
)
def test_a_number_in_the_query_may_be_any_text(wire: Wire, method: str, query: str) -> None:
    status, said = wire(method, f"{CORE}/configmaps?{query}", b"")
    assert status in (400, 500), said
    assert "strconv.Parse" in said["message"]


def test_the_options_of_a_deletion_count_where_the_query_is_nonsense(wire: Wire) -> None:
    wire("POST", f"{CORE}/configmaps", text({"metadata": {"name": "gone"}}))
    query = "gracePeriodSeconds=All"
    status, said = wire("DELETE", f"{CORE}/configmaps/gone?{query}", b'{"orphanDependents":true}')
    assert status == 200, said


@pytest.mark.parametrize(
    ("amount", "written"),
    [
        ("999999999999999999999Gi", str(2**63 - 1)),
        ("9" * 30, "9" * 30),
        ("1e90", "1e90"),
        ("9" * 5000, None),
        ("1e999999999", None),
    ],
)
def test_a_quantity_may_be_huge(wire: Wire, amount: str, written: str | None) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": amount}}}
    status, said = wire("POST", f"{CORE}/resourcequotas?dryRun=All", text(quota))
    if written is None:
        assert status == 400, said
    else:
        assert said["spec"]["hard"]["pods"] == written


VALUES: tuple[bytes, ...] = (
    *(b"null", b"true", b"0", b"-1", b"1.5", b"1e3", b"NaN", b"9223372036854775808", b"1e-400"),
    *(b'""', b'"x"', b"[]", b"{}", b"[null]", b"[[]]", b"[{}]", b'{"":""}', b'{"a":null}'),
    *(b'"\\u0000"', b'"\xff"', b'"\\ud83d\\ude00"', b'"1_0"', b'"(?i"', b'"9999h"', b'"\xc2\xb2%"'),
    *(b"9" * 400, b"[" * 2000 + b"]" * 2000, b'"' + b"a" * 70_000 + b'"', b'{"a":' * 900 + b"1"),
    *(b'"99999-01-01T00:00:00Z"', b'"2001-01-01T00:00:00Z"', b'"1e999999999"'),
)
SUBJECTS = (
    (f"{CORE}/pods", POD),
    (f"{CORE}/pods/p/eviction", {"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["All"]}}),
    (f"{CORE}/pods/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}}),
    (APPS, DEPLOYMENT),
    (f"{APPS}/d/scale", {"metadata": {"name": "d"}, "spec": {"replicas": 2}}),
    (f"{WIDGETS}/w/scale", {"metadata": {"name": "w"}, "spec": {"replicas": 2}}),
    (WIDGETS, WIDGET),
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD),
    ("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "t", "audiences": ["a"]}}),
)
PATCHES = ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml", "json-patch+json")


def _mutated(rng: random.Random, value: Any) -> bytes:
    """The value in JSON, something in it replaced by what does not belong there."""
    root = {"": copy.deepcopy(value)}
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [root]
    while waiting:
        inner = waiting.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        places += [(inner, key) for key in keys]
        waiting += [inner[key] for key in keys if isinstance(inner[key], (dict, list))]
    container, key = rng.choice(places)
    container[key] = "@@"
    body = text(root[""]).replace(b'"@@"', rng.choice(VALUES))
    return body if rng.random() < 0.9 else body[: rng.randrange(len(body))]


@pytest.mark.parametrize("seed", range(4))
def test_no_body_brings_the_server_out_of_its_words(wire: Wire, seed: int) -> None:
    rng = random.Random(seed)
    for path, value in SUBJECTS:
        wire("POST", path, text(value))
    for _ in range(150):
        path, value = rng.choice(SUBJECTS)
        name = value["metadata"]["name"] if "metadata" in value else "x"
        below = path.endswith(("scale", "eviction", "binding"))
        method = rng.choice(("POST", "PUT", "PATCH", "PATCH", "DELETE"))
        if method != "POST" and not below:
            path = f"{path}/{name}"
        type_ = f"application/{rng.choice(PATCHES)}" if method == "PATCH" else JSON
        dry = "&dryRun=All" if method == "DELETE" or path.endswith(f"/{name}") else ""
        status, said = wire(method, f"{path}?fieldManager=me{dry}", _mutated(rng, value), type_)
        # The real server answers 500, too, in words of its own.
        assert status < 500 or not said.get("reason"), (method, path, said)


@pytest.mark.parametrize(
    ("method", "path", "type_"),
    [("POST", WIDGETS, "application/yaml"), ("PATCH", f"{WIDGETS}/w", APPLY)],
)
def test_yaml_whose_aliases_multiply_is_refused(
    wire: Wire, method: str, path: str, type_: str
) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x]"]
    for level in range(1, 7):
        inner = ", ".join([f"*a{level - 1}"] * 6)
        lines.append(f"a{level}: &a{level} [{inner}]")
    status, said = wire(method, f"{path}?fieldManager=me", "\n".join(lines).encode(), type_)
    assert status == 400
    assert said["message"].endswith("yaml: the YAML holds too many values: its aliases multiply")


def test_a_long_duration_is_refused_at_once(api: Any, widget_crd: Any) -> None:
    version = widget_crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    schema["age"] = {"type": "string", "format": "duration"}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    found = api.get(path).body
    assert api.update(path, {**found, "spec": widget_crd["spec"]}).status == 200
    # With a time that grows with the square of the length, this takes half an hour.
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    refused = api.create(api.widgets, {**body, "spec": {"size": 1, "age": "1" * 500_000}})
    assert refused.status == 422
