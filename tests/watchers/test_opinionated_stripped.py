"""What happens when somebody takes our finalizer off, or it cannot be written."""

from __future__ import annotations

import logging
from typing import Any

import attrs
import pytest

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.client import ConnectionLost, Forbidden, JsonPatch
from appsdk_operator.controllers import FinalizerError, Result
from appsdk_operator.resource import Kind, Object
from appsdk_operator.testing import Simulation
from appsdk_operator.watchers import (
    OpinionatedReconciler,
    OpinionatedWatcher,
    ReconcileRequest,
    SimpleReconciler,
    SimpleWatcher,
)
from tests.simulations import Others, change, no_client

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
OURS = "example.com/operator.v1.Widget"
MARK = "example.com/wip.v1.Widget"
FOREIGN = "somebody.else/x"
WATCHER, RECONCILER = "watcher", "reconciler"
CREATE, UPDATE, DELETE, RESYNC, _ = ResourceAction


class World:
    """A watcher or reconciler that fails as planned, on a server that refuses as planned."""

    def __init__(self, form: str, **options: Any) -> None:
        self.seen: list[str] = []
        self.failing: set[str] = set()
        self.refused_writes: list[int] = []
        self._writes = 0
        self.simulation = Simulation(WIDGET, lambda process: [self._make(form, process)], **options)
        self.simulation.on_write = lambda _: self._before_write()
        self.server = Others(self.simulation)

    def _make(self, form: str, process: Any) -> Any:
        if form == WATCHER:
            return OpinionatedWatcher(
                WIDGET,
                process.client,
                add=lambda obj: self._see("add", obj),
                sync=lambda obj: self._see("sync", obj),
                update=lambda _, obj: self._see("update", obj),
                delete=lambda obj: self._see("delete", obj),
            )
        names = {CREATE: "add", RESYNC: "sync", UPDATE: "update", DELETE: "delete"}
        inner = SimpleReconciler(lambda request: self._see(names[request.action], request.object))
        return OpinionatedReconciler(inner, WIDGET, process.client)

    def _see(self, what: str, obj: Object) -> None:
        self.seen.append(what)
        if what in self.failing:
            raise ConnectionError(f"{what} fails")

    def _before_write(self) -> None:
        self._writes += 1
        if self._writes in self.refused_writes:
            raise Forbidden("no", status=403, reason="Forbidden")

    def strip(self, name: str = "a") -> None:
        kept = [f for f in self.server.find(name).finalizers if f not in (OURS, MARK)]
        self.server.change(name, finalizers=kept)

    def step(self) -> None:
        self.simulation.poll()
        while self.simulation.handle():
            pass

    def finalizers(self, name: str = "a") -> tuple[str, ...] | None:
        obj = self.server.find(name)
        return None if obj is None else obj.finalizers


@pytest.fixture(params=[(form, bound) for form in (WATCHER, RECONCILER) for bound in (10_000, 1)])
def world(request):
    form, max_pending = request.param
    made = World(form, resync=0.0, max_pending=max_pending)
    yield made
    made.simulation.close()


def test_a_finalizer_that_somebody_took_off_is_put_on_again_at_once(world, caplog):
    world.server.create("a", finalizers=[FOREIGN])
    world.simulation.settle()
    with caplog.at_level(logging.WARNING):
        world.strip()
        world.simulation.settle()
    assert world.finalizers() == (FOREIGN, OURS)
    assert world.seen == ["add", "add"]
    assert f"somebody took finalizer {OURS} off" in caplog.text
    world.server.delete("a")
    world.simulation.settle()
    assert world.seen == ["add", "add", "delete"]


def test_what_others_write_beside_is_no_strip(world, caplog):
    world.server.create("a")
    world.simulation.settle()
    world.server.change("a", finalizers=[OURS, FOREIGN], labels={"x": "y"})
    world.server.change("a", finalizers=[FOREIGN, OURS])
    world.simulation.settle()
    world.server.delete("a")
    world.simulation.settle()
    assert world.seen == ["add", "delete"]
    assert "somebody took" not in caplog.text


