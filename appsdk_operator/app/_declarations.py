"""What was declared in an App, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import msgspec

from appsdk_operator.app._filtered import Filtered, kinds_among
from appsdk_operator.app._mistakes import check_retry
from appsdk_operator.app._schedules import Schedule
from appsdk_operator.controllers import ControllerOptions, Predicate
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

if TYPE_CHECKING:
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


class Owned(msgspec.Struct, frozen=True, kw_only=True):
    """A kind whose CRD is the app's."""

    kind: Kind[Any, Any] | Versions[Any, Any]
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Options of ``custom_resource_definition``."""

    @property
    def hub(self) -> Kind[Any, Any]:
        """The kind, or its hub version."""
        return self.kind.hub if isinstance(self.kind, Versions) else self.kind

    @property
    def kinds(self) -> tuple[Kind[Any, Any], ...]:
        """The kind in all its versions."""
        return self.kind.kinds if isinstance(self.kind, Versions) else (self.kind,)


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the objects of a kind, for one cause."""

    kind: Kind[Any, Any]
    cause: Cause
    function: Callable[..., Any]
    unchecked: Callable[..., Any] | None = None
    """The same without the check that it returns nothing; None: it returns something."""
    result: FieldPath | None = None
    """Where the value that it returns is written."""
    options: FunctionOptions = FunctionOptions()


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """A watcher or reconciler of an InformerController, or a function that makes one."""

    kind: Kind[Any, Any]
    target: Any
    is_factory: bool
    """Whether ``target`` is called with the client."""


class Reconciling(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciler with all that feeds it."""

    kind: Kind[Any, Any]
    target: Any
    takes_object: bool
    """Whether it gets the object instead of its key."""
    name: str
    filters: tuple[tuple[str, Predicate[Any, Any]], ...]
    """The filters of its own kind's events, each with the name of its option."""
    owned: tuple[Filtered[Any, Any], ...]
    watched: tuple[tuple[Filtered[Any, Any], Any], ...]
    """Each with what turns its events into requests."""
    options: ControllerOptions | None

    @property
    def owns(self) -> list[Kind[Any, Any]]:
        """The kinds that it makes."""
        return kinds_among(self.owned)

    @property
    def watches(self) -> list[Kind[Any, Any]]:
        """The other kinds whose events it gets."""
        return kinds_among(followed for followed, _ in self.watched)


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A function that is called at intervals, for each object of a kind or for the app."""

    schedule: Schedule
    kind: Kind[Any, Any] | None
    function: Callable[..., Any]
    name: str
    every_replica: bool
    result: FieldPath | None = None
    """Where the value that it returns is written."""
    options: FunctionOptions = FunctionOptions()


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A function that runs as long as the manager does."""

    target: Any
    every_replica: bool


class Background(msgspec.Struct, frozen=True, kw_only=True):
    """A function that runs for each object of a kind, as long as that exists."""

    kind: Kind[Any, Any]
    function: Callable[..., Any]
    name: str
    options: FunctionOptions = FunctionOptions()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A health check."""

    name: str
    function: Callable[[], Any]
    is_ready_check: bool
    """Whether it says that the pod is ready; else that it need not be restarted."""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index of the cache, which answers field selectors."""

    kind: Kind[Any, Any]
    path: str
    function: Callable[[Any], Any] | None


class Defaulter(msgspec.Struct, frozen=True, kw_only=True):
    """A function that completes objects before they are stored."""

    kind: Kind[Any, Any]
    target: Any
    path: str | None
    options: Mapping[str, Any]


class Validator(msgspec.Struct, frozen=True, kw_only=True):
    """A function that checks objects before they are stored."""

    kind: Kind[Any, Any]
    operations: tuple[str, ...]
    """Some of ``create``, ``update`` and ``delete``."""
    function: Callable[..., Any]
    takes_old: bool
    """Whether it is called with the old object and the new one."""
    path: str | None
    options: Mapping[str, Any]


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Any other webhook, at a path of its own."""

    path: str
    handler: Any
    rule: WebhookRule | None


class Converter(msgspec.Struct, frozen=True, kw_only=True):
    """A function that converts objects of a kind between two versions."""

    source: Kind[Any, Any]
    target: Kind[Any, Any]
    function: Callable[..., Any]
    deprecated: str | bool
    served: bool
    lossless: str | bool


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Something else that the operator touches."""

    kind: Kind[Any, Any]
    verbs: tuple[str, ...]
    subresources: tuple[str, ...]
    names: tuple[str, ...]
    namespace: str | None
    reason: str
    is_foreign: bool


class Declarations(msgspec.Struct, eq=False):
    """All declarations of an App, in order."""

    owned: list[Owned] = msgspec.field(default_factory=list)
    watching: list[Handler | Watched] = msgspec.field(default_factory=list)
    reconciling: list[Reconciling] = msgspec.field(default_factory=list)
    timers: list[Timer] = msgspec.field(default_factory=list)
    backgrounds: list[Background] = msgspec.field(default_factory=list)
    functions: list[Handler | Timer | Watched | Background] = msgspec.field(default_factory=list)
    """What is called for the objects of a kind, in the order of declaration."""
    tasks: list[Task] = msgspec.field(default_factory=list)
    lifespans: list[Callable[[], Any]] = msgspec.field(default_factory=list)
    checks: list[Check] = msgspec.field(default_factory=list)
    indexes: list[Index] = msgspec.field(default_factory=list)
    defaulters: list[Defaulter] = msgspec.field(default_factory=list)
    validators: list[Validator] = msgspec.field(default_factory=list)
    webhooks: list[Webhook] = msgspec.field(default_factory=list)
    converters: list[Converter] = msgspec.field(default_factory=list)
    uses: list[Use] = msgspec.field(default_factory=list)

    names: dict[tuple[str, str], Kind[Any, Any]] = msgspec.field(default_factory=dict)
    """A kind of each group and name, for its plural and scope."""
    handled: dict[Kind[Any, Any], None] = msgspec.field(default_factory=dict)
    """The kinds that functions handle, each once, in order."""


def name_of(function: Any) -> str:
    """The name of a user's function, for texts and for names of controllers."""
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__
