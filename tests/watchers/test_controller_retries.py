"""When and with what a failed call is made again, beside the events."""

from __future__ import annotations

import functools
import gc
import logging
import traceback
import weakref
from datetime import timedelta
from itertools import pairwise

import pytest
import tenacity
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import ResourceAction
from appsdk_operator.client import Forbidden, NotFound
from appsdk_operator.resource import Kind, Object
from appsdk_operator.watchers import (
    ConstantBackoff,
    ExponentialBackoff,
    InformerController,
    KeyReconciler,
    OpinionatedWatcher,
    RetryDequeuePolicy,
    SimpleReconciler,
    SimpleWatcher,
    TenacityRetry,
    WatcherCall,
    default_retry_policy,
    keep_all_retries,
    never_retry,
    opinionated_retry_dequeue_policy,
)
from tests.hypothesis_profiles import scaled
from tests.watchers.conftest import Rig, make_widget

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CREATE, UPDATE, DELETE, RESYNC, _ = ResourceAction
FAIL = [ValueError(f"failure {n}") for n in range(10)]


def test_retries_come_after_5_10_20_40_80_and_160_seconds(rig, widget):
    rig.watcher("w", *FAIL)
    rig.informer.add(widget("x"))
    assert len(rig.work()) == 1
    for delay in (5, 10, 20, 40, 80, 160):
        assert rig.after(delay - 0.5) == [], "not before it is due"
        assert rig.after(0.5) == ["w CREATE 1 of x"]
    assert rig.after(1e6) == []
    assert [call.attempt for _, call in rig.errors] == [0, 1, 2, 3, 4, 5, 6]


def test_the_policy_is_asked_with_rising_attempts_and_the_newest_error(make_rig, widget):
    asked = []

    def policy(error, attempt):
        asked.append((str(error), attempt))
        return 1.0

    rig = make_rig(retry_policy=policy)
    rig.watcher("w", *FAIL[:3])
    rig.informer.add(widget("x"))
    rig.work()
    for _ in range(4):
        rig.after(1)
    assert asked == [("failure 0", 0), ("failure 1", 1), ("failure 2", 2)]


def test_a_new_event_begins_with_attempt_0_again(make_rig, widget):
    asked = []
    rig = make_rig(retry_policy=lambda _, attempt: asked.append(attempt) or 1.0)
    rig.watcher("w", *FAIL[:3])
    rig.informer.add(widget("x", 1))
    rig.work()
    rig.after(1)
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.work()
    assert asked == [0, 1, 0]


def test_each_watcher_and_object_has_attempts_of_its_own(make_rig, widget):
    asked = []
    rig = make_rig(retry_policy=lambda error, attempt: asked.append((str(error), attempt)) or 2.0)
    rig.watcher("a", ValueError("a x"), ValueError("a y"), ValueError("a x"))
    rig.watcher("b", None, ValueError("b y"))
    rig.informer.add(widget("x"), widget("y"))
    rig.work()
    assert rig.after(2) == ["a CREATE 1 of x", "a CREATE 1 of y", "b CREATE 1 of y"]
    assert asked == [("a x", 0), ("a y", 0), ("b y", 0), ("a x", 1)]


def test_only_the_watcher_that_failed_is_called_again(rig, widget):
    for name, plan in (("a", []), ("b", FAIL[:1]), ("c", [])):
        rig.watcher(name, *plan)
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.after(5) == ["b CREATE 1 of x"]


def test_a_policy_may_be_any_function(make_rig, widget):
    rig = make_rig(retry_policy=lambda _, attempt: [0.5, 7][attempt] if attempt < 2 else None)
    rig.watcher("w", *FAIL)
    rig.informer.add(widget("x"))
    rig.work()
    assert len(rig.after(0.5)) == 1
    assert rig.after(6.9) == []
    assert len(rig.after(0.1)) == 1
    assert rig.after(1e6) == []


