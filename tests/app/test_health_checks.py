"""Health checks of an App."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.app import App
from appsdk_operator.cache import Health
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.manager import OWN_READY_CHECKS, HealthServerOptions, LeaderElection, Manager
from tests.app.test_app import BUCKET, nothing
from tests.app.test_lifespan import probe
from tests.app.test_managers import api, bucket, config, made, running

__all__ = ["api", "config"]
SERVER = HealthServerOptions(address="127.0.0.1:0")


def asked(manager: Manager, path: str) -> tuple[int, str]:
    return probe(manager.addresses["health"], path)


def raises() -> None:
    raise ConnectionError("no route")


async def waits() -> str:
    return "too slow"


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: None, ""),
        (lambda: True, ""),
        (lambda: "", ""),
        (lambda: Health(True, "fine"), ""),
        (lambda: False, "lambda returned False"),
        (lambda: "the pool is closed", "the pool is closed"),
        (lambda: Health(False, "away"), "away"),
        (raises, "no route"),
        (waits, "too slow"),
        (lambda: 0, "returned int: return None or True when all is well"),
        (list, "returned list: return None or True when all is well"),
    ],
)
def test_what_a_function_returns_or_raises_is_the_answer_to_a_probe(
    config: ClientConfig, function: Any, text: str
) -> None:
    app = App("bucket-operator", health_server=SERVER)
    app.check(function)
    path = f"/healthz/{function.__name__.strip('<>')}"
    with running(made(app, config)) as manager:
        status, answer = asked(manager, path)
    assert (status, text in answer) == (500 if text else 200, True)


def test_a_ready_check_is_at_readyz_and_another_one_at_healthz(config: ClientConfig) -> None:
    app = App("bucket-operator", health_server=SERVER)

    @app.check(ready=True)
    def has_pool() -> str:
        return "no pool"

    @app.check(name="disk.space")
    def disk() -> None: ...

    with running(made(app, config)) as manager:
        assert asked(manager, "/readyz/has-pool")[0] == 500
        assert asked(manager, "/readyz")[0] == 500
        assert asked(manager, "/healthz/disk.space") == (200, "ok")
        assert asked(manager, "/healthz/has-pool")[0] == 404
        assert asked(manager, "/healthz") == (200, "ok")


def test_a_check_reads_with_the_client_of_its_manager(api: Client, config: ClientConfig) -> None:
    app = App("bucket-operator", health_server=SERVER)
    app.on_add(BUCKET)(nothing)
    api.create(bucket("a"))

    @app.check
    def buckets() -> str:
        return f"{len(list(app.client.list(BUCKET)))} buckets"

    with running(made(app, config)) as one, running(made(app, config)) as other:
        for manager in (one, other):
            assert "1 buckets" in asked(manager, "/healthz/buckets")[1]


def test_before_the_lifespan_has_begun_a_pod_is_not_ready_and_not_restarted(
    config: ClientConfig,
) -> None:
    app = App("bucket-operator", health_server=SERVER)
    made_by_lifespan: list[int] = []
    answers = []

    @app.lifespan
    def around() -> Iterator[None]:
        answers.append([asked(manager, path)[0] for path in ("/healthz/pool", "/readyz/pool-too")])
        made_by_lifespan.append(1)
        yield

    app.check(name="pool")(lambda: bool(made_by_lifespan))
    app.check(name="pool-too", ready=True)(lambda: bool(made_by_lifespan))
    manager = made(app, config)
    with running(manager):
        assert asked(manager, "/healthz/pool")[0] == 200
        assert asked(manager, "/readyz/pool-too")[0] == 200
    assert answers[0] == [200, 500]


@pytest.mark.parametrize("name", ["a/b", "..", "a b\n"])
def test_a_name_that_is_no_path_segment_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="use a name of letters"):
        App("bucket-operator").check(name=name)(lambda: None)


def test_a_name_that_is_taken_is_refused() -> None:
    app = App("bucket-operator")
    app.check(name="disk")(lambda: None)
    app.check(name="disk", ready=True)(lambda: None)
    with pytest.raises(ValueError, match="healthz has a check 'disk' already"):
        app.check(name="disk")(lambda: None)
    app.check(name="caches")(lambda: None)


def test_the_names_of_the_managers_own_ready_checks_are_refused(config: ClientConfig) -> None:
    app = App(
        "bucket-operator",
        health_server=SERVER,
        leader_election=LeaderElection(id="bucket-operator", namespace="default"),
    )
    for name in OWN_READY_CHECKS:
        with pytest.raises(ValueError, match="of the manager itself"):
            app.check(ready=True, name=name)(lambda: None)
    with made(app, config) as manager:
        for name in (name for name in OWN_READY_CHECKS if name != "webhooks"):
            with pytest.raises(ValueError, match="already"):
                manager.add_ready_check(name, lambda: None)


def test_a_check_takes_no_arguments() -> None:
    check: Any = App("bucket-operator").check
    with pytest.raises(TypeError, match=r"not a function of \(\)"):
        check(nothing)
    with pytest.raises(TypeError, match="ready="):
        check(ready="yes")
