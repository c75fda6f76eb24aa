"""The official client, lightkube and kopf, used as their documentation shows."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from appsdk_operator import Kind, kinds
from appsdk_operator.client import Client, MergePatch
from appsdk_operator.controllers import until, wait_for
from appsdk_operator.resource import MutableObject
from tests.foreign.conftest import PATIENCE, PROGRAMS, Program, Start

pytestmark = pytest.mark.programs

EXAMPLE = Kind(group="kopf.dev", version="v1", kind="KopfExample")
CONFIG_MAP = kinds.core.v1.ConfigMap


def test_the_official_client_finds_what_it_finds_elsewhere(
    run_python: Callable[[str], Program],
) -> None:
    program = run_python("official.py")
    program.finish()
    told = {what: about for line in program.told for what, about in line.items()}
    assert told.pop("version").startswith("v1.")
    assert told == {
        "conflict": [409, "Conflict"],
        "patched": [{"b": "2"}, True],
        "listed": ["one"],
        "scaled": 5,
        "status": 5,
        "gone": 404,
        "secret": {"k": "dg=="},
        "custom": [{"size": 2}, {"seen": 2}, 2],
        "invalid": "spec.size",
        "applied": [7, "official"],
        "dynamic": ["applied", "w"],
        "dynamic watch": [["ADDED", "applied"], ["ADDED", "w"]],
        "watched": [["ADDED", "x"], ["ADDED", "y"]],
        "informed": [["ADDED", "x"], ["ADDED", "y"], ["DELETED", "y"], ["MODIFIED", "x"]],
        "leads": "official",
    }


def test_lightkube_finds_what_it_finds_elsewhere(run_python: Callable[[str], Program]) -> None:
    program = run_python("light.py")
    program.finish()
    assert {what: about for line in program.told for what, about in line.items()} == {
        "conflict": [409, "Conflict"],
        "patched": {"b": "2"},
        "listed": ["w0", "w1", "w2"],
        "selected": ["w0", "w2"],
        "status": {"seen": 1},
        "applied": [{"x": "1"}, "light"],
        "apply conflict": [409, ".data.x"],
        "watched": [["ADDED", "w0"], ["ADDED", "w1"], ["ADDED", "w2"], ["DELETED", "w2"]],
        "generic": True,
        "scaled": 3,
        "waited": "web",
        "deleted": "passing",
    }


def test_a_kopf_operator_does_its_work(start: Start, client: Client) -> None:
    operator = start(
        sys.executable, "-m", "kopf", "run", "--standalone", "-n", "default", "--quiet",
        str(PROGRAMS / "kopf_operator.py"),
    )  # fmt: skip
    operator.until("started")
    one = client.create(MutableObject.new(EXAMPLE, "one", namespace="default", spec={"size": 13}))
    assert operator.until("created") == "one"
    handled = wait_for(
        client,
        EXAMPLE,
        "one",
        lambda obj: obj is not None and "created" in (obj.status or {}),
        namespace="default",
        timeout=PATIENCE,
    )
    assert handled is not None
    assert handled.status["created"] == {"size": 13}
    assert handled.finalizers == ("kopf.dev/test",)
    assert handled.uid == one.uid
    operator.until("ticked")

    client.patch(EXAMPLE, "one", MergePatch({"spec": {"size": 2}}), namespace="default")
    assert operator.until("updated")[0] == "one"
    assert operator.until("resized", lambda it: it[1] == 13) == ["one", 13, 2]
    watched = {"labels": {"watched": "yes"}}
    client.create(MutableObject.new(CONFIG_MAP, "cm", namespace="default", metadata=watched))
    assert operator.until("noticed", lambda it: it[0] == "ADDED") == ["ADDED", "cm"]

    client.delete(EXAMPLE, "one", namespace="default")
    wait_for(client, EXAMPLE, "one", until.deleted(), namespace="default", timeout=PATIENCE)
    assert operator.until("deleted") == "one"