def test_it_is_noticed_also_where_the_events_of_our_own_writes_never_came(world):
    world.server.create("a")
    world.simulation.poll()  # the object as it was made
    while world.simulation.handle():
        pass
    world.strip()
    world.server.compact()  # a new list shows only what is there
    world.simulation.settle()
    assert world.finalizers() == (OURS,)
    assert world.seen == ["add", "add"]


def test_a_strip_and_a_change_of_the_spec_are_an_add_and_an_update(world):
    world.server.create("a", spec={"n": 1})
    world.simulation.settle()
    world.server.change("a", spec={"n": 2}, finalizers=[])
    world.simulation.settle()
    assert world.finalizers() == (OURS,)
    # A reconciler sees one request, and the newest object in it.
    assert world.seen in (["add", "add", "update"], ["add", "add"])


def test_an_object_that_goes_before_the_finalizer_is_back_is_cleaned_up(world):
    world.server.create("a")
    world.simulation.settle()
    world.strip()
    world.server.delete("a")
    world.simulation.settle()
    assert world.seen == ["add", "delete"]


def test_so_is_one_that_others_hold_meanwhile(world):
    world.server.create("a", finalizers=[FOREIGN])
    world.simulation.settle()
    world.strip()
    world.server.delete("a")
    world.simulation.settle()
    assert world.seen == ["add", "delete"]
    assert world.finalizers() == (FOREIGN,)
    world.server.change("a", finalizers=[])
    world.simulation.settle()
    assert world.seen == ["add", "delete"]


def test_so_is_one_of_which_the_strip_and_the_deletion_came_in_one(world):
    world.server.create("a", finalizers=[FOREIGN])
    world.simulation.settle()
    world.strip()
    world.server.delete("a")
    world.server.compact()
    world.simulation.settle()
    assert world.seen == ["add", "delete"]


def test_so_is_one_that_is_stripped_during_its_deletion(world):
    world.server.create("a")
    world.simulation.settle()
    world.server.delete("a")
    world.strip()
    world.simulation.settle()
    assert world.seen == ["add", "delete"]


def test_so_is_one_that_was_stripped_while_no_process_ran(world):
    world.server.create("a")
    world.server.create("b")
    world.simulation.settle()
    world.simulation.restart()
    world.simulation.poll()
    world.strip()
    world.server.delete("a")
    world.simulation.settle()
    assert sorted(world.seen) == ["add", "add", "delete", "sync", "sync"]


def test_a_clean_up_without_a_finalizer_is_tried_until_it_succeeds(world):
    world.server.create("a")
    world.simulation.settle()
    world.failing.add("delete")
    world.strip()
    world.server.delete("a")
    world.step()
    world.simulation.advance(5.0)
    world.step()
    world.failing.clear()
    world.simulation.settle()
    assert world.seen[:1] == ["add"]
    assert set(world.seen[1:]) == {"delete"}
    assert len(world.seen) >= 3


def test_one_that_is_stripped_while_it_is_added_is_cleaned_up(world):
    world.server.create("a")
    world.failing.add("add")
    world.step()
    assert world.finalizers() == (MARK,)
    world.strip()
    world.server.delete("a")
    world.failing.clear()
    world.simulation.settle()
    assert world.seen == ["add", "delete"]


@pytest.mark.parametrize("others", [[], [FOREIGN]])
def test_a_clean_up_that_failed_is_tried_again_also_when_somebody_lets_the_object_go(world, others):
    world.server.create("a", finalizers=others)
    world.simulation.settle()
    world.failing.add("delete")
    world.server.delete("a")
    world.step()
    world.strip()
    world.failing.clear()
    world.simulation.settle()
    assert world.seen == ["add", "delete", "delete"]
    assert world.finalizers() == (tuple(others) or None)


# Only the write failed


