"""Servers that begin alike: what one of them computed serves all, and nothing else is shared."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.apiserver._registry.writes import Writer
from appsdk_operator.apiserver._storage import first_writes
from appsdk_operator.apiserver._storage.storage import Record
from appsdk_operator.client import MergePatch, NotFound
from appsdk_operator.resource import Kind, MutableObject, kinds
from appsdk_operator.runtime import ManualClock
from appsdk_operator.testing import APIServer, MemoryServer
from tests.definitions import widget_definition

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CRD = kinds.apiextensions.v1.CustomResourceDefinition
SCHEMA = {
    "properties": {
        "spec": {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}},
        "status": {
            "type": "object",
            "properties": {"seen": {"type": "boolean"}},
            "default": {"seen": False},
        },
    }
}


def with_versions() -> dict[str, Any]:
    definition = widget_definition(SCHEMA)
    (version,) = definition["spec"]["versions"]
    definition["spec"]["versions"] = [
        {**version, "name": "v2", "deprecated": True, "storage": False},
        version,
    ]
    return definition


def converted() -> dict[str, Any]:
    definition = with_versions()
    definition["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"service": {"namespace": "default", "name": "hooks"}},
            "conversionReviewVersions": ["v1"],
        },
    }
    return definition


def of_name(plural: str, kind: str, group: str = "example.com") -> dict[str, Any]:
    definition = widget_definition(SCHEMA)
    definition["metadata"] = {"name": f"{plural}.{group}", "labels": {"a": "b"}}
    definition["spec"]["group"] = group
    definition["spec"]["names"] = {"plural": plural, "kind": kind}
    return definition


DEFINITIONS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "none": list,
    "one": lambda: [widget_definition(SCHEMA)],
    "versions": lambda: [with_versions()],
    "conversion": lambda: [converted()],
    "several": lambda: [of_name("things", "Thing"), of_name("doors", "Door", "example.org")],
    "conflict": lambda: [of_name("things", "Thing"), of_name("others", "Thing")],
    "protected": lambda: [
        {
            **(made := of_name("things", "Thing", "things.k8s.io")),
            "metadata": {
                **made["metadata"],
                "annotations": {"api-approved.kubernetes.io": "unapproved"},
            },
        }
    ],
}


@pytest.fixture(autouse=True)
def _nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_writes, "_RECORDINGS", first_writes._Recordings())


def of_record(record: Record | None) -> list[Any]:
    fields = [name for name in Record.__slots__ if name != "_variants"]
    return [] if record is None else [getattr(record, name) for name in fields]


def state_of(server: MemoryServer) -> Iterator[Any]:
    """All that requests and later writes can depend on."""
    core = server.api._core
    yield core.storage.revision
    for name, collection in sorted(core.storage.collections.items()):
        if collection.events:
            yield name, collection.floor, collection.keys, list(collection.records)
        for event in collection.events:
            yield event.type, event.revision, of_record(event.record), of_record(event.previous)
    for resource in core.catalog:
        fields = {k: getattr(resource, k) for k in dir(resource) if not k.startswith("_")}
        yield {k: v for k, v in fields.items() if isinstance(v, (str, bool, tuple))}
        yield resource.collection.floor, resource.converter and resource.converter.conversion
        for version in resource.versions.values():
            yield version.version, version.subresources, version.schema, version.schema_since
            yield version.served, version.warning, version.columns
            yield version.structural_schema is not None
    yield list(core.garbage_collector._places)
    yield core.writer.rng.getstate()


def made(crds: str = "one", seed: int = 0, start: float = 1e9, **options: Any) -> MemoryServer:
    clock = ManualClock(seed=seed, start=start)
    return MemoryServer(clock=clock, crds=DEFINITIONS[crds](), **options)


@pytest.mark.parametrize("rbac", [False, True])
@pytest.mark.parametrize("crds", DEFINITIONS)
def test_a_server_that_repeats_first_writes_is_one_that_carries_them_out(
    monkeypatch: pytest.MonkeyPatch, crds: str, rbac: bool
) -> None:
    first = made(crds, rbac=rbac)
    repeated = [made(crds, rbac=rbac), made(crds, seed=1, start=2e9, rbac=rbac)]
    monkeypatch.setattr(first_writes, "_RECORDINGS", first_writes._Recordings())
    fresh = made(crds, seed=1, start=2e9, rbac=rbac)
    assert list(state_of(repeated[0])) == list(state_of(first))
    assert list(state_of(repeated[1])) == list(state_of(fresh))


def test_first_writes_are_carried_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(rbac=True)
    monkeypatch.delattr(Writer, "create")
    assert list(state_of(made(rbac=True))) == list(state_of(first))


@pytest.mark.parametrize("crds", ["one", "conflict"])
def test_only_what_follows_first_writes_is_repeated(
    monkeypatch: pytest.MonkeyPatch, crds: str
) -> None:
    def server() -> MemoryServer:
        server = made("none")
        namespace = MutableObject.new(kinds.core.v1.Namespace, "mine")
        server.client().create(namespace)
        server.api.apply_crds(DEFINITIONS[crds]())
        return server

    made(crds)
    after_another = server()
    monkeypatch.setattr(first_writes, "_RECORDINGS", first_writes._Recordings())
    assert list(state_of(after_another)) == list(state_of(server()))


def test_a_definition_that_is_applied_later_is_repeated() -> None:
    states = []
    for _ in range(2):
        server = made("none")
        server.api.apply_crds(DEFINITIONS["versions"]())
        states.append(list(state_of(server)))
    assert states[0] == states[1]


def test_what_is_written_to_a_server_is_not_seen_on_another() -> None:
    ours, theirs = made(), made()
    before = copy.deepcopy(list(state_of(theirs)))
    client = ours.client()
    created = client.create(widget("a"))
    assert (created.spec, created.status) == ({"n": 3}, {"seen": False})
    # Its schema and names change, and the objects of every cluster do.
    schema = copy.deepcopy(widget_definition(SCHEMA)["spec"]["versions"])
    schema[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["n"]["default"] = 4
    changes = {"spec": {"versions": schema, "names": {"shortNames": ["w"]}}}
    client.patch(CRD, "widgets.example.com", MergePatch(changes))
    for kind, name in (
        (kinds.core.v1.Namespace, "default"),
        (kinds.scheduling.v1.PriorityClass, "system-node-critical"),
    ):
        client.patch(kind, name, MergePatch({"metadata": {"labels": {"x": "y"}}}))
    client.patch(
        kinds.core.v1.Service,
        "kubernetes",
        MergePatch({"metadata": {"labels": {"component": None}}}),
        namespace="default",
    )
    assert client.create(widget("b")).spec == {"n": 4}
    ours.api.compact()

    assert list(state_of(theirs)) == before
    others = theirs.client()
    with pytest.raises(NotFound):
        others.get(WIDGET, "a", namespace="default")
    assert others.create(widget("a")).uid == created.uid
    assert others.create(widget("b")).spec == {"n": 3}
    assert list(state_of(made())) == before
    client.delete(CRD, "widgets.example.com")
    assert others.get(WIDGET, "a", namespace="default").spec == {"n": 3}


def widget(name: str) -> MutableObject:
    made = MutableObject.new(WIDGET, name, namespace="default")
    made["spec"] = {}
    return made


def test_services_get_the_same_addresses_on_each_server() -> None:
    found = []
    for _ in range(2):
        service = MutableObject.new(kinds.core.v1.Service, "a", namespace="default")
        service["spec"] = {"type": "NodePort", "ports": [{"port": 80}]}
        created = made().client().create(service)
        found.append((created.spec["clusterIP"], created.spec["ports"], created.uid))
    assert found[0] == found[1]


def test_a_definition_with_the_time_of_its_creation_in_it_keeps_that() -> None:
    definition = widget_definition(SCHEMA)
    definition["metadata"]["annotations"] = {"made": "2001-09-09T01:46:40Z"}
    for start in (1e9, 1.1e9):
        server = MemoryServer(clock=ManualClock(start=start), crds=[definition])
        found = server.client().get(CRD, "widgets.example.com")
        assert found.annotations["made"] == "2001-09-09T01:46:40Z"


def test_recordings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_writes, "_LIMIT", 20_000)
    for n in range(20):
        server = MemoryServer(crds=[of_name(f"things{n}", f"Thing{n}")])
        assert server.client().get(CRD, f"things{n}.example.com").name
    recordings = first_writes._RECORDINGS
    assert sum(each.size for each in recordings._known.values()) == recordings._size <= 20_000


def test_a_server_on_a_socket_begins_like_another(connect: Any) -> None:
    found = []
    for _ in range(2):
        with APIServer(clock=ManualClock(), crds=DEFINITIONS["one"]()) as server:
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
            found.append(connect(server).get(path).body)
    assert found[0] == found[1]
