"""The promises of the watchers room for reconcilers among watchers, over generated histories."""

from __future__ import annotations

from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from appsdk_operator.controllers import Result, RetryAfter
from appsdk_operator.testing import (
    Simulation,
    check_converged,
    check_exclusion,
    check_object_order,
)
from appsdk_operator.watchers import (
    ConstantBackoff,
    KeyReconciler,
    ReconcileRequest,
    SimpleReconciler,
    SimpleWatcher,
)
from tests.watchers.test_promises import WIDGET, dequeue_policies, histories, many, play

OK, FAIL, LATER, AGAIN, AT_ONCE = range(5)
outcomes = st.lists(st.sampled_from([OK, OK, FAIL, LATER, AGAIN, AT_ONCE]), max_size=40)
WATCHER, RECONCILER, BY_KEY, LAST = range(4)


class Fleet:
    """A watcher, a reconciler of objects, one of keys and another watcher, in this order."""

    def __init__(self, plan: list[int], **options: Any) -> None:
        self._plan = iter(plan)
        self.is_calm = False
        self.wrong: list[str] = []
        self.simulation = Simulation(
            WIDGET,
            lambda _: [
                SimpleWatcher(),
                SimpleReconciler(self.by_object),
                KeyReconciler(lambda request: self.outcome()),
                SimpleWatcher(),
            ],
            **options,
        )

    def outcome(self) -> Result | None:
        outcome = OK if self.is_calm else next(self._plan, OK)
        if outcome == FAIL:
            raise ConnectionError("planned")
        if outcome == LATER:
            raise RetryAfter(4.0)
        if outcome == AT_ONCE:
            return Result(requeue_after=0)
        return Result(requeue_after=7.0) if outcome == AGAIN else None

    def by_object(self, request: ReconcileRequest) -> Result | None:
        uid = request.object.uid
        if request.state.setdefault("uid", uid) != uid:
            self.wrong.append(f"{uid} got the state of {request.state['uid']}")
        if request.attempt and request.error is None:
            self.wrong.append(f"attempt {request.attempt} of {uid} without an error")
        return self.outcome()

    def check(self) -> None:
        self.is_calm = True
        self.simulation.during_call = lambda _: None
        self.simulation.settle()
        note(self.simulation.timeline())
        check_object_order(self.simulation)
        check_exclusion(self.simulation)
        assert not self.wrong
        assert not self.simulation.controller.pending_requeues
        assert not self.simulation.controller._dispatcher._pending, "nothing is owed at rest"
        for place in (WATCHER, RECONCILER, BY_KEY, LAST):
            check_converged(self.simulation, place)


@many
@given(history=histories, plan=outcomes, dequeue_policy=dequeue_policies)
def test_each_ends_with_the_servers_state_whatever_failed_or_was_asked_for(
    history: Any, plan: list[int], dequeue_policy: Any
) -> None:
    fleet = Fleet(plan, retry_policy=ConstantBackoff(3.0), retry_dequeue_policy=dequeue_policy)
    with fleet.simulation as simulation:
        for step in history:
            play(simulation, step)
        fleet.check()


@many
@given(
    history=histories,
    plan=outcomes,
    overlaps=st.lists(st.integers(0, 2), max_size=60),
    dequeue_policy=dequeue_policies,
)
def test_nothing_runs_twice_at_once_for_one_object_with_many_workers(
    history: Any, plan: list[int], overlaps: list[int], dequeue_policy: Any
) -> None:
    fleet = Fleet(
        plan, workers=4, retry_policy=ConstantBackoff(1.0), retry_dequeue_policy=dequeue_policy
    )
    more = iter(overlaps)
    with fleet.simulation as simulation:

        def during_call(_: Any) -> None:
            # While this worker is in user code, the world goes on and other workers work.
            for _ in range(next(more, 0)):
                simulation.poll()
                simulation.advance(1.0)
                simulation.handle()

        simulation.during_call = during_call
        for step in history:
            play(simulation, step)
        fleet.check()


@many
@given(history=histories, plan=outcomes)
def test_a_reconciler_that_fails_or_asks_for_more_keeps_no_watcher_from_an_event(
    history: Any, plan: list[int]
) -> None:
    fleet = Fleet(plan, retry_policy=ConstantBackoff(3.0))
    with fleet.simulation as simulation:
        for step in history:
            play(simulation, step)
        fleet.check()
        told = {
            place: [
                (call.process, call.action, call.object.uid, call.object.resource_version)
                for call in simulation.calls
                if call.watcher == place
            ]
            for place in (WATCHER, LAST)
        }
        # A crash may come between the two; what the first was told last, the other was not.
        assert [call for call in told[WATCHER] if call in told[LAST]] == told[LAST]
