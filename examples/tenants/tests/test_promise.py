"""The promise: the account service has exactly the accounts and logins of what lives.

It holds at rest after every history of tenants and grants, of outages, lost answers, conflicts
and crashes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import attrs
from appsdk_operator import ApiError, MutableObject
from appsdk_operator.controllers import controller_of, is_condition_true
from appsdk_operator.testing import World
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tenants_operator.accounts import Account, Login
from tenants_operator.app import accounts, app
from tenants_operator.grant import GRANT
from tenants_operator.owned import NAMESPACE, namespace_of
from tenants_operator.tenant import TENANT, quota_of


@attrs.frozen
class Step:
    """One step of a history: what is done, to what, and how."""

    what: str
    tenant: str = ""
    value: Any = None


TENANTS = st.sampled_from(["a", "b"])
SPECS = st.fixed_dictionaries(
    {"owners": st.just(["ann"]), "plan": st.sampled_from(["free", "team", "enterprise"])}
)
GRANTS = st.fixed_dictionaries(
    {"user": st.sampled_from(["ben", "eve"]), "role": st.sampled_from(["view", "edit"])}
)
FATES = st.sampled_from(["409", "500", "lost", "crash before", "crash after"])
STEPS = st.one_of(
    st.builds(Step, st.sampled_from(["create", "replace"]), TENANTS, SPECS),
    st.builds(Step, st.just("grant"), TENANTS, GRANTS),
    st.builds(Step, st.sampled_from(["delete", "revoke", "delete namespace"]), TENANTS),
    st.builds(Step, st.just("outage"), value=st.sampled_from(["down", "answer lost"])),
    st.builds(Step, st.just("fate"), value=FATES),
    st.builds(Step, st.just("crash")),
    st.builds(Step, st.just("lag"), value=st.sampled_from([1.0, 30.0])),
    st.builds(Step, st.just("wait"), value=st.sampled_from([0.0, 1.0, 30.0])),
)


def play(world: World, step: Step, outages: list[str]) -> None:
    """Do a step; one that makes no sense now is refused, and does nothing."""
    namespace = namespace_of(step.tenant)
    with contextlib.suppress(ApiError):
        match step.what:
            case "create":
                world.create(step.tenant, step.value)
            case "replace":
                world.replace(step.tenant, step.value)
            case "delete":
                world.delete(step.tenant)
            case "grant":
                draft = MutableObject.new(GRANT, "g", namespace=namespace, spec=step.value)
                world.client.apply(draft, field_manager="somebody")
            case "revoke":
                world.client.delete(GRANT, "g", namespace=namespace)
            case "delete namespace":
                world.client.delete(NAMESPACE, namespace)
            case "outage":
                outages.append(step.value)
            case "fate":
                world.fates.append(step.value)
            case "crash":
                world.crash()
            case "lag":
                world.lag(step.value)
            case "wait":
                world.run(step.value)


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


@settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(history=st.lists(STEPS, max_size=15), seed=st.integers(0, 9))
def test_the_account_service_has_what_lives_and_nothing_else(
    history: list[Step], seed: int, outages: list[str]
) -> None:
    Path(accounts.path).unlink(missing_ok=True)
    outages.clear()
    with World(TENANT, app, seed=seed) as world:
        for step in history:
            play(world, step, outages)
        world.end_faults()
        outages.clear()
        world.run(120.0)  # a process that has just started may wait for its predecessor's Lease
        is_at_rest = world.settle()
        note(world.story())
        assert is_at_rest
        check(world)
