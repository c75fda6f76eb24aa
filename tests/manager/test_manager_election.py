"""Managers that lead or wait, and what they answer while they do."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.cache import Health
from appsdk_operator.client import Client, ClientConfig, Hooks, InterceptedClient, JsonPatch
from appsdk_operator.controllers import Controller, ControllerOptions
from appsdk_operator.manager import (
    OWN_READY_CHECKS,
    CacheSetup,
    HealthServerOptions,
    HTTPResponse,
    LeaderElection,
    LeadershipLost,
    Manager,
    MetricsServerOptions,
    ProfileServerOptions,
    RunnableGroup,
)
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer
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
from tests.waiting import eventually


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


@pytest.mark.usefixtures("api")  # which leaves no Lease to the next test
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
        eventually(lambda: second.leader == first.identity)
        assert not second.elected.is_set()
        assert not work[1].has_started.is_set()
        assert api.get(LEASE, "lock", namespace="default").labels == {"a": "b"}
        assert not run.end()
        assert second.elected.wait(TIMEOUT)
        assert work[1].has_started.wait(TIMEOUT)
        # Each says its own, and the former leader not its successor's.
        assert (first.term, second.term) == (0, 1)
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
        eventually(lambda: bool(standby.leader))
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
                manager.client.create(config_map("late"))
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
        eventually(lambda: bool(standby.leader))
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
        eventually(lambda: get(addresses["health"], "/readyz")[0] == 200)
        assert get(addresses["health"], "/healthz") == (200, "ok")
        status, text = get(addresses["metrics"], "/metrics")
        assert status == 200
        assert "informer" in text
        assert get(addresses["metrics"], "/debug/extra") == (200, "extra")
        assert get(addresses["metrics"], "/")[0] == 404
        assert '"elected": true' in get(addresses["profile"], "/debug/queues")[1]
        assert not run.end()
        assert not any(answers(address) for address in addresses.values())

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
            assert get(address, path)[0] == 200
            assert get(address, f"{path}/disk") == (200, "ok")
            problems[name] = "full"
            assert get(address, path)[0] == 500
            assert "full" in get(address, f"{path}/disk")[1]
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
        eventually(lambda: get(address, "/healthz")[0] == 200)
        status, text = get(address, "/readyz/caches")
        assert status == 500
        assert "informer of configmaps: not synced yet" in text
        assert not manager.health().is_ready
        may_list.set()
        assert manager.elected.wait(TIMEOUT)
        eventually(lambda: get(address, "/readyz")[0] == 200)
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
        status, text = get(manager.addresses["health"], "/readyz/controllers")
        assert status == 500
        assert "no quota left" in text
        assert not run.end()

    def test_its_own_ready_checks_are_those_that_an_app_leaves_to_it(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        served = Worker("webhooks")
        served.health = lambda: Health(True, "fine")  # type: ignore[attr-defined]
        found: set[str] = set()
        # With webhooks the caches have no check.
        election = LeaderElection(id="checks", namespace="default", **QUICK)
        for options in ({"leader_election": election}, {"webhook_server": served}):
            manager = make(health_server=HealthServerOptions(address=LOCAL), **options)
            run = start(manager)
            assert manager.elected.wait(TIMEOUT)
            _, page = get(manager.addresses["health"], "/readyz?verbose")
            found |= set(re.findall(r"^\[.\]([\w-]+)", page, re.MULTILINE))
            assert not run.end()
        assert found == set(OWN_READY_CHECKS)

    def test_it_is_not_ready_while_it_stops(
        self, make: Callable[..., Manager], start: Callable[..., Run]
    ) -> None:
        manager = make(health_server=HealthServerOptions(address=LOCAL))
        answers: list[tuple[int, str]] = []
        worker = Worker(
            at_stop=lambda: answers.append(get(manager.addresses["health"], "/readyz/manager"))
        )
        manager.add(worker)
        run = start(manager)
        assert worker.has_started.wait(TIMEOUT)
        assert not run.end()
        assert answers == [(500, "internal server error: the manager stops\n")]