def test_tenacity_objects_drive_the_retries(make_rig, widget):
    policy = TenacityRetry(
        stop=tenacity.stop_after_attempt(4) | tenacity.stop_after_delay(100),
        wait=tenacity.wait_chain(tenacity.wait_fixed(1), tenacity.wait_fixed(3)),
        retry=tenacity.retry_if_exception_type(ValueError),
    )
    rig = make_rig(retry_policy=policy)
    rig.watcher("w", *FAIL)
    rig.informer.add(widget("x"))
    rig.work()
    assert [len(rig.after(seconds)) for seconds in (1, 3, 3, 1e6)] == [1, 1, 1, 0]


def test_a_delay_of_zero_means_at_once_after_the_other_watchers(make_rig, widget):
    rig = make_rig(retry_policy=lambda *_: 0.0)
    rig.watcher("a", FAIL[0])
    rig.watcher("b")
    rig.informer.add(widget("x"))
    assert rig.work() == ["a CREATE 1 of x", "b CREATE 1 of x", "a CREATE 1 of x"]


def test_a_call_that_always_fails_and_is_retried_at_once_starves_no_other_object(make_rig, widget):
    rig = make_rig(retry_policy=lambda *_: 0.0)
    rig.watcher("w", *FAIL * 10)
    rig.informer.add(widget("x"), *(widget(f"y{n}") for n in range(5)))
    for _ in range(12):
        rig.controller.process_next()
    assert {call[-2:] for call in rig.calls} >= {f"y{n}" for n in range(5)}


@pytest.mark.parametrize(
    "policy",
    [
        lambda *_: 1 / 0,
        lambda *_: (True, 5.0),  # grafana-app-sdk's own form
        lambda *_: "soon",
        lambda *_: exec("raise SystemExit(3)"),
        lambda *_: -1.0,
        lambda *_: float("nan"),
        lambda *_: float("inf"),
        lambda *_: timedelta(seconds=5),
    ],
)
def test_after_a_policy_that_misbehaves_the_retry_comes_in_ten_seconds(
    make_rig, widget, caplog, policy
):
    rig = make_rig(retry_policy=policy)
    rig.watcher("a", FAIL[0])
    rig.watcher("b")
    rig.informer.add(widget("x"))
    assert rig.work() == ["a CREATE 1 of x", "b CREATE 1 of x"]
    assert rig.after(9.9) == []
    assert "retries in 10 s (it returns seconds, or None for no retry)" in caplog.text
    assert rig.after(0.1) == ["a CREATE 1 of x"]


def test_the_error_handler_is_told_before_the_policy_is_asked(make_rig, widget):
    order = []
    rig = make_rig(
        retry_policy=lambda *_: order.append("policy"),
        error_handler=lambda error, call: order.append(("handler", error, call)),
    )
    watcher = rig.watcher("w", FAIL[0])
    obj = widget("x")
    rig.informer.add(obj)
    rig.work()
    assert order == [
        ("handler", FAIL[0], WatcherCall(str(WIDGET), watcher, CREATE, obj, 0)),
        "policy",
    ]


@pytest.mark.parametrize("error", [ValueError("handler"), SystemExit(1)])
def test_an_error_handler_that_raises_keeps_nobody_from_anything(make_rig, widget, caplog, error):
    def handler(*_):
        raise error

    rig = make_rig(error_handler=handler)
    rig.watcher("a", FAIL[0])
    rig.watcher("b")
    rig.informer.add(widget("x"))
    assert rig.work() == ["a CREATE 1 of x", "b CREATE 1 of x"]
    assert "error handler" in caplog.text
    assert rig.after(5) == ["a CREATE 1 of x"]


def test_every_failed_call_is_told_retries_included(rig, widget):
    rig.watcher("w", *FAIL[:3])
    rig.informer.add(widget("x"))
    rig.work()
    rig.after(5)
    rig.after(10)
    assert [(str(error), call.attempt) for error, call in rig.errors] == [
        ("failure 0", 0),
        ("failure 1", 1),
        ("failure 2", 2),
    ]


# Retries beside events


def test_a_retry_is_made_with_the_newest_object(make_rig, widget):
    rig = make_rig(retry_dequeue_policy=keep_all_retries)
    watcher = rig.watcher("w", FAIL[0])
    rig.informer.add(widget("x", 1))
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.work()
    assert rig.after(5) == ["w CREATE 2 of x"]
    assert watcher.objects[-1][0].resource_version == "2"


