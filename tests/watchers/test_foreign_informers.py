"""Informers of other packages: what they call an update, and what they say of themselves."""

from __future__ import annotations

import threading

import pytest

from appsdk_operator.cache import Health
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.watchers import InformerController, SimpleWatcher

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


def widget(version: str, uid: str = "u") -> Object:
    metadata = {"name": "a", "namespace": "x", "uid": uid, "resourceVersion": version}
    return Object.from_dict(WIDGET, {"metadata": metadata})


def named(name: str, version: int) -> Object:
    metadata = {"name": name, "namespace": "x", "uid": name, "resourceVersion": str(version)}
    return Object.from_dict(WIDGET, {"metadata": metadata})


class Foreign:
    def add_event_handler(self, handler):
        self.handler = handler

    def run(self, stop):
        stop.wait()


def controlled(informer):
    told = []
    controller = InformerController(clock=ManualClock(), metrics=Metrics())
    controller.add_informer(informer, "widgets")
    controller.add_watcher(
        SimpleWatcher(
            add=lambda obj: told.append(f"add {obj.uid}"),
            update=lambda old, new: told.append(
                f"update {old.resource_version}->{new.resource_version}"
            ),
            delete=lambda obj: told.append(f"delete {obj.uid}"),
        ),
        "widgets",
    )
    return controller, told


def work(controller):
    while controller.process_next():
        pass


def test_one_of_another_package_has_its_own_resync():
    controller = InformerController(metrics=Metrics())
    with pytest.raises(TypeError, match=r"resync=30.*of another package.*where it is made"):
        controller.add_informer(Foreign(), "widgets", resync=30)
    controller.close()


def test_the_same_version_again_is_a_resync():
    foreign = Foreign()
    controller, told = controlled(foreign)
    foreign.handler.on_add(widget("1"))
    foreign.handler.on_update(widget("1"), widget("1"))
    work(controller)
    counts = next(iter(controller._bindings._bindings)).source.counts
    assert {action.name: count for action, count in counts.items() if count} == {
        "CREATE": 1,
        "RESYNC": 1,
    }
    foreign.handler.on_update(widget("1"), widget("2"))
    work(controller)
    assert told[-1] == "update 1->2"
    controller.close()


def test_another_uid_is_a_deletion_and_an_addition():
    foreign = Foreign()
    controller, told = controlled(foreign)
    foreign.handler.on_add(widget("1"))
    work(controller)
    foreign.handler.on_update(widget("1"), widget("9", uid="new"))
    work(controller)
    assert told == ["add u", "delete u", "add new"]
    controller.close()


def test_an_update_without_the_old_state_is_delivered():
    foreign = Foreign()
    controller, told = controlled(foreign)
    foreign.handler.on_add(widget("1"))
    work(controller)
    foreign.handler.on_update(None, widget("2"))
    work(controller)
    assert told == ["add u", "update 2->2"]
    # Merged with an addition that waits, and with an update.
    foreign.handler.on_update(None, widget("3"))
    foreign.handler.on_update(widget("3"), widget("4"))
    work(controller)
    assert told[-1] == "update 3->4"
    controller.close()


class Telling(Foreign):
    def __init__(self, how):
        self.synced = threading.Event()
        if how == "method":
            self.has_synced = self.synced.is_set
        elif how == "wait":
            self.wait_for_sync = lambda stop, timeout: self.synced.wait(timeout)

    def health(self):
        return Health(self.synced.is_set(), "foreign: synced" * self.synced.is_set() or "not yet")


class WithAttribute(Telling):
    @property
    def has_synced(self):
        return self.synced.is_set()


@pytest.mark.parametrize("how", ["method", "wait", "attribute"])
def test_what_an_informer_says_of_itself_is_believed(how):
    foreign = WithAttribute(how) if how == "attribute" else Telling(how)
    controller, _ = controlled(foreign)
    own = next(iter(controller._bindings.owned()))
    own.source.on_initial_list_end()
    stop = StopSignal()
    assert not own.wait_for_sync(stop, 0.0)
    assert [health.text for health in own.healths()] == ["not yet"]
    if how != "wait":
        assert not own.has_synced
    foreign.synced.set()
    assert own.wait_for_sync(stop, 0.0)
    assert own.has_synced
    assert own.healths()[0].is_ready
    controller.close()


class Raising(Foreign):
    has_synced = False
    error = ZeroDivisionError("a bug")

    def health(self):
        raise self.error


class RaisingWait(Raising):
    has_synced = property()

    def wait_for_sync(self, stop, timeout):
        raise self.error


@pytest.mark.parametrize("how", ["method", "wait", "no health"])
def test_an_informer_that_fails_when_asked_is_not_ready_and_ends_nothing(how, caplog):
    foreign = Raising() if how != "wait" else RaisingWait()
    if how == "method":
        foreign.has_synced = foreign.health
    elif how == "no health":
        foreign.health = lambda: True
    controller, told = controlled(foreign)
    foreign.handler.on_add(widget("1"))
    work(controller)
    assert told == ["add u"]
    assert not controller.has_synced
    assert not controller.wait_for_sync(StopSignal(), 0.0)
    assert not controller.health().is_ready
    expected = "its health() returned True" if how == "no health" else "its health() failed: "
    assert f"the informer of widgets: {expected}" in controller.health().text
    assert ("cannot tell whether it has synced" in caplog.text) is (how != "no health")
    controller.close()


def test_an_informer_that_says_nothing_counts_as_synced():
    foreign = Foreign()
    controller, _ = controlled(foreign)
    own = next(iter(controller._bindings.owned()))
    own.source.on_initial_list_end()
    assert own.has_synced
    assert own.wait_for_sync(StopSignal(), 0.0)
    assert own.healths() == ()
    controller.close()


@pytest.mark.parametrize("max_pending", [1, 10_000])
@pytest.mark.parametrize("how", ["method", "wait", "attribute", "nothing"])
def test_it_has_synced_when_the_watchers_had_its_list(how, max_pending):
    made = {"attribute": WithAttribute, "nothing": lambda _: Foreign()}
    foreign = made.get(how, Telling)(how)
    called = []
    controller = InformerController(clock=ManualClock(), metrics=Metrics(), max_pending=max_pending)
    controller.add_informer(foreign, "widgets")
    controller.add_watcher(SimpleWatcher(add=lambda obj: called.append(obj.name)), "widgets")
    stop = StopSignal()
    listed = {name: named(name, 1) for name in "abc"}
    for obj in listed.values():
        foreign.handler.on_add(obj)
    foreign.handler.on_update(listed["c"], named("c", 2))
    foreign.handler.on_delete(listed["b"])  # with max_pending=1 nobody hears of it
    if how == "nothing":
        stop.set()
        controller._bindings.owned()[0].run(stop)
        stop = StopSignal()
    else:
        assert not controller.wait_for_sync(stop, 0.0)
        foreign.synced.set()
    is_done = False
    while not is_done:
        is_done = {*"abc"}.difference("b" * (max_pending == 1)) <= set(called)
        assert controller.has_synced is is_done
        assert controller.wait_for_sync(stop, 0.0) is is_done
        foreign.handler.on_add(named(f"later-{len(called)}", 3))
        controller.process_next()
    controller.close()
