"""The verdict on an operator: never "all well" while something is wrong, and the words of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.manager._servers.verdict import HELD_AFTER, verdict_of

NOW = 1_800_000_000.0
WELL_SINCE = NOW - 300.0


def controller(**changes: Any) -> dict[str, Any]:
    return {
        "name": "shop/tenants.example.com",
        "workers": 1,
        "ready": True,
        "health": "",
        "queued": 0,
        "oldest_wait": None,
        "running": [],
        "paused_total": 0,
        **changes,
    }


def informer(**changes: Any) -> dict[str, Any]:
    known = {"resource": "tenants.example.com", "synced": True, "ready": True, "undecodable": 0}
    return {**known, "unreachable_for": None, **changes}


def state(**changes: Any) -> dict[str, Any]:
    operator = {"name": "shop", "ready": True, "health": "", "well_since": WELL_SINCE}
    return {
        "time": NOW,
        "operator": operator | changes.pop("operator", {}),
        "controllers": [controller()],
        "informers": [informer()],
        "failing_total": 0,
        "for_good_total": 0,
        "held_total": 0,
        "held_since": None,
        "certificates": [],
        **changes,
    }


def texts(found: dict[str, Any]) -> list[str]:
    return [finding["text"] for finding in verdict_of(found)]


ILLS: dict[str, tuple[str, dict[str, Any]]] = {
    "failing": ("34 objects failing (17 for good)", {"failing_total": 34, "for_good_total": 17}),
    "one": ("1 object failing", {"failing_total": 1}),
    "held": (
        "3 held in deletion, oldest 1 min 15 s",
        {"held_total": 3, "held_since": NOW - 75.0},
    ),
    "queue": (
        "tenants: 24 wait for 1 worker",
        {"controllers": [controller(queued=24, oldest_wait=60.0)]},
    ),
    "sick": (
        "tenants is not ready: it failed",
        {"controllers": [controller(ready=False, health="it failed")]},
    ),
    "hangs": (
        "tenants: 1 call held, longest 1 min 52 s",
        {
            "controllers": [
                controller(
                    running=[
                        {"held_at": "a.py:1", "seconds": 200.0, "awaiting": True},
                        {"held_at": "a.py:1", "seconds": 112.0},
                    ]
                )
            ]
        },
    ),
    "listing": (
        "1 of 1 kind not synced: tenants.example.com",
        {"informers": [informer(synced=False)]},
    ),
    "lost": (
        "the API server has been out of reach for 35 s",
        {"informers": [informer(unreachable_for=35.0, ready=False)]},
    ),
    "silent": (
        "the API server has been out of reach for 12 s",
        {"operator": {"server_lost_for": 12.0}},
    ),
    "unfollowed": ("not followed: tenants.example.com", {"informers": [informer(ready=False)]}),
    "unreadable": ("2 objects unreadable", {"informers": [informer(undecodable=2)]}),
    "not ready": (
        "not ready: the lease is lost",
        {"operator": {"ready": False, "health": "the lease is lost"}},
    ),
    "paused": ("no call begins: paused by a", {"operator": {"paused": "paused by a"}}),
    "stopping": ("stopping", {"operator": {"stopping": True}}),
    "no leader": (
        "nobody leads",
        {"operator": {"leader_election": {"is_leader": False, "leader": ""}}},
    ),
    "expired": (
        "the certificate of webhooks has expired",
        {"certificates": [{"server": "webhooks", "left": -1.0}]},
    ),
    "expires": (
        "the certificate of webhooks expires in 1 d 0 h",
        {"certificates": [{"server": "webhooks", "left": 86400.0}]},
    ),
}


def test_each_ill_has_its_words_and_is_not_well() -> None:
    for name, (text, changes) in ILLS.items():
        found = texts(state(**changes))
        assert text in found, name
        assert not any(one.startswith("all well") for one in found), name


@given(st.sets(st.sampled_from(sorted(ILLS))), st.integers(0, 5), st.integers(0, 5))
def test_all_well_is_said_of_nothing_that_ails(ills: set[str], failing: int, held: int) -> None:
    found = state(failing_total=failing, held_total=held, held_since=NOW - HELD_AFTER)
    for name in ills:
        changes = dict(ILLS[name][1])
        operator = found["operator"] | changes.pop("operator", {})
        found = {**found, **changes, "operator": operator}
    is_well = not ills and not failing and not held
    verdict = verdict_of(found)
    levels = [finding["level"] for finding in verdict]
    assert levels == sorted(levels, key=("good", "bad", "warn", "idle").index)
    assert ("good" in levels) is is_well
    if is_well:
        assert verdict[0]["text"].startswith("all well since ")


def test_a_standby_and_paused_objects_are_said_and_are_well() -> None:
    operator = {"leader_election": {"is_leader": False, "leader": "shop-2"}}
    found = texts(state(operator=operator, controllers=[controller(paused_total=2)]))
    assert found[0].startswith("all well since")
    assert found[1:] == ["stands by for shop-2", "tenants: 2 objects paused"]


def test_a_queue_that_moves_is_well() -> None:
    (text,) = texts(state(controllers=[controller(queued=24, oldest_wait=0.2)]))
    assert text.startswith("all well since ")


def test_a_long_health_text_is_cut() -> None:
    assert len(texts(state(operator={"ready": False, "health": "x" * 5000}))[0]) == 200


def test_a_server_out_of_reach_stands_before_what_follows_from_it() -> None:
    lost = {"ready": False, "health": "informer of tenants has not reached the server"}
    found = verdict_of(
        state(
            operator={**lost, "server_lost_for": 95.0},
            informers=[informer(unreachable_for=20.0, ready=False)],
        )
    )
    assert [each["text"] for each in found] == [
        "the API server has been out of reach for 1 min 35 s",
        "not ready: informer of tenants has not reached the server",
    ]