def test_a_retry_of_an_update_keeps_what_the_watcher_knew_before(make_rig, widget):
    rig = make_rig(retry_dequeue_policy=keep_all_retries)
    rig.watcher("w", FAIL[0])
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.informer.update(widget("x", 2), widget("x", 3))
    rig.work()
    assert rig.after(5) == ["w UPDATE 1->3 of x"]


def test_without_a_policy_every_new_event_drops_the_retry(rig, widget):
    rig.watcher("w", FAIL[0])
    rig.informer.add(widget("x", 1))
    rig.work()
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.work()
    assert rig.controller.pending_retries == 0
    assert rig.after(1e6) == []


def test_an_event_of_another_object_drops_nothing(rig, widget):
    rig.watcher("w", FAIL[0])
    rig.informer.add(widget("x"))
    rig.work()
    rig.informer.add(widget("y"), widget("x", 4, namespace="other", uid="u2"))
    rig.work()
    assert rig.after(5) == ["w CREATE 1 of x"]


def test_the_dequeue_policy_is_asked_once_for_each_retry_before_the_watcher_is_called(
    make_rig, widget
):
    asked = []

    def policy(*arguments):
        asked.append((*arguments, list(rig.calls)))
        return False

    rig = make_rig(retry_dequeue_policy=policy)
    rig.watcher("a", FAIL[0], FAIL[1])
    rig.watcher("b")
    objects = [widget("x", n) for n in (1, 2, 3)]
    rig.informer.add(objects[0])
    rig.work()
    rig.informer.update(objects[0], objects[1])
    so_far = list(rig.calls)
    rig.work()
    assert asked == [(UPDATE, objects[1], CREATE, objects[0], FAIL[0], so_far)]
    asked.clear()
    rig.informer.update(objects[1], objects[2])
    so_far = list(rig.calls)
    rig.work()
    assert asked == [
        (UPDATE, objects[2], CREATE, objects[0], FAIL[0], so_far),
        (UPDATE, objects[2], UPDATE, objects[1], FAIL[1], so_far),
    ]


def test_a_watcher_that_the_dequeue_policy_removes_is_not_called(make_rig, widget):
    def policy(*_):
        rig.controller.remove_watcher(removed, WIDGET)
        return True

    rig = make_rig(retry_dequeue_policy=policy)
    removed = rig.watcher("a", FAIL[0])
    rig.watcher("b")
    rig.informer.add(widget("x", 1))
    rig.work()
    rig.informer.update(widget("x", 1), widget("x", 2))
    assert rig.work() == ["b UPDATE 1->2 of x"]


def test_the_dequeue_policy_sees_the_last_error_of_a_retry(make_rig, widget):
    seen = []
    rig = make_rig(retry_dequeue_policy=lambda *arguments: seen.append(arguments[4]))
    rig.watcher("w", FAIL[0], FAIL[1])
    rig.informer.add(widget("x", 1))
    rig.work()
    rig.after(5)
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.work()
    assert seen == [FAIL[1]]


def test_the_dequeue_policy_is_not_asked_about_what_was_given_up(make_rig, widget):
    rig = make_rig(retry_policy=never_retry, retry_dequeue_policy=lambda *_: 1 / 0)
    rig.watcher("w", FAIL[0])
    rig.informer.add(widget("x", 1))
    rig.informer.update(widget("x", 1), widget("x", 2))
    assert rig.work() == ["w CREATE 1 of x", "w UPDATE 1->2 of x"]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_a_dequeue_policy_that_raises_drops_the_retry_and_nothing_else(
    make_rig, widget, caplog, error
):
    def policy(*_):
        raise error

    rig = make_rig(retry_dequeue_policy=policy)
    rig.watcher("a", FAIL[0])
    rig.watcher("b")
    rig.informer.add(widget("x", 1))
    rig.work()
    rig.informer.update(widget("x", 1), widget("x", 2))
    assert rig.work() == ["a UPDATE 1->2 of x", "b UPDATE 1->2 of x"]
    assert rig.after(1e6) == []
    assert "dequeue policy" in caplog.text


