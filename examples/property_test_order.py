"""Property-test the order in which your own watchers run.

A registrar gives each ConfigMap a number, an announcer says it aloud. The announcer was added
second, so it always finds the number - or does it? Hypothesis plays histories of writes, lost
connections and failing calls on a simulation, which has no threads and no sockets, so what it finds
happens again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import ConstantBackoff, Object, SimpleWatcher, kinds
from appsdk_operator.testing import (
    Entry,
    Simulation,
    check_converged,
    check_exclusion,
    check_object_order,
    check_watcher_order,
    strategies,
)

Numbers: TypeAlias = dict[str, int]
Announcer: TypeAlias = Callable[[Numbers, list[str]], SimpleWatcher]
Step: TypeAlias = tuple[str, object]

WRITES = st.tuples(st.sampled_from(["create", "change", "delete"]), st.sampled_from(["a", "b"]))
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        WRITES,
        st.tuples(st.just("poll"), strategies.faults()),
        st.tuples(st.just("handle"), st.booleans()),
    ),
    max_size=25,
)


def registrar(numbers: Numbers) -> SimpleWatcher:
    """Gives each object that appears the next number."""

    def register(obj: Object) -> None:
        numbers.setdefault(obj.name, len(numbers) + 1)

    return SimpleWatcher(add=register)


def careless(numbers: Numbers, said: list[str]) -> SimpleWatcher:
    """Takes for granted that the registrar, which ran before, has succeeded."""
    return SimpleWatcher(add=lambda obj: said.append(f"{obj.name} is {numbers.get(obj.name)}"))


def careful(numbers: Numbers, said: list[str]) -> SimpleWatcher:
    """Fails when there is no number yet, so that it is called again."""
    return SimpleWatcher(add=lambda obj: said.append(f"{obj.name} is {numbers[obj.name]}"))


def play(announcer: Announcer, steps: Sequence[Step]) -> None:
    """Play one history and check what was promised."""
    numbers: Numbers = {}
    said: list[str] = []
    registrar_fails = False

    def fail_the_registrar(call: Entry) -> None:
        if registrar_fails and call.watcher == 0:
            raise ConnectionError("the registry does not answer")

    with Simulation(
        kinds.core.v1.ConfigMap,
        lambda _: [registrar(numbers), announcer(numbers, said)],
        retry_policy=ConstantBackoff(1.0),
    ) as simulation:
        simulation.during_call = fail_the_registrar
        for what, detail in steps:
            if isinstance(detail, list):
                simulation.poll(*detail)
            elif isinstance(detail, bool):
                registrar_fails = detail
                simulation.handle()
                registrar_fails = False
            else:
                write(simulation, what, str(detail))
        simulation.settle()

        check_watcher_order(simulation)
        check_object_order(simulation)
        check_exclusion(simulation)
        check_converged(simulation, watcher=1)
        numberless = [line for line in said if line.endswith("None")]
        assert not numberless, f"announced {numberless[0]!r}\n{simulation.timeline()}"


def write(simulation: Simulation, what: str, name: str) -> None:
    """What users do; nothing where it makes no sense."""
    is_there = simulation.find(name) is not None
    if what == "create" and not is_there:
        simulation.create(name)
    elif what == "change" and is_there:
        simulation.replace(name, {"data": {"at": str(simulation.clock.monotonic())}})
    elif what == "delete" and is_there:
        simulation.delete(name)


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(STEPS)
def test_the_careful_announcer_never_says_none(steps: list[Step]) -> None:
    """Holds."""
    play(careful, steps)


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(STEPS)
def test_the_careless_announcer_never_says_none(steps: list[Step]) -> None:
    """Does not hold: a watcher that fails keeps no other watcher from the event."""
    play(careless, steps)


def main() -> int:
    """Test both announcers; 0 if the property holds for the careful one only."""
    test_the_careful_announcer_never_says_none()
    print("careful: the property held in 200 histories")
    try:
        test_the_careless_announcer_never_says_none()
    except AssertionError as error:
        print(f"careless: {error}")
        return 0
    print("careless: no counterexample was found")
    return 1


if __name__ == "__main__":
    sys.exit(main())
