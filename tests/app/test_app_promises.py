"""What an App promises of its functions: no change is lost, limits limit, timers go on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st

from appsdk_operator import kinds
from appsdk_operator.app import App
from appsdk_operator.controllers import RetryAfter, TerminalError
from appsdk_operator.manager import Manager
from appsdk_operator.resource import Kind, Object, field
from appsdk_operator.runtime import current_stop
from appsdk_operator.testing import BrokenPromise, Replica, World, check_operator
from appsdk_operator.watchers import (
    ConstantBackoff,
    ExponentialBackoff,
    SimpleWatcher,
    never_retry,
)
from tests.hypothesis_profiles import scaled

CONFIG_MAP = kinds.core.v1.ConfigMap


@attrs.frozen
class ThingSpec:
    """Two fields, each with a function of its own."""

    a: int = 0
    b: int = 0


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)
DOUBLING = ExponentialBackoff(initial=5.0, max_attempts=None)
SPECS = st.fixed_dictionaries({"a": st.integers(1, 3), "b": st.integers(1, 3)})


def nothing(*_: Any) -> None:
    """A function that does nothing."""


def every_function(app: App, elsewhere: Callable[[], dict[str, Any]] = dict) -> App:
    """Sets two fields elsewhere, each by a function of its own."""

    @app.on_add(THING)
    @app.on_sync(THING)
    def make(thing: Object[ThingSpec]) -> None:
        elsewhere()[thing.uid] = {"a": thing.spec.a, "b": thing.spec.b}

    @app.on_update(THING, when=field("spec.a").changed)
    def set_a(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        elsewhere()[new.uid]["a"] = new.spec.a

    @app.on_update(THING, when=field("spec.b").changed)
    def set_b(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        elsewhere()[new.uid]["b"] = new.spec.b

    app.on_update(THING)(nothing)
    app.on_add(THING)(nothing)

    @app.on_delete(THING)
    def remove(thing: Object[ThingSpec]) -> None:
        elsewhere().pop(thing.uid, None)

    app.every(40, THING, first_after=10)(nothing)
    app.every(7, THING, name="often")(lambda thing: None)
    return app


class Elsewhere:
    """What the functions set elsewhere, by uid; new in each history, where uids come again."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        self._world: World | None = None

    def begin(self, world: World) -> None:
        """Called after each step; before the first one that creates nothing runs."""
        if world is not self._world:
            self._world = world
            self.made.clear()

    def check(self, world: World) -> None:
        self.begin(world)
        for thing in world.objects():
            # One that was deleted before it was handled, and is held by others, gets no call.
            assert thing.is_deleting or self.made.get(thing.uid) == {
                "a": thing.spec.a,
                "b": thing.spec.b,
            }

    def is_gone(self, _: World, thing: Object) -> bool:
        return thing.uid not in self.made


@pytest.mark.parametrize(
    "options",
    [{}, {"workers": 1}],
    ids=["default", "one worker"],
)
@pytest.mark.parametrize("replicas", [1, 2])
def test_no_change_is_lost_and_timers_go_on_whatever_fails_when(
    options: dict[str, Any], replicas: int
) -> None:
    elsewhere = Elsewhere()
    check_operator(
        every_function(App("thing-operator", **options), lambda: elsewhere.made),
        specs=SPECS,
        always=elsewhere.begin,
        at_rest=elsewhere.check,
        cleaned_up=elsewhere.is_gone,
        replicas=replicas,
        leader_election=replicas > 1,
        max_examples=scaled(12),
    )


def writing_results() -> App:
    app = App("thing-operator")

    @app.on_add(THING, result="status.a")
    @app.on_sync(THING, result="status.a")
    def make(thing: Object[ThingSpec]) -> int:
        return thing.spec.a

    @app.on_update(THING, result="status.a")
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> int:
        return new.spec.a

    @app.every(40, THING, result="status.b")
    def look(thing: Object[ThingSpec]) -> int:
        return thing.spec.b

    return app


@pytest.mark.parametrize("second", ["write 500", "write lost", "write 409"])
def test_a_call_whose_result_cannot_be_written_is_repeated(second: str) -> None:
    check_operator(
        writing_results(),
        replay=["write ok", second, 'create a {"a": 1}', "wait 0", 'spec a {"a": 2}', "wait 0"],
    )


