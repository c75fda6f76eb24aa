"""Who is told of what, in which order: informers, kinds and watchers of a controller."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest

from appsdk_operator.cache import Informer, ResourceAction
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Metrics, StopSignal, system_clock
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    SimpleWatcher,
    keep_all_retries,
    never_retry,
)

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
GADGET = Kind(group="example.com", version="v1", kind="Gadget")


def test_watchers_run_one_after_another_in_add_order(rig, widget):
    for name in "abc":
        rig.watcher(name)
    rig.informer.add(widget("x", 1))
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.informer.delete(widget("x", 3))
    assert rig.work() == [
        *("a CREATE 1 of x", "b CREATE 1 of x", "c CREATE 1 of x"),
        *("a UPDATE 1->2 of x", "b UPDATE 1->2 of x", "c UPDATE 1->2 of x"),
        *("a DELETE 3 of x", "b DELETE 3 of x", "c DELETE 3 of x"),
    ]


def test_with_one_worker_the_events_of_all_objects_keep_their_order(rig, widget):
    rig.watcher()
    rig.informer.add(widget("x", 1), widget("y", 2))
    rig.informer.update(widget("x", 1), widget("x", 3))
    rig.informer.add(widget("z", 4))
    rig.informer.update(widget("y", 2), widget("y", 5))
    assert [call.split(" ", 1)[1] for call in rig.work()] == [
        "CREATE 1 of x",
        "CREATE 2 of y",
        "UPDATE 1->3 of x",
        "CREATE 4 of z",
        "UPDATE 2->5 of y",
    ]


def test_watchers_of_other_kinds_are_left_alone(rig, widget):
    rig.watcher("widgets")
    rig.watcher("gadgets", kind=GADGET)
    gadgets = rig.add_informer(GADGET)
    rig.informer.add(widget("x"))
    gadgets.add(widget("g", kind=GADGET))
    assert rig.work() == ["widgets CREATE 1 of x", "gadgets CREATE 1 of g"]


def test_a_kind_is_a_free_string(rig, widget):
    rig.watcher("w", kind="mine")
    rig.add_informer("mine").add(widget("x"))
    rig.add_informer("yours").add(widget("y"))
    assert rig.work() == ["w CREATE 1 of x"]


def test_a_kind_and_its_text_are_the_same_name(rig, widget):
    rig.watcher(kind=str(WIDGET))
    rig.informer.add(widget("x"))
    assert rig.work() == ["w CREATE 1 of x"]


def test_each_informer_of_a_kind_triggers_all_of_its_watchers(rig, widget):
    rig.watcher("a")
    rig.watcher("b")
    second = rig.add_informer()
    rig.informer.add(widget("x", namespace="one"))
    second.add(widget("x", 7, namespace="two"))
    assert rig.work() == [
        *("a CREATE 1 of x", "b CREATE 1 of x"),
        *("a CREATE 7 of x", "b CREATE 7 of x"),
    ]


def test_an_informer_is_added_once(rig):
    with pytest.raises(ValueError, match="added already"):
        rig.controller.add_informer(rig.informer, GADGET)
    assert rig.informer.registrations == 1


def test_an_informer_that_refuses_the_handler_is_not_kept(rig):
    class Stopped:
        def add_event_handler(self, handler):
            raise RuntimeError("has stopped")

        def run(self, stop):
            raise AssertionError

    stopped = Stopped()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="has stopped"):
            rig.controller.add_informer(stopped, WIDGET)
    rig.informer.handler.on_initial_list_end()
    assert rig.controller.has_synced, "nobody waits for what was refused"


def test_the_same_watcher_added_twice_is_called_twice(rig, widget):
    watcher = rig.watcher("a")
    rig.watcher("b")
    rig.controller.add_watcher(watcher, WIDGET)
    rig.informer.add(widget("x"))
    assert [call[0] for call in rig.work()] == ["a", "b", "a"]
    rig.controller.remove_watcher(watcher, WIDGET)
    rig.informer.add(widget("y"))
    assert [call[0] for call in rig.work()] == ["b", "a"], "the first of them goes"


def test_many_threads_remove_as_many_places_as_they_ask_for(rig):
    watcher = rig.make_watcher()
    for _ in range(200):
        rig.controller.add_watcher(watcher, WIDGET)
    remove = [
        threading.Thread(
            target=lambda: [rig.controller.remove_watcher(watcher, WIDGET) for _ in range(40)]
        )
        for _ in range(4)
    ]
    for thread in remove:
        thread.start()
    for thread in remove:
        thread.join()
    assert rig.controller._dispatcher._registered.key_size(str(WIDGET)) == 40


def test_removing_what_is_not_there_does_nothing(rig, widget):
    watcher = rig.watcher("a")
    rig.controller.remove_watcher(rig.make_watcher("b"), WIDGET)
    rig.controller.remove_watcher(watcher, GADGET)
    rig.controller.remove_all_watchers_for_resource(GADGET)
    rig.controller.remove_informer(type(rig.informer)())
    rig.informer.add(widget("x"))
    assert rig.work() == ["a CREATE 1 of x"]


def test_the_others_keep_their_order_after_a_removal(rig, widget):
    watchers = [rig.watcher(name) for name in "abcd"]
    rig.controller.remove_watcher(watchers[1], WIDGET)
    rig.informer.add(widget("x"))
    assert [call[0] for call in rig.work()] == ["a", "c", "d"]


def test_all_watchers_of_a_kind_can_be_removed_at_once(rig, widget):
    rig.watcher("a", ValueError())
    rig.watcher("b")
    rig.watcher("g", kind=GADGET)
    rig.informer.add(widget("x"))
    rig.work()
    rig.controller.remove_all_watchers_for_resource(WIDGET)
    rig.informer.add(widget("y"))
    rig.add_informer(GADGET).add(widget("z"))
    assert rig.after(1000) == ["g CREATE 1 of z"]
    assert rig.controller.pending_retries == 0


def test_a_removal_keeps_the_retries_of_the_others_with_the_others(rig, widget):
    # v0.9.10 kept retries by the watcher's place in the list, and a removal mixed them up.
    first = rig.watcher("first")
    rig.watcher("second", ValueError())
    rig.watcher("third")
    rig.informer.add(widget("x"))
    rig.work()
    rig.controller.remove_watcher(first, WIDGET)
    assert rig.after(5) == ["second CREATE 1 of x"]
    assert rig.after(1000) == []


def test_a_removed_watcher_takes_its_retries_along(rig, widget):
    first = rig.watcher("first", ValueError())
    rig.watcher("second", ValueError())
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.controller.pending_retries == 2
    rig.controller.remove_watcher(first, WIDGET)
    assert rig.controller.pending_retries == 1
    assert rig.after(5) == ["second CREATE 1 of x"]


def test_a_watcher_that_is_added_again_does_not_inherit_its_old_retries(rig, widget):
    watcher = rig.watcher("w", ValueError())
    rig.informer.add(widget("x"))
    rig.work()
    rig.controller.remove_watcher(watcher, WIDGET)
    rig.controller.add_watcher(watcher, WIDGET)
    assert rig.after(1000) == []


def test_a_watcher_removed_while_an_event_is_handled_is_not_called_for_it(rig, widget):
    first = rig.watcher("first")
    second = rig.watcher("second")
    rig.watcher("third")
    first.during = lambda _: rig.controller.remove_watcher(second, WIDGET)
    rig.informer.add(widget("x"))
    assert rig.work() == ["first CREATE 1 of x", "third CREATE 1 of x"]


def test_a_watcher_that_removes_itself_and_fails_is_not_retried(rig, widget):
    watcher = rig.watcher("w", ValueError())
    watcher.during = lambda _: rig.controller.remove_watcher(watcher, WIDGET)
    rig.informer.add(widget("x"))
    assert rig.work() == ["w CREATE 1 of x"]
    assert rig.after(1000) == []
    assert rig.controller.pending_retries == 0
    assert len(rig.errors) == 1


def test_a_watcher_added_by_a_watcher_sees_the_next_event(rig, widget):
    first = rig.watcher("first")
    late = rig.make_watcher("late")

    def add_late(_):
        first.during = lambda _: None
        rig.controller.add_watcher(late, WIDGET)

    first.during = add_late
    rig.informer.add(widget("x"), widget("y"))
    assert rig.work() == ["first CREATE 1 of x", "first CREATE 1 of y", "late CREATE 1 of y"]


def test_a_failing_watcher_keeps_no_other_from_the_event(rig, widget):
    rig.watcher("a")
    rig.watcher("b", ValueError("planned"))
    rig.watcher("c")
    rig.informer.add(widget("x"))
    assert [call[0] for call in rig.work()] == ["a", "b", "c"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_a_worker_is_a_failure_like_any_other(make_rig, widget, error):
    rig = make_rig(clock=system_clock)
    rig.watcher("a", error)
    rig.watcher("b")
    rig.start()
    rig.informer.add(widget("x"), widget("y"))
    assert rig.controller.wait_idle(10)
    assert [call[:1] for call in rig.calls] == ["a", "b", "a", "b"]
    failure, call = rig.errors[0]
    assert isinstance(failure, RuntimeError)
    assert failure.__cause__ is error
    assert call.action is ResourceAction.CREATE
    assert rig.stop() == []


def test_a_step_in_the_tests_own_thread_lets_an_interrupt_out(rig, widget):
    rig.watcher("a", KeyboardInterrupt())
    rig.informer.add(widget("x"))
    with pytest.raises(KeyboardInterrupt):
        rig.controller.process_next()
    rig.informer.add(widget("y"))
    assert rig.work() == ["a CREATE 1 of y"], "the controller can be used on"


def test_a_removed_informers_events_and_retries_are_forgotten(rig, widget):
    rig.watcher("w", ValueError())
    other = rig.add_informer()
    rig.informer.add(widget("x"))
    other.add(widget("o"))
    rig.controller.process_next()  # x fails
    rig.informer.add(widget("y"))
    rig.controller.remove_informer(rig.informer)
    rig.informer.add(widget("z"))
    assert rig.work() == ["w CREATE 1 of o"]
    assert rig.after(1000) == []
    assert (rig.controller.pending_retries, rig.controller.pending_events) == (0, 0)


def test_an_informer_removed_by_its_own_event_gets_no_retry(rig, widget):
    watcher = rig.watcher("w", ValueError())
    watcher.during = lambda _: rig.controller.remove_informer(rig.informer)
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.after(1000) == []
    assert not rig.controller._dispatcher._pending


def test_nothing_grows_when_objects_come_and_go(make_rig, widget):
    rig = make_rig(retry_policy=ConstantBackoff(1e6))
    rig.watcher("w", *[ValueError() for _ in range(1501)])
    rig.informer.add(widget("other"))
    rig.work()
    late = rig.watcher("late")
    for n in range(500):
        first, second = widget(f"x{n}", 2 * n), widget(f"x{n}", 2 * n + 1)
        rig.informer.add(first)
        rig.informer.update(first, second)
        rig.work()
        rig.informer.delete(second)
        rig.work()
    dispatcher, delivery = rig.controller._dispatcher, rig.controller._delivery
    # The deletions failed too, and are owed; nothing else is.
    owed = [call.action for call in dispatcher.pending_calls()]
    assert owed == [ResourceAction.CREATE] + [ResourceAction.DELETE] * 500
    rig.after(1e6)
    rig.informer.delete(widget("other", 5000))
    rig.work()
    assert not dispatcher._pending
    assert not delivery._pending._by_key
    assert rig.controller.pending_events == rig.controller.pending_retries == 0
    assert all(target.not_shown is None for target in dispatcher.registered())
    assert late.calls


def test_what_is_given_up_is_forgotten_with_its_object(make_rig, widget):
    rig = make_rig(retry_policy=never_retry)
    rig.watcher("w", ValueError(), ValueError())
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.controller._dispatcher._pending
    rig.informer.delete(widget("x", 2))
    rig.work()
    assert not rig.controller._dispatcher._pending


@pytest.mark.parametrize("policy", [None, keep_all_retries])
def test_what_a_policy_keeps_is_forgotten_with_the_object_too(make_rig, widget, policy):
    rig = make_rig(retry_dequeue_policy=policy)
    rig.watcher("w", ValueError(), None, ValueError())
    rig.informer.add(widget("x", 1))
    rig.work()
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.informer.delete(widget("x", 3))
    rig.work()
    deletes = [call.action for call in rig.controller._dispatcher.pending_calls()]
    assert deletes == [ResourceAction.DELETE]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": ""}, "name=''"),
        ({"stop_timeout": -1}, "stop_timeout"),
        ({"workers": 0}, "workers"),
    ],
)
def test_options_out_of_bounds_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        InformerController(metrics=Metrics(), **options)


def test_many_workers_never_run_two_calls_for_one_object_retries_included(make_rig, widget):
    busy: defaultdict[str, int] = defaultdict(int)
    overlaps, seen = [], defaultdict(list)

    def call(*objects):
        obj = objects[-1]
        busy[obj.name] += 1
        if busy[obj.name] > 1:
            overlaps.append(obj.name)
        threading.Event().wait(0)  # let others have a go
        busy[obj.name] -= 1
        seen[obj.name].append(int(obj.resource_version))
        if int(obj.resource_version) % 3 == 0:
            raise ValueError("planned")

    controller = InformerController(
        workers=6,
        retry_policy=ConstantBackoff(0, max_attempts=1),
        retry_dequeue_policy=keep_all_retries,
        error_handler=lambda *_: None,
        metrics=Metrics(),
    )
    informer = type(make_rig().informer)()
    controller.add_informer(informer, WIDGET)
    controller.add_watcher(SimpleWatcher(add=call, update=call), WIDGET)
    stop = StopSignal()
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()
    try:
        for version in range(1, 60):
            for name in "abcdefgh":
                informer.update(widget(name, version - 1), widget(name, version))
        assert controller.wait_idle(20)
    finally:
        stop.set()
        thread.join()
    assert not overlaps
    for name in "abcdefgh":
        assert seen[name] == sorted(seen[name])
        assert set(seen[name]) == set(range(1, 60))


@pytest.mark.parametrize("when", ["before", "during the call", "in the place of the first"])
def test_nothing_overlaps_for_an_object_that_two_informers_show(make_rig, widget, when):
    rig = make_rig(clock=system_clock, workers=3)
    second = rig.add_informer() if when == "before" else None
    is_in, go_on, others_done = threading.Event(), threading.Event(), threading.Event()

    def during(call):
        if call.endswith("CREATE 1 of x"):
            is_in.set()
            go_on.wait(10)
        elif call.endswith("of y"):
            others_done.set()

    rig.watcher().during = during
    rig.start()
    rig.informer.add(widget("x", 1))
    assert is_in.wait(10)
    if when == "in the place of the first":
        rig.controller.remove_informer(rig.informer)
    second = second or rig.add_informer()
    second.add(widget("x", 2), widget("y"))
    assert others_done.wait(10), "other objects go on"
    assert rig.calls == ["w CREATE 1 of x", "w CREATE 1 of y"]
    go_on.set()
    assert rig.controller.wait_idle(10)
    assert rig.calls[2:] == ["w CREATE 2 of x"]
    assert not rig.controller._delivery._handled_now


def test_health_says_which_informer_is_not_ready(rig):
    class NoClient:
        list_page = watch = staticmethod(print)

    rig.controller.add_informer(
        Informer(WIDGET, NoClient(), metrics=Metrics(), clock=rig.clock), WIDGET
    )
    health = rig.controller.health()
    assert not health.is_ready
    assert "not synced" in health.text
    assert "not started" in health.text


def test_health_without_informers_of_its_own_is_good(rig):
    assert rig.controller.health().is_ready
