"""The health checks that an App declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from appsdk_operator.app._declarations import Check
from appsdk_operator.cache import Health
from appsdk_operator.manager import OWN_READY_CHECKS, HealthChecks, Manager
from appsdk_operator.runtime import LoopThread, settle


def check_name_of_check(declared: Check, others: Sequence[Check]) -> None:
    """Check that a health check can be served under its name.

    Raises:
        ValueError: it is not a path segment, or another check has it.
    """
    same = [each for each in others if each.is_ready_check == declared.is_ready_check]
    found = HealthChecks("readyz" if declared.is_ready_check else "healthz")
    for each in (*same, declared):
        found.add(each.name, each.function)
    if declared.is_ready_check and declared.name in OWN_READY_CHECKS:
        raise ValueError(
            f"check {declared.name!r} is a ready check of the manager itself: choose another name"
        )


def add_checks(
    manager: Manager,
    checks: Sequence[Check],
    *,
    is_running: Callable[[], bool],
    loop: LoopThread,
) -> None:
    """Add the checks to a manager that was not started.

    Args:
        manager: the manager.
        checks: the checks.
        is_running: whether the lifespans have begun, and not ended: checks may use what they made.
        loop: the event loop of async ones.

    Raises:
        ValueError: as :meth:`Manager.add_ready_check`.
    """
    for each in checks:
        check = _ServedCheck(each, is_running, loop)
        if each.is_ready_check:
            manager.add_ready_check(each.name, check)
        else:
            manager.add_health_check(each.name, check)


@final
class _ServedCheck:
    """Calls a declared check, and reads what it returns."""

    def __init__(self, declared: Check, is_running: Callable[[], bool], loop: LoopThread) -> None:
        self._declared = declared
        self._is_running = is_running
        self._loop = loop

    def __call__(self) -> Health:
        if not self._is_running():
            # A pod that is slow to begin must not be restarted for that.
            return Health(
                not self._declared.is_ready_check, "the app has not started, or has stopped"
            )
        with self._loop.bound():
            verdict: Any = settle(self._declared.function())
        if isinstance(verdict, Health):
            return verdict
        if verdict is None or verdict is True or verdict == "":
            return Health(True, f"{self._declared.name} ok")
        if isinstance(verdict, str):
            return Health(False, verdict)
        if verdict is False:
            return Health(False, f"{self._declared.name} returned False")
        raise TypeError(
            f"check {self._declared.name!r} returned {type(verdict).__name__}: return None or True "
            "when all is well, else the reason as text, or raise"
        )
