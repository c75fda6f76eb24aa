"""A manager with everything in it, against an API server."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator.cache import Cache, Health, Informer, NotCachedError
from appsdk_operator.client import Client, ClientConfig, InterceptedClient, JsonPatch
from appsdk_operator.client._interceptor import Hooks
from appsdk_operator.controllers._controller import Controller
from appsdk_operator.controllers._options import ControllerOptions
from appsdk_operator.manager import (
    CacheSetup,
    ClientSetup,
    Cluster,
    HealthServerOptions,
    HTTPResponse,
    HTTPServer,
    LeaderElection,
    LeadershipLost,
    Manager,
    MetricsServerOptions,
    Operator,
    ProfileServerOptions,
    RunnableGroup,
)
from appsdk_operator.resource import MutableObject, Object, kinds
from appsdk_operator.runtime import Metrics, RealClock, StopSignal
from appsdk_operator.testing import APIServer
from appsdk_operator.watchers import InformerController, SimpleWatcher

TIMEOUT = 20.0
LOCAL = "127.0.0.1:0"
CONFIG_MAP = kinds.core.v1.ConfigMap
LEASE = kinds.coordination.v1.Lease
QUICK: dict[str, Any] = {"lease_duration": 3.0, "renew_deadline": 2.0, "retry_period": 0.1}


@pytest.fixture(scope="module")
def server() -> Iterator[APIServer]:
    with APIServer(token="secret") as server:
        yield server


@pytest.fixture
def config(server: APIServer) -> ClientConfig:
    return ClientConfig(server=server.url, token="secret")


@pytest.fixture
def api(config: ClientConfig) -> Iterator[Client]:
    with Client(config, metrics=Metrics()) as client:
        yield client
        for kind, namespace in ((CONFIG_MAP, "default"), (LEASE, "default")):
            for obj in list(client.list(kind, namespace=namespace)):
                client.delete(kind, obj.name, namespace=namespace)


@attrs.define(slots=False)
class Run:
    """A manager that runs aside."""

    manager: Manager
    stop: StopSignal = attrs.field(factory=StopSignal)
    raised: list[BaseException] = attrs.field(factory=list)
    thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, name="manager under test")
        self.thread.start()

    def _run(self) -> None:
        try:
            self.manager.run(self.stop)
        except BaseException as error:
            self.raised.append(error)

    def join(self) -> list[BaseException]:
        self.thread.join(TIMEOUT)
        assert not self.thread.is_alive(), self.manager.debug_snapshot()
        return self.raised

    def end(self) -> list[BaseException]:
        self.stop.set()
        return self.join()


@pytest.fixture
def make(config: ClientConfig) -> Iterator[Callable[..., Manager]]:
    managers: list[Manager] = []

    def make(server: Any = None, **options: Any) -> Manager:
        manager = Manager(server or config, **{"metrics": Metrics(), **options})
        managers.append(manager)
        return manager

    yield make
    for manager in managers:
        manager.close()


@pytest.fixture
def start() -> Iterator[Callable[[Manager], Run]]:
    runs: list[Run] = []

    def start(manager: Manager) -> Run:
        runs.append(Run(manager))
        return runs[-1]

    yield start
    for run in runs:
        run.end()


def _config_map(name: str, **data: str) -> MutableObject:
    obj = MutableObject.new(CONFIG_MAP, name, namespace="default")
    obj["data"] = data
    return obj


def _get(address: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def _answers(address: str) -> bool:
    try:
        _get(address, "/")
    except OSError:
        return False
    return True


def _eventually(check: Callable[[], bool]) -> None:
    clock, deadline = StopSignal(), RealClock().monotonic() + TIMEOUT
    while not check():
        assert RealClock().monotonic() < deadline
        clock.wait(0.01)


@attrs.define(slots=False, eq=False)
class Worker:
    """A runnable that calls a function at its start, and waits."""

    name: str = "worker"
    at_start: Callable[[], object] = lambda: None
    at_stop: Callable[[], object] = lambda: None
    has_started: threading.Event = attrs.field(factory=threading.Event)
    has_ended: threading.Event = attrs.field(factory=threading.Event)

    def run(self, stop: StopSignal) -> None:
        self.at_start()
        self.has_started.set()
        stop.wait()
        self.at_stop()
        self.has_ended.set()


class TestRun:
    """Start, cache and clients, stop."""

    def test_runnables_find_the_caches_synced(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        api.create(_config_map("before"))
        manager = make(cache=CacheSetup(kinds=[CONFIG_MAP]))
        second = Cluster(
            api.config, name="second", cache=CacheSetup(kinds=[CONFIG_MAP]), metrics=Metrics()
        )
        manager.add(second)
        seen: list[str] = []

        def look() -> None:
            clients = (manager.client, second.client)
            seen.extend(c.get(CONFIG_MAP, "before", namespace="default").name for c in clients)

        worker = Worker(at_start=look)
        worker.needs_leader_election = False  # type: ignore[attr-defined]
        manager.add(worker)
        run = start(manager)
        assert worker.has_started.wait(TIMEOUT), run.raised
        assert seen == ["before", "before"]
        assert not run.end()
        with pytest.raises(Exception, match="closed"):
            second.live_client.get(CONFIG_MAP, "before", namespace="default")

    def test_clusters_caches_and_informers_that_come_late_are_run(
        self, make: Callable[..., Manager], start: Callable[..., Run], config: ClientConfig
    ) -> None:
        manager = make()
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        cluster = Cluster(config, cache=CacheSetup(kinds=[CONFIG_MAP]), metrics=Metrics())
        cache = Cache(manager.live_client, metrics=Metrics())
        cache.add(CONFIG_MAP)
        informer = Informer(CONFIG_MAP, manager.live_client, metrics=Metrics())
        for one in (cluster, cache, informer):
            manager.add(one)
        for synced in (cluster.wait_until_ready, cache.wait_for_sync, informer.wait_for_sync):
            assert synced(StopSignal(), TIMEOUT)
        assert not run.end()

    def test_a_kind_without_informer_is_an_error_through_the_managers_client(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        api.create(_config_map("one"))
        manager = make(client=ClientSetup(uncached=[LEASE]))
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        with pytest.raises(NotCachedError):
            manager.client.get(CONFIG_MAP, "one", namespace="default")
        assert manager.live_client.get(CONFIG_MAP, "one", namespace="default").name == "one"
        assert list(manager.client.list(LEASE, namespace="default")) == []
        assert not run.end()

    def test_lazy_caches_are_an_option(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        api.create(_config_map("one"))
        manager = make(cache=CacheSetup(lazy=True))
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        assert manager.client.get(CONFIG_MAP, "one", namespace="default").name == "one"
        assert not run.end()

    def test_writes_are_signed_or_stored_nowhere_if_it_was_told_so(
        self, make: Callable[..., Manager], api: Client
    ) -> None:
        owners: list[Any] = []

        def create(inner: Any, obj: Any, **options: Any) -> Any:
            owners.append(options.get("field_manager"))
            return inner.create(obj, **options)

        watched = InterceptedClient(api, Hooks(create=create))
        signed = make(watched, client=ClientSetup(field_owner="painter"))
        signed.live_client.create(_config_map("one"))
        assert owners == ["painter"]
        make(client=ClientSetup(dry_run=True)).live_client.create(_config_map("two"))
        assert [obj.name for obj in api.list(CONFIG_MAP, namespace="default")] == ["one"]

    def test_a_second_run_is_an_error(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        manager = make()
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        with pytest.raises(RuntimeError, match="manager already started"):
            manager.run(StopSignal())
        assert not run.end()
        with pytest.raises(RuntimeError, match="manager already started"):
            manager.run(StopSignal())

    def test_a_stop_signal_is_a_stop_signal(self, make: Callable[..., Manager]) -> None:
        with pytest.raises(TypeError, match="make one with StopSignal"):
            make().run(threading.Event())  # type: ignore[arg-type]

    def test_signals_are_handled_in_the_main_thread_only(
        self, make: Callable[..., Manager]
    ) -> None:
        manager = make()
        raised: list[BaseException] = []

        def run() -> None:
            try:
                manager.run(handle_signals=True)
            except ValueError as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(TIMEOUT)
        assert "main thread only: run the manager there" in str(raised[0])

    def test_signals_are_handled_while_it_runs(self, make: Callable[..., Manager]) -> None:
        manager, stop = make(), StopSignal()
        manager.add(Worker(at_start=stop.set))
        manager.run(stop, handle_signals=True)
        failing = make()

        def fail(_: StopSignal) -> None:
            raise ValueError("broken")

        failing.add(fail)
        with pytest.raises(ValueError, match="broken"):
            failing.run(handle_signals=True)

    def test_operators_controllers_and_functions_are_runnables(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        manager = make()
        seen = threading.Semaphore(0)
        controller = InformerController(metrics=Metrics())
        controller.add_informer(Informer(CONFIG_MAP, api, metrics=Metrics()), CONFIG_MAP)
        controller.add_watcher(
            SimpleWatcher(add=lambda _: seen.release()),
            CONFIG_MAP,
        )
        operator = Operator()
        operator.add_controller(controller)
        manager.add(operator)
        reconciled = threading.Event()
        manager.add(Controller("idle", lambda _: None, metrics=Metrics()))
        manager.add(lambda _: reconciled.set())
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        assert reconciled.wait(TIMEOUT)
        api.create(_config_map("one"))
        assert seen.acquire(timeout=TIMEOUT)
        names = [
            row["name"]
            for row in manager.debug_snapshot()["groups"]["leader-election"]["runnables"]
        ]
        assert {"Operator", "idle"} <= set(names)
        assert not run.end()

    def test_a_manager_that_runs_is_stopped_by_its_close(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        manager = make()
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        manager.close()
        assert not run.join()

    def test_what_was_never_started_lets_go_of_its_ports(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        server = HTTPServer(LOCAL, name="pages", only_serve_when_leader=True, metrics=Metrics())
        broken = Worker("broken")

        def fail() -> None:
            raise ValueError("broken")

        broken.at_start = fail
        broken.needs_leader_election = False  # type: ignore[attr-defined]
        manager = make(leader_election=LeaderElection(id="x", namespace="default", **QUICK))
        manager.add(server)
        manager.add(broken)
        run = start(manager)
        assert [str(error) for error in run.join()] == ["broken"]
        assert not _answers(server.address)

    def test_what_cannot_be_closed_is_logged(
        self, make: Callable[..., Manager], caplog: pytest.LogCaptureFixture
    ) -> None:
        def close() -> None:
            raise ValueError("no")

        worker = Worker("stubborn")
        worker.close = close  # type: ignore[attr-defined]
        manager = make()
        manager.add(worker)
        manager.close()
        assert "stubborn was never started, and could not be closed" in caplog.text


class TestElection:
    """Leader election with the real Lease."""

    def _election(self, **options: Any) -> LeaderElection:
        return LeaderElection(**{"id": "lock", "namespace": "default", **QUICK, **options})

    def test_one_leads_and_the_other_does_not_while_the_first_lives(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        first, second = (
            make(leader_election=self._election(release_on_cancel=True, labels={"a": "b"}))
            for _ in range(2)
        )
        work = [Worker(), Worker()]
        for manager, worker in zip((first, second), work, strict=True):
            manager.add(worker)
        run = start(first)
        assert first.elected.wait(TIMEOUT)
        other = start(second)
        _eventually(lambda: second.leader == first.identity)
        assert not second.elected.is_set()
        assert not work[1].has_started.is_set()
        assert api.get(LEASE, "lock", namespace="default").labels == {"a": "b"}
        assert not run.end()
        assert second.elected.wait(TIMEOUT)
        assert work[1].has_started.wait(TIMEOUT)
        assert not other.end()

    def test_the_lease_is_given_up_only_when_everything_has_ended(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        holders: list[str] = []

        def look() -> None:
            lease = api.get(LEASE, "lock", namespace="default")
            holders.append((lease.get("spec") or {})["holderIdentity"])

        manager = make(leader_election=self._election(release_on_cancel=True))
        other = Worker("other", at_stop=look)
        other.needs_leader_election = False  # type: ignore[attr-defined]
        last = Worker("last", at_stop=look)
        last.runnable_group = RunnableGroup.HTTP_SERVERS  # type: ignore[attr-defined]
        for worker in (other, Worker(at_stop=look), last):
            manager.add(worker)
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        for worker in (other, last):
            assert worker.has_started.wait(TIMEOUT)
        assert not run.end()
        assert holders == [manager.identity] * 3
        look()
        assert not holders[-1]

    def test_a_standby_that_stops_starts_nothing_that_is_for_the_leader(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        leader, standby = (make(leader_election=self._election()) for _ in range(2))
        run = start(leader)
        assert leader.elected.wait(TIMEOUT)
        worker = Worker()
        standby.add(worker)
        other = start(standby)
        _eventually(lambda: bool(standby.leader))
        assert not other.end()
        assert not worker.has_started.is_set()
        assert not run.end()

    def test_a_lost_lease_ends_the_run_and_refuses_writes(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        manager = make(leader_election=self._election())
        errors: list[BaseException] = []
        release = threading.Event()

        def write() -> None:
            try:
                manager.client.create(_config_map("late"))
            except BaseException as error:
                errors.append(error)
            assert release.wait(TIMEOUT)

        worker = Worker(at_stop=write)
        manager.add(worker)
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        assert worker.has_started.wait(TIMEOUT)
        api.patch(
            LEASE,
            "lock",
            JsonPatch(
                [{"op": "replace", "path": "/spec/holderIdentity", "value": "somebody else"}]
            ),
            namespace="default",
        )
        [error] = run.join()
        assert isinstance(error, LeadershipLost)
        assert "leader election lost" in str(error)
        # Nobody waited for the worker, which is told and must not write any more.
        assert not worker.has_ended.is_set()
        release.set()
        assert worker.has_ended.wait(TIMEOUT)
        [refused] = errors
        assert isinstance(refused, LeadershipLost)
        assert not list(api.list(CONFIG_MAP, namespace="default"))

    def test_who_leads_is_told_by_events_on_the_lease(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        manager = make(leader_election=self._election())
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        assert not run.end()
        events = [e.mutable_copy() for e in api.list(kinds.events.v1.Event, namespace="default")]
        notes = [e["note"] for e in events if e["regarding"]["name"] == "lock"]
        assert f"{manager.identity} became leader" in notes
        assert f"{manager.identity} stopped leading" in notes

    def test_a_warmed_up_controller_of_a_standby_leaves_nothing_behind(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        leader, standby = (make(leader_election=self._election()) for _ in range(2))
        run = start(leader)
        assert leader.elected.wait(TIMEOUT)
        warm = threading.Event()

        class Source:
            def start(self, queue: Any, stop: StopSignal) -> None:
                warm.set()

        controller: Controller[Any] = Controller(
            "warm", lambda _: None, options=ControllerOptions(warm_up=True), metrics=Metrics()
        )
        controller.watch(Source())
        standby.add(controller)
        other = start(standby)
        assert warm.wait(TIMEOUT)
        _eventually(lambda: bool(standby.leader))
        assert not other.end()
        assert not run.end()


class TestEndpoints:
    """What is served, from when, and until when."""

    def test_endpoints_answer_while_it_runs_and_not_afterwards(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        manager = make(
            metrics_server=MetricsServerOptions(address=LOCAL),
            health_server=HealthServerOptions(address=LOCAL),
            profile_server=ProfileServerOptions(address=LOCAL),
            cache=CacheSetup(kinds=[CONFIG_MAP]),
        )
        manager.add_metrics_handler(
            "/debug/extra",
            lambda _: HTTPResponse(body=b"extra"),
        )
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        addresses = manager.addresses
        _eventually(lambda: _get(addresses["health"], "/readyz")[0] == 200)
        assert _get(addresses["health"], "/healthz") == (200, "ok")
        status, text = _get(addresses["metrics"], "/metrics")
        assert status == 200
        assert "informer" in text
        assert _get(addresses["metrics"], "/debug/extra") == (200, "extra")
        assert _get(addresses["metrics"], "/")[0] == 404
        assert '"elected": true' in _get(addresses["profile"], "/debug/queues")[1]
        assert not run.end()
        assert not any(_answers(address) for address in addresses.values())

    def test_health_follows_the_checks_and_takes_no_more_after_the_start(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        manager = make(health_server=HealthServerOptions(address=LOCAL))
        problems: dict[str, str] = {"ready": "", "health": ""}

        def check(name: str) -> Callable[[], Health]:
            return lambda: Health(not problems[name], problems[name])

        manager.add_ready_check("disk", check("ready"))
        manager.add_health_check("disk", check("health"))
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        address = manager.addresses["health"]
        for path, name in (("/readyz", "ready"), ("/healthz", "health")):
            assert _get(address, path)[0] == 200
            assert _get(address, f"{path}/disk") == (200, "ok")
            problems[name] = "full"
            assert _get(address, path)[0] == 500
            assert "full" in _get(address, f"{path}/disk")[1]
        for add in (manager.add_ready_check, manager.add_health_check):
            with pytest.raises(RuntimeError, match="comes too late"):
                add("late", lambda: None)
        with pytest.raises(RuntimeError, match="comes too late"):
            manager.add_metrics_handler("/late", lambda _: HTTPResponse(body=b""))
        assert not run.end()

    def test_it_is_not_ready_while_caches_sync_and_says_why(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        may_list = threading.Event()

        def held(verb: str) -> Callable[..., Any]:
            def call(inner: Any, *args: Any, **options: Any) -> Any:
                stop = options.get("stop")
                while not may_list.wait(0.02):
                    if stop is not None and stop.is_set():
                        break
                return getattr(inner, verb)(*args, **options)

            return call

        slow = InterceptedClient(api, Hooks(list_page=held("list_page"), watch=held("watch")))
        manager = make(
            slow,
            health_server=HealthServerOptions(address=LOCAL),
            cache=CacheSetup(kinds=[CONFIG_MAP]),
        )
        run = start(manager)
        address = manager.addresses["health"]
        _eventually(lambda: _get(address, "/healthz")[0] == 200)
        status, text = _get(address, "/readyz/caches")
        assert status == 500
        assert "informer of configmaps.v1: not synced yet" in text
        assert not manager.health().is_ready
        may_list.set()
        assert manager.elected.wait(TIMEOUT)
        _eventually(lambda: _get(address, "/readyz")[0] == 200)
        assert manager.health().is_ready
        assert not run.end()

    def test_a_controller_that_is_not_well_makes_it_not_ready(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        manager = make(health_server=HealthServerOptions(address=LOCAL))
        worker, odd = Worker(), Worker("odd")
        worker.health = lambda: Health(False, "no quota left")  # type: ignore[attr-defined]
        odd.health = lambda: "fine"  # type: ignore[attr-defined]
        manager.add(worker)
        manager.add(odd)
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        status, text = _get(manager.addresses["health"], "/readyz/controllers")
        assert status == 500
        assert "no quota left" in text
        assert not run.end()

    def test_it_is_not_ready_while_it_stops(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        manager = make(health_server=HealthServerOptions(address=LOCAL))
        answers: list[tuple[int, str]] = []
        worker = Worker(
            at_stop=lambda: answers.append(_get(manager.addresses["health"], "/readyz/manager"))
        )
        manager.add(worker)
        run = start(manager)
        assert worker.has_started.wait(TIMEOUT)
        assert not run.end()
        assert answers == [(500, "internal server error: the manager stops\n")]


class TestEvents:
    """The recorder's end."""

    def test_events_that_wait_are_written_before_the_run_ends(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        subject = api.create(_config_map("subject"))
        manager = make()

        def record(subject: Object = subject) -> None:
            manager.event_recorder("tester").event(subject, "Normal", "Testing", "Test", "well")

        worker = Worker(at_start=record, at_stop=record)
        manager.add(worker)
        run = start(manager)
        assert worker.has_started.wait(TIMEOUT)
        assert not run.end()
        events = [e.mutable_copy() for e in api.list(kinds.events.v1.Event, namespace="default")]
        [event] = [e for e in events if e["regarding"]["name"] == "subject"]
        assert event["series"]["count"] == 2

    def test_all_ask_for_one_recorder_by_its_name(self, make: Callable[..., Manager]) -> None:
        manager = make()
        assert manager.event_recorder("tester") is manager.event_recorder("tester")


@pytest.mark.parametrize("warm_up", [False, True])
def test_webhooks_readiness_and_caches_that_need_each_other_do_not_lock_up(
    make: Callable[..., Manager], start: Callable[..., Run], api: Client, *, warm_up: bool
) -> None:
    # The API server converts what is listed through our webhook, and calls it only once this
    # process is ready.
    api.create(_config_map("one"))
    webhooks = HTTPServer(LOCAL, name="webhooks", metrics=Metrics())
    webhooks.add_handler("/convert", lambda _: HTTPResponse(body=b"converted"))
    manager: Manager

    def converted(verb: str) -> Callable[..., Any]:
        def call(inner: Any, *args: Any, **options: Any) -> Any:
            assert _get(manager.addresses["health"], "/readyz")[0] == 200
            assert _get(webhooks.address, "/convert") == (200, "converted")
            return getattr(inner, verb)(*args, **options)

        return call

    client = InterceptedClient(
        api, Hooks(list_page=converted("list_page"), watch=converted("watch"))
    )
    manager = make(
        client,
        webhook_server=webhooks,
        health_server=HealthServerOptions(address=LOCAL),
        cache=CacheSetup(kinds=[CONFIG_MAP]),
        leader_election=LeaderElection(id="lock", namespace="default", **QUICK),
    )
    manager.add_ready_check("webhooks", lambda: None)
    for informer in manager.cache.informers(CONFIG_MAP):
        informer.add_index("first-letter", lambda obj: [obj.name[0]])
    found: list[Object] = []
    worker = Worker(
        at_start=lambda: found.extend(manager.cache.by_index(CONFIG_MAP, "first-letter", "o"))
    )
    if warm_up:
        worker.warm_up = lambda _: found.extend(manager.cache.list(CONFIG_MAP))  # type: ignore[attr-defined]
    manager.add(worker)
    run = start(manager)
    assert manager.elected.wait(TIMEOUT), manager.debug_snapshot()
    assert worker.has_started.wait(TIMEOUT)
    assert len(found) == 1 + warm_up
    assert not run.end()


@pytest.mark.stress
def test_a_stop_under_load_ends_within_the_grace_and_leaves_no_thread(
    make: Callable[..., Manager], start: Callable[..., Run], api: Client
) -> None:
    manager = make(
        cache=CacheSetup(kinds=[CONFIG_MAP]),
        health_server=HealthServerOptions(address=LOCAL),
        metrics_server=MetricsServerOptions(address=LOCAL),
        leader_election=LeaderElection(
            id="lock", namespace="default", release_on_cancel=True, **QUICK
        ),
        graceful_shutdown_timeout=10.0,
    )
    handled = threading.Semaphore(0)

    def write_back(obj: Object) -> None:
        manager.event_recorder("loader").event(obj, "Normal", "Loaded", "Load", obj.name)
        patch = JsonPatch([{"op": "add", "path": "/data/seen", "value": "yes"}])
        manager.client.patch(CONFIG_MAP, obj.name, patch, namespace="default")
        handled.release()

    controller = InformerController(workers=4, metrics=Metrics())
    controller.add_informer(
        Informer(CONFIG_MAP, manager.live_client, metrics=Metrics()), CONFIG_MAP
    )
    controller.add_watcher(
        SimpleWatcher(add=write_back),
        CONFIG_MAP,
    )
    manager.add(controller)
    run = start(manager)
    assert manager.elected.wait(TIMEOUT)
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            api.create(_config_map(f"load-{threading.get_ident()}-{number}", a="b"))
            number += 1

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for _ in range(30):
        assert handled.acquire(timeout=TIMEOUT)
    began = RealClock().monotonic()
    raised = run.end()
    took = RealClock().monotonic() - began
    is_over.set()
    for writer in writers:
        writer.join(TIMEOUT)
    assert not raised
    assert took < 10.0
    lease = api.get(LEASE, "lock", namespace="default")
    assert not (lease.get("spec") or {}).get("holderIdentity")
