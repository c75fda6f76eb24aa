"""The same cases on two lanes: the embedded API server and the real control plane.

A test asks for ``server`` (where to talk to) or ``world`` (a namespace of its own there, clients,
operators and watchers that are all ended after the test). Both lanes live for the whole session.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import attrs
import pytest

from appsdk_operator.cache import Informer
from appsdk_operator.client import AlreadyExists, Client, ClientConfig, JsonPatch, NotFound
from appsdk_operator.manager import Operator
from appsdk_operator.resource import Kind, MutableObject, Object, kinds
from appsdk_operator.runtime import Metrics, RealClock
from appsdk_operator.testing import APIServer, ControlPlane, FaultProxy
from appsdk_operator.watchers import ConstantBackoff, InformerController
from tests.definitions import widget_definition
from tests.runs import Run
from tests.waiting import eventually

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CONFIG_MAP = kinds.core.v1.ConfigMap
CRD = kinds.apiextensions.v1.CustomResourceDefinition
TIMEOUT = 60.0
CLOCK = RealClock()

WIDGET_CRD = widget_definition(
    {
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "maximum": 1_000_000_000},
                    "color": {"type": "string"},
                },
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        }
    }
)


class Server(Protocol):
    """A lane."""

    name: str

    def config(self, **options: Any) -> ClientConfig:
        """How clients reach it."""

    def kill(self) -> None:
        """End it without a goodbye; what is stored stays."""

    def restart(self) -> None:
        """Have it back."""

    def forget_history(self) -> None:
        """Answer every older version with 410; watches end on the way."""


class Embedded:
    """The API server inside the process."""

    name = "embedded"

    def __init__(self) -> None:
        self.server = APIServer(token="let-me-in", bookmark_interval=0.5)

    def config(self, **options: Any) -> ClientConfig:
        own = {"server": self.server.url, "token": "let-me-in"}
        return ClientConfig(**{**own, **options})

    def kill(self) -> None:
        self.server.cut_connections(watches_only=False)
        self.server.stop()

    def restart(self) -> None:
        self.server.start()

    def forget_history(self) -> None:
        self.server.compact()
        self.server.cut_connections()


class Real:
    """etcd and kube-apiserver."""

    name = "real"

    def __init__(self) -> None:
        self.plane = ControlPlane()

    def config(self, **options: Any) -> ClientConfig:
        return self.plane.client_config(**options)

    def kill(self) -> None:
        self.plane.kill()

    def restart(self) -> None:
        self.plane.restart()

    def forget_history(self) -> None:
        self.plane.compact()
        self.plane.kill()
        self.plane.restart()


def _install(server: Server) -> None:
    with Client(server.config(), metrics=Metrics()) as client:
        client.create(MutableObject(CRD, WIDGET_CRD))
        assert eventually(lambda: _is_served(client))


def _is_served(client: Client) -> bool:
    try:
        client.list_page(WIDGET, namespace="default")
    except NotFound:
        return False
    return True


@pytest.fixture(scope="session")
def embedded() -> Iterator[Embedded]:
    lane = Embedded()
    with lane.server:
        _install(lane)
        yield lane


@pytest.fixture(scope="session")
def real() -> Iterator[Real]:
    lane = Real()
    with lane.plane:
        _install(lane)
        yield lane


@pytest.fixture(scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def server(request: pytest.FixtureRequest) -> Server:
    lane: Server = request.getfixturevalue(request.param)
    return lane


@attrs.frozen
class Call:
    """A call that a watcher has had."""

    action: str
    name: str
    version: int
    started: float
    object: Object
    failed: bool = False


class Recorder:
    """A watcher that writes down its calls, and what must never be.

    Args:
        fail: is asked before each call returns; what it raises makes the call fail.
        one_worker: whether two calls at once are wrong for different objects, too.
    """

    def __init__(
        self,
        fail: Callable[[str, Object], None] = lambda action, obj: None,
        *,
        one_worker: bool = False,
    ) -> None:
        self.calls: list[Call] = []
        self.wrong: list[str] = []
        self.seen: dict[str, Object] = {}  # by uid: what it knows to exist
        self._fail = fail
        self._one_worker = one_worker
        self._running: set[str] = set()
        self._versions: dict[str, int] = {}
        self._condition = threading.Condition()

    def add(self, obj: Object) -> None:
        self._record("add", obj)

    def update(self, old: Object, new: Object) -> None:
        self._record("update", new)

    def delete(self, obj: Object) -> None:
        self._record("delete", obj)

    def sync(self, obj: Object) -> None:
        self._record("sync", obj)

    def _record(self, action: str, obj: Object) -> None:
        version, name, started = int(obj.resource_version), obj.name, CLOCK.monotonic()
        with self._condition:
            if name in self._running or (self._one_worker and self._running):
                self.wrong.append(f"{action} of {name} beside calls for {self._running}")
            self._running.add(name)
            if version < self._versions.get(obj.uid, 0):
                self.wrong.append(f"{action} of {name} went back to version {version}")
            self._versions[obj.uid] = version
        failed = True
        try:
            self._fail(action, obj)
            failed = False
        finally:
            with self._condition:
                self._running.discard(name)
                self.calls.append(Call(action, name, version, started, obj, failed))
                if failed:
                    pass
                elif action == "delete":
                    self.seen.pop(obj.uid, None)
                else:
                    self.seen[obj.uid] = obj
                self._condition.notify_all()

    def wait(self, condition: Callable[[Recorder], Any], timeout: float = TIMEOUT) -> bool:
        """Wait until ``condition`` of this recorder holds, which is asked after each call."""
        with self._condition:
            return bool(self._condition.wait_for(lambda: condition(self), timeout))

    def knows(self, obj: Object) -> bool:
        """Whether this state of an object is the last that it saw."""
        seen = self.seen.get(obj.uid)
        return seen is not None and seen.resource_version == obj.resource_version

    def actions(self, name: str) -> list[str]:
        """What happened to one object, failed calls with an exclamation mark."""
        with self._condition:
            return [c.action + "!" * c.failed for c in self.calls if c.name == name]

    def succeeded(self, action: str) -> list[str]:
        """The names of the objects for which an action succeeded."""
        with self._condition:
            return [c.name for c in self.calls if c.action == action and not c.failed]


class Impatient:
    """A client whose watches take silence for death after ``limit`` seconds."""

    def __init__(self, client: Client, limit: float) -> None:
        self._client = client
        self._limit = limit

    def list_page(self, kind: Kind, **options: Any) -> Any:
        return self._client.list_page(kind, **options)

    def watch(self, kind: Kind, **options: Any) -> Any:
        return self._client.watch(kind, **{**options, "silence_limit": self._limit})


class Running(Run):
    """An operator in a thread."""

    patience = TIMEOUT

    def __init__(self, controller: InformerController) -> None:
        self.controller = controller
        operator = Operator()
        operator.add_controller(controller)
        super().__init__(operator)
        self.start()

    def wait_for_sync(self) -> None:
        assert self.controller.wait_for_sync(self.stop, TIMEOUT), self.controller.health()

    def end(self) -> list[BaseException]:
        for error in super().end():
            raise error
        return []


_numbers = itertools.count(1)


class World:
    """A namespace of its own on a server, and what a test does there."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.namespace = f"case-{next(_numbers)}-{random.randrange(10**6)}"
        self._exits = contextlib.ExitStack()
        self.client = self.new_client()
        self.client.create(MutableObject.new(kinds.core.v1.Namespace, self.namespace))

    def close(self) -> None:
        self._exits.close()

    def at_end(self, call: Callable[[], None]) -> None:
        """Call it when the test has ended, however it did."""
        self._exits.callback(call)

    def new_client(self, **options: Any) -> Client:
        client = Client(self.server.config(**options), metrics=Metrics())
        return self._exits.enter_context(client)

    def proxy(self) -> FaultProxy:
        return self._exits.enter_context(FaultProxy(self.server.config().server))

    # Objects.

    def draft(self, kind: Kind, name: str, size: int = 1, **metadata: Any) -> MutableObject:
        fields = {"data": {"size": str(size)}} if kind == CONFIG_MAP else {"spec": {"size": size}}
        draft = MutableObject.new(kind, name, namespace=self.namespace, **fields)
        draft.metadata.update(metadata)
        return draft

    def create(self, kind: Kind, name: str, size: int = 1, **metadata: Any) -> Object:
        try:
            return self.client.create(self.draft(kind, name, size, **metadata))
        except AlreadyExists:  # a retry after a lost answer
            return self.get(kind, name)

    def get(self, kind: Kind, name: str) -> Object:
        return self.client.get(kind, name, namespace=self.namespace)

    def find(self, kind: Kind, name: str) -> Object | None:
        try:
            return self.get(kind, name)
        except NotFound:
            return None

    def resize(self, kind: Kind, name: str, size: int) -> Object:
        path, value = ("/data/size", str(size)) if kind == CONFIG_MAP else ("/spec/size", size)
        patch = JsonPatch([{"op": "replace", "path": path, "value": value}])
        return self.client.patch(kind, name, patch, namespace=self.namespace)

    def delete(self, kind: Kind, name: str) -> None:
        with contextlib.suppress(NotFound):
            self.client.delete(kind, name, namespace=self.namespace)

    def versions(self, kind: Kind) -> dict[str, str]:
        """Name to resource version of all objects."""
        return {o.name: o.resource_version for o in self.objects(kind)}

    def objects(self, kind: Kind) -> list[Object]:
        found = self.client.list(kind, namespace=self.namespace)
        return [o for o in found if o.name != "kube-root-ca.crt"]

    # Operators.

    def informer(self, kind: Kind, client: Any = None, **options: Any) -> Informer:
        options = {"on_error": lambda error: None, "metrics": Metrics(), **options}
        return Informer(kind, client or self.client, namespace=self.namespace, **options)

    def operate(
        self,
        kind: Kind,
        *watchers: Any,
        client: Any = None,
        informer_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Running:
        """Run an operator with these watchers; it is stopped after the test."""
        options.setdefault("error_handler", lambda error, call: None)
        options.setdefault("retry_policy", ConstantBackoff(0.05))
        controller = InformerController(metrics=Metrics(), **options)
        controller.add_informer(self.informer(kind, client, **(informer_options or {})), kind)
        for watcher in watchers:
            controller.add_watcher(watcher, kind)
        running = Running(controller)
        self._exits.callback(running.end)
        return running


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    world = World(server)
    with contextlib.closing(world):
        yield world


@pytest.fixture
def mortal_world(server: Server) -> Iterator[World]:
    """A world whose server may be killed: the embedded one starts a new thread after that."""
    with contextlib.ExitStack() as exits:
        if isinstance(server, Embedded):
            server = Embedded()
            exits.enter_context(server.server)
            _install(server)
        yield exits.enter_context(contextlib.closing(World(server)))
