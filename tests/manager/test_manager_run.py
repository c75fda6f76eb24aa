"""A manager with everything in it, against an API server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.cache import Cache, Informer, NotCachedError
from appsdk_operator.client import Client, ClientConfig, Hooks, InterceptedClient, JsonPatch
from appsdk_operator.controllers import Controller
from appsdk_operator.manager import (
    CacheSetup,
    ClientSetup,
    Cluster,
    HealthServerOptions,
    HTTPResponse,
    HTTPServer,
    LeaderElection,
    Manager,
    MetricsServerOptions,
    Operator,
)
from appsdk_operator.resource import Object, kinds
from appsdk_operator.runtime import Metrics, RealClock, StopSignal
from appsdk_operator.testing import APIServer
from appsdk_operator.watchers import InformerController, SimpleWatcher
from tests.manager.manager_parts import (
    CONFIG_MAP,
    LEASE,
    LOCAL,
    QUICK,
    TIMEOUT,
    Worker,
    answers,
    client_of,
    config_map,
    get,
    managers,
    runs,
)
from tests.runs import Run


@pytest.fixture(scope="module")
def server() -> Iterator[APIServer]:
    with APIServer(token="let-me-in") as server:
        yield server


@pytest.fixture
def config(server: APIServer) -> ClientConfig:
    return ClientConfig(server=server.url, token="let-me-in")


api = pytest.fixture(client_of)
make = pytest.fixture(managers)
start = pytest.fixture(runs)


class TestRun:
    """Start, cache and clients, stop."""

    def test_runnables_find_the_caches_synced(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        api.create(config_map("before"))
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
        api.create(config_map("one"))
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
        api.create(config_map("one"))
        manager = make(cache=CacheSetup(lazy=True))
        run = start(manager)
        assert manager.elected.wait(TIMEOUT)
        assert manager.client.get(CONFIG_MAP, "one", namespace="default").name == "one"
        assert not run.end()

    def test_a_lazy_cache_is_waited_for_until_it_runs(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        # It has no informer yet, and nothing to sync.
        api.create(config_map("one"))
        may_run = threading.Event()
        manager = make(cache=CacheSetup(lazy=True))
        run_cache = manager.cache.run

        def late(*args: Any, **options: Any) -> None:
            assert may_run.wait(TIMEOUT)
            run_cache(*args, **options)

        manager.cache.run = late  # type: ignore[method-assign]
        found: list[str] = []
        manager.add(
            Worker(
                at_start=lambda: found.append(
                    manager.client.get(CONFIG_MAP, "one", namespace="default").name
                )
            )
        )
        run = start(manager)
        assert not manager.elected.wait(0.05)
        may_run.set()
        assert manager.elected.wait(TIMEOUT)
        assert not run.end()
        assert found == ["one"]

    def test_writes_are_signed_or_stored_nowhere_if_it_was_told_so(
        self, make: Callable[..., Manager], api: Client
    ) -> None:
        owners: list[Any] = []

        def create(inner: Any, obj: Any, **options: Any) -> Any:
            owners.append(options.get("field_manager"))
            return inner.create(obj, **options)

        watched = InterceptedClient(api, Hooks(create=create))
        signed = make(watched, client=ClientSetup(field_owner="painter"))
        signed.live_client.create(config_map("one"))
        assert owners == ["painter"]
        make(client=ClientSetup(dry_run=True)).live_client.create(config_map("two"))
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
        api.create(config_map("one"))
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
        assert not answers(server.address)

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


class TestEvents:
    """The recorder's end."""

    def test_events_that_wait_are_written_before_the_run_ends(
        self, make: Callable[..., Manager], start: Callable[..., Run], api: Client
    ) -> None:
        subject = api.create(config_map("subject"))
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
    api.create(config_map("one"))
    webhooks = HTTPServer(LOCAL, name="webhooks", metrics=Metrics())
    webhooks.add_handler("/convert", lambda _: HTTPResponse(body=b"converted"))
    manager: Manager

    def converted(verb: str) -> Callable[..., Any]:
        def call(inner: Any, *args: Any, **options: Any) -> Any:
            assert get(manager.addresses["health"], "/readyz")[0] == 200
            assert get(webhooks.address, "/convert") == (200, "converted")
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
            api.create(config_map(f"load-{threading.get_ident()}-{number}", a="b"))
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
