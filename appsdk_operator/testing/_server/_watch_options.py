"""What the options of a watch ask for."""

from __future__ import annotations

from collections.abc import Mapping

from appsdk_operator.testing._server._bodies import flag
from appsdk_operator.testing._server._status import FieldError, invalid

__all__ = ["wants_state"]


def wants_state(query: Mapping[str, str], *, streaming_lists: bool) -> bool:
    """Whether a watch is to begin with the state.

    Raises:
        StatusError: 422, its options contradict each other, or ``streaming_lists`` are lacking.
    """
    if "sendInitialEvents" not in query:
        if query.get("resourceVersionMatch"):
            problem = FieldError.forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
            raise invalid("ListOptions", "meta.k8s.io", "", [problem])
        return False
    problems: list[FieldError] = []
    if query.get("resourceVersionMatch") != "NotOlderThan":
        problems.append(
            FieldError.forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        )
    if not streaming_lists:
        problems.append(
            FieldError.forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate "
                "is enabled",
            )
        )
    if problems:
        raise invalid("ListOptions", "meta.k8s.io", "", problems)
    return flag(query, "sendInitialEvents")
