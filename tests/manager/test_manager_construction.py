"""What a manager is told, what it refuses, and what it leaves behind when it is not run."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from appsdk_operator import webhooks
from appsdk_operator.cache import Cache, CacheOptions
from appsdk_operator.client import Client, ClientConfig, Hooks, InterceptedClient
from appsdk_operator.controllers import ControllerOptions
from appsdk_operator.manager import (
    CacheSetup,
    ClientSetup,
    Cluster,
    FencedClient,
    HealthServerOptions,
    HTTPResponse,
    LeaderElection,
    Manager,
    ManagerOptions,
    MetricsServerOptions,
    ProfileServerOptions,
    RunnableGroup,
    TLSOptions,
)
from appsdk_operator.manager._core.options import ManagerOptionsDict
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.serving import SelfSigned
from appsdk_operator.webhooks import WebhookServerOptions

NOWHERE = ClientConfig(server="http://127.0.0.1:1", token="let-me-in")
ELECTION = LeaderElection(id="test", namespace="default")
CONFIG_MAP = kinds.core.v1.ConfigMap


@pytest.fixture
def make() -> Iterator[Callable[..., Manager]]:
    managers: list[Manager] = []

    def make(server: Any = NOWHERE, *args: Any, **options: Any) -> Manager:
        manager = Manager(server, *args, **{"metrics": Metrics(), **options})
        managers.append(manager)
        return manager

    yield make
    for manager in managers:
        manager.close()


@pytest.fixture
def taken() -> Iterator[str]:
    """An address at which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _can_bind(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


class WebhookServer:
    """One that the webhooks' room would bring."""

    name = "webhooks"

    def run(self, stop: StopSignal) -> None:
        stop.wait()


class TestServer:
    """Where the API server is."""

    @pytest.mark.parametrize("server", [None, "https://10.0.0.1", object()])
    def test_without_a_config_or_a_client_there_is_no_manager(self, server: Any) -> None:
        with pytest.raises(TypeError, match="does not say where the API server is"):
            Manager(server)

    def test_an_address_is_given_in_a_config(self) -> None:
        with pytest.raises(TypeError, match=r"ClientConfig\(server='http://a:1'\)"):
            Manager("http://a:1")  # type: ignore[arg-type]

    def test_the_config_of_the_caller_stays_as_it_is(self, make: Callable[..., Manager]) -> None:
        before = attrs.asdict(NOWHERE)
        make(leader_election=ELECTION, client=ClientSetup(field_owner="me"))
        assert attrs.asdict(NOWHERE) == before

    def test_a_client_that_was_given_is_not_closed(self, make: Callable[..., Manager]) -> None:
        closed = []

        class Own:
            def __init__(self, inner: Client) -> None:
                self.inner = inner

            def __getattr__(self, name: str) -> Any:
                return getattr(self.inner, name)

            def close(self) -> None:
                closed.append(True)

        with Client(NOWHERE, metrics=Metrics()) as client:
            for name in ("get", "list", "create", "update", "patch", "apply", "delete"):
                setattr(Own, name, getattr(client, name))
            Own.delete_collection = client.delete_collection  # type: ignore[attr-defined]
            own = Own(client)
            manager = make(own)
            assert manager.live_client is own
            manager.close()
            assert not closed

    def test_what_a_factory_made_is_closed(self, make: Callable[..., Manager]) -> None:
        made: list[Client] = []

        def new_client(config: ClientConfig) -> Client:
            made.append(Client(config, metrics=Metrics()))
            return made[-1]

        manager = make(new_client=new_client, leader_election=ELECTION)
        assert len(made) == 2, "the election has a client of its own"
        assert made[0].config.user_agent.endswith("leader-election")
        manager.close()
        for client in made:
            with pytest.raises(Exception, match="closed"):
                client.get(CONFIG_MAP, "a", namespace="b")

    def test_the_election_has_a_client_of_its_own(self, make: Callable[..., Manager]) -> None:
        seen: list[Any] = []

        def new_elector(client: Any, election: LeaderElection) -> Any:
            seen.append(client)
            return FakeElector()

        with Client(NOWHERE, metrics=Metrics()) as given:
            make(NOWHERE, leader_election=ELECTION, new_elector=new_elector)
            make(given, leader_election=ELECTION, new_elector=new_elector)
            wrapped = InterceptedClient(given, Hooks())
            make(wrapped, leader_election=ELECTION, new_elector=new_elector)
            elsewhere = attrs.evolve(NOWHERE, server="http://127.0.0.1:2")
            make(
                wrapped,
                leader_election=ELECTION,
                leader_election_config=elsewhere,
                new_elector=new_elector,
            )
        assert [isinstance(client, Client) for client in seen] == [True, True, False, True]
        assert seen[1] is not given
        assert seen[2] is wrapped
        assert seen[3].config == elsewhere
        # RenewDeadline's default reaches the client.
        assert seen[0].config.read_timeout == 5.0

    def test_the_term_is_that_of_the_elector(self, make: Callable[..., Manager]) -> None:
        assert make(NOWHERE).term == 0
        elector = FakeElector()
        manager = make(NOWHERE, leader_election=ELECTION, new_elector=lambda *_: elector)
        with pytest.raises(TypeError, match=r"has no term: give it an attribute term"):
            _ = manager.term
        elector.term = 7  # type: ignore[attr-defined]
        assert manager.term == 7


class FakeElector:
    """An election that never ends."""

    identity, leader, is_leader = "me", "", False

    def check_write(self) -> None: ...

    def keep_lease(self) -> None: ...

    def run(self, stop: StopSignal, on_started: Callable[[], None]) -> None:
        stop.wait()


class TestOptions:
    """Options are checked when they are given."""

    @pytest.mark.parametrize(
        ("name", "value", "remedy"),
        [
            ("leader_election", True, r"LeaderElection\(id=…\)"),
            ("leader_election_config", "kubeconfig", "a ClientConfig"),
            ("new_elector", 7, "a function"),
            ("metrics_server", ":8080", r"MetricsServerOptions\(…\)"),
            ("health_server", ":8081", r"HealthServerOptions\(…\)"),
            ("profile_server", ":6060", r"ProfileServerOptions\(…\)"),
            ("webhook_server", 9443, r"a server with run\(stop\)"),
            ("webhook_server", WebhookServer, r"a server with run\(stop\)"),
            ("cache", CacheOptions(), r"CacheSetup\(…\)"),
            ("client", NOWHERE, r"ClientSetup\(…\)"),
            ("new_cache", "cache", "a function"),
            ("new_client", "client", "a function"),
            ("base_stop", True, "a StopSignal"),
            ("graceful_shutdown_timeout", "30s", "seconds, or None"),
            ("graceful_shutdown_timeout", float("nan"), "seconds, or None"),
            ("graceful_shutdown_timeout", True, "seconds, or None"),
            ("controller_options", {}, r"ControllerOptions\(…\)"),
            ("events", {}, r"EventOptions\(…\)"),
            ("metrics", {}, "a Metrics"),
            ("rng", 7, "a random.Random"),
        ],
    )
    def test_what_cannot_be_used_is_refused_with_the_remedy(
        self, name: str, value: Any, remedy: str
    ) -> None:
        with pytest.raises(TypeError, match=remedy):
            Manager(NOWHERE, **{name: value})

    @pytest.mark.parametrize(
        "options",
        [
            {"new_elector": lambda *_: FakeElector()},
            {"leader_election_config": NOWHERE},
            {"cache": CacheSetup(), "new_cache": lambda _: None},
        ],
    )
    def test_options_that_do_not_fit_each_other_are_refused(self, options: Any) -> None:
        with pytest.raises(ValueError, match="give"):
            Manager(NOWHERE, **options)

    def test_a_client_needs_no_function_that_makes_one(self) -> None:
        with (
            Client(NOWHERE, metrics=Metrics()) as client,
            pytest.raises(ValueError, match="server is a client"),
        ):
            Manager(client, new_client=lambda _: client)

    def test_wrong_lease_timings_are_refused_before_anything_starts(self) -> None:
        # In controller-runtime only the start says so, and once did not end.
        with pytest.raises(ValueError, match="must be longer than renew_deadline"):
            LeaderElection(id="x", namespace="default", lease_duration=10.0, renew_deadline=10.0)

    def test_an_election_needs_a_name(self) -> None:
        with pytest.raises(ValueError, match="leader election needs the name"):
            LeaderElection(id="")

    def test_outside_of_a_cluster_an_election_needs_a_namespace(self) -> None:
        with pytest.raises(ValueError, match=r"give LeaderElection\(namespace=…\)"):
            Manager(NOWHERE, leader_election=LeaderElection(id="x"))

    def test_options_come_as_a_value_or_one_by_one(self, make: Callable[..., Manager]) -> None:
        options = ManagerOptions(graceful_shutdown_timeout=5.0, metrics=Metrics())
        manager = Manager(NOWHERE, options, controller_options=ControllerOptions(max_attempts=3))
        with manager:
            assert manager.options.graceful_shutdown_timeout == 5.0
            assert manager.controller_options.max_attempts == 3
        with pytest.raises(TypeError, match="give ManagerOptions"):
            Manager(NOWHERE, {})  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("leaderelection", "no option leaderelection: did you mean leader_election"),
            ("qqq", "no option qqq: it has leader_election, "),
        ],
    )
    @pytest.mark.parametrize("options", [None, ManagerOptions()])
    def test_an_option_that_there_is_not_is_refused(
        self, name: str, text: str, options: ManagerOptions | None
    ) -> None:
        with pytest.raises(TypeError, match=text):
            Manager(NOWHERE, options, **{name: None})  # type: ignore[arg-type]

    def test_every_option_is_an_argument_too(self) -> None:
        fields = {field.name: field.type for field in attrs.fields(ManagerOptions)}
        # Its converter takes True.
        fields["failure_events"] = "FailureEvents | bool | None"
        arguments = ManagerOptionsDict.__annotations__
        assert {name: type_.__forward_arg__ for name, type_ in arguments.items()} == fields

    def test_what_controllers_share_is_what_was_given(self, make: Callable[..., Manager]) -> None:
        clock, metrics = ManualClock(), Metrics()
        manager = make(clock=clock, metrics=metrics, rng=random.Random(1))
        assert manager.clock is clock
        assert manager.metrics is metrics
        assert "Manager of" in repr(manager)
        assert (manager.leader, manager.identity) == ("", "")