def test_results_follow_the_spec_whatever_fails_when() -> None:
    def check(world: World) -> None:
        for thing in world.objects():
            assert thing.is_deleting or thing.status["a"] == thing.spec.a

    check_operator(writing_results(), specs=SPECS, at_rest=check, max_examples=scaled(40))


def test_a_check_that_a_smaller_history_does_not_suit_hides_no_failure() -> None:
    app, has_failed = App("thing-operator"), False
    app.on_delete(THING)(nothing)

    def at_rest(world: World) -> None:
        nonlocal has_failed
        if len(world.created) > 1:
            has_failed = True
            raise AssertionError("two objects")

    def cleaned_up(world: World, thing: Object) -> bool:
        if has_failed and len(world.created) == 1:
            raise KeyError(thing.name)
        return True

    with pytest.raises(BrokenPromise, match="two objects"):
        check_operator(
            app,
            THING,
            at_rest=at_rest,
            cleaned_up=cleaned_up,
            max_examples=40,
            seed=5,
            faults=False,
        )


def test_no_change_of_a_kind_without_generations_is_lost() -> None:
    app = App("map-operator")
    app.on_add(CONFIG_MAP)(nothing)
    app.on_update(CONFIG_MAP)(nothing)
    app.on_update(CONFIG_MAP, when=field("data.a").changed)(nothing)
    data = st.fixed_dictionaries({"a": st.sampled_from("xyz"), "b": st.sampled_from("xyz")})
    check_operator(app, specs=st.builds(lambda d: {"data": d}, data), max_examples=scaled(30))


# One by one.