def test_the_opinionated_policy_keeps_the_retry_when_only_the_status_changed(make_rig, widget):
    rig = make_rig(retry_dequeue_policy=opinionated_retry_dequeue_policy)
    rig.watcher("w", FAIL[0])
    rig.informer.update(widget("x", 1, generation=1), widget("x", 2, generation=2))
    rig.work()
    rig.informer.update(widget("x", 2, generation=2), widget("x", 3, generation=2))
    rig.work()
    assert rig.after(5) == ["w UPDATE 1->3 of x"]
    rig.informer.update(widget("x", 3, generation=2), widget("x", 4, generation=3))
    rig.work()
    assert rig.after(1e6) == []


@pytest.mark.parametrize("policy", [None, keep_all_retries, opinionated_retry_dequeue_policy])
def test_a_watcher_is_never_told_of_an_object_after_its_deletion(make_rig, widget, policy):
    rig = make_rig(retry_dequeue_policy=policy)
    rig.watcher("w", FAIL[0], FAIL[1])
    rig.informer.add(widget("x", 1))
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.work()
    rig.informer.delete(widget("x", 3))
    assert rig.work() == ["w DELETE 3 of x"]
    assert rig.after(1e6) == []


def test_a_failed_deletion_is_retried(rig, widget):
    rig.watcher("w", FAIL[0])
    rig.informer.delete(widget("x", 3))
    rig.work()
    assert rig.after(5) == ["w DELETE 3 of x"]


@pytest.mark.parametrize("policy", [None, keep_all_retries])
def test_the_next_object_of_a_name_waits_for_the_failed_deletion_of_the_one_before(
    make_rig, widget, policy
):
    """A watcher that knows things by name would clean up what it has just made."""
    rig = make_rig(retry_dequeue_policy=policy)
    watcher = rig.watcher("w", FAIL[0])
    rig.watcher("other")
    rig.informer.delete(widget("x", 3, uid="old"))
    rig.informer.add(widget("x", 4, uid="new"))
    rig.informer.update(widget("x", 4, uid="new"), widget("x", 5, uid="new"))
    assert rig.work() == [
        "w DELETE 3 of x",
        "other DELETE 3 of x",
        "other CREATE 4 of x",
        "other UPDATE 4->5 of x",
    ]
    rig.informer.resync(widget("x", 5, uid="new"))
    assert rig.work() == ["other RESYNC 5 of x"]
    assert rig.after(5) == ["w DELETE 3 of x", "w CREATE 5 of x"]
    assert [objects[0].uid for objects in watcher.objects] == ["old", "old", "new"]
    rig.informer.resync(widget("x", 5, uid="new"))
    assert rig.work() == ["w RESYNC 5 of x", "other RESYNC 5 of x"]


def test_the_next_object_of_a_name_is_told_of_when_its_predecessors_deletion_is_given_up_on(
    make_rig, widget
):
    rig = make_rig(retry_policy=ConstantBackoff(5.0, max_attempts=0))
    rig.watcher("w", FAIL[0], FAIL[1])
    rig.informer.delete(widget("x", 3, uid="old"))
    rig.informer.add(widget("x", 4, uid="new"))
    assert rig.work() == ["w DELETE 3 of x"]
    assert rig.after(5) == ["w DELETE 3 of x", "w CREATE 4 of x"]


def test_an_object_that_came_and_went_while_it_waited_is_not_told_of(rig, widget):
    rig.watcher("w", FAIL[0])
    rig.informer.delete(widget("x", 3, uid="old"))
    rig.informer.add(widget("x", 4, uid="new"))
    rig.informer.delete(widget("x", 5, uid="new"))
    rig.work()
    assert rig.after(5) == ["w DELETE 3 of x"]


def test_failures_of_one_watcher_for_one_object_are_one_retry(make_rig, widget):
    rig = make_rig(retry_policy=ConstantBackoff(5.0), retry_dequeue_policy=keep_all_retries)
    watcher = rig.watcher("w", *[ConnectionError("planned")] * 50)
    versions = [widget("x", version) for version in range(1, 52)]
    for old, new in pairwise(versions):
        rig.informer.update(old, new)
    rig.work()
    assert rig.controller.pending_retries == 1
    rig.after(5)
    assert [obj.resource_version for obj in watcher.objects[-1]] == ["1", "51"]


