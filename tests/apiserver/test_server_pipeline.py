"""Writes that have to wait: what others do meanwhile counts. What the server writes by itself."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from appsdk_operator.apiserver import APIServer, StatusError
from appsdk_operator.apiserver._admission import match_conditions
from appsdk_operator.apiserver._admission.compilation import CompileAhead
from appsdk_operator.apiserver._cel import expressions
from appsdk_operator.apiserver._controllers import garbage_collector
from appsdk_operator.apiserver._controllers.kubernetes_service import KubernetesService
from appsdk_operator.apiserver._core import Core
from appsdk_operator.apiserver._crds import compiled_schemas
from appsdk_operator.apiserver._registry.write_requests import (
    AdmissionAttributes,
    AdmitAll,
    Origin,
)
from appsdk_operator.apiserver._registry.writes import (
    DeleteOptions,
    Target,
    WriteOptions,
    WriteResult,
)
from appsdk_operator.apiserver._schema import metadata
from appsdk_operator.apiserver._storage.storage import Record
from appsdk_operator.apiserver._values.run_sync import run_sync
from appsdk_operator.runtime import system_clock
from tests.definitions import widget_definition

OWN = WriteOptions()
ASKED = WriteOptions(origin=Origin())
REMOVAL = DeleteOptions(origin=Origin())


class Gate:
    """Waits at the gate, and carries out what a test has to happen then."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.asked: list[str] = []

    async def mutate(self, attributes: AdmissionAttributes) -> dict[str, Any]:
        self.asked.append(attributes.operation)
        return attributes.obj

    async def validate(self, attributes: AdmissionAttributes) -> None:
        await asyncio.sleep(0)
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            await happens()


@pytest.fixture
def core() -> Core:
    return Core(clock=system_clock, history=100)


@pytest.fixture
def gate(core: Core) -> Gate:
    gate = core.writer.admission = Gate()
    return gate


def a_map(core: Core, name: str, namespace: str = "default") -> Target:
    return Target(core.served("", "v1", "configmaps"), namespace, name)