def test_a_write_whose_answer_was_lost_is_no_reason_to_skip_the_add_after_a_strip(world):
    writes = []

    def lose_the_second_answer(_):
        writes.append(1)
        if len(writes) == 2:
            raise ConnectionLost("planned")

    world.simulation.on_answer = lose_the_second_answer
    world.server.create("a")
    world.step()
    world.server.change("a", spec={"n": 1})  # drops the retry of the write, which took effect
    world.simulation.settle()
    assert world.finalizers() == (OURS,)
    world.strip()
    world.simulation.settle()
    assert world.seen == ["add", "update", "add"]


@pytest.mark.parametrize("change", [None, {"status": {"x": 1}}])
def test_an_add_that_succeeded_is_not_repeated_for_its_finalizer(world, change):
    world.refused_writes = [2, 3]
    world.server.create("a")
    world.step()
    assert world.finalizers() == (MARK,)
    if change:
        world.server.change("a", **change)
    world.simulation.settle()
    assert world.seen == ["add"]
    assert world.finalizers() == (OURS,)


def test_a_change_before_the_finalizer_could_be_written_is_an_update(world):
    world.refused_writes = [2, 3]
    world.server.create("a", spec={"n": 1})
    world.step()
    world.server.change("a", spec={"n": 2})
    world.simulation.settle()
    assert world.seen == ["add", "update"]
    assert world.finalizers() == (OURS,)


def test_a_delete_that_succeeded_is_not_repeated_for_its_finalizer(world):
    world.refused_writes = [3, 4]
    world.server.create("a")
    world.simulation.settle()
    world.server.delete("a")
    world.simulation.settle()
    assert world.seen == ["add", "delete"]
    assert world.finalizers() is None


def test_a_deletion_before_the_finalizer_could_be_written_is_cleaned_up(world):
    world.refused_writes = [2, 3]
    world.server.create("a")
    world.step()
    world.server.delete("a")
    world.simulation.settle()
    assert world.seen == ["add", "delete"]
    assert world.finalizers() is None


def test_what_went_after_its_delete_had_succeeded_is_not_deleted_twice(world):
    world.refused_writes = [3]
    world.server.create("a")
    world.simulation.settle()
    world.server.delete("a")
    world.step()
    world.strip()
    world.simulation.settle()
    assert world.seen == ["add", "delete"]


def test_a_new_process_knows_nothing_of_that_and_does_it_again(world):
    world.refused_writes = [2]
    world.server.create("a")
    world.step()
    world.simulation.restart()
    world.simulation.settle()
    assert world.seen == ["add", "add"]


def test_a_sync_is_not_repeated_for_a_left_over_mark(world):
    world.refused_writes = [1]
    world.server.create("a", finalizers=[OURS, MARK])
    world.simulation.settle()
    assert world.seen == ["sync"]
    assert world.finalizers() == (OURS,)


def test_nothing_is_remembered_of_what_is_gone(world):
    world.refused_writes = [2, 5]
    world.server.create("a")
    world.simulation.settle()
    world.strip()
    world.simulation.settle()
    world.server.delete("a")
    world.simulation.settle()
    entry = world.simulation.controller._dispatcher._registered.items(str(WIDGET))[0]
    lifecycle = entry.handler.finalizer_lifecycle
    assert not lifecycle._records


def test_an_unfinished_create_is_asked_again_after_a_failed_write():
    plan = [Result(requeue_after=5.0), None]
    seen = []

    def act(request: ReconcileRequest) -> Result | None:
        seen.append(request.action)
        return plan.pop(0) if plan else None

    with Simulation(
        WIDGET,
        lambda process: [OpinionatedReconciler(SimpleReconciler(act), WIDGET, process.client)],
        resync=0.0,
    ) as simulation:
        simulation.create("a")
        simulation.settle()
        assert seen == [CREATE, CREATE]


# A client or a webhook that strips


@attrs.define
class Stripping:
    """A client whose writes lose finalizers of that name, as behind an admission webhook."""

    server: Others
    name: str

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        return self.server.get(kind, name, namespace=namespace)

    def patch(self, kind: Kind, name: str, patch: JsonPatch, *, namespace: str = "") -> Object:
        made = self.server.patch(kind, name, patch, namespace=namespace)
        kept = [other for other in made.finalizers if other != self.name]
        return self.server.change(name, finalizers=kept) if self.name in made.finalizers else made


