"""Protobuf as Go writes and reads it."""

from __future__ import annotations

from typing import Any

import pytest

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
