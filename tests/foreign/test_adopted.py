"""An App goes on with the objects of a real operator with kopf, and kopf with those of an App."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator import App, Kind, MutableObject, Object, kinds
from appsdk_operator.app import Kopf
from appsdk_operator.app._kopf_peers import CLUSTER_PEERINGS, LivePeerError
from appsdk_operator.client import Client, ClientConfig, MergePatch
from appsdk_operator.controllers import until, wait_for
from appsdk_operator.resource import field
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer, ControlPlane, install_crds, running
from tests.app.test_kopf_peers import definition as peering_definition
from tests.app.test_managers import Calls
from tests.foreign.conftest import PATIENCE, PROGRAMS, Program, Start, definition
from tests.foreign.test_coming_from_kopf import code_of

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
GADGET = Kind(group="example.com", version="v1", kind="Gadget")
ROOT = Path(__file__).parents[2]
CRD = kinds.apiextensions.v1.CustomResourceDefinition
PEERING = CLUSTER_PEERINGS[0]
OWN = "example.com/widgets.v1.Widget"
KOPF = "kopf.zalando.org/"


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def server(request: pytest.FixtureRequest) -> Iterator[APIServer | ControlPlane]:
    if request.param == "real":
        with request.getfixturevalue("shared_plane").lent() as plane:
            yield plane
    else:
        with APIServer(tls=True, token="let-me-in") as server:
            yield server


@pytest.fixture
def config(server: APIServer | ControlPlane, kubeconfig: Path) -> Iterator[ClientConfig]:
    pytest.importorskip("kopf")
    server.write_kubeconfig(kubeconfig)
    config = ClientConfig.from_kubeconfig(kubeconfig)
    with Client(config) as client:
        crds = [
            definition("example.com", "widgets", "Widget"),
            definition("example.com", "gadgets", "Gadget"),
            peering_definition(PEERING),
        ]
        install_crds(client, [Object.from_dict(CRD, crd).mutable_copy() for crd in crds])
        client.create(MutableObject.new(PEERING, "default"))
        yield config


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


@pytest.fixture
def api(config: ClientConfig) -> Iterator[Client]:
    with Client(config) as client:
        yield client


def kopf_of(start: Start) -> Program:
    program = str(PROGRAMS / "adopted_kopf.py")
    return start(sys.executable, "-u", "-m", "kopf", "run", "-A", "--quiet", program)


def create(api: Client, name: str, size: int, kind: Kind = WIDGET, **metadata: Any) -> None:
    api.create(
        MutableObject.new(kind, name, namespace="default", spec={"size": size}, metadata=metadata)
    )


def resize(api: Client, name: str, size: int, kind: Kind = WIDGET) -> None:
    api.patch(kind, name, MergePatch({"spec": {"size": size}}), namespace="default")


def wait(
    api: Client, name: str, fits: Callable[[Object | None], bool], kind: Kind = WIDGET
) -> None:
    wait_for(api, kind, name, fits, namespace="default", timeout=PATIENCE)


def handled_by_kopf(size: int) -> Callable[[Object | None], bool]:
    """Whether kopf has handled a size, and forgotten its progress."""

    def is_handled(obj: Object | None) -> bool:
        annotations = {} if obj is None else dict(obj.annotations)
        state = json.loads(annotations.pop(f"{KOPF}last-handled-configuration", "null"))
        is_at_rest = not any("started" in text for text in annotations.values())
        return is_at_rest and state is not None and state["spec"]["size"] == size

    return is_handled


def in_progress(handler: str, *others: str) -> Callable[[Object | None], bool]:
    def is_it(obj: Object | None) -> bool:
        keys = () if obj is None else obj.annotations.keys()
        return all(f"{KOPF}{name}" in keys for name in (handler, *others))

    return is_it


def made(calls: Calls, **options: Any) -> App:
    app = App("widgets", adopt=Kopf(), **options)
    app.on_add(WIDGET)(lambda obj: calls.add(("add", obj.name)))
    app.on_sync(WIDGET)(lambda obj: calls.add(("sync", obj.name)))

    @app.on_update(WIDGET, when=field("spec.size").changed)
    def resize(old: Object, new: Object) -> None:
        calls.add(("resize", new.name, old.spec["size"], new.spec["size"]))

    @app.on_update(WIDGET)
    def change(old: Object, new: Object) -> None:
        calls.add(("change", new.name, old.spec["size"], new.spec["size"]))

    app.on_delete(WIDGET)(lambda obj: calls.add(("remove", obj.name)))

    @app.on_update(GADGET)
    def change_gadget(old: Object, new: Object) -> None:
        calls.add(("gadget", new.name, old.spec["size"], new.spec["size"]))

    return app


def is_adopted(finalizers: tuple[str, ...]) -> Callable[[Object | None], bool]:
    def is_it(obj: Object | None) -> bool:
        return (
            obj is not None
            and not any(key.startswith(KOPF) for key in obj.annotations)
            and obj.finalizers == finalizers
        )

    return is_it


def leave_states_of_kopf(api: Client, config: ClientConfig, start: Start, how: str) -> None:
    """Run kopf until there are objects in each state, and end it."""
    kopf = kopf_of(start)
    for name in ("same", "changed", "changes", "deleted", "goes"):
        create(api, name, 1, labels={"holds": "yes"} if name == "goes" else {})
    for name in ("same", "changed", "changes", "deleted", "goes"):
        wait(api, name, handled_by_kopf(1))
    create(api, "gadget", 1, GADGET)
    create(api, "other", 1, GADGET)
    for name in ("gadget", "other"):
        wait(api, name, handled_by_kopf(1), GADGET)
        wait(api, name, lambda obj: obj is not None and bool(obj.finalizers), GADGET)
    resize(api, "changed", 2)
    wait(api, "changed", handled_by_kopf(2))
    resize(api, "changes", 14)
    wait(api, "changes", in_progress("resize.spec.size"))
    create(api, "stuck", 13)
    create(api, "stuck-goes", 13, labels={"holds": "yes"})
    for name in ("stuck", "stuck-goes"):
        wait(api, name, in_progress("make", "note"))
    for name in ("goes", "stuck-goes"):
        api.delete(WIDGET, name, namespace="default")
        wait(api, name, in_progress("remove"))
    with pytest.raises(LivePeerError):
        made(Calls()).manager(config, metrics=Metrics()).run(StopSignal())
    if how == "stopped":
        kopf.stop()
    else:
        kopf.end()
        api.patch(PEERING, "default", MergePatch({"status": None}))


@pytest.mark.parametrize("remember", [True, False], ids=["remembered", "not remembered"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_an_app_goes_on_where_kopf_was(
    config: ClientConfig, api: Client, start: Start, how: str, remember: bool
) -> None:
    leave_states_of_kopf(api, config, start, how)
    resize(api, "changed", 3)
    resize(api, "other", 3, GADGET)
    api.delete(WIDGET, "deleted", namespace="default")
    calls = Calls()
    with running(made(calls, remember=remember).manager(config, metrics=Metrics())):
        for name in ("deleted", "goes", "stuck-goes"):
            wait(api, name, until.deleted())
        for name in ("same", "changed", "changes", "stuck"):
            wait(api, name, is_adopted((OWN,)))
        for name in ("gadget", "other"):
            wait(api, name, is_adopted(()), GADGET)
    assert sorted(calls.all) == [
        ("add", "stuck"),
        ("change", "changed", 2, 3),
        ("change", "changes", 1, 14),
        ("gadget", "other", 1, 3),
        *[("remove", name) for name in ("deleted", "goes", "stuck-goes")],
        ("resize", "changed", 2, 3),
        ("resize", "changes", 1, 14),
        *[("sync", name) for name in ("changed", "changes", "same")],
    ]
    calls = Calls()
    versions = {obj.name: obj.resource_version for obj in api.list(WIDGET)}
    with running(made(calls, remember=remember).manager(config, metrics=Metrics())):
        for name in ("changed", "changes", "same", "stuck"):
            calls.wait_for(("sync", name))
    assert len(calls.all) == 4
    assert {obj.name: obj.resource_version for obj in api.list(WIDGET)} == versions


def test_kopf_goes_on_where_an_app_was(
    config: ClientConfig, api: Client, start: Start, kubeconfig: Path, tmp_path: Path
) -> None:
    with running(made(Calls(), remember=True).manager(config, metrics=Metrics())):
        for name in ("same", "changed", "deleted"):
            create(api, name, 1)
            wait(api, name, lambda obj: obj is not None and obj.finalizers == (OWN,))
        create(api, "gadget", 1, GADGET)
        wait(api, "gadget", lambda obj: obj is not None and bool(obj.annotations), GADGET)
    of_app = "from tests.foreign.test_adopted import Calls, made\napp = made(Calls())\n"
    (tmp_path / "buckets.py").write_text(of_app)
    program = tmp_path / "back_to_kopf.py"
    program.write_text(code_of(program.name))
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(program)], env=environment, check=True, timeout=PATIENCE)
    resize(api, "changed", 2)
    api.delete(WIDGET, "deleted", namespace="default")
    kopf = kopf_of(start)
    kopf.until("resized", lambda name: name == "changed")
    wait(api, "deleted", until.deleted())
    wait(api, "changed", handled_by_kopf(2))
    create(api, "last", 1)
    wait(api, "last", handled_by_kopf(1))
    kopf.stop()
    assert {what: kopf.all_of(what) for what in ("made", "noted", "resized", "removed")} == {
        "made": ["last"],
        "noted": ["last"],
        "resized": ["changed"],
        "removed": ["deleted"],
    }
    assert not kopf.all_of("changed")
    for obj in (*api.list(WIDGET), *api.list(GADGET)):
        assert OWN not in obj.finalizers
        assert not any("appsdk-operator.io" in key for key in obj.annotations)
