"""The finalizers around a reconciler: what it is asked when, and what holds an object."""

from __future__ import annotations

import pytest

from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import FinalizerError, Result
from appsdk_operator.resource import Kind
from appsdk_operator.testing import Simulation
from appsdk_operator.watchers import (
    KeyReconciler,
    OpinionatedReconciler,
    OpinionatedWatcher,
    ReconcileRequest,
    SimpleReconciler,
    never_retry,
)
from tests.simulations import Others, no_client

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
PLAIN = Kind(group="", version="v1", kind="ConfigMap")
CREATE, UPDATE, DELETE, RESYNC, _ = ResourceAction
OURS = "example.com/operator.v1.Widget"
MARK = "example.com/wip.v1.Widget"
SOON = Result(requeue_after=5.0)
AT_ONCE = Result(requeue_after=0)


class World:
    """A simulation of one reconciler with a plan: results and errors, one for each call."""

    def __init__(self, *plan, kind=WIDGET, **options) -> None:
        self.plan = list(plan)
        self.seen: list[str] = []
        self.requests: list[ReconcileRequest] = []
        self.simulation = Simulation(
            kind,
            lambda process: [
                OpinionatedReconciler(SimpleReconciler(self.act), kind, process.client)
            ],
            **options,
        )
        self.server = Others(self.simulation)

    def act(self, request):
        self.seen.append(request.action.value)
        self.requests.append(request)
        outcome = self.plan.pop(0) if self.plan else None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def step(self) -> None:
        """One request of the informer, and what is due by then."""
        self.simulation.poll()
        while self.simulation.handle():
            pass

    def finalizers(self, name="a"):
        obj = self.server.find(name)
        return None if obj is None else obj.finalizers