def content(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def put(
    core: Core, name: str, options: WriteOptions = OWN, **data: str
) -> Coroutine[Any, Any, WriteResult]:
    """Create or add data, as a patch does."""
    target = a_map(core, name)
    if target.key not in target.served.resource.collection.records:
        return core.writer.create(a_map(core, ""), content(name, **data), options)

    async def change(obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "data": {**obj.get("data", {}), **data}}

    return core.writer.update(target, change, options, patch=True)


def test_a_patch_begins_anew_when_somebody_else_wrote_meanwhile(core: Core, gate: Gate) -> None:
    run_sync(put(core, "a"))
    gate.meanwhile = lambda: put(core, "a", theirs="1")
    result = asyncio.run(put(core, "a", ASKED, mine="1"))
    assert result.obj["data"] == {"theirs": "1", "mine": "1"}
    assert gate.asked == ["UPDATE", "UPDATE"]


def test_an_update_of_a_version_conflicts_when_somebody_else_wrote_meanwhile(
    core: Core, gate: Gate
) -> None:
    made = run_sync(put(core, "a"))
    version = made.obj["metadata"]["resourceVersion"]

    async def wanted(_old: dict[str, Any]) -> dict[str, Any]:
        obj = content("a", mine="1")
        obj["metadata"]["resourceVersion"] = version
        return obj

    gate.meanwhile = lambda: put(core, "a", theirs="1")
    with pytest.raises(StatusError) as refused:
        asyncio.run(core.writer.update(a_map(core, "a"), wanted, ASKED))
    assert refused.value.code == 409


def test_an_update_without_a_version_overwrites_the_newest_state(core: Core, gate: Gate) -> None:
    run_sync(put(core, "a"))
    gate.meanwhile = lambda: put(core, "a", theirs="1")

    async def wanted(_old: dict[str, Any]) -> dict[str, Any]:
        return content("a", mine="1")

    mine = core.writer.update(a_map(core, "a"), wanted, ASKED)
    assert asyncio.run(mine).obj["data"] == {"mine": "1"}


def test_a_name_can_be_taken_while_a_creation_waits(core: Core, gate: Gate) -> None:
    gate.meanwhile = lambda: put(core, "a")
    with pytest.raises(StatusError, match="already exists"):
        asyncio.run(put(core, "a", ASKED))


@pytest.mark.parametrize("tries", [2, 8, 9])
def test_a_generated_name_that_is_taken_is_followed_by_others(
    core: Core, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    run_sync(put(core, "x-taken"))
    names = iter(["x-taken"] * (tries - 1) + ["x-free"])
    monkeypatch.setattr(metadata, "generated_name", lambda _base, _rng: next(names))
    obj = {**content(""), "metadata": {"generateName": "x-"}}
    if tries > 8:  # as many as the real server tries
        with pytest.raises(StatusError, match='configmaps "x-taken" already exists'):
            run_sync(core.writer.create(a_map(core, ""), obj, OWN))
    else:
        made = run_sync(core.writer.create(a_map(core, ""), obj, OWN))
        assert made.obj["metadata"]["name"] == "x-free"


def test_a_namespace_can_end_while_a_creation_waits(core: Core, gate: Gate) -> None:
    core.create("", "v1", "namespaces", {"kind": "Namespace", "metadata": {"name": "brief"}})
    namespace = Target(core.served("", "v1", "namespaces"), "", "brief")
    gate.meanwhile = lambda: core.writer.delete(namespace, DeleteOptions())
    creation = core.writer.create(a_map(core, "", "brief"), content("a"), ASKED)
    with pytest.raises(StatusError, match="because it is being terminated"):
        asyncio.run(creation)


def test_a_deletion_looks_again_at_what_changed_while_it_waited(core: Core, gate: Gate) -> None:
    run_sync(put(core, "a"))
    gate.meanwhile = lambda: put(core, "a", theirs="1")
    assert asyncio.run(core.writer.delete(a_map(core, "a"), REMOVAL)).deleted
    assert gate.asked == ["DELETE", "DELETE"]
    run_sync(put(core, "b"))
    gate.meanwhile = lambda: core.writer.delete(a_map(core, "b"), DeleteOptions())
    with pytest.raises(StatusError, match="not found"):
        asyncio.run(core.writer.delete(a_map(core, "b"), REMOVAL))


def test_a_write_that_never_gets_through_ends(core: Core, gate: Gate) -> None:
    run_sync(put(core, "a"))
    count = 0

    async def again() -> None:
        nonlocal count
        count += 1
        await put(core, "a", count=str(count))
        gate.meanwhile = again

    gate.meanwhile = again
    with pytest.raises(StatusError, match="did not complete within requested timeout"):
        asyncio.run(put(core, "a", ASKED, mine="1"))


def test_without_a_loop_nobody_is_waited_for(core: Core, gate: Gate) -> None:
    with pytest.raises(RuntimeError, match="start the server first"):
        run_sync(put(core, "a", ASKED))


# -- big definitions -------------------------------------------------------------------------------


class Held:
    """A function that waits until a test lets it go on."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.begun = threading.Event()
        self.released = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.released.wait(30)
        return self._function(*args, **options)


def _big_definition() -> dict[str, Any]:
    # Schemas are kept for all servers of a process, so each run needs one of its own.
    own = str(uuid.uuid4())
    fields = {f"field{n}": {"type": "string", "description": own} for n in range(200)}
    return widget_definition({"properties": {"spec": {"type": "object", "properties": fields}}})


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def test_requests_are_answered_while_a_big_definition_is_compiled(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(compiled_schemas.schema_problems)
    monkeypatch.setattr(compiled_schemas, "schema_problems", held)
    with APIServer() as server, ThreadPoolExecutor(1) as pool:
        creating = pool.submit(connect(server).create, DEFINITIONS, _big_definition())
        try:
            assert held.begun.wait(30)
            api = connect(server)
            assert api.get("/api/v1/namespaces/default").status == 200
            assert api.get(f"{DEFINITIONS}/widgets.example.com").status == 404
        finally:
            held.released.set()
        assert creating.result(30).status == 201
        assert api.get("/apis/example.com/v1/widgets")["kind"] == "WidgetList"
        # Once for validation; the event loop found the result.
        (thread,) = held.threads
        assert thread.name.startswith("apiserver-compile")


def test_requests_are_answered_while_the_conditions_of_a_webhook_are_compiled(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(expressions.compile)
    monkeypatch.setattr(match_conditions.expressions, "compile", held)
    terms = [f"object.n == {n}" for n in range(900)]
    # Programs are kept for all servers of a process, so each run needs one of its own.
    terms.append(f"object.s == '{uuid.uuid4()}'")
    condition = {"name": "long", "expression": " || ".join(terms)}
    webhook = {
        "name": "a.example.com",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "matchConditions": [condition],
    }
    body = {"metadata": {"name": "a"}, "webhooks": [webhook]}
    with APIServer() as server, ThreadPoolExecutor(1) as pool:
        creating = pool.submit(connect(server).create, CONFIGURATIONS, body)
        try:
            assert held.begun.wait(30)
            assert connect(server).get("/api/v1/namespaces/default").status == 200
        finally:
            held.released.set()
        assert creating.result(30).status == 201
        assert [thread.name.rpartition("_")[0] for thread in held.threads] == ["apiserver-compile"]


def test_a_server_stops_after_the_compilation_that_has_begun(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(compiled_schemas.schema_problems)
    monkeypatch.setattr(compiled_schemas, "schema_problems", held)
    with ThreadPoolExecutor(2) as pool:
        server = APIServer()
        server.start()
        creating = pool.submit(connect(server).create, DEFINITIONS, _big_definition())
        assert held.begun.wait(30)
        stopping = pool.submit(server.stop)
        held.released.set()
        stopping.result(30)
        assert creating.exception(30) is not None or creating.result().status == 201
        with server:
            assert connect(server).get("/api/v1/namespaces/default").status == 200


def test_definitions_wait_for_each_other_after_a_restart_too(core: Core) -> None:
    ahead = CompileAhead(AdmitAll())
    definitions = core.served("apiextensions.k8s.io", "v1", "customresourcedefinitions")

    async def admit_two() -> None:
        ahead.start()
        attributes = [
            AdmissionAttributes(
                operation="CREATE",
                target=Target(definitions),
                obj=_big_definition(),
                options=WriteOptions(),
            )
            for _ in range(2)
        ]
        admitted = await asyncio.gather(*map(ahead.mutate, attributes))
        assert admitted == [each.obj for each in attributes]
        ahead.stop()

    asyncio.run(admit_two())
    asyncio.run(admit_two())


def test_a_big_definition_is_admitted_where_no_thread_can_be_started(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    core.writer.admission = ahead = CompileAhead(AdmitAll())
    definitions = core.served("apiextensions.k8s.io", "v1", "customresourcedefinitions")

    async def create() -> WriteResult:
        ahead.start()
        made = await core.writer.create(Target(definitions), _big_definition(), ASKED)
        ahead.stop()
        return made

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert asyncio.run(create()).status == 201


def test_a_definition_is_compiled_in_the_thread_that_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(compiled_schemas.schema_problems)
    held.released.set()
    monkeypatch.setattr(compiled_schemas, "schema_problems", held)
    with APIServer() as server:
        definition = _big_definition()
        server.apply_crds([definition])
        assert held.threads == [threading.current_thread()]
        with pytest.raises(StatusError, match="already exists"):
            server.apply_crds([definition])
        with pytest.raises(StatusError, match="is invalid"):
            server.apply_crds([{"metadata": {"name": "things.example.com"}, "spec": {}}])


def test_versions_with_one_schema_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(compiled_schemas.StructuralSchema)
    held.released.set()
    monkeypatch.setattr(compiled_schemas, "StructuralSchema", held)
    definition = _big_definition()
    (version,) = definition["spec"]["versions"]
    others = [{**version, "name": f"v{n}", "storage": False} for n in (2, 3)]
    definition["spec"]["versions"] += others
    APIServer(crds=[definition])
    assert len(held.threads) == 1


class Later:
    """Has what an event loop is asked to do later."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, function: Callable[[], None]) -> Any:
        self.calls.append((seconds, function))
        return self

    def cancel(self) -> None:
        self.calls.clear()


def of_kubernetes(core: Core) -> dict[str, Any]:
    """What there is of the Service, its Endpoints and its EndpointSlice."""
    kinds = {
        "service": ("", "v1", "services"),
        "endpoints": ("", "v1", "endpoints"),
        "slice": ("discovery.k8s.io", "v1", "endpointslices"),
    }
    found = {
        name: core.served(*kind).resource.collection.records.get("default/kubernetes")
        for name, kind in kinds.items()
    }
    return {name: record.decode() for name, record in found.items() if record is not None}


def begin(service: KubernetesService, host: str, port: int, loop: Later) -> None:
    service.resume(host, port, cast("Any", loop))
    service.create_missing()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::"])
def test_a_server_that_others_cannot_reach_has_a_service_without_endpoints(
    core: Core, host: str
) -> None:
    begin(KubernetesService(core.create_own, core.served), host, 4321, Later())
    [(name, service)] = of_kubernetes(core).items()
    assert (name, service["spec"]["clusterIP"]) == ("service", "10.0.0.1")
    assert service["spec"]["ports"] == [
        {"name": "https", "protocol": "TCP", "port": 443, "targetPort": 4321}
    ]


@pytest.mark.parametrize(("host", "family"), [("192.0.2.7", "IPv4"), ("2001:db8::7", "IPv6")])
def test_a_server_that_others_can_reach_has_endpoints(core: Core, host: str, family: str) -> None:
    begin(KubernetesService(core.create_own, core.served), host, 0, Later())
    found = of_kubernetes(core)
    port = {"name": "https", "protocol": "TCP", "port": 6443}
    assert found["endpoints"]["subsets"] == [{"addresses": [{"ip": host}], "ports": [port]}]
    assert found["slice"]["addressType"] == family
    assert found["slice"]["endpoints"] == [{"addresses": [host], "conditions": {"ready": True}}]
    assert found["slice"]["ports"] == [port]
    assert found["slice"]["metadata"]["labels"] == {"kubernetes.io/service-name": "kubernetes"}


def test_the_service_of_the_server_is_created_again_some_seconds_after_it_was_deleted(
    core: Core,
) -> None:
    service, loop = KubernetesService(core.create_own, core.served), Later()
    core.event_handlers.append(service.on_event)
    begin(service, "192.0.2.7", 6443, loop)
    target = Target(core.served("", "v1", "services"), "default", "kubernetes")
    run_sync(core.writer.delete(target, DeleteOptions()))  # the endpoints go along
    assert of_kubernetes(core).keys() == {"slice"}
    [(seconds, create)] = loop.calls
    assert seconds == 10
    create()
    assert of_kubernetes(core).keys() == {"service", "endpoints", "slice"}
    run_sync(core.writer.delete(target, DeleteOptions()))
    service.pause()
    assert not loop.calls
    begin(service, "192.0.2.7", 6443, loop)
    assert of_kubernetes(core).keys() == {"service", "endpoints", "slice"}


def test_the_service_of_the_server_waits_for_its_address(core: Core) -> None:
    service, loop = KubernetesService(core.create_own, core.served), Later()
    core.event_handlers.append(service.on_event)
    thief = {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 1}]}}
    core.create_own("", "v1", "services", thief, "default")
    begin(service, "192.0.2.7", 6443, loop)
    assert of_kubernetes(core).keys() == {"endpoints", "slice"}
    [(seconds, create)] = loop.calls
    assert seconds == 10
    target = Target(core.served("", "v1", "services"), "default", "a")
    run_sync(core.writer.delete(target, DeleteOptions()))
    create()
    assert of_kubernetes(core).keys() == {"service", "endpoints", "slice"}


