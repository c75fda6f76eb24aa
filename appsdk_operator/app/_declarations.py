"""What was declared in an App, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from appsdk_operator.app._mistakes import check_retry
from appsdk_operator.app._schedules import Schedule
from appsdk_operator.controllers import ControllerOptions
from appsdk_operator.resource import (
    ChangeFilter,
    FieldPath,
    Filter,
    Kind,
    Versions,
    change_filter_of,
    filter_of,
)
from appsdk_operator.runtime import validation
from appsdk_operator.watchers import RetryPolicy
from appsdk_operator.webhooks import WebhookRule

Cause: TypeAlias = Literal["add", "sync", "update", "delete"]
CAUSES: Final[Mapping[Cause, tuple[str, ...]]] = {
    "add": ("obj",),
    "sync": ("obj",),
    "update": ("old", "new"),
    "delete": ("obj",),
}
"""The causes for which functions are called, with their arguments."""


@attrs.frozen(kw_only=True)
class FunctionOptions:
    """The options that all functions of objects have."""

    where: Filter[Any, Any] | None = attrs.field(
        default=None, converter=attrs.converters.optional(filter_of)
    )
    """The objects for which it is called; None: all."""
    when: ChangeFilter[Any, Any] | None = attrs.field(
        default=None, converter=attrs.converters.optional(change_filter_of)
    )
    """For updates: the changes for which it is called; None: those of the spec."""
    retry: RetryPolicy | None = None
    """When a failed call is repeated; None: as the App's policy says."""
    time_limit: float | None = None
    """The seconds that a call may take; None: as the App says."""

    def __attrs_post_init__(self) -> None:
        check_retry(self.retry)
        validation.checked_limit("time_limit", self.time_limit)


@attrs.frozen(kw_only=True)
class Owned:
    """A kind whose CRD is the app's."""

    kind: Kind[Any, Any] | Versions[Any, Any]
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """Options of ``custom_resource_definition``."""

    @property
    def hub(self) -> Kind[Any, Any]:
        """The kind, or its hub version."""
        return self.kind.hub if isinstance(self.kind, Versions) else self.kind

    @property
    def kinds(self) -> tuple[Kind[Any, Any], ...]:
        """The kind in all its versions."""
        return self.kind.kinds if isinstance(self.kind, Versions) else (self.kind,)


@attrs.frozen(kw_only=True)
class Handler:
    """A function of the objects of a kind, for one cause."""

    kind: Kind[Any, Any]
    cause: Cause
    function: Callable[..., Any]
    result: FieldPath | None = None
    """Where the value that it returns is written."""
    options: FunctionOptions = FunctionOptions()


@attrs.frozen(kw_only=True)
class Watched:
    """A watcher or reconciler of an InformerController, or a function that makes one."""

    kind: Kind[Any, Any]
    target: Any
    is_factory: bool
    """Whether ``target`` is called with the client."""


@attrs.frozen(kw_only=True)
class Reconciling:
    """A reconciler with all that feeds it."""

    kind: Kind[Any, Any]
    target: Any
    takes_object: bool
    """Whether it gets the object instead of its key."""
    name: str
    owns: tuple[Kind[Any, Any], ...]
    watches: Mapping[Kind[Any, Any], Any]
    predicates: tuple[Any, ...]
    options: ControllerOptions | None


@attrs.frozen(kw_only=True)
class Timer:
    """A function that is called at intervals, for each object of a kind or for the app."""

    schedule: Schedule
    kind: Kind[Any, Any] | None
    function: Callable[..., Any]
    name: str
    every_replica: bool
    result: FieldPath | None = None
    """Where the value that it returns is written."""
    options: FunctionOptions = FunctionOptions()


@attrs.frozen(kw_only=True)
class Task:
    """A function that runs as long as the manager does."""

    target: Any
    every_replica: bool


@attrs.frozen(kw_only=True)
class Background:
    """A function that runs for each object of a kind, as long as that exists."""

    kind: Kind[Any, Any]
    function: Callable[..., Any]
    name: str
    options: FunctionOptions = FunctionOptions()


@attrs.frozen(kw_only=True)
class Check:
    """A health check."""

    name: str
    function: Callable[[], Any]
    is_ready_check: bool
    """Whether it says that the pod is ready; else that it need not be restarted."""


@attrs.frozen(kw_only=True)
class Index:
    """An index of the cache, which answers field selectors."""

    kind: Kind[Any, Any]
    path: str
    function: Callable[[Any], Any] | None


@attrs.frozen(kw_only=True)
class Defaulter:
    """A function that completes objects before they are stored."""

    kind: Kind[Any, Any]
    target: Any
    path: str | None
    options: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Validator:
    """A function that checks objects before they are stored."""

    kind: Kind[Any, Any]
    operations: tuple[str, ...]
    """Some of ``create``, ``update`` and ``delete``."""
    function: Callable[..., Any]
    takes_old: bool
    """Whether it is called with the old object and the new one."""
    path: str | None
    options: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Webhook:
    """Any other webhook, at a path of its own."""

    path: str
    handler: Any
    rule: WebhookRule | None


@attrs.frozen(kw_only=True)
class Converter:
    """A function that converts objects of a kind between two versions."""

    source: Kind[Any, Any]
    target: Kind[Any, Any]
    function: Callable[..., Any]
    deprecated: str | bool
    served: bool
    lossless: str | bool


@attrs.frozen(kw_only=True)
class Use:
    """Something else that the operator touches."""

    kind: Kind[Any, Any]
    verbs: tuple[str, ...]
    subresources: tuple[str, ...]
    names: tuple[str, ...]
    namespace: str | None
    reason: str
    is_foreign: bool


@attrs.define(eq=False)
class Declarations:
    """All declarations of an App, in order."""

    owned: list[Owned] = attrs.field(factory=list)
    watching: list[Handler | Watched] = attrs.field(factory=list)
    reconciling: list[Reconciling] = attrs.field(factory=list)
    timers: list[Timer] = attrs.field(factory=list)
    backgrounds: list[Background] = attrs.field(factory=list)
    functions: list[Handler | Timer | Watched | Background] = attrs.field(factory=list)
    """What is called for the objects of a kind, in the order of declaration."""
    tasks: list[Task] = attrs.field(factory=list)
    lifespans: list[Callable[[], Any]] = attrs.field(factory=list)
    checks: list[Check] = attrs.field(factory=list)
    indexes: list[Index] = attrs.field(factory=list)
    defaulters: list[Defaulter] = attrs.field(factory=list)
    validators: list[Validator] = attrs.field(factory=list)
    webhooks: list[Webhook] = attrs.field(factory=list)
    converters: list[Converter] = attrs.field(factory=list)
    uses: list[Use] = attrs.field(factory=list)

    names: dict[tuple[str, str], Kind[Any, Any]] = attrs.field(factory=dict)
    """A kind of each group and name, for its plural and scope."""
    handled: dict[Kind[Any, Any], None] = attrs.field(factory=dict)
    """The kinds that functions handle, each once, in order."""


def name_of(function: Any) -> str:
    """The name of a user's function, for texts and for names of controllers."""
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__
