"""The default retry policy, and which events drop a pending retry."""

from __future__ import annotations

from typing import Final, Protocol

from appsdk_operator.cache import ResourceAction
from appsdk_operator.resource import Object
from appsdk_operator.runtime import ExponentialBackoff, RetryPolicy

RETRY_ANNOTATION: Final = "appsdk-operator.io/retry-at"
"""The annotation by which people ask that failed calls for an object are made again now."""


def is_asked_again(failed: Object, present: Object) -> bool:
    """Whether somebody has asked since a failed call that it is made again."""
    asked = present.annotations.get(RETRY_ANNOTATION)
    return asked is not None and asked != failed.annotations.get(RETRY_ANNOTATION)


class RetryDequeuePolicy(Protocol):
    """Decides whether a new event of an object drops a pending retry for it."""

    def __call__(
        self,
        new_action: ResourceAction,
        new_object: Object,
        retry_action: ResourceAction,
        retry_object: Object,
        retry_error: Exception,
        /,
    ) -> bool:
        """Whether the retry is to be dropped; asked once per retry before the event is delivered.

        Args:
            new_action: what happened now.
            new_object: the object now.
            retry_action: what happened when the call failed.
            retry_object: the object as the failed call saw it.
            retry_error: what that call raised last.
        """
        ...


def default_retry_policy() -> RetryPolicy:
    """Six retries after 5, 10, 20, 40, 80 and 160 seconds, as in grafana-app-sdk."""
    return ExponentialBackoff(initial=5.0, max_attempts=5)


def opinionated_retry_dequeue_policy(
    new_action: ResourceAction,
    new_object: Object,
    retry_action: ResourceAction,
    retry_object: Object,
    retry_error: Exception,
    /,
) -> bool:
    """A :class:`RetryDequeuePolicy` for watchers that only use the spec.

    A deletion drops every retry. Retries of another action are kept, and so are those for the same
    generation, because the spec is unchanged.
    """
    del retry_error
    if new_action is ResourceAction.DELETE:
        return True
    if new_action is not retry_action:
        return False
    return new_object.generation != retry_object.generation


def keep_all_retries(
    new_action: ResourceAction,
    new_object: Object,
    retry_action: ResourceAction,
    retry_object: Object,
    retry_error: Exception,
    /,
) -> bool:
    """A :class:`RetryDequeuePolicy` that drops nothing; each retry gets the newest object."""
    del new_action, new_object, retry_action, retry_object, retry_error
    return False