def test_a_pending_retry_does_not_keep_what_the_failed_call_held(rig, widget):
    held: list[weakref.ref[object]] = []

    class Thing:
        pass

    def fail(_):
        thing = Thing()
        held.append(weakref.ref(thing))
        raise ConnectionError("planned")

    rig.watcher("w").during = fail
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.controller.pending_retries == 1
    assert held[0]() is None


def test_a_resync_drops_no_retry_and_is_not_told_beside_it(rig, widget):
    rig.watcher("w", FAIL[0])
    rig.watcher("other")
    rig.informer.add(widget("x"))
    rig.work()
    rig.clock.advance(4)
    rig.informer.resync(widget("x"))
    assert rig.work() == ["other RESYNC 1 of x"]
    assert rig.after(1) == ["w CREATE 1 of x"]


def test_a_resync_revives_what_was_given_up_as_what_it_was(make_rig, widget):
    rig = make_rig(retry_policy=ExponentialBackoff(initial=1, max_attempts=0))
    rig.watcher("w", *FAIL[:3])
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.work()
    rig.after(1)
    assert rig.after(1e6) == []
    rig.informer.resync(widget("x", 2))
    assert rig.work() == ["w UPDATE 1->2 of x"]
    assert rig.errors[-1][1].attempt == 0
    assert rig.after(1) == ["w UPDATE 1->2 of x"]


def test_a_new_event_settles_what_was_given_up(make_rig, widget):
    rig = make_rig(retry_policy=never_retry)
    rig.watcher("w", FAIL[0])
    rig.informer.add(widget("x", 1))
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.work()
    rig.informer.resync(widget("x", 2))
    assert rig.work() == ["w RESYNC 2 of x"]


def test_a_failed_resync_is_retried_like_an_update(rig, widget):
    rig.watcher("w", FAIL[0])
    rig.informer.resync(widget("x", 2))
    rig.work()
    assert rig.after(5) == ["w RESYNC 2 of x"]


def test_a_retry_that_comes_due_beside_an_event_goes_after_it_or_not_at_all(make_rig, widget):
    for policy, after in ((None, []), (keep_all_retries, ["w CREATE 2 of x"])):
        rig = make_rig(retry_dequeue_policy=policy)
        rig.watcher("w", FAIL[0])
        rig.informer.add(widget("x", 1))
        rig.work()
        rig.informer.update(widget("x", 1), widget("x", 2))
        assert rig.after(5) == ["w UPDATE 1->2 of x", *after]


def test_retries_of_several_watchers_that_are_due_together_keep_the_add_order(rig, widget):
    for name in "abc":
        rig.watcher(name, FAIL[0])
    rig.informer.add(widget("x"))
    rig.work()
    assert [call[0] for call in rig.after(5)] == ["a", "b", "c"]


def test_the_time_of_the_next_retry_can_be_asked_for(rig, widget):
    rig.watcher("w", FAIL[0])
    assert rig.controller.next_retry_at is None
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.controller.next_retry_at == 5.0
    assert rig.controller.pending_retries == 1


def test_an_update_that_a_watcher_ignores_ends_no_retry(make_rig, widget):
    rig = make_rig()
    watcher = rig.make_watcher("w", FAIL[0])
    watcher.concerns = lambda old, new: new.generation != old.generation
    rig.controller.add_watcher(watcher, WIDGET)
    rig.informer.add(widget("x", 1, generation=1))
    rig.work()
    rig.informer.update(widget("x", 1, generation=1), widget("x", 2, generation=1))
    assert rig.work() == []
    assert rig.after(5) == ["w CREATE 2 of x"]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_when_a_watcher_cannot_say_whether_it_is_concerned_it_is_told(
    make_rig, widget, caplog, error
):
    def concerns(old, new):
        raise error

    rig = make_rig()
    watcher = rig.make_watcher("w")
    watcher.concerns = concerns
    rig.controller.add_watcher(watcher, WIDGET)
    rig.informer.update(widget("x", 1), widget("x", 2))
    assert rig.work() == ["w UPDATE 1->2 of x"]
    assert "the event is delivered" in caplog.text


# What is said, and what is kept


