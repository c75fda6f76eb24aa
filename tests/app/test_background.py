"""Background functions of an App, next to its other functions."""

from __future__ import annotations

import threading
from typing import Any

import attrs
import pytest

from appsdk_operator.app import App, Live
from appsdk_operator.client import Client, ClientConfig, MergePatch
from appsdk_operator.controllers import RetryAfter, TerminalError
from appsdk_operator.manager import LeaderElection, Manager, pause_operator, resume_operator
from appsdk_operator.resource import Object, annotation, field, labels
from appsdk_operator.runtime import StopSignal
from appsdk_operator.testing import World, check_operator
from appsdk_operator.watchers import ConstantBackoff
from tests.app.test_app import BUCKET, BucketSpec, nothing
from tests.app.test_managers import Calls, api, bucket, config, made, running
from tests.hypothesis_profiles import histories_of
from tests.waiting import eventually

__all__ = ["api", "config"]
FINALIZER = "example.com/bucket-operator.v1.Bucket"


def left(name: str) -> list[str]:
    return [each.name for each in threading.enumerate() if name in each.name]


@pytest.mark.parametrize("is_async", [False, True])
def test_it_begins_after_add_sees_changes_and_ends_before_delete(
    api: Client, config: ClientConfig, is_async: bool
) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.on_add(BUCKET)
    def make(obj: Object[BucketSpec]) -> None:
        calls.add("add")

    if is_async:

        @app.background(BUCKET)
        async def follow_async(live: Live[BucketSpec], stop: StopSignal) -> None:
            calls.add(("begins", live.object.finalizers))
            while not await stop.wait_async(0.01):
                if live.object.spec.size == 2:
                    calls.add("changed")
                    break
            await stop.wait_async()
            calls.add(("ends", live.object.is_deleting))

    else:

        @app.background(BUCKET)
        def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
            calls.add(("begins", live.object.finalizers))
            while not stop.wait(0.01):
                if live.object.spec.size == 2:
                    calls.add("changed")
                    break
            stop.wait()
            calls.add(("ends", live.object.is_deleting))

    @app.on_delete(BUCKET)
    def remove(obj: Object[BucketSpec]) -> None:
        calls.add("delete")

    with running(made(app, config)):
        api.create(bucket("a"))
        calls.wait_for(("begins", (FINALIZER,)))
        api.patch(BUCKET, "a", MergePatch({"spec": {"size": 2}}), namespace="default")
        calls.wait_for("changed")
        api.delete(BUCKET, "a", namespace="default")
        calls.wait_for("delete")
        eventually(lambda: not list(api.list(BUCKET)))
    assert calls.all == ["add", ("begins", (FINALIZER,)), "changed", ("ends", True), "delete"]


def test_an_object_is_there_until_its_background_has_ended(
    api: Client, config: ClientConfig
) -> None:
    app, calls, may_end = App("bucket-operator"), Calls(), StopSignal()

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add(("begins", live.object.uid))
        stop.wait()
        calls.add("asked")
        may_end.wait()
        calls.add(("ends", live.object.uid))

    with running(made(app, config)):
        one = api.create(bucket("a"))
        calls.wait_for(("begins", one.uid))
        api.delete(BUCKET, "a", namespace="default")
        calls.wait_for("asked")
        assert api.get(BUCKET, "a", namespace="default").finalizers == (FINALIZER,)
        may_end.set()
        eventually(lambda: not list(api.list(BUCKET)))
        other = api.create(bucket("a"))
        calls.wait_for(("begins", other.uid))
    assert calls.all[:3] == [("begins", one.uid), "asked", ("ends", one.uid)]