@pytest.fixture
def make_world():
    worlds = []

    def make(*plan, **options):
        options.setdefault("resync", 0.0)
        worlds.append(World(*plan, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.simulation.close()


def test_a_new_object_is_created_once_and_held(make_world):
    world = make_world()
    world.server.create("a", finalizers=["somebody.else/x"])
    world.simulation.settle()
    assert world.seen == ["CREATE"]
    assert world.finalizers() == ("somebody.else/x", OURS)


def test_create_is_asked_until_it_has_succeeded_and_the_mark_holds_meanwhile(make_world):
    world = make_world(ValueError("no"), ValueError("no"))
    world.server.create("a")
    world.step()
    assert world.finalizers() == (MARK,)
    world.simulation.settle()
    assert world.seen == ["CREATE"] * 3
    assert world.finalizers() == (OURS,)


def test_who_asks_to_be_called_again_has_not_finished_the_create(make_world):
    world = make_world(SOON, SOON)
    world.server.create("a")
    world.step()
    assert world.finalizers() == (MARK,)
    world.step()  # our own write of the mark is no news
    assert world.simulation.controller.pending_requeues == 1
    world.simulation.settle()
    assert world.seen == ["CREATE"] * 3
    assert world.finalizers() == (OURS,)


def test_a_change_before_that_is_a_create_with_the_newest_object_and_no_update(make_world):
    world = make_world(SOON)
    world.server.create("a", spec={"n": 1})
    world.step()
    world.server.change("a", spec={"n": 2})
    world.simulation.settle()
    assert world.seen == ["CREATE", "CREATE"]
    assert world.requests[-1].object.spec == {"n": 2}
    assert world.finalizers() == (OURS,)


def test_a_change_of_the_spec_is_an_update_with_what_was_before(make_world):
    world = make_world()
    world.server.create("a", spec={"n": 1})
    world.simulation.settle()
    world.server.change("a", spec={"n": 2})
    world.simulation.settle()
    assert world.seen == ["CREATE", "UPDATE"]
    assert world.requests[-1].old.spec == {"n": 1}


@pytest.mark.parametrize("change", [{"status": {"x": 1}}, {"labels": {"x": "1"}}])
def test_what_leaves_the_generation_as_it_is_is_not_shown(make_world, change):
    world = make_world()
    world.server.create("a", spec={"n": 1})
    world.simulation.settle()
    world.server.change("a", **change)
    world.simulation.settle()
    assert world.seen == ["CREATE"]


def test_what_an_earlier_process_handled_comes_as_a_resync(make_world):
    world = make_world()
    world.server.create("a")
    world.simulation.settle()
    world.simulation.restart()
    world.simulation.settle()
    assert world.seen == ["CREATE", "RESYNC"]


def test_a_failed_resync_is_asked_again(make_world):
    world = make_world(None, ValueError("no"))
    world.server.create("a")
    world.simulation.settle()
    world.simulation.restart()
    world.step()
    assert world.simulation.controller.pending_retries == 1
    world.simulation.advance(5.0)
    world.step()
    assert world.seen == ["CREATE", "RESYNC", "RESYNC"]


def test_a_failed_resync_of_a_running_process_is_asked_again_as_one(rig, widget):
    plan = [None, ValueError("no")]
    seen = []

    def act(request):
        seen.append(request.action)
        if error := plan.pop(0) if plan else None:
            raise error

    obj = widget("x", finalizers=[OURS], generation=1)
    inner = OpinionatedReconciler(SimpleReconciler(act), WIDGET, no_client())
    rig.controller.add_reconciler(inner, WIDGET)
    rig.informer.add(obj)
    rig.work()
    rig.informer.resync(obj)
    rig.work()
    assert rig.controller.pending_retries == 1
    rig.after(5.0)
    assert seen == [RESYNC, RESYNC, RESYNC]


def test_a_requeued_resync_is_asked_again(make_world):
    world = make_world(None, SOON, resync=0.0)
    world.server.create("a")
    world.simulation.settle()
    world.simulation.restart()
    world.step()
    world.simulation.advance(5.0)
    world.step()
    assert world.seen == ["CREATE", "RESYNC", "RESYNC"]


def test_a_resync_begins_what_was_never_begun(make_world):
    world = make_world(ValueError("given up"), resync=30.0, retry_policy=never_retry)
    world.server.create("a")
    world.step()
    assert world.simulation.controller.given_up_calls == 1
    world.simulation.settle()
    assert world.seen[:2] == ["CREATE", "CREATE"]
    assert world.finalizers() == (OURS,)


def test_a_resync_that_is_older_than_our_finalizer_is_no_create(make_world):
    world = make_world()
    world.server.create("a")
    world.simulation.poll()
    obj = world.simulation.informer.store.get("a", "default")
    reconciler = OpinionatedReconciler(
        SimpleReconciler(world.act), WIDGET, world.simulation.process.client
    )
    reconciler.reconcile(ReconcileRequest(action=CREATE, object=obj))
    reconciler.reconcile(ReconcileRequest(action=RESYNC, object=obj))
    assert world.seen == ["CREATE", "RESYNC"]
    assert world.finalizers() == (OURS,)


def test_a_deletion_is_asked_while_the_object_is_there_and_lets_it_go_after(make_world):
    world = make_world()
    world.server.create("a", finalizers=["somebody.else/x"])
    world.simulation.settle()
    world.server.delete("a")
    world.simulation.settle()
    assert world.seen == ["CREATE", "DELETE"]
    assert world.requests[-1].object.is_deleting
    assert world.finalizers() == ("somebody.else/x",)


@pytest.mark.parametrize("unfinished", [SOON, AT_ONCE, ValueError("no")])
def test_a_deletion_that_is_not_finished_holds_the_object(make_world, unfinished):
    world = make_world(None, unfinished, unfinished)
    world.server.create("a")
    world.simulation.settle()
    world.server.delete("a")
    world.simulation.poll()
    world.simulation.handle()
    assert world.finalizers() == (OURS,)
    world.simulation.settle()
    assert world.seen == ["CREATE", "DELETE", "DELETE", "DELETE"]
    assert world.finalizers() is None


def test_a_resync_of_an_object_that_is_being_deleted_cleans_it_up(make_world):
    world = make_world()
    world.server.create("a")
    world.simulation.settle()
    world.server.delete("a")
    reconciler = OpinionatedReconciler(
        SimpleReconciler(world.act), WIDGET, world.simulation.process.client
    )
    reconciler.reconcile(ReconcileRequest(action=RESYNC, object=world.server.find("a")))
    assert world.seen == ["CREATE", "DELETE"]
    assert world.finalizers() is None


def test_state_passes_from_create_to_the_deletion_that_takes_its_place(make_world):
    world = make_world(SOON)
    world.server.create("a")
    world.step()
    world.requests[0].state["machine"] = "m-1"
    world.server.delete("a")
    world.simulation.settle()
    assert world.seen == ["CREATE", "DELETE"]
    assert world.requests[-1].state == {"machine": "m-1"}


def test_what_was_deleted_before_it_was_begun_is_left_alone(make_world):
    world = make_world()
    world.server.create("a", finalizers=["somebody.else/x"])
    world.server.delete("a")
    world.simulation.settle()
    assert world.seen == []


def test_an_object_that_the_server_dropped_in_spite_of_the_finalizer_is_cleaned_up(make_world):
    world = make_world()
    world.server.create("a")
    world.simulation.settle()
    obj = world.simulation.informer.store.get("a", "default")
    world.server.delete("a")
    world.simulation.settle()
    reconciler = OpinionatedReconciler(
        SimpleReconciler(world.act), WIDGET, world.simulation.process.client
    )
    world.seen.clear()
    reconciler.reconcile(ReconcileRequest(action=DELETE, object=obj))
    assert world.seen == ["DELETE"]


def test_a_failing_finalizer_write_is_a_failure_that_is_tried_again(make_world):
    world = make_world()
    world.server.create("a")
    world.simulation.poll()
    obj = world.simulation.informer.store.get("a", "default")

    class Broken:
        def get(self, *_, **__):
            raise ConnectionError("away")

        patch = get

    reconciler = OpinionatedReconciler(SimpleReconciler(world.act), WIDGET, Broken())
    with pytest.raises(FinalizerError, match="away"):
        reconciler.reconcile(ReconcileRequest(action=CREATE, object=obj))
    assert world.seen == [], "nothing begins before the mark is on"


def test_a_reconciler_by_key_gets_the_guarantees_too():
    seen = []
    with Simulation(
        WIDGET,
        lambda process: [OpinionatedReconciler(KeyReconciler(seen.append), WIDGET, process.client)],
        resync=0.0,
    ) as simulation:
        simulation.create("a")
        simulation.settle()
        simulation.delete("a")
        simulation.settle()
        assert [key.name for key in seen] == ["a", "a"]
        assert simulation.find("a") is None


def test_async_reconcilers_are_awaited_before_the_finalizer_is_put_on(make_world):
    done = []

    async def act(request):
        done.append(request.action)

    with Simulation(
        WIDGET,
        lambda process: [OpinionatedReconciler(SimpleReconciler(act), WIDGET, process.client)],
        resync=0.0,
    ) as simulation:
        simulation.create("a")
        simulation.settle()
        assert done == [CREATE]
        assert simulation.find("a").finalizers == (OURS,)


# What is refused.


def test_what_is_no_result_is_a_failure_that_names_the_reconciler(make_world):
    world = make_world(30)
    world.server.create("a")
    world.step()
    [call] = world.simulation.calls
    assert isinstance(call.error, TypeError)
    assert "return None when all is done, Result(" in str(call.error)
    assert world.finalizers() == (MARK,)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((object(), WIDGET, no_client()), {}, TypeError, "no method reconcile"),
        ((SimpleReconciler(print), None, WIDGET), {}, TypeError, "first the kind"),
        (
            (SimpleReconciler(print), WIDGET, no_client()),
            {"finalizer": "x"},
            TypeError,
            "not a function",
        ),
        (
            (SimpleReconciler(print), WIDGET, no_client()),
            {"finalizer": lambda _: "a" * 64},
            ValueError,
            "longer than 63",
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments, options, error, text):
    with pytest.raises(error, match=text):
        OpinionatedReconciler(*arguments, **options)


def test_an_object_of_another_kind_is_refused(widget):
    reconciler = OpinionatedReconciler(SimpleReconciler(print), PLAIN, no_client())
    with pytest.raises(TypeError, match="under its own kind"):
        reconciler.reconcile(ReconcileRequest(action=CREATE, object=widget("x")))


def watcher(finalizer=None):
    options = {"finalizer": lambda _: finalizer} if finalizer else {}
    return OpinionatedWatcher(WIDGET, no_client(), **options)


def reconciler(finalizer=None):
    options = {"finalizer": lambda _: finalizer} if finalizer else {}
    return OpinionatedReconciler(SimpleReconciler(print), WIDGET, no_client(), **options)


def add(rig, target):
    if isinstance(target, OpinionatedReconciler):
        rig.controller.add_reconciler(target, WIDGET)
    else:
        rig.controller.add_watcher(target, WIDGET)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (watcher(), watcher()),
        (watcher(), reconciler()),
        (reconciler("example.com/x"), watcher("example.com/x")),
        (watcher("example.com/x"), reconciler("example.com/wip.x")),
    ],
)
def test_two_with_one_finalizer_on_one_kind_are_refused(rig, first, second):
    add(rig, first)
    with pytest.raises(ValueError, match="give one of them another finalizer with finalizer="):
        add(rig, second)
    rig.controller.remove_watcher(first, WIDGET)
    rig.controller.remove_reconciler(first, WIDGET)
    add(rig, second)


def test_two_with_one_finalizer_may_be_told_of_different_objects(rig):
    rig.controller.add_watcher(watcher(), "widgets of one namespace")
    rig.controller.add_watcher(watcher(), "widgets of another one")


def test_two_with_their_own_finalizers_are_welcome(rig):
    add(rig, watcher())
    add(rig, reconciler("example.com/x"))


def test_it_names_itself_and_its_finalizers():
    made = reconciler("example.com/x")
    assert "example.com/x" in repr(made)
    assert made.in_progress_finalizer == "example.com/wip.x"
