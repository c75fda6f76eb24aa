"""Argument checks of controllers and their builder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

from appsdk_operator.controllers._protocols import Source
from appsdk_operator.runtime.validation import check_callable, check_plain


def check_name(name: object) -> None:
    """Refuse an empty name."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"name={name!r}: give the controller a name, which its metrics show")


def checked_reconciler(reconciler: object) -> Callable[[Any], Any]:
    """The function of ``reconciler`` to call; refuses what is not a reconciler."""
    if isinstance(reconciler, type):
        raise TypeError(
            f"reconciler={reconciler!r} is a class: give an instance, {reconciler.__name__}(…)"
        )
    function = getattr(reconciler, "reconcile", reconciler)

    def explain(mismatch: TypeError | None) -> str:
        if mismatch is None:
            return (
                f"reconciler={reconciler!r} is not a reconciler: give an object with "
                "reconcile(request), or a function of the request"
            )
        return f"reconciler={reconciler!r} cannot be called with only a request: {mismatch}"

    check_callable(
        "reconciler", function, "request", required=True, is_awaited=True, explain=explain
    )
    if _wants_object_request(function):
        raise TypeError(
            f"reconciler={reconciler!r} takes a ReconcileRequest, as a reconciler of an "
            "InformerController does, but would get a Request, which has only namespace and name: "
            "give a function of a Request, or as_reconciler(client, kind, function) with a "
            "function of the object"
        )
    return cast("Callable[[Any], Any]", function)


def _wants_object_request(function: Any) -> bool:
    """Whether its first argument is annotated as the ReconcileRequest of ``watchers``.

    By name, because this room does not import ``watchers``.
    """
    try:
        first = next(iter(inspect.signature(function).parameters.values()))
    except (TypeError, ValueError, StopIteration):
        return False
    annotation = first.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return str(name).partition("[")[0].rpartition(".")[2] == "ReconcileRequest"


def check_source(source: object) -> None:
    """Refuse what is not a source."""
    if isinstance(source, type):
        raise TypeError(f"source={source!r} is a class: watch an instance, {source.__name__}(…)")
    if not isinstance(source, Source):
        raise TypeError(f"source={source!r} is not a source: it needs start(queue, stop)")
    for method in ("start", "wait_for_sync", "join", "health"):
        check_plain(
            f"{method} of the source, a {type(source).__name__},", getattr(source, method, None)
        )