@pytest.mark.parametrize(
    ("policy", "said"),
    [(ConstantBackoff(5.0), "next try in 5 s"), (never_retry, "given up until the next resync")],
)
def test_the_log_says_what_happens_next(make_rig, widget, caplog, policy, said):
    rig = make_rig(name="ctrl", retry_policy=policy)
    rig.watcher("w", FAIL[0])
    rig.informer.add(widget("x"))
    with caplog.at_level(logging.INFO):
        rig.work()
    assert said in caplog.text
    assert {record.attempt for record in caplog.records} == {0}


@pytest.mark.parametrize(
    "options",
    [
        {"retry_policy": 5},
        {"retry_policy": ExponentialBackoff},
        {"retry_policy": default_retry_policy},
        {"retry_policy": lambda: 5.0},
        {"retry_dequeue_policy": True},
        {"retry_dequeue_policy": lambda new, old: True},
        {"error_handler": "log"},
        {"error_handler": lambda error: None},
    ],
)
def test_a_wrong_policy_is_refused_when_it_is_given(options):
    (option,) = options
    with pytest.raises(TypeError, match=rf"{option}=.* is not a function of \("):
        InformerController(**options)


def test_the_log_names_everything_but_the_contents(make_rig, widget, caplog):
    rig = make_rig(name="ctrl", error_handler=None)
    rig.watcher("w", FAIL[0], FAIL[1])
    rig.informer.add(widget("x", spec={"password": "hunter2"}))
    with caplog.at_level(logging.DEBUG):
        rig.work()
        rig.after(5)
    first, second = (record for record in caplog.records if record.levelno == logging.ERROR)
    for record, attempt, error in ((first, 0, FAIL[0]), (second, 1, FAIL[1])):
        assert record.name == "appsdk_operator.watchers"
        assert record.levelno == logging.ERROR
        fields = {
            "controller": "ctrl",
            "kind": str(WIDGET),
            "namespace": "default",
            "object": "x",
            "action": "CREATE",
            "attempt": attempt,
        }
        assert {name: getattr(record, name) for name in fields} == fields
        assert str(error) in record.getMessage()
        assert ("failed 2 times" in record.getMessage()) == bool(attempt)
    assert first.exc_info[1] is FAIL[0]
    assert second.exc_info is None, "it was raised in the same place"
    assert "hunter2" not in caplog.text


def said_of(rig, widget, caplog, watcher=None, reconciler=None):
    """The line and the traceback of the failed addition of an object."""
    if watcher is not None:
        rig.controller.add_watcher(watcher, WIDGET)
    if reconciler is not None:
        rig.controller.add_reconciler(reconciler, WIDGET)
    rig.informer.add(widget("x"))
    rig.work()
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    frames = traceback.extract_tb(record.exc_info[2])
    return record, [frame.name for frame in frames], [frame.filename for frame in frames]


def deeper():
    raise KeyError("color")


def on_widget(*_):
    deeper()


async def on_widget_later(*_):
    deeper()


class Widgets:
    def add(self, obj):
        deeper()

    def update(self, old, new):
        deeper()

    def delete(self, obj):
        deeper()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: {"watcher": SimpleWatcher(add=on_widget)}, "on_widget"),
        (lambda: {"watcher": SimpleWatcher(add=functools.partial(on_widget, 1))}, "on_widget"),
        (lambda: {"watcher": SimpleWatcher(add=on_widget_later)}, "on_widget_later"),
        (lambda: {"watcher": Widgets()}, "Widgets.add"),
        (lambda: {"watcher": SimpleWatcher(add=Widgets().add)}, "Widgets.add"),
        (lambda: {"reconciler": SimpleReconciler(on_widget)}, "on_widget"),
        (lambda: {"reconciler": KeyReconciler(on_widget)}, "on_widget"),
    ],
)
def test_a_failure_names_the_users_function_and_shows_no_frame_of_the_kit(
    make_rig, widget, caplog, make, name
):
    rig = make_rig(name="ctrl", error_handler=None)
    record, functions, files = said_of(rig, widget, caplog, **make())
    assert record.getMessage().startswith(f"{name} failed on CREATE of Widget ")
    assert record.callback == name
    assert functions == [name.rpartition(".")[2], "deeper"]
    assert set(files) == {__file__}


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: {"watcher": SimpleWatcher(add={}.__getitem__)}, "dict.__getitem__"),
        (lambda: {"reconciler": SimpleReconciler({}.__getitem__)}, "dict.__getitem__"),
        (lambda: {"reconciler": SimpleReconciler(lambda _: 5)}, "<lambda>.<lambda>"),
    ],
)
def test_what_has_no_frame_of_its_own_is_named_all_the_same(make_rig, widget, caplog, make, name):
    rig = make_rig(name="ctrl", error_handler=None)
    record, functions, _ = said_of(rig, widget, caplog, **make())
    assert record.getMessage().startswith(f"{name} failed on CREATE of Widget ")
    assert functions, "all of it was in the kit"


