"""A search of Hypothesis whose shrinking the caller ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


class SearchEnded(BaseException):
    """Ends a search at once. Not an Exception, which Hypothesis would take for a failure."""


class _FailedError(Exception):
    """One type for all failures, so that Hypothesis takes them for the same."""


def bounded_search(
    strategy: SearchStrategy[T], fails: Callable[[T], bool], *, max_examples: int, seed: int | None
) -> None:
    """Draw values, and after the first for which ``fails`` is true, ever smaller ones.

    Args:
        strategy: the values.
        fails: whether a value fails; it raises :class:`SearchEnded` when it has seen enough, and
            keeps the last one that failed, which is the smallest.
        max_examples: the number of values until one fails.
        seed: the seed; None: as the profile of Hypothesis says.

    Raises:
        Exception: of ``fails`` or Hypothesis, unless a value failed before.
    """
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    has_failed = False

    @settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list[Any](HealthCheck),
        print_blob=False,
        phases=[Phase.generate, Phase.shrink],
    )
    @given(strategy)
    def run(value: T) -> None:
        nonlocal has_failed
        if fails(value):
            has_failed = True
            raise _FailedError

    try:
        (run if seed is None else seeded(seed)(run))()
    except SearchEnded:
        pass
    except Exception:  # Hypothesis' own, too: what fails once only is as good as it is
        if not has_failed:
            raise