class TestClusters:
    """Cache and clients."""

    def test_the_cache_is_made_as_told(self, make: Callable[..., Manager]) -> None:
        manager = make(cache=CacheSetup(namespaces=["a"], kinds=[CONFIG_MAP]))
        assert list(manager.cache.kinds) == [CONFIG_MAP]
        assert [i.namespace for i in manager.cache.informers(CONFIG_MAP)] == ["a"]

    def test_kinds_are_kinds(self) -> None:
        with pytest.raises(TypeError, match="by_kind='ConfigMap' is not a Kind: give one of"):
            CacheSetup(by_kind={"ConfigMap": CacheOptions()})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="uncached='ConfigMap' is not a Kind: give one of"):
            ClientSetup(uncached=["ConfigMap"])  # type: ignore[list-item]

    def test_a_cache_of_ones_own_is_used(self, make: Callable[..., Manager]) -> None:
        made: list[Cache] = []

        def new_cache(client: Any) -> Cache:
            made.append(Cache(client, metrics=Metrics()))
            return made[-1]

        assert make(new_cache=new_cache).cache is made[0]

    def test_clients_are_fenced_where_there_is_an_election(
        self, make: Callable[..., Manager]
    ) -> None:
        manager = make(leader_election=ELECTION)
        assert isinstance(manager.live_client, FencedClient)
        assert isinstance(make().live_client, Client)
        other = Cluster(NOWHERE, fence=manager.fence, metrics=Metrics())
        assert isinstance(other.live_client, FencedClient)
        other.close()

    @pytest.mark.parametrize("option", ["new_cache", "new_elector", "webhook_server"])
    def test_what_was_made_before_something_failed_is_closed(
        self, option: str, free_port: int
    ) -> None:
        open_clients: list[InterceptedClient] = []

        def new_client(config: ClientConfig) -> Any:
            client: Any = InterceptedClient(Client(config, metrics=Metrics()), Hooks())

            def close() -> None:
                client.inner.close()
                open_clients.remove(client)

            client.close = close
            open_clients.append(client)
            return client

        def broken(*_: Any) -> Any:
            raise LookupError("by order of the test")

        class BrokenWebhooks(WebhookServer):
            # Asked for when all else is there, the ports included.
            wait_until_ready = property(broken)

        address = f"127.0.0.1:{free_port}"
        options: Any = {option: broken}
        if option == "webhook_server":
            options = {option: BrokenWebhooks()}
        with pytest.raises(LookupError, match="by order of the test"):
            Manager(
                NOWHERE,
                new_client=new_client,
                health_server=HealthServerOptions(address=address),
                leader_election=ELECTION,
                metrics=Metrics(),
                **options,
            )
        assert not open_clients
        assert _can_bind(address)

    @pytest.mark.parametrize("option", ["new_client", "new_cache", "new_elector"])
    def test_what_a_factory_raises_is_raised_and_no_port_stays_bound(
        self, option: str, free_port: int
    ) -> None:
        def broken(*_: Any) -> Any:
            raise LookupError("by order of the test")

        address = f"127.0.0.1:{free_port}"
        options: Any = {option: broken, "leader_election": ELECTION}
        with pytest.raises(LookupError, match="by order of the test"):
            Manager(
                NOWHERE,
                health_server=HealthServerOptions(address=address),
                metrics=Metrics(),
                **options,
            )
        assert _can_bind(address)


