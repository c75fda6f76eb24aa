"""An operator under everything that a schedule can do ends up with what it should, and stops."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from appsdk_operator.client import ApiError, Client, ClientConfig, TransportError
from appsdk_operator.controllers import Request, controller_for
from appsdk_operator.manager import Manager
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import Metrics, RealClock, StopSignal
from appsdk_operator.testing import APIServer, FaultProxy, FaultRule, FaultSchedule, running

CONFIG_MAP = kinds.core.v1.ConfigMap
CLIENT = "operator/1.0"

RULES = [
    FaultRule.delay(0.002, probability=0.2, user_agent=CLIENT),
    FaultRule.drop(probability=0.1, user_agent=CLIENT),
    FaultRule.lose(probability=0.1, user_agent=CLIENT),
    FaultRule.duplicate(verb="patch", probability=0.2, user_agent=CLIENT),
    FaultRule.answer(409, verb="update", every=3, user_agent=CLIENT),
    FaultRule.answer(500, probability=0.05, user_agent=CLIENT),
    FaultRule.cut(150, verb="list", probability=0.1, user_agent=CLIENT),
    FaultRule.end_watch(410, after=3, every=2, user_agent=CLIENT),
    FaultRule.end_watch(after=2, probability=0.5, user_agent=CLIENT),
    FaultRule.cut(2000, verb="watch", probability=0.5, user_agent=CLIENT),
]
STALE = [FaultRule.stale(4, probability=0.5, user_agent=CLIENT)]


@contextlib.contextmanager
def beset(where: str, seed: int) -> Iterator[tuple[APIServer, ClientConfig, FaultProxy | None]]:
    """A server with the schedule in it, or before it."""
    if where == "server":
        with APIServer(faults=FaultSchedule([*STALE, *RULES], seed=seed)) as server:
            yield server, server.client_config(), None
        return
    schedule = FaultSchedule(RULES, seed=seed)
    with APIServer() as server, FaultProxy(server.client_config(), faults=schedule) as proxy:
        yield server, proxy.client_config(), proxy


@pytest.mark.stress
@pytest.mark.parametrize("where", ["server", "proxy"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_wanted_comes_about_whatever_befalls(where: str, seed: int) -> None:
    with beset(where, seed) as (server, config, proxy):
        options = {"user_agent": CLIENT, "retry_backoff": 0.001, "max_retries": 1}
        beside = ClientConfig(server=server.url)
        own = ClientConfig(**{"server": config.server, **options})
        manager = Manager(own, metrics=Metrics())

        def copy(request: Request) -> None:
            with contextlib.suppress(LookupError):
                found = manager.client.get(CONFIG_MAP, request.name, namespace=request.namespace)
                if found.labels.get("seen") != found.annotations.get("wanted"):
                    draft = found.mutable_copy()
                    draft.labels["seen"] = found.annotations["wanted"]
                    manager.client.update(draft)

        controller_for(manager).for_(CONFIG_MAP).named("copier").complete(copy)
        with Client(beside) as user, running(manager):
            for number in range(40):
                name = f"m{number % 8}"
                write(user, name, str(number))
            server.clear_faults()
            if proxy is not None:
                proxy.clear()
            assert settled(server), server.requests[-20:]
        befallen = [r for r in (proxy.requests if proxy else server.requests) if r.fault]
        assert befallen


def write(user: Client, name: str, wanted: str) -> None:
    """Make the object want something, or be there."""
    for _ in range(100):
        try:
            present = user.get(CONFIG_MAP, name, namespace="default").mutable_copy()
            present.annotations["wanted"] = wanted
            user.update(present)
        except ApiError as error:
            if error.status == 404:
                draft = MutableObject.new(CONFIG_MAP, name, namespace="default", data={})
                draft.annotations["wanted"] = wanted
                user.create(draft)
                return
            if error.status != 409:
                raise
        except TransportError:
            continue
        else:
            return


def settled(server: APIServer) -> bool:
    """Whether every object gets the label that its annotation wants."""
    clock, pause = RealClock(), StopSignal()
    deadline = clock.monotonic() + 30
    while clock.monotonic() < deadline:
        metadata = [obj["metadata"] for obj in server.objects(CONFIG_MAP)]
        if all(
            m.get("labels", {}).get("seen") == m["annotations"]["wanted"]
            for m in metadata
            if m["namespace"] == "default" and "wanted" in m.get("annotations", {})
        ):
            return True
        pause.wait(0.02)
    return False