@pytest.mark.parametrize("name", [OURS, MARK])
def test_a_client_that_strips_finalizers_is_an_error_that_says_so(name):
    server = Others(WIDGET)
    seen = []
    watcher = OpinionatedWatcher(WIDGET, Stripping(server, name), add=seen.append)
    obj = server.create("a")
    with pytest.raises(FinalizerError, match=f"(?s){name}.*without the finalizer.*webhook"):
        watcher.add(obj)
    assert len(seen) == (1 if name == OURS else 0), "nothing begins before the mark is on"


# What the wrapped one concerns


class Sized:
    """Concerned with one field alone."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.asked = 0

    def add(self, obj: Object) -> None:
        self.seen.append("add")

    def update(self, old: Object, new: Object) -> None:
        self.seen.append(f"update {new.spec['size']}")

    def delete(self, obj: Object) -> None:
        self.seen.append("delete")

    def reconcile(self, request: ReconcileRequest) -> None:
        size = f" {request.object.spec['size']}" if request.action is UPDATE else ""
        self.seen.append({CREATE: "add", DELETE: "delete"}.get(request.action, "update") + size)

    def concerns(self, old: Object, new: Object) -> bool:
        self.asked += 1
        return bool(old.spec["size"] != new.spec["size"])


@pytest.fixture(params=[WATCHER, RECONCILER])
def sized(request):
    inner = Sized()

    def make(process):
        if request.param == WATCHER:
            return [OpinionatedWatcher.wrap(inner, WIDGET, process.client)]
        return [OpinionatedReconciler(inner, WIDGET, process.client)]

    with Simulation(WIDGET, make, resync=0.0) as simulation:
        simulation.inner = inner
        yield simulation


def test_updates_of_no_concern_are_not_shown(sized):
    Others(sized).create("a", spec={"size": 1, "color": "red"})
    sized.settle()
    Others(sized).change("a", spec={"size": 1, "color": "blue"})
    sized.settle()
    Others(sized).change("a", spec={"size": 2, "color": "blue"})
    sized.settle()
    Others(sized).delete("a")
    sized.settle()
    assert sized.inner.seen == ["add", "update 2", "delete"]


def test_they_do_not_end_retries_either(sized):
    Others(sized).create("a", spec={"size": 1, "color": "red"})
    sized.settle()

    def fail(call):
        if call.action == UPDATE.value and call.object.spec["color"] == "red":
            raise ConnectionError("not yet")

    sized.during_call = fail
    Others(sized).change("a", spec={"size": 2, "color": "red"})
    sized.poll()
    while sized.handle():
        pass
    assert sized.controller.pending_retries == 1
    Others(sized).change("a", spec={"size": 2, "color": "blue"})
    sized.poll()
    while sized.handle():
        pass
    assert sized.controller.pending_retries == 1
    sized.settle()
    assert sized.inner.seen == ["add", "update 2"]


def test_a_strip_concerns_us_whatever_concerns_them(sized):
    Others(sized).create("a", spec={"size": 1, "color": "red"})
    sized.settle()
    Others(sized).change("a", spec={"size": 1, "color": "blue"}, finalizers=[])
    sized.settle()
    assert Others(sized).find("a").finalizers == (OURS,)
    assert sized.inner.seen == ["add", "add"]


def test_a_concerns_that_fails_hides_nothing(caplog):
    seen = []

    def concerns(old, new):
        raise ConnectionError("planned")

    def make(process):
        return [
            OpinionatedWatcher(
                WIDGET,
                process.client,
                update=lambda _, new: seen.append(new.spec),
                concerns=concerns,
            )
        ]

    with Simulation(WIDGET, make, resync=0.0) as simulation:
        simulation.create("a", spec={"n": 1})
        simulation.settle()
        change(simulation, "a", spec={"n": 2})
        simulation.settle()
    assert seen == [{"n": 2}]
    assert "concerns() of the watcher of" in caplog.text


def test_a_watcher_without_concerns_is_shown_every_change_of_the_spec():
    seen = []
    inner = SimpleWatcher(update=lambda _, new: seen.append(new.spec))
    with Simulation(
        WIDGET, lambda p: [OpinionatedWatcher.wrap(inner, WIDGET, p.client)]
    ) as simulation:
        simulation.create("a", spec={"n": 1})
        simulation.settle()
        change(simulation, "a", spec={"n": 2})
        simulation.poll()
        simulation.settle()
    assert seen == [{"n": 2}]


def test_concerns_that_is_no_function_of_two_objects_is_refused():
    with pytest.raises(TypeError, match="concerns=3 is not a function of \\(old, new\\)"):
        OpinionatedWatcher(WIDGET, no_client(), concerns=3)


# The error


def test_the_error_carries_the_patch_and_the_status():
    server = Others(WIDGET)

    class Refusing(Stripping):
        def patch(self, kind, name, patch, *, namespace=""):
            raise Forbidden("no", status=403, reason="Forbidden")

    watcher = OpinionatedWatcher(WIDGET, Refusing(server, ""))
    with pytest.raises(FinalizerError) as raised:
        watcher.add(server.create("a"))
    error = raised.value
    assert error.status == 403
    assert isinstance(error.patch, JsonPatch)
    assert error.patch.operations[-1]["value"] == [MARK]


def test_the_error_after_a_callback_carries_them_too():
    server = Others(WIDGET)

    class Refusing(Stripping):
        def patch(self, kind, name, patch, *, namespace=""):
            if patch.operations[-1]["op"] == "replace":
                raise Forbidden("no", status=403, reason="Forbidden")
            return self.server.patch(kind, name, patch, namespace=namespace)

    watcher = OpinionatedWatcher(WIDGET, Refusing(server, ""))
    with pytest.raises(FinalizerError, match="the add callback succeeded, but then") as raised:
        watcher.add(server.create("a"))
    assert raised.value.status == 403
    assert raised.value.patch.operations[-1]["value"] == OURS


def test_without_an_answer_there_is_no_status():
    server = Others(WIDGET)

    class Away(Stripping):
        def get(self, *_, **__):
            raise ConnectionError("away")

        patch = get

    watcher = OpinionatedWatcher(WIDGET, Away(server, ""))
    with pytest.raises(FinalizerError) as raised:
        watcher.delete(Object.from_dict(WIDGET, {"metadata": {"name": "a", "finalizers": [OURS]}}))
    assert raised.value.status is None
    assert raised.value.patch is None


@pytest.mark.parametrize("form", [WATCHER, RECONCILER])
def test_nothing_is_remembered_of_what_is_gone_once_its_clean_up_is_given_up(form: str) -> None:
    world = World(form, retry_policy=lambda *_: None)
    with world.simulation as simulation:
        world.server.create("a")
        simulation.settle()
        world.failing.add("delete")
        world.strip()
        world.server.delete("a")
        simulation.settle()
        (target,) = simulation.controller._dispatcher.registered()
        assert world.seen[-1] == "delete"
        assert target.finalizer_lifecycle is not None
        assert not target.finalizer_lifecycle._records


@pytest.mark.parametrize("form", [WATCHER, RECONCILER])
def test_nothing_is_remembered_of_what_is_no_longer_followed(form: str) -> None:
    world = World(form)
    with world.simulation as simulation:
        world.server.create("a")
        simulation.settle()
        world.failing.update(("sync", "add"))
        world.strip()
        world.step()
        dispatcher = simulation.controller._dispatcher
        (target,) = dispatcher.registered()
        assert target.finalizer_lifecycle is not None
        assert target.finalizer_lifecycle._records
        obj = world.server.find("a")
        (source,) = {call.source for calls in dispatcher._all_calls() for call in calls.calls}
        dispatcher.handle_event(source, Event(DELETE, obj, is_unfollowed=True))
        assert not target.finalizer_lifecycle._records
        assert not dispatcher.pending_retries()
        assert world.seen[-1] != "delete"