class TestPorts:
    """Ports are bound at the construction."""

    @pytest.mark.parametrize(
        ("name", "make_options"),
        [
            ("metrics_server", MetricsServerOptions),
            (
                "metrics_server",
                lambda address: MetricsServerOptions(address=address, tls=TLSOptions()),
            ),
            ("health_server", HealthServerOptions),
            ("profile_server", ProfileServerOptions),
        ],
    )
    def test_a_port_that_is_taken_is_an_error_at_once_and_the_others_are_let_go(
        self, name: str, make_options: Callable[..., Any], taken: str, free_port: int
    ) -> None:
        other = f"127.0.0.1:{free_port}"
        spare = "metrics_server" if name != "metrics_server" else "health_server"
        spare_options = {
            "metrics_server": MetricsServerOptions,
            "health_server": HealthServerOptions,
        }[spare](address=other)
        options: Any = {name: make_options(address=taken), spare: spare_options}
        with pytest.raises(OSError, match="another server listens there already"):
            Manager(NOWHERE, metrics=Metrics(), **options)
        assert _can_bind(other)

    def test_no_port_is_opened_unless_it_is_asked_for(self, make: Callable[..., Manager]) -> None:
        assert make().addresses == {}

    @pytest.mark.parametrize("address", ["", "0"])
    def test_an_address_of_nothing_or_0_means_no_server(
        self, make: Callable[..., Manager], address: str
    ) -> None:
        manager = make(
            metrics_server=MetricsServerOptions(address=address),
            health_server=HealthServerOptions(address=address),
            profile_server=ProfileServerOptions(address=address),
        )
        assert manager.addresses == {}

    def test_a_manager_that_is_not_run_lets_go_of_its_ports_at_its_close(self) -> None:
        local = "127.0.0.1:0"
        with Manager(
            NOWHERE,
            metrics_server=MetricsServerOptions(address=local, only_serve_when_leader=True),
            health_server=HealthServerOptions(address=local),
            profile_server=ProfileServerOptions(address=local),
            leader_election=ELECTION,
            metrics=Metrics(),
        ) as manager:
            addresses = manager.addresses
            assert sorted(addresses) == ["health", "metrics", "profile"]
        assert all(_can_bind(address) for address in addresses.values())
        manager.close()
        with pytest.raises(RuntimeError, match="manager already started"):
            manager.run()


