"""Helpers that run clean-up functions under finalizers: ``finalizing`` and FinalizerRegistry."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, final

from appsdk_operator._generics import SpecT, SpecT_co, StatusT, StatusT_co, subscript
from appsdk_operator.controllers._helpers.finalizers import (
    Finalizers,
    add_finalizer,
    check_finalizer,
    has_finalizer,
    put_finalizer,
    remove_finalizer,
    take_finalizer_off,
)
from appsdk_operator.controllers._helpers.guarded import PatchClient
from appsdk_operator.controllers._mutables import check_objects, metadata_of, mutable
from appsdk_operator.controllers._reconcile import check_ignored_result
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.runtime import add_note, settle
from appsdk_operator.runtime.validation import check_callable, check_client, check_function


class Finalizing(enum.Enum):
    """The outcome of :func:`finalizing`."""

    APPLIED = "applied"
    """The finalizer is on the object, and ``apply`` has succeeded."""
    CLEANED_UP = "cleaned up"
    """``cleanup`` has succeeded, and the finalizer is removed."""
    GONE = "gone"
    """The object is gone, or is being deleted without our finalizer: nothing was called."""


class FinalizingOutcome(NamedTuple, Generic[SpecT_co, StatusT_co]):
    """What :func:`finalizing` did, with the returned value and the object."""

    done: Finalizing
    value: Any
    """What ``apply`` or ``cleanup`` returned."""
    object: Object[SpecT_co, StatusT_co] | None
    """The latest known state of the object; None when it is gone."""


if not TYPE_CHECKING:  # mypy knows no such line inside of a NamedTuple
    FinalizingOutcome.__class_getitem__ = subscript


def finalizing(
    client: PatchClient,
    obj: Object[SpecT, StatusT],
    name: str,
    *,
    apply: Callable[[Object[SpecT, StatusT]], Any],
    cleanup: Callable[[Object[SpecT, StatusT]], Any],
) -> FinalizingOutcome[SpecT, StatusT]:
    """Call ``apply`` for an object, or ``cleanup`` if it is being deleted.

    It adds the finalizer ``name`` before the first ``apply``, and removes it after ``cleanup`` has
    succeeded. Call this at each reconcile. It is kube-rs' ``finalizer`` helper.

    Guarantees:
        * ``cleanup`` has succeeded at least once, after the last ``apply``, before the object is
          removed. Both may be called again for work that is done, so they must be idempotent.
        * Other finalizers stay: patches test the state that they are based on. After a concurrent
          write the kit reads the object and makes the patch again.
        * ``apply`` is never called for an object without the finalizer, so the deletion of an
          object before its first reconcile is not delayed.

    Caveats:
        * If another client or a user removes the finalizer, the guarantee is lost.
        * With ``obj`` from a stale cache ``apply`` may be called for an object whose deletion has
          begun; ``cleanup`` then follows. It may also be called for an object that is gone, unless
          the cache shows own writes, as :class:`~appsdk_operator.cache.CachedClient` does.
        * kube-apiserver may remove an object although a finalizer was added during the deletion.
          If that matters, also clean up when the object is not found.
        * Calls for one object must not overlap; controllers and watchers ensure that.

    Args:
        client: reads and patches the object; the account needs ``get`` and ``patch``.
        obj: the object, as read.
        name: the finalizer, for example ``example.com/cleanup``.
        apply: called with the object, which has the finalizer; may be ``async def``.
        cleanup: called with the object; may be ``async def``.

    Returns:
        The outcome, the result of the function, and the object.

    Raises:
        ValueError: no API server would accept ``name``.
        FinalizerError: the finalizer could not be written.
        Exception: an error of ``apply`` or ``cleanup``; the finalizer then stays.
    """
    check_client(client, "get", "patch")
    check_objects(obj=obj)
    # Both now: a missing clean-up would otherwise be found only when the object is deleted.
    check_function("apply", apply, required=True, is_awaited=True)
    check_function("cleanup", cleanup, required=True, is_awaited=True)
    check_finalizer(name, obj.kind)
    present: Object[SpecT, StatusT] | None = obj
    if name not in obj.finalizers:
        if not obj.is_deleting:
            present = put_finalizer(client, obj, name)
        elif obj.is_transformed:
            present = Finalizers(obj.kind, client).read(obj)
    if present is None:
        return FinalizingOutcome(Finalizing.GONE, None, None)
    if not present.is_deleting:
        return FinalizingOutcome(Finalizing.APPLIED, settle(apply(present)), present)
    if name not in present.finalizers:
        return FinalizingOutcome(Finalizing.GONE, None, present)
    value = settle(cleanup(present))
    left = take_finalizer_off(client, present, name)
    return FinalizingOutcome(Finalizing.CLEANED_UP, value, left)


class FinalizeResult(NamedTuple):
    """The writes that are needed after :meth:`FinalizerRegistry.finalize`."""

    updated: bool
    """Whether the object changed: ``client.update`` it."""
    status_updated: bool
    """Whether a clean-up changed the status: ``client.status.update`` it."""

    def __or__(self, other: FinalizeResult) -> FinalizeResult:
        return FinalizeResult(
            self.updated or other.updated, self.status_updated or other.status_updated
        )


class CleanUp(Protocol):
    """The clean-up function of one finalizer; may be ``async def``."""

    def __call__(self, obj: MutableObject, /) -> Any:
        """Clean up. If it changes ``obj`` it returns a :class:`FinalizeResult` that says what.

        When it raises, the finalizer stays, and so does the object. Returning an error or a Result
        is a TypeError, with the same effect."""
        ...


@final
class FinalizerRegistry:
    """Several finalizers of one kind, each with its clean-up function, as in controller-runtime.

    It changes a copy in memory, which the caller writes. For one finalizer use :func:`finalizing`,
    which also writes it. Thread-safe once all finalizers are registered.

    >>> registry = FinalizerRegistry()
    >>> registry.register("example.com/bucket", lambda obj: None)
    """

    def __init__(self) -> None:
        self._clean_ups: dict[str, CleanUp] = {}

    def register(self, name: str, clean_up: CleanUp) -> None:
        """Register the finalizer ``name`` and the function to call before it is removed.

        Raises:
            ValueError: ``name`` is registered already, or no API server would accept it.
        """
        check_finalizer(name)
        if name in self._clean_ups:
            raise ValueError(
                f"finalizer {name!r} is registered already: give this one another name"
            )
        check_callable("clean_up", clean_up, "obj", required=True, is_awaited=True)
        self._clean_ups[name] = clean_up

    def finalize(self, obj: MutableObject) -> FinalizeResult:
        """Add the missing finalizers to ``obj``; if it is being deleted, clean up and remove them.

        Clean-ups run in the order of registration, for the finalizers on the object. If one fails,
        its finalizer stays, and the others run.

        Returns:
            The writes that the caller has to make.

        Raises:
            FinalizeErrors: some clean-ups failed. Its ``result`` has the writes for the others;
                without these writes they would run again.
            ReadOnlyError: ``obj`` is not a mutable copy.
        """
        is_deleting = metadata_of(mutable(obj)).get("deletionTimestamp") is not None
        result = FinalizeResult(updated=False, status_updated=False)
        errors: list[Exception] = []
        for name, clean_up in self._clean_ups.items():
            if not is_deleting:
                result |= FinalizeResult(add_finalizer(obj, name), status_updated=False)
            elif has_finalizer(obj, name):
                try:
                    changed = settle(clean_up(obj))
                    check_ignored_result(
                        f"clean_up of finalizer {name!r}",
                        changed,
                        "raise an error, or RetryAfter(seconds), to keep the finalizer",
                    )
                except Exception as error:
                    add_note(error, f"while cleaning up for finalizer {name!r} of {obj!r}")
                    errors.append(error)
                    continue
                if isinstance(changed, FinalizeResult):
                    result |= changed
                result |= FinalizeResult(remove_finalizer(obj, name), status_updated=False)
        if errors:
            failures = FinalizeErrors(f"clean-up of {obj!r} failed", errors)
            failures.result = result
            raise failures
        return result


class FinalizeErrors(ExceptionGroup[Exception]):
    """The errors of failed clean-ups, each with its finalizer in a note."""

    result: FinalizeResult
    """The writes for the clean-ups that succeeded."""
