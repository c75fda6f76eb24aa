"""The operator's own metrics, which ``/metrics`` serves with those of the kit."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from appsdk_operator.runtime import default_metrics

_CALLS = default_metrics().counter(
    "tenants_account_calls_total", "Calls of the account service.", ["operation", "outcome"]
)
_SECONDS = default_metrics().histogram(
    "tenants_account_call_seconds",
    "How long calls of the account service took.",
    ["operation"],
    buckets=(0.01, 0.1, 1.0, 10.0),
)
ACCOUNTS = default_metrics().gauge("tenants_accounts", "Accounts that are open.")
ORPHANS = default_metrics().gauge(
    "tenants_orphaned_accounts", "Accounts of tenants that do not exist any more."
)


@contextlib.contextmanager
def call(operation: str) -> Generator[None]:
    """Time and count a call of the account service; the outcome is ``ok``, or the error's class."""
    outcome = "ok"
    try:
        with _SECONDS.labels(operation).time():
            yield
    except Exception as error:
        outcome = type(error).__name__
        raise
    finally:
        _CALLS.labels(operation, outcome).inc()
