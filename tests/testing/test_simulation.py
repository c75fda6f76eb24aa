"""What a simulated process may ask of its server, and the report of one that does not rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.client import MergePatch, NotFound
from appsdk_operator.resource import Kind, Object
from appsdk_operator.testing import (
    BrokenPromise,
    Process,
    Simulation,
    check_converged,
)
from appsdk_operator.watchers import ConstantBackoff, SimpleWatcher
from tests.hypothesis_profiles import scaled
from tests.simulations import change

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


def showing_its_size(process: Process) -> list[SimpleWatcher]:
    def show(obj: Object) -> None:
        patch = MergePatch({"status": {"size": obj.spec["size"]}})
        process.client.status.patch(WIDGET, obj.name, patch, namespace=obj.namespace)

    def changed(old: Object, new: Object) -> None:
        if old.spec != new.spec:
            show(new)

    return [SimpleWatcher(add=show, update=changed)]


def size_of(simulation: Simulation) -> object:
    shown = simulation.process.client.status.get(WIDGET, "a", namespace="default")
    return (shown.status or {}).get("size")


def test_a_watcher_writes_the_status() -> None:
    with Simulation(WIDGET, showing_its_size) as simulation:
        simulation.create("a", spec={"size": 1})
        simulation.settle()
        assert size_of(simulation) == 1
        change(simulation, "a", spec={"size": 2})
        simulation.settle()
        assert size_of(simulation) == 2
        assert simulation.process.client.get(WIDGET, "a", namespace="default").generation == 2
        check_converged(simulation, watcher=0)


@pytest.mark.parametrize(("write_fault", "is_written"), [("lost", True), ("503", False)])
def test_faults_befall_the_write_of_a_status(write_fault: str, is_written: bool) -> None:
    backoff = ConstantBackoff(60.0)
    with Simulation(WIDGET, showing_its_size, retry_policy=backoff) as simulation:
        simulation.create("a", spec={"size": 1})
        while not simulation.controller.pending_events:
            simulation.poll()
            simulation.advance(1.0)
        simulation.write_faults = [write_fault]
        simulation.handle()
        assert simulation.calls[-1].error is not None
        assert (size_of(simulation) == 1) is is_written
        simulation.settle()
        assert size_of(simulation) == 1


def test_a_process_may_die_before_and_after_the_write_of_a_status() -> None:
    with Simulation(WIDGET, showing_its_size) as simulation:
        simulation.create("a", spec={"size": 1})
        while not simulation.controller.pending_events:
            simulation.poll()
            simulation.advance(1.0)
        simulation.write_faults = ["crash after"]
        simulation.handle()
        assert not simulation.process.is_alive
        simulation.restart()
        assert size_of(simulation) == 1
        change(simulation, "a", spec={"size": 2})
        simulation.write_faults = ["crash before"]
        while simulation.process.is_alive:
            simulation.poll()
            simulation.handle()
            simulation.advance(1.0)
        simulation.restart()
        assert size_of(simulation) == 1
        simulation.settle()
        assert size_of(simulation) == 2


def test_a_status_of_nothing_is_not_found() -> None:
    with (
        Simulation(WIDGET, showing_its_size) as simulation,
        pytest.raises(NotFound, match='"a" not found'),
    ):
        simulation.process.client.status.patch(
            WIDGET, "a", MergePatch({"status": {"size": 1}}), namespace="default"
        )


def test_one_that_does_not_rest_says_what_failed_last() -> None:
    def fail(obj: Object) -> None:
        raise KeyError("colour")

    def failing(process: Process) -> list[SimpleWatcher]:
        return [SimpleWatcher(), SimpleWatcher(add=fail)]

    with Simulation(WIDGET, failing, retry_policy=ConstantBackoff(1.0)) as simulation:
        simulation.create("a")
        with pytest.raises(BrokenPromise, match="not at rest after 60 s") as raised:
            simulation.settle(horizon=60.0)
    told = str(raised.value).splitlines()[-1]
    assert told.startswith("the last call that failed: ")
    assert "operator is called for a (watcher 1)" in told
    assert told.endswith(": KeyError('colour')")


def test_one_that_does_not_rest_although_nothing_failed_says_what_waits() -> None:
    def changing(process: Process) -> list[SimpleWatcher]:
        def count(_old: Object, new: Object) -> None:
            seen = (new.status or {}).get("seen", 0)
            patch = MergePatch({"status": {"seen": seen + 1}})
            process.client.status.patch(WIDGET, new.name, patch, namespace=new.namespace)

        return [SimpleWatcher(add=lambda obj: count(obj, obj), update=count)]

    with Simulation(WIDGET, changing) as simulation:
        simulation.create("a")
        with pytest.raises(BrokenPromise, match=r"and 0 retries wait$"):
            simulation.settle(horizon=60.0)


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["create", "size", "delete", "poll", "handle", "pass", "fault", "restart"]),
        st.sampled_from("ab"),
        st.integers(0, 3),
    ),
    max_size=20,
)
WRITE_FAULTS = ["", "lost", "409", "crash before"]


def random_sizes(process: Process) -> list[Any]:
    """Two watchers, of which one fails at times and one writes a status by chance."""
    rng = process.clock.rng

    def fail(obj: Object) -> None:
        if rng.random() < 0.3:
            raise ValueError(obj.name)

    def show(obj: Object) -> None:
        patch = MergePatch({"status": {"size": rng.getrandbits(8)}})
        process.client.status.patch(WIDGET, obj.name, patch, namespace=obj.namespace)

    def changed(old: Object, new: Object) -> None:
        if old.spec != new.spec:
            show(new)

    return [SimpleWatcher(add=fail, delete=fail), SimpleWatcher(add=show, update=changed)]


def move(simulation: Simulation, what: str, name: str, number: int) -> None:
    exists = any(obj.name == name for obj in simulation.objects())
    if what == "create" and not exists:
        simulation.create(name, spec={"size": number})
    elif what == "size" and exists:
        change(simulation, name, spec={"size": number})
    elif what == "delete" and exists:
        simulation.delete(name)
    elif what == "pass":
        simulation.advance(10.0**number / 10)
    elif what == "fault":
        simulation.write_faults.append(WRITE_FAULTS[number])
    elif what == "restart":
        simulation.restart()
    elif simulation.process.is_alive and what in ("poll", "handle"):
        getattr(simulation, what)()


@settings(max_examples=scaled(40))
@given(MOVES, st.integers(0, 3))
def test_one_seed_is_one_journal(moves: list[tuple[str, str, int]], seed: int) -> None:
    def journal() -> list[Any]:
        with Simulation(WIDGET, random_sizes, seed=seed) as simulation:
            for each in moves:
                move(simulation, *each)
            if not simulation.process.is_alive:
                simulation.restart()
            simulation.takes_write_faults = False
            simulation.settle()
            entries = [(str(e), e.began, e.ended, e.version) for e in simulation.journal.entries]
            return [entries, [obj.to_dict() for obj in simulation.objects()]]

    assert journal() == journal()
