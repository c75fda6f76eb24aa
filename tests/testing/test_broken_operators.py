"""Each checker catches the operator that breaks its promise, and tells it in a few lines."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st

from appsdk_operator import (
    InformerController,
    Manager,
    MutableObject,
    SimpleWatcher,
    controller_for,
    kinds,
)
from appsdk_operator.controllers import create_or_update
from appsdk_operator.testing import BrokenPromise, Promise, Replica, World, check_operator
from appsdk_operator.testing._world.histories import Step
from tests.hypothesis_profiles import histories_of, scaled
from tests.testing.broken import operators
from tests.testing.broken.operators import (
    FINALIZER,
    WIDGET,
    bucket_is_gone,
    bucket_of_its_name_is_gone,
    shows_its_size,
)

QUOTA = kinds.core.v1.ResourceQuota
BUCKETS: dict[str, Any] = {"finalizer": FINALIZER, "cleaned_up": bucket_is_gone}
NAMED_BUCKETS: dict[str, Any] = {"cleaned_up": bucket_of_its_name_is_gone}
SIZES: dict[str, Any] = {"at_rest": shows_its_size}
LEADING: dict[str, Any] = {"replicas": 2, "leader_election": True}


@attrs.frozen
class Broken:
    """An operator that breaks a promise, a history that shows it, and how that is told."""

    make: Callable[[Replica], Any]
    promise: Promise | None
    replay: list[str]
    timeline: str
    options: dict[str, Any] = attrs.field(factory=dict)


BROKEN = [
    Broken(
        operators.retries_with_what_it_had,
        Promise.ORDER,
        ["write 409", 'create a {"size": 0}', "wait 0", 'spec a {"size": 1}', "wait 0"],
        """\
order: operator is called for a: patches status of widgets a, in an older state than it saw before
     0.0 s  somebody creates a {"size": 0}
     0.0 s  operator is called for a: patches status of widgets a (409), fails with Conflict
     0.0 s  somebody changes a to {"size": 1}
     0.0 s  operator is called for a: patches status of widgets a
     0.0 s  … 3 times so far
     0.0 s  operator is called for a: patches status of widgets a (no change)
     0.0 s  operator is called for a: patches status of widgets a (no change)""",
        {},
    ),
    Broken(
        operators.works_in_threads_of_its_own,
        Promise.NO_OVERLAP,
        ['create a {"size": 0}', "wait 0", 'spec a {"size": 1}'],
        """\
no overlap: two calls for default/a at once: operator reconciles a, and reconciles a
     0.0 s  somebody creates a {"size": 0}
     0.0 s  operator reconciles a: patches status of widgets a
     0.0 s  somebody changes a to {"size": 1}
     0.0 s  operator reconciles a
     5.0 s  operator reconciles a""",
        {},
    ),
    Broken(
        operators.begins_with_what_comes,
        Promise.AT_LEAST_ONCE,
        ["crash", 'create a {"size": 0}'],
        """\
at least once: no call for a has ever succeeded
     0.0 s  operator crashes
     0.0 s  somebody creates a {"size": 0}
     0.0 s  operator starts again as process 2""",
        {},
    ),
    Broken(
        operators.looks_at_secrets_only,
        Promise.AT_LEAST_ONCE,
        ['create a {"size": 0}', "wait 0"],
        """\
at least once: no call for a has ever succeeded
     0.0 s  operator creates secrets a
     0.0 s  somebody creates a {"size": 0}
     0.0 s  operator reconciles secrets a""",
        {},
    ),
    Broken(
        operators.looks_at_new_objects_only,
        Promise.CONVERGENCE,
        ['create a {"size": 0}', "wait 0", 'spec a {"size": 1}'],
        """\
convergence: a was changed at 0 s, and a reconcile of it succeeded last at 0 s
     0.0 s  somebody creates a {"size": 0}
     0.0 s  operator reconciles a: patches status of widgets a
     0.0 s  somebody changes a to {"size": 1}""",
        {},
    ),
    Broken(
        operators.goes_on_after_an_error,
        None,
        ["write 409", 'create a {"size": 0}', "wait 0"],
        """\
a does not show its size
     0.0 s  somebody creates a {"size": 0}
     0.0 s  operator reconciles a: patches status of widgets a (409)""",
        SIZES,
    ),
    Broken(
        operators.makes_the_bucket_first,
        Promise.FINALIZER_SAFETY,
        ["write 409", 'create a {"size": 0}', "wait 0", "delete a"],
        """\
finalizer safety: a is gone, and was never cleaned up
     0.0 s  somebody creates a {"size": 0}
     0.0 s  operator reconciles a: updates widgets a (409), fails with Conflict
     0.0 s  somebody deletes a
     0.0 s  operator reconciles a""",
        BUCKETS,
    ),
    Broken(
        operators.takes_all_finalizers_off,
        Promise.FINALIZER_SAFETY,
        ['create a {"size": 0}', "hold a", "delete a"],
        """\
