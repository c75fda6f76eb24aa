"""The history of calls: what ten-second spans it finds, from counts that only grow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.runtime._history import SPAN, SPANS, CallHistory

GAPS = st.floats(0.0, 200.0) | st.floats(0.0, 3.0)


@given(st.lists(st.tuples(GAPS, st.booleans()), max_size=60), GAPS, st.floats(0.0, 1e6))
def test_each_call_is_in_the_span_in_which_it_ended(
    calls: list[tuple[float, bool]], after: float, start: float
) -> None:
    history, now, made = CallHistory(), start, list[tuple[int, bool]]()
    for gap, fails in calls:
        now += gap
        if now >= history.next:
            failures = sum(failed for _, failed in made)
            history.note(now, calls=len(made), failures=failures, queued=0)
        made.append((int(now // SPAN), fails))
    now += after
    failed = [span for span, fails in made if fails]
    found = history.series(now, calls=len(made), failures=len(failed), queued=0)
    spans = range(int(now // SPAN) - SPANS + 1, int(now // SPAN) + 1)
    assert found["calls"] == [sum(span == one for one, _ in made) for span in spans]
    assert found["failures"] == [failed.count(span) for span in spans]


def test_a_queue_is_as_long_as_it_was_seen_last_and_at_its_longest_in_a_span() -> None:
    history = CallHistory()
    history.note(100.0, calls=0, failures=0, queued=3)
    history.note(105.0, calls=0, failures=0, queued=9)
    history.note(106.0, calls=0, failures=0, queued=4)
    history.note(130.0, calls=0, failures=0, queued=1)
    assert history.series(145.0, calls=0, failures=0, queued=2)["queued"][-6:] == [
        *(0, 9, 9, 9, 1, 2)
    ]


def test_nothing_was_noted_is_nothing_called() -> None:
    found = CallHistory().series(1e5, calls=0, failures=0, queued=5)
    assert found["calls"] == [0] * SPANS
    assert found["queued"] == [0] * (SPANS - 1) + [5]


def test_the_first_of_the_sixty_spans_counts() -> None:
    history = CallHistory()
    history.note(0.0, calls=0, failures=0, queued=0)
    last = SPAN * (SPANS - 1)
    assert history.series(last, calls=3, failures=1, queued=0)["calls"] == [3] + [0] * (SPANS - 1)
    assert sum(history.series(last + SPAN, calls=3, failures=1, queued=0)["calls"]) == 0
