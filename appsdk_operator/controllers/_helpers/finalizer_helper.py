"""Clean up before an object goes, by functions that know nothing of finalizers."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, final

from appsdk_operator._generics import SpecT, SpecT_co, StatusT, StatusT_co, subscript
from appsdk_operator.controllers._helpers.finalizers import (
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
from appsdk_operator.runtime import settle
from appsdk_operator.runtime.validation import check_client, check_function

__all__ = [
    "CleanUp",
    "FinalizeErrors",
    "FinalizeResult",
    "FinalizerRegistry",
    "Finalizing",
    "FinalizingOutcome",
    "finalizing",
]


class Finalizing(enum.Enum):
    """What :func:`finalizing` did."""

    APPLIED = "applied"
    """The finalizer is on the object, and ``apply`` has succeeded."""
    CLEANED_UP = "cleaned up"
    """``cleanup`` has succeeded, and the finalizer is off."""
    GONE = "gone"
    """The object, or our finalizer on one that is being deleted, is no more: nothing was called."""


class FinalizingOutcome(NamedTuple, Generic[SpecT_co, StatusT_co]):
    """What :func:`finalizing` did, and what came of it."""

    done: Finalizing
    value: Any
    """What ``apply`` or ``cleanup`` returned."""
    object: Object[SpecT_co, StatusT_co] | None
    """The object as it is known after that; None when it is gone."""


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
    """Call ``apply`` for an object that is there, ``cleanup`` for one that is to be deleted.

    The finalizer ``name`` is put on before the first ``apply``, and taken off after ``cleanup``
    has succeeded. Call it at each reconcile. It is kube-rs' ``finalizer`` helper.

    Guarantees:
        * ``cleanup`` has succeeded at least once, after the last ``apply``, before the object
          goes; both may be called again for what they have done already, so they are idempotent.
        * No other finalizer is touched: patches test what they build upon, and are made anew from
          a fresh read when somebody was quicker.
        * Without a finalizer on the object nothing was applied, so an object that is deleted before
          its first reconcile is not held up.

    Caveats:
        * Who takes the finalizer off by hand, or with ``kubectl``, takes the guarantee along.
        * With ``obj`` from a cache that is behind, ``apply`` may be called for an object whose
          deletion has begun, and ``cleanup`` comes after it then; or has ended, unless the cache
          shows own writes, as the one behind :class:`~appsdk_operator.cache.CachedClient` does.
        * kube-apiserver may drop an object whose finalizer is put on while it carries out a
          deletion. Who must not miss that cleans up when the object is not found, too.
        * One object is handled once at a time: controllers and watchers see to that.

    Args:
        client: reads and patches the object; the account needs ``get`` and ``patch``.
        obj: the object, as it was read.
        name: the finalizer, for example ``example.com/cleanup``.
        apply: called with the object, with the finalizer on it; may be ``async def``.
        cleanup: called with the object; may be ``async def``.

    Returns:
        What was done, what the function returned, and the object.

    Raises:
        ValueError: no API server would accept ``name``.
        FinalizerError: the finalizer could not be written.

    What ``apply`` and ``cleanup`` raise comes through; the finalizer then stays.
    """
    check_client(client, "get", "patch")
    check_objects(obj=obj)
    # Both now: that there is no clean-up would be found when the object is deleted.
    check_function("apply", apply, required=True)
    check_function("cleanup", cleanup, required=True)
    check_finalizer(name, obj.kind)
    present: Object[SpecT, StatusT] | None = obj
    if not obj.is_deleting and name not in obj.finalizers:
        present = put_finalizer(client, obj, name)
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
    """What has to be written after :meth:`FinalizerRegistry.finalize`."""

    updated: bool
    """Whether the object differs: ``client.update`` it."""
    status_updated: bool
    """Whether a clean-up has changed the status: ``client.status.update`` it."""

    def __or__(self, other: FinalizeResult) -> FinalizeResult:
        return FinalizeResult(
            self.updated or other.updated, self.status_updated or other.status_updated
        )


class CleanUp(Protocol):
    """What is done for one finalizer before an object goes; may be ``async def``."""

    def __call__(self, obj: MutableObject, /) -> Any:
        """Clean up; may change ``obj`` and then returns what, a :class:`FinalizeResult`.

        To raise keeps the finalizer on, and so the object; to return an error or a Result is a
        TypeError, which does so, too."""
        ...


@final
class FinalizerRegistry:
    """Several finalizers of one kind, each with its own clean-up; as controller-runtime's.

    It changes a copy in memory, the caller writes it. Where one finalizer is enough,
    :func:`finalizing` writes it, too. Register first, then share: it is thread-safe from then on.

    >>> registry = FinalizerRegistry()
    >>> registry.register("example.com/bucket", lambda obj: None)
    """

    def __init__(self) -> None:
        self._clean_ups: dict[str, CleanUp] = {}

    def register(self, name: str, clean_up: CleanUp) -> None:
        """Have ``name`` put on objects, and ``clean_up`` called before it is taken off.

        Raises:
            ValueError: ``name`` is registered, or no API server would accept it.
        """
        check_finalizer(name)
        if name in self._clean_ups:
            raise ValueError(
                f"finalizer {name!r} is registered already: give this one another name"
            )
        if not callable(clean_up):
            raise TypeError(f"clean_up={clean_up!r} of finalizer {name!r} is no function")
        self._clean_ups[name] = clean_up

    def finalize(self, obj: MutableObject) -> FinalizeResult:
        """Put the missing finalizers on; or, if ``obj`` is being deleted, clean up for each that is
        there, in the order of their registration, and take it off.

        A clean-up that fails keeps its own finalizer on and no other from being cleaned up.

        Returns:
            What the caller has to write.

        Raises:
            FinalizeErrors: the clean-ups that failed; its ``result`` says what has to be written
                all the same, so that what succeeded is not done again.
            ReadOnlyError: ``obj`` is no changeable copy.
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
                        "raise what failed, or RetryAfter(seconds), which keeps the finalizer",
                    )
                except Exception as error:
                    error.add_note(f"while cleaning up for finalizer {name!r} of {obj!r}")
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
    """Clean-ups that failed, each with its finalizer in a note."""

    result: FinalizeResult
    """What has to be written for those that did not."""