def test_it_runs_for_the_objects_that_where_lets_pass(api: Client, config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.background(BUCKET, where=lambda obj: obj.spec.size > 1)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add(("begins", live.object.name))
        stop.wait()
        calls.add(("ends", live.object.name))

    def resize(size: int) -> None:
        api.patch(BUCKET, "a", MergePatch({"spec": {"size": size}}), namespace="default")

    with running(made(app, config)):
        api.create(bucket("a", 1))
        api.create(bucket("b", 2))
        calls.wait_for(("begins", "b"))
        resize(2)
        calls.wait_for(("begins", "a"))
        resize(1)
        calls.wait_for(("ends", "a"))
        resize(3)
        calls.wait_for(("begins", "a"), 2)
    assert not left("/background-follow")


def test_after_a_restart_it_begins_again_without_an_add(api: Client, config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()
    app.on_add(BUCKET)(lambda obj: calls.add("add"))

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add("begins")
        stop.wait()

    api.create(bucket("a"))
    for count in (1, 2):
        with running(made(app, config)):
            calls.wait_for("begins", count)
    assert calls.all == ["add", "begins", "begins"]


def test_it_starts_again_after_a_failure_by_its_own_policy(
    api: Client, config: ClientConfig
) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.background(BUCKET, retry=ConstantBackoff(0.01, max_attempts=2))
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add("begins")
        raise ConnectionError("reset")

    def given_up(manager: Manager) -> bool:
        return "was given up for 1 object" in manager.health().text

    with running(made(app, config)) as manager:
        api.create(bucket("a"))
        eventually(lambda: given_up(manager))
        count = len(calls.all)
        assert manager.health().is_ready
        api.patch(BUCKET, "a", MergePatch({"spec": {"size": 9}}), namespace="default")
        calls.wait_for("begins", count + 1)


def test_its_client_is_that_of_its_manager(api: Client, config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.background(BUCKET)
    async def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add(app.client)
        await stop.wait_async()

    @app.background(BUCKET)
    def follow_too(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add(app.client)
        stop.wait()

    one, other = (app.manager(config, leader_election=election(number)) for number in (1, 2))
    with running(one), running(other):
        api.create(bucket("a"))
        for manager in (one, other):
            calls.wait_for(manager.client, 2)


def election(number: int) -> LeaderElection:
    return LeaderElection(id=f"bucket-operator-{number}", namespace="default")


def test_a_manager_that_stops_waits_for_all_of_them(api: Client, config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add("begins")
        stop.wait()
        app.client.status.patch(
            BUCKET, live.object.name, MergePatch({"status": {"ended": True}}), namespace="default"
        )

    with running(made(app, config)):
        for name in "abc":
            api.create(bucket(name))
        calls.wait_for("begins", 3)
    assert [obj["status"] for obj in api.list(BUCKET)] == [{"ended": True}] * 3
    assert not left("background-follow")


def test_it_ends_for_an_object_that_is_no_longer_followed(
    api: Client, config: ClientConfig
) -> None:
    app, calls = App("bucket-operator", namespaces=["default"]), Calls()

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add("begins")
        stop.wait()
        calls.add("ends")

    with running(made(app, config)) as manager:
        api.create(bucket("a"))
        calls.wait_for("begins")
        manager.cache.set_namespaces(["elsewhere"])
        calls.wait_for("ends")


def test_declarations_are_checked() -> None:
    app = App("bucket-operator")
    background: Any = app.background
    with pytest.raises(TypeError, match="not a Kind"):
        background("Bucket")
    with pytest.raises(TypeError, match=r"not a function of \(live, stop\)"):
        background(BUCKET)(nothing)
    with pytest.raises(TypeError, match="where: 3 cannot be called"):
        background(BUCKET, where=3)
    background(BUCKET, name="poll")(lambda live, stop: None)
    with pytest.raises(ValueError, match="'poll' is the name of another"):
        background(BUCKET, name="poll")(lambda live, stop: None)


def test_what_it_needs_is_among_kinds_finalizers_and_permissions() -> None:
    app = App("bucket-operator")
    app.background(BUCKET, name="poll")(lambda live, stop: None)
    assert app.kinds == (BUCKET,)
    assert FINALIZER in app.finalizers()[BUCKET]
    reasons = [reason for each in app.permissions() for reason in each.reasons]
    assert "poll runs for each of the buckets" in reasons
    assert "a finalizer on buckets is there until poll has ended" in reasons


def test_an_object_that_comes_to_match_a_filter_is_protected_at_once() -> None:
    app, calls = App("bucket-operator"), Calls()
    app.on_delete(BUCKET, where=lambda obj: obj.spec.size > 1)(lambda obj: calls.add("delete"))

    @app.background(BUCKET, where=lambda obj: obj.spec.size > 2)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add("begins")
        stop.wait()
        calls.add("ends")

    with World(app) as world:
        world.create("a", {"size": 1})
        world.run(1.0)
        for size in (2, 3):
            world.replace("a", {"size": size})
            world.run(1.0)
        world.delete("a")
        world.settle()
    assert calls.all == ["begins", "ends", "delete"]


def test_it_goes_on_while_an_add_that_comes_late_fails_and_begins_after_one() -> None:
    app, calls = App("bucket-operator", retry_policy=ConstantBackoff(20.0)), Calls()

    def is_big(obj: Object[BucketSpec]) -> bool:
        return obj.spec.size > 1

    @app.on_add(BUCKET, where=is_big)
    def grow(obj: Object[BucketSpec]) -> None:
        calls.add("grow")
        if calls.all.count("grow") == 1:
            raise ConnectionError("down")

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add("begins")
        stop.wait()
        calls.add("ends")

    @app.background(BUCKET, where=is_big)
    def follow_big(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add("big begins")
        stop.wait()

    with World(app) as world:
        world.create("a", {"size": 1})
        world.run(1.0)
        world.replace("a", {"size": 2})
        world.run(60.0)
        assert calls.all == ["begins", "grow", "grow", "big begins"]


def test_it_begins_at_once_when_the_object_leaves_the_filter_of_an_add_that_was_given_up() -> None:
    app, told = App("bucket-operator", resync=0), Calls()
    app.on_add(BUCKET)(nothing)

    @app.on_add(BUCKET, where=field("spec.size") == 1)
    def refuse(_: Object[BucketSpec]) -> None:
        raise TerminalError("not of this size")

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        told.add(live.object.spec.size)
        stop.wait()

    with World(BUCKET, app) as world:
        world.create("a", {"size": 1})
        world.run(1)
        assert told.all == []
        world.replace("a", {"size": 2})
        world.run(1)
        assert told.all == [2]


def test_it_ends_while_its_object_is_paused() -> None:
    app, calls = App("bucket-operator", paused=annotation("example.com/paused")), Calls()

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add("begins")
        stop.wait()
        calls.add("ends")

    with World(app) as world:
        world.create("a", {"size": 1})
        world.run(1.0)
        for value in ("yes", None):
            world.patch("a", {"metadata": {"annotations": {"example.com/paused": value}}})
            world.run(1.0)
        assert calls.all == ["begins", "ends", "begins"]


def test_it_ends_while_the_operator_is_paused(api: Client, config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.add("begins")
        stop.wait()
        calls.add("ends")

    quick = attrs.evolve(election(1), lease_duration=3.0, renew_deadline=2.0, retry_period=0.1)
    with running(app.manager(config, leader_election=quick)):
        api.create(bucket("a"))
        calls.wait_for("begins")
        pause_operator(api, quick.id, namespace="default", seconds=60.0, reason="test", by="ann")
        calls.wait_for("ends")
        resume_operator(api, quick.id, namespace="default")
        calls.wait_for("begins", 2)


def test_a_world_runs_it_and_a_crash_leaves_nothing_twice() -> None:
    app, running_now, most = App("bucket-operator"), dict[str, int](), [0]

    @app.on_add(BUCKET)
    def make(obj: Object[BucketSpec]) -> None: ...

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        running_now[live.object.uid] = running_now.get(live.object.uid, 0) + 1
        most[0] = max(most[0], running_now[live.object.uid])
        try:
            if stop.wait(3.0):
                return
            raise RetryAfter(1.0)
        finally:
            running_now[live.object.uid] -= 1

    @app.on_delete(BUCKET)
    def remove(obj: Object[BucketSpec]) -> None:
        assert not running_now.get(obj.uid)

    with World(app) as world:
        for name in "abc":
            world.create(name, {"size": 1})
        world.run(20.0)
        assert sorted(running_now.values()) in ([1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0])
        world.restart()
        world.run(20.0)
        world.delete("a")
        world.settle()
        assert most == [1]


def test_the_promises_of_an_app_hold_with_a_background_function() -> None:
    app = App("bucket-operator")
    storage: set[str] = set()
    app.on_add(BUCKET)(lambda obj: storage.add(obj.name))
    app.on_delete(BUCKET)(lambda obj: storage.discard(obj.name))

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        while not stop.wait(20.0):
            assert live.object.name

    check_operator(app, max_examples=5, seed=histories_of(3))


def test_an_object_that_comes_to_match_gets_its_function_at_once() -> None:
    app, begun = App("bucket-operator"), list[int]()

    @app.background(BUCKET, where=lambda obj: obj.spec.size > 1)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        begun.append(live.object.spec.size)
        stop.wait()

    with World(app) as world:
        world.create("a", {"size": 1})
        world.run(1.0)
        world.replace("a", {"size": 2})
        world.run(1.0)  # the next look without an event would come after half a minute
        assert begun == [2]


@pytest.mark.parametrize("subresource", ["", "status"])
def test_a_refusal_of_a_state_that_only_the_function_has_seen_is_one(subresource: str) -> None:
    app, seen = App("bucket-operator"), list[str]()

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        if not seen:
            stop.wait(5.0)
        seen.append(live.object.resource_version)
        if len(seen) < 9:
            raise TerminalError("a wrong size")

    with World(app) as world:
        world.create("a", {"size": 1})
        world.run(1.0)
        patch = {"status": {"used": 1}} if subresource else {"spec": {"size": 2}}
        world.patch("a", patch, subresource=subresource)
        world.run(70.0)  # two looks without an event
        assert len(seen) == 1
        world.replace("a", {"size": 3})
        world.run(1.0)
    assert len(seen) == 2


def test_late_events_of_its_own_writes_do_not_begin_it_again() -> None:
    app, begun = App("bucket-operator"), list[int]()

    @app.background(BUCKET)
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        begun.append(live.object.spec.size)
        for number in range(3):
            with app.edit(live.object) as draft:
                draft["status"] = {"used": 10 * len(begun) + number}
        assert live.object.resource_version
        raise TerminalError("a wrong size")

    with World(app) as world:
        world.create("a", {"size": 1})
        world.run(70.0)
        world.replace("a", {"size": 2})
        world.run(70.0)
    assert begun == [1, 2]


def test_labels_that_flip_cost_no_write_and_the_finalizer_goes_with_the_object() -> None:
    app, calls = App("bucket-operator"), list[str]()

    @app.background(BUCKET, where=labels("color=red"))
    def follow(live: Live[BucketSpec], stop: StopSignal) -> None:
        calls.append("begins")
        stop.wait()
        calls.append("ends")

    with World(BUCKET, app) as world:
        world.create("a", {"size": 1}, labels={"color": "red"})
        world.run(10)
        writes = len(world.journal.of("write"))
        for color in ("blue", "red", "blue"):
            world.patch("a", {"metadata": {"labels": {"color": color}}})
            world.run(10)
        assert calls == ["begins", "ends"] * 2
        assert len(world.journal.of("write")) == writes
        assert world.get("a").finalizers == (FINALIZER,)
        world.restart()
        world.run(10)
        world.delete("a")
        world.run(10)
        assert not world.objects()
