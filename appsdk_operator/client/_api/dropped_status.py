"""The warning about a status that the server dropped from a write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import get_logger

_log = get_logger("appsdk_operator.client")


def warn_of_dropped_status(warned: set[Kind], verb: str, sent: Any, answer: Object) -> None:
    """Log, once for each kind, that the server dropped the status of a write.

    Args:
        warned: the kinds with a warning so far.
        verb: the client method.
        sent: the status in the request.
        answer: the object in the answer.
    """
    if not sent or answer.kind in warned or answer.is_metadata_only:
        return
    if _holds(answer.get("status"), sent):
        return
    warned.add(answer.kind)
    is_new = verb == "create"
    _log.warning(
        "%s of %s %s: the server %s, because a status subresource has requests of its own: use "
        "client.status.%s. If the kind has no status subresource, its schema lacks fields that "
        "were sent",
        verb,
        answer.kind.qualified_name,
        answer.key,
        "left the status out" if is_new else "left the status as it was",
        "update with the object that create returned" if is_new else verb,
        extra={"kind": str(answer.kind), "namespace": answer.namespace, "object": answer.name},
    )


def _holds(present: Any, sent: Any) -> bool:
    """Whether ``present`` contains ``sent``; the server may have added defaults."""
    if isinstance(sent, Mapping):
        if not isinstance(present, Mapping):
            return not any(value is not None for value in sent.values())
        return all(
            present.get(key) is None if value is None else _holds(present.get(key), value)
            for key, value in sent.items()
        )
    if isinstance(sent, (list, tuple)):
        return (
            isinstance(present, (list, tuple))
            and len(present) == len(sent)
            and all(map(_holds, present, sent))
        )
    return bool(present == sent)
