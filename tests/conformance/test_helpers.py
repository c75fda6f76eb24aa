"""The helpers of reconcilers, on both lanes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from appsdk_operator.client import ClientError, Conflict, Edit, Invalid
from appsdk_operator.controllers import (
    Condition,
    Finalizing,
    OperationResult,
    apply,
    create_or_patch,
    create_or_update,
    finalizing,
    is_condition_true,
    patch_conditions,
    set_condition,
    set_controller_reference,
    set_owner_reference,
    until,
    wait_for,
)
from appsdk_operator.manager import EventBroadcaster, EventOptions
from appsdk_operator.resource import MutableObject, Object, kinds
from appsdk_operator.runtime import Metrics
from tests.conformance.conftest import CONFIG_MAP, TIMEOUT, WIDGET, World
from tests.waiting import eventually

EVENT = kinds.events.v1.Event
OURS, THEIRS = "example.com/ours", "example.org/theirs"


def wait(world: World, name: str, condition: until.Until) -> Object | None:
    options = {"namespace": world.namespace, "timeout": TIMEOUT}
    return wait_for(world.client, WIDGET, name, condition, **options)


def test_owner_references_are_taken_by_the_server(world: World) -> None:
    owner = world.create(WIDGET, "owner")
    other = world.create(WIDGET, "other")
    draft = world.draft(CONFIG_MAP, "owned")
    set_controller_reference(owner, draft)
    set_owner_reference(other, draft)
    made = world.client.create(draft)
    assert [(r.name, r.controller) for r in made.owner_references] == [
        ("owner", True),
        ("other", False),
    ]
    again = made.mutable_copy()
    assert set_controller_reference(owner, again) is False
    # What the helper refuses the server would refuse as well.
    again.metadata["ownerReferences"][1]["controller"] = True
    with pytest.raises(Invalid, match="Only one reference can have Controller set to true"):
        world.client.update(again)


def test_create_or_update_writes_what_differs_and_nothing_else(world: World) -> None:
    def resize(draft: MutableObject) -> None:
        draft["spec"]["size"] = 3

    draft = world.draft(WIDGET, "a", size=1)
    results = [create_or_update(world.client, draft, resize) for _ in range(2)]
    assert [r.result.value for r in results] == ["created", "unchanged"]
    assert results[0].object == results[1].object
    world.resize(WIDGET, "a", 9)
    result, obj = create_or_update(world.client, draft, resize)
    assert (result, obj.spec["size"], obj.generation) == (OperationResult.UPDATED, 3, 3)


def test_create_or_patch_writes_object_and_status(world: World) -> None:
    def ready(draft: MutableObject) -> None:
        set_condition(draft, "Ready", "True", "Up")

    def big_and_ready(draft: MutableObject) -> None:
        draft["spec"]["size"] = 5
        set_condition(draft, "Ready", "True", "Bigger")

    draft = world.draft(WIDGET, "a")
    for change, expected in (
        (ready, "created"),
        (ready, "unchanged"),
        (big_and_ready, "updatedStatus"),
        (ready, "updatedStatusOnly"),
    ):
        result, obj = create_or_patch(world.client, draft, change)
        assert result.value == expected
        assert is_condition_true(obj, "Ready")
    assert world.get(WIDGET, "a").spec["size"] == 5


def test_many_at_once_all_get_their_change_in(world: World) -> None:
    def work(number: int) -> None:
        def mutate(draft: MutableObject) -> None:
            draft.labels[f"n{number}"] = "yes"

        create_or_update(world.client, world.draft(WIDGET, "a"), mutate)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.get(WIDGET, "a").labels == {f"n{n}": "yes" for n in range(4)}


def test_apply_tells_what_became_of_the_object(world: World) -> None:
    results = []
    for size in (1, 1, 2):
        written = apply(world.client, world.draft(WIDGET, "a", size), field_manager="me")
        results.append((written.result.value, written.object.spec["size"]))
    assert results == [("created", 1), ("unchanged", 1), ("updated", 2)]
    with pytest.raises(Conflict):
        apply(world.client, world.draft(WIDGET, "a", 7), field_manager="other")
    forced = apply(world.client, world.draft(WIDGET, "a", 7), field_manager="other", force=True)
    assert forced.result is OperationResult.UPDATED


def test_the_finalizer_is_on_while_there_is_something_to_clean_up(world: World) -> None:
    stale = world.create(WIDGET, "a", finalizers=[THEIRS])
    calls: list[str] = []

    def reconcile(obj: Object) -> Finalizing:
        return finalizing(
            world.client,
            obj,
            OURS,
            apply=lambda obj: calls.append("apply"),
            cleanup=lambda obj: calls.append("cleanup"),
        ).done

    world.resize(WIDGET, "a", 2)
    assert reconcile(stale) is Finalizing.APPLIED
    assert world.get(WIDGET, "a").finalizers == (THEIRS, OURS)
    world.delete(WIDGET, "a")
    deleting = wait(world, "a", until.matches(lambda obj: obj.is_deleting))
    assert deleting is not None
    assert reconcile(deleting) is Finalizing.CLEANED_UP
    assert reconcile(world.get(WIDGET, "a")) is Finalizing.GONE
    assert world.get(WIDGET, "a").finalizers == (THEIRS,)
    assert calls == ["apply", "cleanup"]
    last = world.get(WIDGET, "a").mutable_copy()
    last.finalizers.clear()
    world.client.update(last)


def test_conditions_of_several_controllers_stand_side_by_side(world: World) -> None:
    made = world.create(WIDGET, "a")
    first = patch_conditions(world.client, made, Condition("Ready", "True", "Up"))
    assert first is not None
    patch_conditions(world.client, made, Condition("Synced", "False", "Waiting"))
    patch_conditions(world.client, first, Condition("Healthy", "Unknown", "Starting"))
    now = world.get(WIDGET, "a")
    assert [c["type"] for c in now.status["conditions"]] == ["Ready", "Synced", "Healthy"]
    assert {c["observedGeneration"] for c in now.status["conditions"]} == {1}
    assert now.generation == 1
    assert patch_conditions(world.client, now, Condition("Ready", "True", "Up")) is now
    world.delete(WIDGET, "a")
    assert patch_conditions(world.client, now, Condition("Ready", "False", "Down")) is None


def test_wait_for_sees_what_happens_while_it_waits(world: World) -> None:
    made = world.create(WIDGET, "a")
    steps = [
        lambda: world.resize(WIDGET, "a", 2),
        lambda: world.resize(WIDGET, "a", 3),
    ]

    def next_step(obj: Object) -> bool:
        if obj.spec["size"] < 3:
            steps.pop(0)()
        return bool(obj.spec["size"] == 3)

    found = wait(world, "a", until.matches(next_step))
    assert found is not None
    assert found.spec["size"] == 3
    world.delete(WIDGET, "a")
    assert wait(world, "a", until.deleted(made)) is None


def test_wait_for_survives_a_history_that_is_gone(mortal_world: World) -> None:
    world = mortal_world
    world.create(WIDGET, "a")
    looks: list[Object | None] = []

    def next_step(obj: Object | None) -> bool:
        looks.append(obj)
        if len(looks) == 1:
            # Before the watch begins, and by others than the one that waits.
            world.server.forget_history()
            assert eventually(is_resized)
        return obj is not None and bool(obj.spec["size"] == 2)

    def is_resized() -> bool:
        try:
            world.resize(WIDGET, "a", 2)
        except ClientError:
            return False
        return True

    condition = until.Until("it is bigger", next_step)
    assert wait(world, "a", condition) is not None


@pytest.mark.parametrize("legacy", [False, True], ids=["events.k8s.io", "core"])
def test_events_are_published_in_both_apis(world: World, legacy: bool) -> None:
    obj = world.create(WIDGET, "a")
    options = EventOptions(legacy=legacy)
    broadcaster = EventBroadcaster(world.client, options=options, metrics=Metrics())
    recorder = broadcaster.recorder("example.com/widgets")
    for number in range(3):
        recorder.event(obj, "Warning", "TooSmall", "Resize", f"try {number}", related=obj)
        assert broadcaster.flush(TIMEOUT)
    assert broadcaster.close(TIMEOUT) is True
    (new,) = world.client.list(EVENT, namespace=world.namespace)
    (old,) = world.client.list(kinds.core.v1.Event, namespace=world.namespace)
    assert new["regarding"]["uid"] == old["involvedObject"]["uid"] == obj.uid
    assert (new["note"], old["message"]) == (("try 2",) * 2 if legacy else ("try 0",) * 2)
    assert (old["count"] if legacy else new["series"]["count"]) == 3


def test_the_longest_event_that_is_allowed_is_taken(world: World) -> None:
    obj = world.create(WIDGET, "a")
    broadcaster = EventBroadcaster(world.client, instance="i" * 300, metrics=Metrics())
    name = ".".join(["d" * 40] * 2) + "/" + "w" * 46
    recorder = broadcaster.recorder(name)
    recorder.event(obj, "Normal", "R" * 128, "A" * 128, "ä" * 2000)
    assert broadcaster.close(TIMEOUT) is True
    (event,) = world.client.list(EVENT, namespace=world.namespace)
    assert len(event["note"].encode()) <= 1024


@pytest.mark.parametrize("legacy", [False, True], ids=["events.k8s.io", "core"])
def test_an_event_about_a_cluster_scoped_object_is_taken(world: World, legacy: bool) -> None:
    options = EventOptions(legacy=legacy)
    broadcaster = EventBroadcaster(world.client, options=options, metrics=Metrics())
    node = MutableObject.new(kinds.core.v1.Node, f"n-{world.namespace}")
    recorder = broadcaster.recorder("widgets")
    for _ in range(2):
        recorder.event(node, "Normal", "Made", "Make", "cluster-scoped")
        assert broadcaster.flush(TIMEOUT)
    assert broadcaster.close(TIMEOUT) is True
    found = [e for e in world.client.list(EVENT) if e["regarding"]["name"] == node.name]
    assert len(found) == 1


def test_modify_and_edit_write_what_differs_and_merge(world: World) -> None:
    made = world.create(WIDGET, "a", size=1)
    client, namespace = world.client, world.namespace

    def ready(draft: MutableObject) -> None:
        draft["spec"]["size"] = 2
        draft["status"] = {"conditions": [{"type": "Ready", "status": "True", "reason": "Up"}]}

    first = client.modify(WIDGET, "a", ready, namespace=namespace)
    assert (first.spec["size"], first.generation) == (2, 2)
    assert is_condition_true(first, "Ready")
    again = client.modify(WIDGET, "a", ready, namespace=namespace)
    assert again.resource_version == first.resource_version

    async def edit() -> None:
        async with Edit(client, made) as draft:
            draft.labels["mine"] = "yes"
            draft["status"] = {"conditions": [{"type": "Synced", "status": "True", "reason": "Up"}]}
        with pytest.raises(Conflict, match=r"spec\.size"):
            async with Edit(client, made) as draft:
                draft["spec"]["size"] = 3

    asyncio.run(edit())
    found = client.get(WIDGET, "a", namespace=namespace)
    assert (found.spec["size"], found.labels["mine"]) == (2, "yes")
    assert is_condition_true(found, "Ready")
    assert is_condition_true(found, "Synced")


def test_the_coroutines_of_a_client(world: World) -> None:
    async def use() -> list[str]:
        it, seen = world.client.aio, []
        async with it.watch(WIDGET, namespace=world.namespace) as events:
            for name in "ab":
                await it.create(world.draft(WIDGET, name, size=1))
            async for event in events:
                if event.object is not None:
                    seen.append(event.object.name)
                if len(seen) == 2:
                    break
        watch = it.watch(WIDGET, namespace=world.namespace, bookmarks=False)
        assert {(await anext(watch)).type.value for _ in "ab"} == {"ADDED"}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watch), 0.5)
        listed = [obj.name async for obj in it.list(WIDGET, namespace=world.namespace, limit=1)]
        # A list within a watch has no order.
        return [*sorted(seen), *listed]

    assert asyncio.run(use()) == ["a", "b", "a", "b"]