def test_what_the_garbage_collector_fails_to_delete_holds_up_nothing_else(
    core: Core, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(garbage_collector, "_RETRY", 0)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}
    maps = core.served("", "v1", "configmaps").resource.collection

    async def fail() -> None:
        raise ZeroDivisionError

    async def collect() -> None:
        gone = asyncio.Event()
        core.event_handlers.append(lambda *_: None if maps.records else gone.set())
        gate.meanwhile = fail
        core.garbage_collector.resume(asyncio.get_running_loop().create_task)
        async with asyncio.timeout(60):
            await gone.wait()
        core.garbage_collector.pause()

    for name in ("a", "b"):
        obj = content(name)
        obj["metadata"]["ownerReferences"] = [reference]
        run_sync(core.writer.create(a_map(core, ""), obj, OWN))
    asyncio.run(collect())
    assert gate.asked == ["DELETE"] * 3
    assert "default/a of configmaps was not settled" in caplog.text


def test_who_waits_for_many_dependents_reads_none_of_them(core: Core, monkeypatch: Any) -> None:
    core.create_own("", "v1", "configmaps", {"metadata": {"name": "owner"}}, "default")
    maps = core.served("", "v1", "configmaps")
    records = maps.resource.collection.records
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "blockOwnerDeletion": True}
    owner["uid"] = records["default/owner"].uid
    for name in "abcdefgh":
        metadata = {"name": name, "finalizers": ["example.com/x"], "ownerReferences": [owner]}
        core.create_own("", "v1", "configmaps", {"metadata": metadata}, "default")

    async def release() -> int:
        core.garbage_collector.resume(asyncio.get_running_loop().create_task)
        foreground = DeleteOptions(propagation="Foreground")
        await core.writer.delete(Target(maps, "default", "owner"), foreground)
        for _ in range(20):
            await asyncio.sleep(0)
        assert all(record.deleting for record in records.values())
        decode, read = Record.decode, list[Record]()

        def noted(record: Record) -> dict[str, Any]:
            read.append(record)
            return decode(record)

        core.storage.remove(maps.resource.collection, "default/a")
        monkeypatch.setattr(Record, "decode", noted)
        for _ in range(5):
            await asyncio.sleep(0)
        core.garbage_collector.pause()
        return len(read)

    assert asyncio.run(release()) == 0