class Refusing:
    """A client that may write nothing."""

    def get(self, *_, **__):
        raise NotFound("gone", status=404)

    def patch(self, *_, **__):
        raise Forbidden("patch is not allowed", status=403)


def on_gone(_):
    """A callback for deletions."""


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"add": on_widget, "delete": on_gone}, "on_widget"),
        ({"delete": on_gone}, "on_gone"),
        ({"add": Widgets().add}, "Widgets.add"),
        ({}, "OpinionatedWatcher"),
    ],
)
def test_a_finalizer_that_cannot_be_written_is_a_failure_of_the_users_callback(
    make_rig, widget, caplog, given, name
):
    rig = make_rig(name="ctrl", error_handler=None)
    rig.controller.add_watcher(OpinionatedWatcher(WIDGET, Refusing(), **given), WIDGET)
    rig.informer.add(widget("x"))
    rig.work()
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.getMessage().startswith(f"{name} failed on CREATE of Widget default/x: Finalizer")
    assert "patch is not allowed" in record.getMessage()
    assert record.exc_info is None, "frames of the kit alone would tell nothing more"


@pytest.mark.parametrize(
    ("action", "metadata", "name", "cause"),
    [
        (ResourceAction.CREATE, {}, "add", "CREATE"),
        (ResourceAction.CREATE, {"finalizers": ["example.com/f"]}, "sync", "SYNC"),
        (ResourceAction.UPDATE, {}, "update", "UPDATE"),
        (ResourceAction.UPDATE, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "delete", "DELETE"),
        (ResourceAction.DELETE, {}, "delete", "DELETE"),
        (ResourceAction.DELETE, {"finalizers": ["example.com/f"]}, "delete", "DELETE"),
    ],
)
def test_a_call_has_the_name_of_the_callback_that_the_object_leads_to(
    action, metadata, name, cause
):
    def add(obj): ...
    def sync(obj): ...
    def update(old, new): ...
    def delete(obj): ...

    callbacks = {"add": add, "sync": sync, "update": update, "delete": delete}
    watcher = OpinionatedWatcher(
        WIDGET, Refusing(), finalizer=lambda _: "example.com/f", **callbacks
    )
    obj = Object.from_dict(WIDGET, {"metadata": {"name": "x", **metadata}})
    call = WatcherCall(str(WIDGET), watcher, action, obj, 0)
    assert call.callback.rpartition(".")[2] == name
    assert call.cause == cause


def test_a_failing_sync_is_logged_as_one(make_rig, widget, caplog):
    rig = make_rig(name="ctrl", error_handler=None)
    rig.controller.add_watcher(
        OpinionatedWatcher(WIDGET, Refusing(), sync=on_widget, finalizer=lambda _: "example.com/f"),
        WIDGET,
    )
    rig.informer.add(widget("x", finalizers=["example.com/f"]))
    rig.work()
    assert "on_widget failed on SYNC of Widget default/x" in caplog.text


def test_a_flood_of_failures_is_counted(make_rig, widget, caplog):
    rig = make_rig(error_handler=None, retry_policy=never_retry)
    rig.controller.add_watcher(SimpleWatcher(add=on_widget), WIDGET)
    rig.informer.add(*(widget(f"w{n}") for n in range(1000)))
    with caplog.at_level(logging.INFO):
        rig.work()
        assert len(caplog.records) == 10
        assert sum(record.exc_info is not None for record in caplog.records) == 1
        rig.clock.advance(5)
        rig.informer.add(widget("late"))
        rig.work()
    last = caplog.records[-1].getMessage()
    assert len(caplog.records) == 11
    assert last.endswith("; and 990 more like it within 5 s")
    assert "late" in last


