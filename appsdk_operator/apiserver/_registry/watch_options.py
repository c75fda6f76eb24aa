"""The options of a watch that ask for the initial state."""

from __future__ import annotations

from collections.abc import Mapping

from appsdk_operator.apiserver._registry.bodies import flag
from appsdk_operator.apiserver._values.status import FieldError, invalid

__all__ = ["wants_state"]


def wants_state(query: Mapping[str, str], *, streaming_lists: bool) -> bool:
    """Whether a watch asks to stream the initial state (``sendInitialEvents``).

    Args:
        query: the query of the watch.
        streaming_lists: whether the server supports it.

    Raises:
        StatusError: 422, the options contradict each other.
    """
    field, match = "resourceVersionMatch", query.get("resourceVersionMatch", "")
    streaming = "sendInitialEvents" in query
    problems: list[FieldError] = []
    if streaming and match != "NotOlderThan":
        what = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        problems.append(FieldError.forbidden(field, what))
    if match and not streaming:
        what = f"{field} is forbidden for watch unless sendInitialEvents is provided"
        problems.append(FieldError.forbidden(field, what))
    if match and query.get("continue"):
        what = f"{field} is forbidden when continue is provided"
        problems.append(FieldError.forbidden(field, what))
    if match not in ("", "NotOlderThan"):
        problems.append(FieldError.not_supported(field, match, ("NotOlderThan",)))
    if streaming and not streaming_lists:
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
