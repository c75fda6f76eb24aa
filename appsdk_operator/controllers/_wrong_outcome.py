"""The error for a reconciler that returns neither a Result nor None."""

from __future__ import annotations


def wrong_outcome(who: str, returned: object) -> TypeError:
    """The error for ``returned``, which is neither a Result nor None."""
    # Imported when needed: most programs never load it.
    from appsdk_operator.controllers._helpers.finalizer_helper import FinalizingOutcome

    if isinstance(returned, FinalizingOutcome):
        remedy = "return its value, outcome.value, the result of apply or cleanup"
    else:
        remedy = (
            "return None when all is done, Result(requeue_after=seconds) to be called again, and "
            "raise errors"
        )
    # Not the value: it may be a Secret's content.
    return TypeError(f"{who} returned {type(returned).__name__}: {remedy}")