@pytest.mark.parametrize("what", ["policy", "dequeue policy", "error handler", "concerns"])
def test_a_flood_of_other_failures_is_counted_too(make_rig, widget, caplog, what):
    def fail(*_):
        raise KeyError("color")

    options = {
        "policy": {"retry_policy": fail},
        "dequeue policy": {
            "retry_policy": ConstantBackoff(1000),
            "retry_dequeue_policy": lambda *_: fail(),
        },
        "error handler": {"error_handler": lambda *_: fail(), "retry_policy": never_retry},
        "concerns": {},
    }[what]
    rig = make_rig(**options)
    watcher = rig.make_watcher("w", *([] if what == "concerns" else 200 * [ValueError("no")]))
    if what == "concerns":
        watcher.concerns = lambda *_: fail()
    rig.controller.add_watcher(watcher, WIDGET)
    for n in range(100):
        rig.informer.add(widget(f"w{n}", 1))
        rig.informer.update(widget(f"w{n}", 1), widget(f"w{n}", 2))
    rig.work()
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(said) == 10
    assert [record.exc_info is not None for record in said] == [True, *9 * [False]]


def test_a_settled_failure_is_let_go_at_once(make_rig, widget):
    # Without the collector: a cycle for each failure would be its work.
    class PlannedError(Exception):
        pass  # built-in errors take no weak references

    failures = []
    rig = make_rig(
        error_handler=lambda error, _: failures.append(weakref.ref(error)),
        retry_policy=ConstantBackoff(1),
    )

    def add(_):
        if not failures:
            raise PlannedError

    rig.controller.add_watcher(SimpleWatcher(add=add), WIDGET)
    gc.disable()
    try:
        rig.informer.add(widget("x"))
        rig.work()
        assert failures[0]() is not None, "the retry keeps its error"
        rig.after(1)
        assert failures[0]() is None
    finally:
        gc.enable()


@settings(max_examples=scaled(100), deadline=None)
@example(["leave", "return"], [True, False], keep_all_retries)
@given(
    st.lists(st.sampled_from(["leave", "return", "change", "recreate", "time"]), max_size=12),
    st.lists(st.booleans(), max_size=12),
    st.sampled_from([None, keep_all_retries, opinionated_retry_dequeue_policy]),
)
def test_the_last_call_that_succeeds_is_a_deletion_exactly_when_the_object_is_gone(
    steps: list[str], outcomes: list[bool], policy: RetryDequeuePolicy | None
) -> None:
    # As with a selector: an object leaves it, and returns with the uid that it had.
    rig = Rig(retry_policy=ConstantBackoff(1), retry_dequeue_policy=policy)
    known: dict[str, str] = {}
    script = iter(outcomes)

    def note(what: str, obj: Object) -> None:
        if not next(script, True):
            raise ConnectionError("not today")
        known[obj.uid] = what

    rig.controller.add_watcher(
        SimpleWatcher(
            add=lambda obj: note("there", obj),
            update=lambda _, new: note("there", new),
            delete=lambda obj: note("gone", obj),
        ),
        WIDGET,
    )
    version, uid = 1, "first"
    present: Object | None = make_widget("a", version, uid=uid)
    seen = {uid: "there"}
    rig.informer.add(present)
    rig.work()
    for step in steps:
        version += 1
        if step == "time":
            rig.after(1)
        elif step == "leave" and present is not None:
            rig.informer.delete(present)
            seen[uid], present = "gone", None
        elif step in ("return", "recreate") and present is None:
            uid = uid if step == "return" else f"uid-{version}"
            present = make_widget("a", version, uid=uid)
            seen[uid] = "there"
            rig.informer.add(present)
        elif step == "change" and present is not None:
            before, present = present, make_widget("a", version, uid=uid)
            rig.informer.update(before, present)
        rig.work()
    for _ in range(len(outcomes) + 3):
        rig.after(1)
    # What came and went before its first call succeeded may never be mentioned.
    assert {one: what for one, what in seen.items() if what == "there" or one in known} == known
    rig.close()
