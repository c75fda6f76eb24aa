"""How many examples the property tests try, and whether they are the same ones each time."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

DEFAULT = 100
"""The examples of Hypothesis where a test names no number: what the numbers of tests refer to."""

_COMMON: Any = {
    # How long an example takes says how busy the machine is, and nothing of the test.
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    # Also for a failure that comes once in many runs: hack/lane.py passes it on.
    "print_blob": True,
}


def register() -> None:
    """Make the profiles known by their names."""
    # The same examples in each run, so that one that fails says something of what was changed.
    settings.register_profile("repeatable", derandomize=True, max_examples=DEFAULT, **_COMMON)
    # A fifth of them, for `make test`.
    settings.register_profile("quick", derandomize=True, max_examples=DEFAULT // 5, **_COMMON)
    # Others in each run, for `make hunt`: said in full, as Hypothesis' own defaults are
    # derandomized where CI is set.
    settings.register_profile("hunt", derandomize=False, max_examples=DEFAULT, **_COMMON)


def histories_of(seed: int) -> int | None:
    """The seed of a `check_operator` that has to pass: a new one in each round of the hunt."""
    return seed if settings().derandomize else None


def scaled(full: int) -> int:
    """The examples of a test that tries ``full`` of them in CI, in the profile of this run."""
    # Few are as quick as none.
    return max(min(full, 5), full * settings().max_examples // DEFAULT)