finalizer safety: operator updates widgets a: others' finalizers were x.example.org/hold, now none
     0.0 s  somebody creates a {"size": 0}
     0.0 s  somebody changes a: {"metadata": {"finalizers": ["x.example.org/hold"]}}
     0.0 s  somebody deletes a
     0.0 s  operator reconciles a: updates widgets a""",
        BUCKETS,
    ),
    Broken(
        operators.forgets_the_bucket,
        Promise.FINALIZER_SAFETY,
        ['create a {"size": 0}', "wait 0", "delete a", "wait 0"],
        """\
finalizer safety: operator patches widgets a, and so releases a, which is not cleaned up
     0.0 s  somebody creates a {"size": 0}
     0.0 s  operator is called for a: patches widgets a, patches widgets a
     0.0 s  somebody deletes a
     0.0 s  operator is called because a changed: patches widgets a""",
        NAMED_BUCKETS,
    ),
    Broken(
        operators.notes_when_it_ran,
        Promise.IDEMPOTENCE,
        ['create a {"size": 0}'],
        """\
idempotence: nothing changed, but operator patches status of widgets a at 80 s
     0.0 s  somebody creates a {"size": 0}
     0.0 s  operator reconciles a: patches status of widgets a
    80.0 s  operator is asked to stop
    80.0 s  operator starts again as process 2
    80.0 s  operator reconciles a: patches status of widgets a""",
        {},
    ),
    Broken(
        operators.counts_its_reconciles,
        Promise.NO_HOT_LOOP,
        ['create a {"size": 0}'],
        """\
no hot loop: operator writes a 101 times although nothing happened from outside
     0.0 s  somebody creates a {"size": 0}
     0.0 s  operator reconciles a: patches status of widgets a
     0.0 s  … 101 times so far""",
        {},
    ),
    Broken(
        operators.asks_for_the_lease_once,
        Promise.LEASE,
        ["wait 1", "freeze 20", 'create a {"size": 0}', "wait 30"],
        """\
no writes after the lease is lost: operator-1 patches status of widgets a, but operator-2-1 has it
     1.0 s  operator-1 is suspended for 20 s
     1.0 s  somebody creates a {"size": 0}
    16.0 s  operator-2 reconciles a: patches status of widgets a
    21.0 s  operator-1 reconciles a: patches status of widgets a""",
        {"replicas": 2},
    ),
]


def promises_of(broken: Broken) -> dict[str, Any]:
    return {} if broken.promise is None else {"promises": [broken.promise]}


def timeline_in(error: BaseException) -> str:
    """What an error says before the operator's lines and the replay."""
    follows = "\n(?:lines that ran|threads of the operator|to see it again)"
    return re.split(follows, str(error), maxsplit=1)[0]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.make.__name__)
def test_a_recorded_history_tells_the_same_timeline_each_time(broken: Broken) -> None:
    for _ in range(2):
        with pytest.raises(BrokenPromise) as raised:
            check_operator(
                broken.make,
                WIDGET,
                replay=broken.replay,
                **promises_of(broken),
                **broken.options,
            )
        assert timeline_in(raised.value) == broken.timeline
        assert len(broken.timeline.splitlines()) <= 15


# Not those that take long to be found; a recorded history shows that they are caught.
RARE = (
    operators.asks_for_the_lease_once,
    operators.goes_on_after_an_error,
    operators.makes_the_bucket_first,
)


@pytest.mark.parametrize(
    "broken",
    [broken for broken in BROKEN if broken.make not in RARE],
    ids=lambda broken: broken.make.__name__,
)
def test_an_operator_that_breaks_a_promise_is_caught_and_its_timeline_is_short(
    broken: Broken,
) -> None:
    with pytest.raises(BrokenPromise) as raised:
        check_operator(
            broken.make,
            WIDGET,
            names=("a",),
            longest=10,
            max_examples=300,
            seed=1,
            **promises_of(broken),
            **broken.options,
        )
    told = str(raised.value)
    assert told.startswith(broken.timeline.partition(":")[0][:12])
    *_, again = told.splitlines()
    assert len(timeline_in(raised.value).splitlines()) < 15
    assert again.startswith("to see it again: check_operator(…, replay=['")


