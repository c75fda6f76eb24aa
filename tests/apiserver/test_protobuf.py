"""Protobuf as Go writes and reads it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

import pytest

from appsdk_operator.apiserver import APIServer
from appsdk_operator.apiserver._builtin import protobuf
from tests.apiserver.protobuf_objects import IDS, OBJECTS, bare


@pytest.mark.parametrize("obj", [obj for _, obj in OBJECTS], ids=IDS)
def test_what_is_written_is_read_again(obj: dict[str, Any]) -> None:
    written = protobuf.encode(obj)
    assert written is not None
    assert bare(protobuf.decode(written)) == bare(obj)


def test_custom_resources_have_no_such_form() -> None:
    assert protobuf.encode({"apiVersion": "example.com/v1", "kind": "Widget"}) is None
    other = protobuf.encode({"apiVersion": "v1", "kind": "Pod"})
    assert other is not None
    assert protobuf.decode(other.replace(b"Pod", b"Pot")) is None


@pytest.mark.parametrize(
    "obj",
    [
        {"spec": {"replicas": "many"}},
        {"metadata": {"name": 5}},
        {"metadata": {"labels": ["a"]}},
        {"metadata": {"creationTimestamp": "yesterday"}},
        {"spec": 7},
    ],
)
def test_what_has_no_place_in_a_message_is_an_error(obj: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cannot be written|invalid literal|Invalid isoformat"):
        protobuf.encode({"apiVersion": "apps/v1", "kind": "Deployment", **obj})


def test_every_way_of_cutting_a_message_is_an_error_or_another_message() -> None:
    written = protobuf.encode(OBJECTS[0][1])
    assert written is not None
    for end in range(len(written)):
        try:
            protobuf.decode(written[:end])
        except ValueError:
            continue


def test_the_objects_of_lists_are_encoded_once_for_each_of_their_versions(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    encode = protobuf.encode_message

    def counted(obj: Mapping[str, Any], version: str, kind: str) -> bytes | None:
        encoded.append(f"{kind} {obj['metadata'].get('name', '')}")
        return encode(obj, version, kind)

    monkeypatch.setattr(protobuf, "encode_message", counted)
    maps = "/api/v1/namespaces/default/configmaps"
    with (
        APIServer() as server,
        contextlib.closing(HTTPConnection(server.url.removeprefix("http://"))) as connection,
    ):
        api = connect(server)
        for name in "abc":
            api.map(name)

        def read(path: str) -> Any:
            connection.request("GET", path, headers={"Accept": protobuf.MEDIA_TYPE})
            reply = connection.getresponse()
            assert reply.headers["Content-Type"] == protobuf.MEDIA_TYPE
            return bare(protobuf.decode(reply.read()))

        assert read(maps) == bare(api.get(maps).body) == read(maps)
        assert read(f"{maps}/a") == bare(api.get(f"{maps}/a").body)
        assert "items" not in read("/api/v1/secrets")
        assert encoded.count("ConfigMap a") == encoded.count("ConfigMap b") == 1
        api.patch(f"{maps}/a", {"data": {"k": "new"}})
        assert read(maps) == bare(api.get(maps).body)
        assert [name for name in encoded if name.startswith("ConfigMap ")] == [
            *("ConfigMap a", "ConfigMap b", "ConfigMap c"),
            "ConfigMap a",
        ]