class Told:
    """The calls of an App's functions in a world, with their times."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.begin = 0.0
        self.calls: list[tuple[float, Any]] = []

    def note(self, what: Any) -> None:
        assert self.world is not None
        self.calls.append((self.world.clock.monotonic() - self.begin, what))

    def at(self, what: Any) -> list[float]:
        return [at for at, one in self.calls if one == what]


@pytest.fixture
def told() -> Told:
    return Told()


def run(told: Told, app: App, kind: Kind = THING) -> World:
    world = World(kind, app)
    told.world, told.begin = world, world.clock.monotonic()
    return world


def test_a_change_that_comes_before_the_retry_of_another_is_no_end_of_it(told: Told) -> None:
    app, failures = App("thing-operator"), [ConnectionError("not yet")]

    @app.on_update(THING, when=field("spec.a").changed)
    def set_a(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        told.note(("a", old.spec.a, new.spec.a))
        if failures:
            raise failures.pop()

    @app.on_update(THING, when=field("spec.b").changed)
    def set_b(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        told.note(("b", old.spec.b, new.spec.b))

    with run(told, app) as world:
        world.create("a", {"a": 1, "b": 1})
        world.settle()
        world.replace("a", {"a": 2, "b": 1})
        world.run(1)
        world.replace("a", {"a": 2, "b": 2})
        world.run(3600)
    assert [what for _, what in told.calls] == [("a", 1, 2), ("b", 1, 2), ("a", 1, 2)]


def test_a_function_whose_change_failed_begins_with_what_it_has_handled(told: Told) -> None:
    app, failures = App("thing-operator"), [ConnectionError("not yet")]

    @app.on_update(THING)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        told.note((old.spec.a, new.spec.a))
        if failures:
            raise failures.pop()

    with run(told, app) as world:
        world.create("a", {"a": 1})
        world.settle()
        for size in (2, 3, 4):
            world.replace("a", {"a": size})
            world.run(1)
    assert [what for _, what in told.calls] == [(1, 2), (1, 3), (3, 4)]


def test_a_failing_function_keeps_no_other_from_its_change(told: Told) -> None:
    app = App("thing-operator")

    @app.on_update(THING, when=field("spec.a").changed)
    def set_a(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        told.note("a")
        raise TerminalError("never")

    @app.on_update(THING, when=field("spec.b").changed)
    def set_b(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        told.note("b")

    with run(told, app) as world:
        world.create("a", {"a": 1, "b": 1})
        world.settle()
        world.replace("a", {"a": 2, "b": 2})
        world.run(600)
        assert [what for _, what in told.calls] == ["a", "b"]
        world.replace("a", {"a": 2, "b": 3})
        world.run(600)
    assert [what for _, what in told.calls] == ["a", "b", "a", "b"]


def test_two_functions_that_fail_are_two_failures_of_their_names(told: Told) -> None:
    calls: list[str] = []
    app = App("thing-operator", error_handler=lambda error, call: calls.append(str(call)))

    @app.on_update(THING, when=field("spec.a").changed)
    def set_a(old: Object, new: Object) -> None:
        raise TerminalError("never")

    @app.on_update(THING, when=field("spec.b").changed)
    def set_b(old: Object, new: Object) -> None:
        raise TerminalError("never")

    with run(told, app) as world:
        world.create("a", {"a": 1, "b": 1})
        world.settle()
        world.replace("a", {"a": 2, "b": 2})
        world.run(60)
    assert [text.partition(".")[2].partition(" of")[0] for text in calls] == [
        "set_a: UPDATE",
        "set_b: UPDATE",
    ]


def test_an_object_that_is_handled_again_after_a_failure_is_back_in_its_state(told: Told) -> None:
    app, elsewhere = App("thing-operator"), {"size": 1}

    @app.on_update(THING, when=field("spec.a").changed)
    def set_a(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        elsewhere["size"] = new.spec.a
        if new.spec.a == 2:
            raise ConnectionError("half done")

    with run(told, app) as world:
        world.create("a", {"a": 1})
        world.settle()
        world.replace("a", {"a": 2})
        world.run(1)
        assert elsewhere == {"size": 2}
        world.replace("a", {"a": 1})
        world.run(1)
    assert elsewhere == {"size": 1}


def test_a_change_before_on_sync_has_succeeded_leads_to_on_sync(told: Told) -> None:
    app, failing = App("thing-operator"), [True]

    @app.on_sync(THING)
    def sync(thing: Object[ThingSpec]) -> None:
        told.note(("sync", thing.spec.a))
        if failing[0]:
            raise ConnectionError("not yet")

    app.on_update(THING)(lambda old, new: told.note(("update", old.spec.a, new.spec.a)))
    with run(told, app) as world:
        world.create("a", {"a": 1})
        world.settle()
        world.restart()
        world.run(2)
        failing[0] = False
        world.replace("a", {"a": 2})
        world.run(600)
        world.replace("a", {"a": 3})
        world.run(600)
    assert [what for _, what in told.calls] == [("sync", 1), ("sync", 2), ("update", 2, 3)]


def test_a_function_gets_no_second_call_for_what_on_add_has_handled(told: Told) -> None:
    app, failing = App("thing-operator"), [True]

    @app.on_add(THING)
    def make(thing: Object[ThingSpec]) -> None:
        told.note(("add", thing.spec.a))
        if failing.pop() if failing else False:
            raise ConnectionError("not yet")

    app.on_update(THING)(lambda old, new: told.note(("update", old.spec.a, new.spec.a)))
    with run(told, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        world.replace("a", {"a": 2})
        world.run(60)
    assert [what for _, what in told.calls] == [("add", 1), ("add", 2)]


def test_a_resync_is_no_update(told: Told) -> None:
    app = App("map-operator")
    app.on_update(CONFIG_MAP)(lambda old, new: told.note(new["data"]["a"]))
    with run(told, app, CONFIG_MAP) as world:
        world.create("a", {"data": {"a": "1"}})
        world.run(3600)
        assert not told.calls
        world.replace("a", {"data": {"a": "2"}})
        world.run(3600)
        world.patch("a", {"metadata": {"labels": {"x": "y"}}})
        world.run(3600)
    assert [what for _, what in told.calls] == ["2", "2"]


def test_a_resync_finds_what_no_event_has_said(told: Told) -> None:
    app, is_open = App("thing-operator"), [False]

    @app.on_add(THING, where=lambda thing: is_open[0])
    def make(thing: Object[ThingSpec]) -> None:
        told.note(("add", thing.spec.a))

    @app.on_update(THING, when=lambda old, new: is_open[0] and old.spec.a != new.spec.a)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        told.note((old.spec.a, new.spec.a))

    with run(told, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        world.replace("a", {"a": 2})
        world.replace("a", {"a": 3})
        world.run(60)
        assert told.calls == []
        is_open[0] = True
        world.run(40)
        world.run(3600)
    assert [what for _, what in told.calls] == [("add", 3), (1, 3)]
    assert all(at < 160 for at, _ in told.calls)


# A limit limits.


@pytest.mark.parametrize("cause", ["add", "update", "sync", "delete"])
@pytest.mark.parametrize(
    ("policy", "calls"),
    [(ExponentialBackoff(initial=5.0, max_attempts=1), 3), (never_retry, 1)],
)
def test_what_is_given_up_is_called_again_after_a_change_or_a_restart(
    told: Told, cause: str, policy: Any, calls: int
) -> None:
    app = App("thing-operator", retry_policy=policy)
    failing = [False]

    def fail(*objects: Object) -> None:
        if failing[0]:
            told.note(cause)
            raise ConnectionError("down")

    getattr(app, f"on_{cause}")(THING)(fail)
    with run(told, app) as world:
        failing[0] = cause == "add"
        world.create("a", {"a": 1})
        world.run(60)
        failing[0] = True
        if cause == "update":
            world.replace("a", {"a": 2})
        elif cause == "delete":
            world.delete("a")
        elif cause == "sync":
            world.restart()
        world.run(3600)
        assert len(told.calls) == calls
        world.patch("a", {"metadata": {"labels": {"x": "y"}}})
        world.run(3600)
        assert len(told.calls) == 2 * calls
        failing[0] = cause != "update"
        if cause == "update":
            failing[0] = True
            world.replace("a", {"a": 3})
        else:
            world.restart()
        world.run(3600)
        assert len(told.calls) == 3 * calls


def test_a_watcher_of_an_app_that_is_given_up_is_not_called_by_resyncs(told: Told) -> None:
    app = App("thing-operator", retry_policy=never_retry)

    def add(thing: Object) -> None:
        told.note("add")
        raise ConnectionError("down")

    app.watch(THING, SimpleWatcher(add=add))
    with run(told, app) as world:
        world.create("a", {"a": 1})
        world.run(3600)
    assert len(told.calls) == 1


def test_a_failed_write_of_a_finalizer_is_repeated_although_functions_are_not(told: Told) -> None:
    app = App("thing-operator", retry_policy=never_retry)
    app.on_add(THING)(lambda thing: told.note("add"))
    app.on_delete(THING)(nothing)
    with run(told, app) as world:
        world.write_faults += ["500"] * 4
        world.create("a", {"a": 1})
        world.run(300)
        assert len(told.calls) == 1
        assert [obj.finalizers for obj in world.objects()] == [
            ("example.com/thing-operator.v1.Thing",)
        ]


def test_a_failed_write_of_a_record_is_repeated_although_functions_are_not(told: Told) -> None:
    app = App("thing-operator", retry_policy=never_retry)
    app.on_add(THING)(lambda thing: told.note("add"))
    with run(told, app) as world:
        world.write_faults += ["500"] * 4
        world.create("a", {"a": 1})
        world.run(1300)  # every 300 seconds at the latest
        assert len(told.calls) == 1
        (obj,) = world.objects()
        assert list(obj.annotations) == ["thing-operator.appsdk-operator.io/handled"]


def test_by_default_a_failing_function_is_called_until_it_succeeds(told: Told) -> None:
    app = App("thing-operator")

    @app.on_add(THING)
    def make(thing: Object) -> None:
        told.note("add")
        if told.calls[-1][0] < 6500:
            raise ConnectionError("down")

    with run(told, app) as world:
        world.create("a", {"a": 1})
        world.run(2 * 3600)
    times = told.at("add")
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert len(gaps) > 12
    for gap, least in itertools.zip_longest(gaps, [5, 10, 20, 40, 80, 160, 320], fillvalue=600):
        assert 0.99 * least <= gap <= min(1.11 * least, 601)
    assert times[-1] > 6500


@pytest.mark.parametrize(
    # Right after other failures, too, of which an object has a line a second.
    "policy",
    [never_retry, ConstantBackoff(0.1, max_attempts=2)],
    ids=["at once", "soon"],
)
def test_what_is_given_up_is_in_health_metrics_page_and_log(
    caplog: pytest.LogCaptureFixture, policy: Any
) -> None:
    app, managers = App("thing-operator", retry_policy=policy), list[Manager]()

    @app.on_add(THING)
    def make(thing: Object) -> None:
        raise ConnectionError("down")

    def operator(replica: Replica) -> Manager:
        options: Any = {"metrics_server": None, "health_server": None, "profile_server": None}
        managers.append(
            app.manager(replica.config, clock=replica.clock, metrics=replica.metrics, **options)
        )
        return managers[-1]

    with World(THING, operator, crds=[crd.to_dict() for crd in app.crds()]) as world:
        world.create("a", {"a": 1})
        world.run(600)
        health, state = managers[0].health(), managers[0].debug_state()
        metrics = world.replicas[0].metrics.render()
    assert "1 call failed for good, until the object is changed" in health.text
    (controller,) = [one for one in state["controllers"] if one["given_up_total"]]
    (row,) = controller["given_up"]
    assert row["object"] == "default/a"
    assert "make" in row["callback"]
    series = 'watcher_given_up_total{event_type="CREATE",kind="things.v1.example.com"} 1'
    assert series in metrics
    assert 'calls_given_up{kind="things.v1.example.com"} 1' in metrics
    assert "given up until its generation, labels or annotations change" in caplog.text


# Timers.


def timer_times(
    told: Told, app: App, fails: Callable[[int], Exception | None], seconds: float, **options: Any
) -> list[float]:
    @app.every(60, THING, **options)
    def look(thing: Object[ThingSpec]) -> None:
        told.note("look")
        error = fails(len(told.calls))
        if error is not None:
            raise error

    with run(told, app) as world:
        world.create("a", {"a": 1})
        world.run(seconds)
    return [round(at) for at in told.at("look")]


@pytest.mark.parametrize(
    ("policy", "error", "expected"),
    [
        (DOUBLING, ConnectionError, [0, 5, 15, 35, 75, 135, 195]),
        (ConstantBackoff(20), ConnectionError, [0, 20, 40, 60, 80, 100, 120, 140, 160, 180, 200]),
        (ConstantBackoff(20, max_attempts=0), ConnectionError, [0, 20, 80, 100, 160, 180]),
        (never_retry, ConnectionError, [0, 60, 120, 180]),
        (None, TerminalError, [0, 60, 120, 180]),
        (None, lambda text: RetryAfter(7), list(range(0, 211, 7))),
        (None, lambda text: RetryAfter(7000), [0, 60, 120, 180]),
    ],
)
def test_a_timer_that_fails_is_retried_as_the_policy_says_and_after_its_interval_at_the_latest(
    told: Told, policy: Any, error: Any, expected: list[int]
) -> None:
    app = App("thing-operator", retry_policy=policy)
    assert timer_times(told, app, lambda count: error("down"), 210) == expected


@pytest.mark.parametrize(
    ("policy", "error", "expected"),
    [
        (DOUBLING, ConnectionError, [0, 5, 15, 35, 75, 135, 195]),
        (ConstantBackoff(20, max_attempts=0), ConnectionError, [0, 20, 80, 100, 160, 180]),
        (None, TerminalError, [0, 60, 120, 180]),
        (None, lambda text: RetryAfter(7), list(range(0, 211, 7))),
        (None, lambda text: RetryAfter(7000), [0, 60, 120, 180]),
        (lambda error, attempt: 1 / 0, ConnectionError, list(range(0, 211, 10))),
    ],
)
def test_a_timer_of_the_app_fails_like_one_of_objects(
    told: Told, policy: Any, error: Any, expected: list[int]
) -> None:
    app = App("thing-operator", retry_policy=policy)
    app.on_add(THING)(nothing)

    @app.every(60)
    def look() -> None:
        told.note("look")
        raise error("down")

    with run(told, app) as world:
        world.run(210)
    assert [round(at) for at in told.at("look")] == expected


def test_a_timer_that_fails_right_after_on_add_is_retried_as_the_policy_says(told: Told) -> None:
    app = App("thing-operator", retry_policy=ConstantBackoff(5))
    app.on_add(THING)(nothing)
    times = timer_times(told, app, lambda count: ConnectionError("down"), 20)
    assert times == [0, 5, 10, 15, 20]


def test_a_timer_begins_after_first_after_and_goes_on_at_its_interval(told: Told) -> None:
    app = App("thing-operator")
    assert timer_times(told, app, lambda count: None, 300, first_after=25) == [
        25,
        85,
        145,
        205,
        265,
    ]


def test_a_timer_waits_for_on_add(told: Told) -> None:
    app = App("thing-operator", retry_policy=DOUBLING)
    app.every(60, THING)(lambda thing: told.note("look"))

    @app.on_add(THING)
    def make(thing: Object[ThingSpec]) -> None:
        told.note("add")
        if len(told.at("add")) < 4:
            raise ConnectionError("down")

    with run(told, app) as world:
        world.create("a", {"a": 1})
        world.run(100)
    assert [(round(at), what) for at, what in told.calls] == [
        *((at, "add") for at in (0, 5, 15, 35)),
        (35, "look"),
        (95, "look"),
    ]


def test_a_timer_ends_with_its_object_and_begins_with_the_next_of_its_name(told: Told) -> None:
    app = App("thing-operator")
    app.every(60, THING, first_after=10)(lambda thing: told.note(thing.spec.a))
    app.on_delete(THING)(nothing)
    with run(told, app) as world:
        world.create("a", {"a": 1})
        world.run(30)
        world.patch(
            "a",
            {"metadata": {"finalizers": ["x.example.org/hold", *world.objects()[0].finalizers]}},
        )
        world.delete("a")
        world.run(600)
        world.patch("a", {"metadata": {"finalizers": []}})
        world.run(10)
        world.create("a", {"a": 2})
        world.run(30)
    assert [what for _, what in told.calls] == [1, 2]


def test_a_timer_that_failed_waits_quietly_until_the_object_is_idle_again() -> None:
    app = App("thing-operator")

    @app.every(30, THING, idle=20, retry=ConstantBackoff(5.0))
    def tick(thing: Object[ThingSpec]) -> None:
        raise ConnectionError("down")

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(62.0)
        world.replace("a", {"a": 2})  # between a failure and its repetition
        world.run(10.0)  # StuckError, if it looks again and again


def test_a_timer_of_every_replica_runs_on_all(told: Told) -> None:
    app = App("thing-operator", leader_election=True)
    app.every(60, THING, every_replica=True)(lambda thing: told.note("all"))
    app.every(60, THING, name="leader")(lambda thing: told.note("leader"))
    world = World(THING, app, replicas=2)
    told.world, told.begin = world, world.clock.monotonic()
    with world:
        world.run(60)
        told.calls.clear()
        world.create("a", {"a": 1})
        world.run(30)
    assert sorted(what for _, what in told.calls) == ["all", "all", "leader"]


@pytest.mark.parametrize("second", [[], ["lag 60"]], ids=["in time", "lagging"])
@pytest.mark.parametrize(
    "steps",
    [
        ['create a {"a": 1, "b": 1}', "wait 0", "delete a"],
        ['create a {"a": 1, "b": 1}', "wait 0", "hold a", "delete a"],
        ['create b {"a": 1, "b": 1}', "wait 24", 'create a {"a": 1, "b": 1}', "wait 0", "delete a"],
        ['create a {"a": 1, "b": 1}', "wait 0", 'recreate a {"a": 1, "b": 1}'],
    ],
    ids=["marked", "held", "waiting", "recreated"],
)
@pytest.mark.parametrize(
    "causes",
    [("add", "delete"), ("delete",), ("sync", "delete"), ("add",), ("sync",)],
    ids=".".join,
)
def test_an_object_that_is_deleted_during_a_call_is_left_until_an_event_shows_it(
    causes: tuple[str, ...], steps: list[str], second: list[str]
) -> None:
    def slow(*_: Any) -> None:
        current_stop().wait(3.0)

    app = App("thing-operator", workers=1)
    for cause in causes:
        getattr(app, f"on_{cause}")(THING)(slow)
    app.every(20.0, THING)(slow)
    *begin, last = steps
    check_operator(app, replay=[*begin, *second, last, "wait 30"])