class TestWebhookServer:
    """The slot for webhooks."""

    def test_one_that_was_given_is_used_as_it_is(self, make: Callable[..., Manager]) -> None:
        server = WebhookServer()
        manager = make(webhook_server=server)
        assert manager.webhook_server is server
        assert _names(manager, RunnableGroup.WEBHOOKS) == ["webhooks"]

    def test_one_that_is_to_be_made_is_made_once_when_it_is_asked_for(
        self, make: Callable[..., Manager]
    ) -> None:
        made: list[WebhookServer] = []

        def new_server() -> WebhookServer:
            made.append(WebhookServer())
            return made[-1]

        manager = make(webhook_server=new_server)
        assert not made
        assert _names(manager, RunnableGroup.WEBHOOKS) == []
        assert manager.webhook_server is manager.webhook_server
        assert len(made) == 1
        assert _names(manager, RunnableGroup.WEBHOOKS) == ["webhooks"]

    def test_options_make_one_when_it_is_first_used(self, make: Callable[..., Manager]) -> None:
        options = WebhookServerOptions(address="127.0.0.1:0", certificates=SelfSigned("localhost"))
        manager = make(webhook_server=options)
        assert _names(manager, RunnableGroup.WEBHOOKS) == []
        assert "webhooks" not in manager.addresses
        server = manager.webhook_server
        assert isinstance(server, webhooks.WebhookServer)
        assert manager.webhook_server is server
        assert manager.webhooks is server.webhooks
        assert _names(manager, RunnableGroup.WEBHOOKS) == ["webhooks"]
        assert manager.addresses["webhooks"] == server.address
        assert server.webhooks.clock is manager.clock
        with pytest.raises(ValueError, match="choose another name"):
            manager.add_ready_check("webhooks", lambda: None)
        manager.close()
        with pytest.raises(RuntimeError, match="ran before or was closed"):
            server.run(StopSignal())

    def test_the_default_one_says_where_it_looks_for_its_certificate(
        self, make: Callable[..., Manager], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        # Port 9443 may be taken on the machine of a test.
        options = WebhookServerOptions(address="127.0.0.1:0")
        manager = make(webhook_server=options)
        with pytest.raises(ValueError, match=r"k8s-webhook-server/serving-certs/tls\.crt"):
            _ = manager.webhook_server

    def test_one_that_is_off_takes_webhooks(self, make: Callable[..., Manager]) -> None:
        manager = make(webhook_server=WebhookServerOptions(address="0"))
        manager.webhooks.add("/a", lambda _: HTTPResponse())
        assert manager.webhook_server.address == ""
        assert "webhooks" not in manager.addresses

    def test_another_server_has_no_webhooks(self, make: Callable[..., Manager]) -> None:
        with pytest.raises(TypeError, match="has no webhooks: give a WebhookServer"):
            _ = make(webhook_server=WebhookServer()).webhooks


def _names(manager: Manager, group: RunnableGroup) -> list[str]:
    rows = manager.debug_snapshot()["groups"][str(group)]["runnables"]
    return [row["name"] for row in rows]


class TestChecksAndHandlers:
    """What is added to its servers, with and without a port."""

    @pytest.mark.parametrize("address", ["127.0.0.1:0", "0"])
    def test_names_and_paths_that_are_taken_are_refused_with_and_without_a_port(
        self, make: Callable[..., Manager], address: str
    ) -> None:
        manager = make(
            health_server=HealthServerOptions(address=address),
            metrics_server=MetricsServerOptions(address=address),
        )
        manager.add_ready_check("disk", lambda: None)
        manager.add_health_check("disk", lambda: None)
        manager.add_metrics_handler("/debug/x", lambda _: None)  # type: ignore[arg-type,return-value]
        for name in ("disk", "caches", "controllers", "manager"):
            with pytest.raises(ValueError, match="choose another name"):
                manager.add_ready_check(name, lambda: None)
        with pytest.raises(ValueError, match="choose another name"):
            manager.add_health_check("disk", lambda: None)
        for path in ("/metrics", "/debug/x", "no-slash"):
            with pytest.raises(ValueError, match=path):
                manager.add_metrics_handler(path, lambda _: None)  # type: ignore[arg-type,return-value]

    def test_where_webhooks_are_served_readiness_does_not_wait_for_the_caches(
        self, make: Callable[..., Manager]
    ) -> None:
        make(webhook_server=WebhookServer()).add_ready_check("caches", lambda: None)