@pytest.mark.parametrize(
    ("make", "examples", "options"),
    [
        (operators.size_in_status, 20, SIZES),
        (operators.size_in_status, 5, {**SIZES, **LEADING}),
        (operators.size_in_status_by_watcher, 20, SIZES),
        (operators.size_in_status_by_watcher, 5, {**SIZES, **LEADING}),
        (operators.secret_of_its_name, 20, {}),
        (operators.secret_of_its_name_by_reconcilers, 10, {}),
        (operators.bucket, 20, BUCKETS),
        (operators.bucket_by_name, 20, NAMED_BUCKETS),
        (operators.bucket_by_name_in_a_controller, 20, {**NAMED_BUCKETS, "finalizer": FINALIZER}),
    ],
    ids=[
        "reconciler",
        "two replicas",
        "watcher",
        "two replicas of a watcher",
        "watchers of two kinds",
        "reconcilers of two kinds",
        "finalizer",
        "the kit's own finalizer",
        "a finalizer and the one in progress",
    ],
)
def test_an_operator_that_is_right_passes(
    make: Callable[[Replica], Any], examples: int, options: dict[str, Any]
) -> None:
    check_operator(make, WIDGET, max_examples=examples, seed=histories_of(1), **options)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.make.__name__)
def test_what_breaks_a_wrong_operator_does_not_break_a_right_one(broken: Broken) -> None:
    make = operators.size_in_status
    if broken.options is BUCKETS:
        make = operators.bucket
    elif broken.options is NAMED_BUCKETS:
        make = operators.bucket_by_name
    options = broken.options or SIZES
    if "replicas" in options:
        options = {**options, **SIZES, "leader_election": True}
    check_operator(make, WIDGET, replay=broken.replay, **options)


def test_an_assertion_of_the_users_own_becomes_a_timeline() -> None:
    def never_two(world: Any) -> None:
        assert len(world.objects()) < 2, "two widgets"

    with pytest.raises(BrokenPromise, match="two widgets") as raised:
        check_operator(operators.size_in_status, WIDGET, always=never_two, seed=1)
    assert len(str(raised.value).splitlines()) <= 8


def test_a_failure_that_does_not_come_again_is_shown_as_any_other() -> None:
    calls = itertools.count()

    def fails_once(_: Any) -> None:
        assert next(calls) != 7, "the eighth call"

    with pytest.raises(BrokenPromise, match="the eighth call"):
        check_operator(operators.size_in_status, WIDGET, always=fails_once, longest=4, seed=1)


def test_another_error_comes_after_one_history_with_the_replay() -> None:
    histories: list[int] = []

    def make(replica: Replica) -> Any:
        histories.append(replica.process)
        raise LookupError("no such region")

    with pytest.raises(LookupError, match="no such region") as raised:
        check_operator(make, WIDGET, seed=1)
    [note] = raised.value.__notes__
    assert note.startswith("to see it again: check_operator(…, replay=['")
    assert histories == [1]


def test_a_failure_of_pytest_becomes_a_timeline() -> None:
    replay = ['create a {"size": 1}']
    with pytest.raises(BrokenPromise, match=r"too large\n.*creates a"):
        check_operator(
            operators.size_in_status,
            WIDGET,
            at_rest=lambda _: pytest.fail("too large"),
            replay=replay,
        )


@pytest.mark.parametrize("seed", range(5, 5 + scaled(4)))
def test_a_timeline_of_the_users_own_check_has_no_needless_step(seed: int) -> None:
    def failure(**options: Any) -> str:
        try:
            check_operator(
                operators.tries_once, WIDGET, at_rest=shows_its_size, promises=(), **options
            )
        except BrokenPromise as error:
            return str(error)
        return ""

    text = failure(specs=st.fixed_dictionaries({"size": st.integers(0, 9)}), seed=seed)
    steps: list[str] = ast.literal_eval(text.partition("replay=")[2].rstrip(")"))
    for index in range(len(steps)):
        fewer = failure(replay=[*steps[:index], *steps[index + 1 :]])
        assert fewer.partition("\n")[0] != text.partition("\n")[0], f"{steps[index]} is needless"


@pytest.mark.parametrize("text", ["it is large", "of {size} it is large"])
def test_what_is_left_has_the_shortest_waits_and_the_simplest_specs(text: str) -> None:
    def is_small(world: Any) -> None:
        for widget in world.objects():
            assert widget.spec["size"] < 3, text.format_map(widget.spec)

    with pytest.raises(BrokenPromise, match="it is large") as raised:
        check_operator(
            operators.size_in_status,
            WIDGET,
            specs=st.fixed_dictionaries({"size": st.integers(0, 9)}),
            at_rest=is_small,
            seed=1,
        )
    assert str(raised.value).endswith("""replay=['create b {"size": 3}'])""")


def test_another_line_of_the_users_own_check_is_another_promise() -> None:
    def check(world: Any) -> None:
        for widget in world.objects():
            if widget.spec["size"] == 7:
                pytest.fail("seven")
            if widget.spec["size"] > 0:
                pytest.fail("more")

    sizes = st.fixed_dictionaries({"size": st.sampled_from([0, 7, 1])})
    for seed in range(20):
        with pytest.raises(BrokenPromise) as raised:
            check_operator(operators.size_in_status, WIDGET, specs=sizes, at_rest=check, seed=seed)
        text = str(raised.value)
        assert text.startswith("seven") is ('"size": 7' in text), text
        if text.startswith("seven"):
            return
    pytest.fail("no history has begun with a seven")


