"""The promise: the account service has exactly the accounts and logins of what lives.

It holds at rest after every history of tenants and grants, of outages, lost answers, conflicts
and crashes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import attrs
from appsdk_operator import ApiError, Manager, MutableObject
from appsdk_operator.controllers import controller_of, is_condition_true
from appsdk_operator.testing import Replica, World
from appsdk_operator.webhooks import WebhookServerOptions
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tenants_operator.accounts import Account, Login
from tenants_operator.app import accounts, app
from tenants_operator.grant import GRANT
from tenants_operator.owned import NAMESPACE, namespace_of
from tenants_operator.tenant import TENANT, quota_of


@attrs.frozen
class Step:
    """What is done, and how long nothing else is."""

    what: str
    tenant: str
    value: Any
    seconds: float


PLANS = st.sampled_from(
    [{"owners": ["ann"], "plan": plan} for plan in ("free", "team", "enterprise")]
)
ROLES = st.sampled_from([{"user": "ben", "role": role} for role in ("view", "edit")])
OUTAGES = st.lists(st.sampled_from(["down", "answer lost"]), min_size=1, max_size=4)
WRITE_FAULTS = st.sampled_from(["409", "500", "lost", "crash before", "crash after"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "put": PLANS,
    "delete": st.none(),
    "recreate": PLANS,
    "grant": ROLES,
    "revoke": st.none(),
    "delete namespace": st.none(),
    "outage": OUTAGES,
    "write_fault": WRITE_FAULTS,
    "crash": st.none(),
    "lag": st.sampled_from([1.0, 30.0]),
}
STEPS = st.one_of(
    [
        st.builds(
            Step,
            st.just(what),
            st.sampled_from(["a", "b"]),
            value,
            st.sampled_from([0.0, 0.01, 1.0, 30.0]),
        )
        for what, value in VALUES.items()
    ]
)


def play(world: World, step: Step, outages: list[str]) -> None:
    """Do a step; one that makes no sense now is refused, and does nothing."""
    tenant, namespace = step.tenant, namespace_of(step.tenant)
    with contextlib.suppress(ApiError):
        match step.what:
            case "put":
                change = world.replace if world.find(tenant) else world.create
                change(tenant, step.value)
            case "delete":
                world.delete(tenant)
            case "recreate":
                world.delete(tenant)
                world.run(1.0)
                world.create(tenant, step.value)
            case "grant":
                draft = MutableObject.new(GRANT, "g", namespace=namespace, spec=step.value)
                world.client.apply(draft, field_manager="somebody")
            case "revoke":
                world.client.delete(GRANT, "g", namespace=namespace)
            case "delete namespace":
                world.client.delete(NAMESPACE, namespace)
            case "outage":
                outages += step.value
            case "write_fault":
                world.write_faults.append(step.value)
            case "crash":
                world.crash()
            case "lag":
                world.lag(step.value)
    world.run(step.seconds)


def check(world: World) -> None:
    """Compare what is there with what should be."""
    tenants = world.objects(TENANT)
    assert not [each.name for each in tenants if each.is_deleting]
    assert accounts.accounts() == {
        Account(each.uid, each.name, quota_of(each.spec).storage_gib) for each in tenants
    }
    owners = {
        each.name: owner.uid
        for each in world.objects(NAMESPACE)
        if (owner := controller_of(each)) is not None
    }
    assert owners == {namespace_of(each.name): each.uid for each in tenants}
    grants = world.objects(GRANT)
    assert accounts.logins() == {
        Login(each.uid, owners[each.namespace], each.spec.user, each.spec.role) for each in grants
    }
    assert all(is_condition_true(each, "Ready") for each in [*tenants, *grants])


def make(replica: Replica) -> Manager:
    """The operator of one process."""
    return app.manager(
        replica.config,
        clock=replica.clock,
        metrics=replica.metrics,
        leader_election=None,  # there is one process at a time
        webhook_server=WebhookServerOptions(address=""),
    )


@settings(
    max_examples=12,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(history=st.lists(STEPS, min_size=5, max_size=15), seed=st.integers(0, 9))
def test_the_account_service_has_what_lives_and_nothing_else(
    history: list[Step], seed: int, outages: list[str]
) -> None:
    Path(accounts.path).unlink(missing_ok=True)
    outages.clear()
    with World(TENANT, make, seed=seed, crds=[*app.crds()]) as world:
        for what, value in (("put", {"owners": ["ann"]}), ("grant", {"user": "ben"})):
            for tenant in ("a", "b"):
                play(world, Step(what, tenant, value, 1.0), outages)
        for step in history:
            play(world, step, outages)
        world.end_faults()
        outages.clear()
        world.run(120.0)  # a connection on which nothing came ends after a minute
        is_at_rest = world.settle()
        note(world.timeline())
        assert is_at_rest
        check(world)


def test_another_replica_takes_over_and_nothing_is_done_twice() -> None:
    with World(TENANT, app, replicas=2) as world:  # with election, as the App says
        world.create("a", {"plan": "free"})
        world.run(5.0)
        world.freeze(60.0)  # the one that leads
        world.replace("a", {"plan": "team"})
        world.create("b", {"plan": "free"})
        world.run(120.0)
        assert world.settle()
        check(world)
