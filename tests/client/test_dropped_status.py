"""A changed status that is sent with the rest of the object is dropped by servers, not unseen."""

from __future__ import annotations

import logging

import pytest

from appsdk_operator.client import MergePatch
from appsdk_operator.resource import Kind, MutableObject, custom_resource_definition
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import MemoryServer

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
BARE = Kind(group="example.com", version="v1", kind="Bare")
TEXT = "the server left the status "


def crds():
    bare = custom_resource_definition(BARE).data
    del bare["spec"]["versions"][0]["subresources"]
    return [custom_resource_definition(WIDGET).data, bare]


@pytest.fixture
def client():
    with MemoryServer(crds=crds()) as server, server.client(metrics=Metrics()) as made:
        yield made


@pytest.fixture
def draft(client):
    made = client.create(MutableObject.new(WIDGET, "a", namespace="default", spec={"n": 1}))
    return made.mutable_copy()


def warnings(caplog):
    return [one.message for one in caplog.records if TEXT in one.message]


def test_an_update_with_a_changed_status_warns_with_the_remedy(client, draft, caplog):
    draft["status"] = {"phase": "Up"}
    assert client.update(draft).status is None
    (warning,) = warnings(caplog)
    assert "update of widgets.example.com default/a" in warning
    assert "client.status.update" in warning
    assert caplog.records[-1].levelno == logging.WARNING


def test_it_is_said_once_for_a_kind(client, draft, caplog):
    for phase in ("Up", "Down"):
        draft["status"] = {"phase": phase}
        draft = client.update(draft).mutable_copy()
    assert len(warnings(caplog)) == 1


def test_a_merge_patch_of_it_warns_too(client, draft, caplog):
    client.patch(WIDGET, "a", MergePatch({"status": {"phase": "Up"}}), namespace="default")
    (warning,) = warnings(caplog)
    assert "client.status.patch" in warning


def test_a_status_that_stays_as_it_was_does_not(client, draft, caplog):
    draft["status"] = {"phase": "Up", "list": [{"a": 1}]}
    read = client.status.update(draft).mutable_copy()
    read["spec"]["n"] = 2
    client.update(read)
    client.patch(WIDGET, "a", MergePatch({"spec": {"n": 3}}), namespace="default")
    client.patch(WIDGET, "a", MergePatch({"status": {"none": None}}), namespace="default")
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    "status", [{"phase": "Down", "list": [{"a": 1}]}, {"phase": "Up", "list": []}, {"list": None}]
)
def test_each_sort_of_change_is_seen(client, draft, caplog, status):
    draft["status"] = {"phase": "Up", "list": [{"a": 1}]}
    read = client.status.update(draft).mutable_copy()
    read["status"] = status
    client.update(read)
    assert len(warnings(caplog)) == 1


def test_a_kind_without_the_subresource_takes_it(client, caplog):
    made = client.create(MutableObject.new(BARE, "b", namespace="default", spec={}))
    draft = made.mutable_copy()
    draft["status"] = {"phase": "Up"}
    assert client.update(draft).status == {"phase": "Up"}
    assert warnings(caplog) == []


def new(kind, name, **fields):
    return MutableObject.new(kind, name, namespace="default", spec={}, **fields)


@pytest.mark.parametrize("as_sent", [MutableObject.freeze, lambda draft: draft])
def test_a_new_object_with_a_status_warns_once_for_its_kind(client, caplog, as_sent):
    for name in ("a", "b"):
        made = client.create(as_sent(new(WIDGET, name, status={"phase": "Up"})))
        assert made.status is None
    (warning,) = warnings(caplog)
    assert warning.startswith(
        "create of widgets.example.com default/a: the server left the status out, because "
    )
    assert (
        "use client.status.update with the object that create returned. If the kind has no"
        in warning
    )


@pytest.mark.parametrize("status", [None, {}, {"phase": None}])
def test_a_new_object_without_a_status_does_not(client, caplog, status):
    client.create(new(WIDGET, "a"))
    client.create(new(WIDGET, "b", status=status))
    assert warnings(caplog) == []


def test_a_new_object_of_a_kind_without_the_subresource_keeps_its_status(client, caplog):
    made = client.create(new(BARE, "b", status={"phase": "Up"}))
    assert made.status == {"phase": "Up"}
    assert warnings(caplog) == []