def test_what_is_kept_by_name_is_not_asked_for_while_another_object_has_the_name() -> None:
    check_operator(
        operators.bucket_by_name,
        WIDGET,
        replay=['create a {"size": 0}', "delete a", 'create a {"size": 0}'],
        **NAMED_BUCKETS,
    )


def test_several_finalizers_may_be_the_operators_own() -> None:
    def make(replica: Replica) -> Any:
        def own(widget: Any) -> None:
            put_finalizers(replica, widget, "example.com/one", "example.com/two")

        return operators.with_widget(replica, own)

    history = ['create a {"size": 0}', "wait 0", "hold a", "delete a", "release a"]
    names = ["example.com/one", "example.com/two"]
    check_operator(make, WIDGET, replay=history, finalizer=names)
    with pytest.raises(BrokenPromise, match=r"others' finalizers were none, now example\.com/two"):
        check_operator(make, WIDGET, replay=history, finalizer=names[0])


def put_finalizers(replica: Replica, widget: Any, *names: str) -> None:
    foreign = [name for name in widget.finalizers if name not in names]
    wanted = foreign if widget.is_deleting else [*foreign, *names]
    if wanted != list(widget.finalizers):
        operators.set_finalizers(replica, widget, wanted)


def test_a_spec_that_the_operator_can_do_nothing_with_points_to_the_specs() -> None:
    def make(replica: Replica) -> Any:
        def quota(widget: Any) -> None:
            def shape(made: MutableObject) -> None:
                made["spec"] = {"hard": {"limits.cpu": widget.spec["cpu"]}}

            draft = MutableObject.new(QUOTA, widget.name, namespace=widget.namespace)
            create_or_update(replica.client, draft, shape)

        return operators.with_widget(replica, quota)

    with pytest.raises(BrokenPromise) as raised:
        check_operator(make, WIDGET, replay=['create a {"cpu": "much"}'])
    told = str(raised.value)
    assert "at least once: no call for a has ever succeeded" in told
    assert "the last call of operator for default/a failed with BadRequest: " in told
    assert "quantities must match the regular expression" in told
    assert timeline_in(raised.value).endswith(
        "give specs= with valid ones, or a pattern in the kind's schema"
    )


@pytest.mark.parametrize("options", [{"seed": 1, "max_examples": 20}, {"replay": ["create a 7"]}])
def test_specs_of_which_the_server_takes_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"the server refused every object.*Give specs="):
        check_operator(operators.size_in_status, WIDGET, specs=st.just(7), **options)


def test_a_finalizer_that_is_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match="finalizer"):
        check_operator(operators.bucket, WIDGET, finalizer=["a b"], seed=1)


def test_nothing_is_asked_of_calls_where_those_of_another_kind_alone_are_recorded() -> None:
    def make(replica: Replica) -> Any:
        manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
        builder = controller_for(manager).named("widgets").for_(operators.WIDGET)
        builder.complete(lambda request: None)
        watcher = replica.recorded(SimpleWatcher())
        controller = InformerController(clock=replica.clock, metrics=replica.metrics)
        controller.add_cache(manager.cache, operators.SECRET)
        controller.add_watcher(watcher, operators.SECRET)
        manager.add(controller)
        operators.make_secret(replica, "a")
        return manager

    check_operator(make, WIDGET, replay=['create a {"size": 0}', "wait 0"])


def test_leader_election_of_what_runs_by_itself_is_refused() -> None:
    with pytest.raises(ValueError, match=r"give its Manager leader_election=LeaderElection\(id="):
        check_operator(operators.secret_of_its_name_by_reconcilers, WIDGET, seed=1, **LEADING)


@pytest.mark.parametrize("step", ["dance a", "race wait 1", "race", "race write lost"])
def test_what_is_no_step_of_a_history_is_refused(step: str) -> None:
    with pytest.raises(ValueError, match=f"'{step}' is not a step"):
        check_operator(operators.size_in_status, WIDGET, replay=[step])


def test_another_client_is_quicker_than_the_operators_write() -> None:
    step = Step.parse('race spec a {"size": 2}')
    assert Step.parse(str(step)) == step
    sizes = []

    def at_rest(world: World) -> None:
        write = world.journal.of("write", "default/a")[0]
        quicker = world.journal.of("step", "default/a")[-1]
        assert quicker.text == 'changes a to {"size": 2}'
        assert quicker.began < write.began
        sizes.append(world.get("a").status["size"])

    replay = [str(step), 'create a {"size": 1}', "wait 0"]
    check_operator(operators.size_in_status, WIDGET, replay=replay, at_rest=at_rest)
    assert sizes == [2]
