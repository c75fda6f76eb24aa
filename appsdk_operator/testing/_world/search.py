"""The search for a history that breaks a promise, and for a small one that breaks it as well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from appsdk_operator.runtime import add_note
from appsdk_operator.testing._bounded_search import SearchEnded, bounded_search
from appsdk_operator.testing._broken_promise import BrokenPromise, promise_of
from appsdk_operator.testing._world.histories import Step, simpler

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Failure = tuple[list[Step], BrokenPromise]
"""A history, and the promise that it breaks."""

_MOST_VALUES: Final = 20
"""The histories that are played for simpler specs and statuses: a second or two."""


def search(
    run: Callable[[Sequence[Step]], None],
    themes: Sequence[SearchStrategy[list[Step]]],
    values: Mapping[str, SearchStrategy[Any]],
    max_examples: int,
    seed: int | None,
) -> Failure | None:
    """A small history that breaks a promise; None where none of those that were played does.

    Args:
        run: plays a history; raises :class:`BrokenPromise`.
        themes: the histories to draw from in turn.
        values: the specs and statuses of steps, by what the steps do.
        max_examples: the number of histories.
        seed: the seed of the search; None: as the profile of Hypothesis says.
    """
    from hypothesis import strategies as st

    def histories(theme: SearchStrategy[list[Step]]) -> SearchStrategy[list[Step]]:
        return st.tuples(seeds, theme).map(
            lambda drawn: [drawn[0], *drawn[1]] if drawn[0].value else drawn[1]
        )

    seeds = st.builds(Step, st.just("seed"), st.just(""), st.integers(0, 9))
    # Once for all histories: Hypothesis examines each new strategy.
    strategies = [histories(theme) for theme in themes]
    seed = _seed_of_profile() if seed is None else seed
    for number in range(max_examples):
        strategy = strategies[number % len(strategies)]
        found = _search_one(run, strategy, seed * max_examples + number)
        if found is not None:
            return _Trials(run, found).smallest(values)
    return None


def _search_one(
    run: Callable[[Sequence[Step]], None], strategy: SearchStrategy[list[Step]], seed: int
) -> Failure | None:
    """Draw and play one history."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from hypothesis.errors import HypothesisException

    found: list[Failure] = []
    others: list[Exception] = []
    tries = 0

    def attempt(steps: list[Step]) -> None:
        nonlocal tries
        tries += 1
        if tries == 1 or found or others:
            # Found: Hypothesis wants to see it again, and would call it flaky.
            return
        try:
            run(steps)
        except BrokenPromise as error:
            found.append((steps, error))
            raise _FoundError from error
        except HypothesisException:
            raise
        except Exception as error:
            # Not of the operator, or it blocks in a call that is not simulated.
            add_note(error, f"to see it again: check_operator(…, replay=[{replay_of(steps)}])")
            others.append(error)
            raise _FoundError from error

    # Short, because Hypothesis reads its source for each history.
    @given(strategy)
    def draw(steps: list[Step]) -> None:
        attempt(steps)

    play = settings(
        # The first is the simplest one each time. Of more, most would be variants of each other.
        max_examples=2,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        print_blob=False,
        phases=[Phase.generate],
    )(seeded(seed)(draw))

    try:
        play()
    except Exception:  # Hypothesis' own one where something is found
        if others:
            raise others[0] from others[0].__cause__
        if not found:
            raise
    return found[0] if found else None


def replay_of(steps: Sequence[Step]) -> str:
    """The steps of a history, as a test writes them."""
    return ", ".join(repr(str(step)) for step in steps)


class _FoundError(Exception):
    """Ends the drawing of histories."""


@final
class _Trials:
    """Histories that are smaller than one that breaks a promise.

    Steps are left out first, many at once, because a short history takes less time to play than a
    long one; then what is left gets simpler values.
    """

    def __init__(self, run: Callable[[Sequence[Step]], None], failure: Failure) -> None:
        self._run = run
        self._steps, self._error = failure
        self._promise = promise_of(self._error)
        # A history gives the same run each time.
        self._played: dict[tuple[str, ...], BrokenPromise | None] = {}

    def smallest(self, values: Mapping[str, SearchStrategy[Any]]) -> Failure:
        """The smallest history that was found, and how it breaks the same promise."""
        self._drop()
        before = self._steps
        self._simplify()
        self._simplify_values(values)
        if self._steps != before:
            self._drop()
        return self._steps, self._error

    def _is_taken(self, steps: list[Step]) -> bool:
        """Whether these steps break the promise; then they are the smallest history so far."""
        error = self._play(steps)
        if error is None:
            return False
        self._steps, self._error = steps, error
        return True

    def _play(self, steps: list[Step]) -> BrokenPromise | None:
        """How these steps break the promise; None where they do not, or break another one."""
        key = tuple(map(str, steps))
        if key not in self._played:
            self._played[key] = None
            try:
                self._run(steps)
            except BrokenPromise as error:
                if promise_of(error) == self._promise:
                    self._played[key] = error
            except Exception:
                # Of a check of the user's, which a history without these steps does not suit.
                self._played[key] = None
        return self._played[key]

    def _drop(self) -> None:
        """Leave out steps: half of them, a quarter, …, and at last each one for itself."""
        size = max(1, len(self._steps) // 2)
        while True:
            is_smaller = False
            end = len(self._steps)
            while end > 0:
                start = max(0, end - size)
                is_smaller |= self._is_taken([*self._steps[:start], *self._steps[end:]])
                end = start
            if size > 1:
                size //= 2
            elif not is_smaller:
                return

    def _simplify(self) -> None:
        """Give steps shorter times, and what else they choose among."""
        for index in range(len(self._steps)):
            for step in simpler(self._steps[index]):
                if self._is_taken([*self._steps[:index], step, *self._steps[index + 1 :]]):
                    break

    def _simplify_values(self, values: Mapping[str, SearchStrategy[Any]]) -> None:
        """Give steps simpler specs and statuses."""
        from hypothesis import strategies as st
        from hypothesis.errors import HypothesisException

        steps = self._steps
        places = [index for index, step in enumerate(steps) if step.what in values]
        if not places:
            return
        tries = 0

        def fails(drawn: tuple[Any, ...]) -> bool:
            nonlocal tries
            tries += 1
            if tries > _MOST_VALUES:
                raise SearchEnded
            new = list(steps)
            for index, value in zip(places, drawn, strict=True):
                new[index] = attrs.evolve(steps[index], value=value)
            if new == steps and tries == 1:
                raise SearchEnded  # it has the simplest ones
            if self._play(new) is None:
                return False
            if _length_of(new) < _length_of(self._steps):
                self._is_taken(new)
            return True

        drawn = st.tuples(*(values[steps[index].what] for index in places))
        # It need not find any.
        with contextlib.suppress(HypothesisException):
            bounded_search(drawn, fails, max_examples=_MOST_VALUES, seed=0)


def _length_of(steps: Sequence[Step]) -> tuple[int, list[str]]:
    texts = [str(step) for step in steps]
    return sum(map(len, texts)), texts


def _seed_of_profile() -> int:
    """A seed that is drawn as the profile of Hypothesis says."""
    from hypothesis import Phase, given, settings
    from hypothesis import strategies as st

    drawn: list[int] = []

    @settings(max_examples=2, database=None, phases=[Phase.generate])
    @given(st.integers(0, 2**64))
    def draw(number: int) -> None:
        drawn.append(number)

    draw()
    return drawn[-1]
