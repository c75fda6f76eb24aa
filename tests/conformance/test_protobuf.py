"""Protobuf and JSON say the same of an object, and each server reads what the other would write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from appsdk_operator.apiserver._builtin import protobuf as _protobuf
from appsdk_operator.client import ClientConfig
from tests.apiserver.protobuf_objects import IDS, OBJECTS, bare
from tests.conformance.conftest import Server

PROTOBUF = "application/vnd.kubernetes.protobuf"


class Requests:
    """Requests to a server in either form."""

    def __init__(self, config: ClientConfig) -> None:
        self._url = config.server
        self._headers = {"Authorization": f"Bearer {config.token}"}
        authority = config.ca_data
        self.pool = urllib3.PoolManager(ca_cert_data=authority.decode() if authority else None)

    def send(self, verb: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.pool.request(
            verb, self._url + path, body=body, headers={**self._headers, **named}
        )
        assert answer.status < 300, answer.data.decode(errors="replace")
        return answer

    def json(self, verb: str, path: str, obj: Any = None) -> Any:
        body = None if obj is None else json.dumps(obj).encode()
        return self.send(verb, path, body, Content_Type="application/json").json()

    def protobuf(self, verb: str, path: str, obj: Any = None) -> Any:
        body = None if obj is None else _protobuf.encode(obj)
        answer = self.send(verb, path, body, Content_Type=PROTOBUF, Accept=PROTOBUF)
        assert answer.headers["Content-Type"] == PROTOBUF
        return _protobuf.decode(answer.data)


@pytest.fixture
def requests(server: Server) -> Iterator[Requests]:
    requests = Requests(server.config())
    yield requests
    requests.pool.clear()


def shown(obj: Any) -> Any:
    """What is compared: of definitions the spec alone, as the server goes on writing the rest."""
    is_definition = obj.get("spec", {}).get("versions")
    return bare(obj["spec"] if is_definition else obj)


@pytest.mark.parametrize(("path", "obj"), OBJECTS, ids=IDS)
def test_both_forms_say_the_same(requests: Requests, path: str, obj: dict[str, Any]) -> None:
    name = obj["metadata"]["name"]
    made = requests.protobuf("POST", path, obj)
    try:
        found = requests.json("GET", f"{path}/{name}")
        assert shown(requests.protobuf("GET", f"{path}/{name}")) == shown(found)
        assert bare(made.get("spec", made)) == bare(found.get("spec", found))
        listed = requests.protobuf("GET", path)
        in_json = requests.json("GET", path)
        for item in in_json["items"]:
            item.pop("apiVersion", None)
            item.pop("kind", None)
        assert list(map(shown, listed["items"])) == list(map(shown, in_json["items"]))
        if obj["kind"] == "CustomResourceDefinition":
            return
        # What is sent back unchanged changes nothing, so no field was lost on the way.
        requests.protobuf("PUT", f"{path}/{name}", made)
        again = requests.json("GET", f"{path}/{name}")
        for state in (found, again):
            del state["metadata"]["resourceVersion"]
            state["metadata"].pop("managedFields", None)
        assert again == found
    finally:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        requests.send("DELETE", f"{path}/{name}", _protobuf.encode(options), Content_Type=PROTOBUF)
