"""An operator with kopf and what it becomes leave the same behind, after the same history."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator import Kind, kinds
from appsdk_operator.client import Client, MergePatch
from appsdk_operator.controllers import until, wait_for
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.testing import APIServer, World
from tests.foreign.conftest import PATIENCE, Start, definition

pytestmark = pytest.mark.programs

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-kopf.md"
BUCKET = Kind(group="example.com", version="v1", kind="Bucket")
CONFIG_MAP = kinds.core.v1.ConfigMap


@pytest.fixture
def server() -> Iterator[APIServer]:
    crds = [definition("example.com", "buckets", "Bucket")]
    with APIServer(tls=True, token="let-me-in", crds=crds) as server:
        yield server


def code_of(name: str) -> str:
    """A file that the page tells the reader to save."""
    found = re.search(
        rf"save \w+ as `{name}`:\n\n```python\n(.*?)```",
        PAGE.read_text(),
        re.DOTALL | re.IGNORECASE,
    )
    assert found is not None
    return found[1]


def with_kopf(start: Start, folder: Path) -> None:
    pytest.importorskip("kopf")
    program = folder / "buckets_kopf.py"
    program.write_text(code_of(program.name))
    start(
        sys.executable, "-m", "kopf", "run", "--standalone", "-n", "default", "--quiet",
        str(program),
    )  # fmt: skip


def with_an_app(start: Start, folder: Path) -> None:
    program = folder / "buckets.py"
    program.write_text(code_of(program.name))
    start(sys.executable, "-m", "appsdk_operator", "run", str(program), "-n", "default")


def bucket(name: str, size: int, **labels: str) -> MutableObject:
    metadata = {"labels": labels}
    return MutableObject.new(
        BUCKET, name, namespace="default", spec={"size": size}, metadata=metadata
    )


def status_of(obj: Object[Any, Any] | None) -> dict[str, Any]:
    return dict((obj.status if obj else None) or {})


def wait(client: Client, name: str, *fields: str) -> None:
    """Wait until the status of a bucket has these fields."""

    def has_them(obj: Object[Any, Any] | None) -> bool:
        return set(fields) <= set(status_of(obj))

    wait_for(client, BUCKET, name, has_them, namespace="default", timeout=PATIENCE)


def history(client: Client) -> None:
    """Buckets come, grow and go."""
    client.create(bucket("ignored", 1))
    client.create(bucket("too-large", 200, storage="fast"))
    for name in ("grows", "goes", "stays"):
        client.create(bucket(name, 3, storage="fast"))
        wait(client, name, "phase", "measured")
    client.patch(BUCKET, "grows", MergePatch({"spec": {"size": 5}}), namespace="default")
    wait(client, "grows", "grown")
    client.delete(BUCKET, "goes", namespace="default")
    wait_for(client, BUCKET, "goes", until.deleted(), namespace="default", timeout=PATIENCE)


def left_behind(client: Client) -> dict[str, Any]:
    """Specs and statuses of the buckets, and the ConfigMaps with their owners."""
    buckets = {one.name: (dict(one.spec), status_of(one)) for one in client.list(BUCKET)}
    maps = {
        one.name: (dict(one["data"]), [(ref.kind, ref.name) for ref in one.owner_references])
        for one in client.list(CONFIG_MAP, namespace="default")
        if one.owner_references
    }
    return {"buckets": buckets, "maps": maps}


@pytest.mark.parametrize("run", [with_kopf, with_an_app])
def test_both_operators_of_the_page_leave_the_same_behind(
    run: Callable[[Start, Path], None], start: Start, client: Client, tmp_path: Path
) -> None:
    run(start, tmp_path)
    history(client)
    ready = {"phase": "Ready", "measured": True}
    assert left_behind(client) == {
        "buckets": {
            "ignored": ({"size": 1}, {}),
            "too-large": ({"size": 200}, {}),
            "grows": ({"size": 5}, {**ready, "grown": 2}),
            "stays": ({"size": 3}, ready),
        },
        "maps": {
            "grows": ({"size": "5"}, [("Bucket", "grows")]),
            "stays": ({"size": "3"}, [("Bucket", "stays")]),
        },
    }


def test_the_app_of_the_page_survives_lost_answers_and_helpful_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "buckets.py").write_text(code_of("buckets.py"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "buckets", raising=False)
    app = importlib.import_module("buckets").app
    monkeypatch.delitem(sys.modules, "buckets")
    with World(app) as world:
        world.write_faults = ["", "lost", "lost"]  # after the finalizer: the child, twice
        world.create("a", {"size": 3}, labels={"storage": "fast"})
        world.run(30.0)  # its timer never rests
        assert status_of(world.get("a")) == {"phase": "Ready", "measured": True}
        assert world.client.get(CONFIG_MAP, "a", namespace="default")["data"] == {"size": "3"}

        world.client.delete(CONFIG_MAP, "a", namespace="default")
        world.delete("a")
        world.run(30.0)
        assert world.find("a") is None
