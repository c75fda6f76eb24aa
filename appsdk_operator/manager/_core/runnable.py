"""Runnables, and the rules for the group of a manager that each belongs in."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final, runtime_checkable

import msgspec

from appsdk_operator._lazy import if_loaded
from appsdk_operator.runtime import StopSignal, as_exception, error_text, settle

# An Operator, too, puts its controllers into groups, and needs no cache.
if TYPE_CHECKING:
    from appsdk_operator.cache import Health


@runtime_checkable
class Runnable(Protocol):
    """Anything that a :class:`Manager` can run."""

    def run(self, stop: StopSignal, /) -> object:
        """Work until ``stop`` is set. An exception stops the manager. May be async."""
        ...


@runtime_checkable
class LeaderElectionRunnable(Protocol):
    """A runnable that says whether it runs on the leader only; without this attribute, it does."""

    @property
    def needs_leader_election(self) -> bool:
        """False: it runs on every replica."""
        ...


@runtime_checkable
class WarmUpRunnable(Protocol):
    """A runnable that prepares on every replica, so that it starts fast on a new leader."""

    def warm_up(self, stop: StopSignal, /) -> object:
        """Prepare and return. Threads that it started may go on until ``stop`` is set."""
        ...


@runtime_checkable
class ReadyRunnable(Protocol):
    """A runnable that takes time to become ready; later groups start once it is ready."""

    def wait_until_ready(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait until it is ready; False when stopped or after ``timeout`` seconds.

        May be async. If it returns False without a stop, the manager soon calls it again.
        """
        ...


class RunnableGroup(enum.StrEnum):
    """The groups of a manager, in the order in which they start.

    The first rule that applies determines the group of a runnable:

    1. its attribute ``runnable_group`` names the group;
    2. it is a server, which has ``only_serve_when_leader``: True → leader election, else HTTP
       servers;
    3. it is a cache or a single informer → caches;
    4. ``needs_leader_election`` is False → others, else leader election.

    If it has a method ``warm_up``, this method also runs in the warm-up. The rules are
    controller-runtime's.
    """

    HTTP_SERVERS = "http-servers"
    """Metrics, health, profiles: on every replica, started first and stopped last."""
    WEBHOOKS = "webhooks"
    """Started before the caches: their lists may need a conversion webhook."""
    CACHES = "caches"
    """Synced before any later group starts."""
    OTHERS = "others"
    """Runnables for every replica."""
    WARM_UP = "warm-up"
    """The ``warm_up`` methods of runnables, on every replica."""
    LEADER_ELECTION = "leader-election"
    """Runnables for the leader only."""


ReadyCheck: TypeAlias = Callable[[StopSignal, float | None], bool]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a runnable that one group runs."""

    group: RunnableGroup
    run: Callable[[StopSignal], object]
    wait_until_ready: ReadyCheck | None = None
    """The start of the group waits for it."""
    is_ready_when_ended: bool = False
    """The start of the group waits until ``run`` has returned."""


@final
class RunnableFunction:
    """A function as a leader-only runnable.

    >>> RunnableFunction(print).name
    'print'
    """

    def __init__(self, function: Callable[[StopSignal], object]) -> None:
        """Run ``function(stop)``; an ``async def`` function runs on an event loop of its own."""
        self.function = function
        self.name = str(getattr(function, "__qualname__", None) or function)

    def run(self, stop: StopSignal) -> object:
        """Call the function."""
        return self.function(stop)

    def __repr__(self) -> str:
        return f"<function {self.name}>"


def as_runnable(value: Runnable | Callable[[StopSignal], object]) -> Runnable:
    """Return ``value``, wrapped in a :class:`RunnableFunction` if it is a plain function.

    Raises:
        TypeError: it is neither a runnable nor a function; the text says what to do.
    """
    if isinstance(value, type):
        raise TypeError(f"{value!r} is a class: add an instance, {value.__name__}(…)")
    if isinstance(value, Runnable):
        return value
    if not callable(value):
        raise TypeError(f"{value!r} cannot be run: add an object with run(stop), or a function")
    try:
        inspect.signature(value).bind(None)
    except TypeError as error:
        raise TypeError(f"{value!r} cannot be run: it has to take the stop signal") from error
    except ValueError:
        pass  # a builtin without a signature
    return RunnableFunction(value)


def name_of(runnable: object) -> str:
    """The name of a runnable in logs and errors: its ``name``, or its class."""
    name = getattr(runnable, "name", None)
    return name if isinstance(name, str) and name else type(runnable).__name__


def health_of(part: object) -> Health | None:
    """The health of a part, not ready where asking for it fails; None if it tells none."""
    health: Callable[[], object] | None = getattr(part, "health", None)
    if not callable(health):
        return None
    try:
        found = settle(health())
    except BaseException as error:
        as_exception("health", error)  # Ctrl-C in the main thread
        from appsdk_operator.cache import Health

        return Health(False, f"{name_of(part)}: its health failed: {error_text(error)}")
    return found if isinstance(found, if_loaded("appsdk_operator.cache", "Health")) else None


def placements(runnable: Runnable, *, group: RunnableGroup | None = None) -> Sequence[Placement]:
    """The groups of ``runnable``: ``group`` if given, or by the rules of :class:`RunnableGroup`.

    Raises:
        TypeError: one of these attributes has a wrong type or value.
    """
    ready: ReadyCheck | None = getattr(runnable, "wait_until_ready", None)
    group = group or _group_of(runnable)
    if group is RunnableGroup.CACHES and ready is None:
        ready = getattr(runnable, "wait_for_sync", None)
    found = [Placement(group=group, run=runnable.run, wait_until_ready=ready)]
    if isinstance(runnable, WarmUpRunnable):
        warm_up = runnable.warm_up
        found.insert(
            0, Placement(group=RunnableGroup.WARM_UP, run=warm_up, is_ready_when_ended=True)
        )
    return found


def _group_of(runnable: Runnable) -> RunnableGroup:
    explicit = getattr(runnable, "runnable_group", None)
    if explicit is not None:
        if explicit not in list(RunnableGroup) or explicit == RunnableGroup.WARM_UP:
            raise TypeError(
                f"runnable_group={explicit!r} of {name_of(runnable)}: use a member of "
                "RunnableGroup; for a warm-up write a method warm_up(stop)"
            )
        return RunnableGroup(explicit)
    if hasattr(runnable, "only_serve_when_leader"):
        only_leader = _flag(runnable, "only_serve_when_leader")
        return RunnableGroup.LEADER_ELECTION if only_leader else RunnableGroup.HTTP_SERVERS
    caches = [if_loaded("appsdk_operator.cache", name) for name in ("Cache", "Informer")]
    if isinstance(runnable, tuple(caches)):
        return RunnableGroup.CACHES
    if hasattr(runnable, "needs_leader_election") and not _flag(runnable, "needs_leader_election"):
        return RunnableGroup.OTHERS
    return RunnableGroup.LEADER_ELECTION


def _flag(runnable: Any, name: str) -> bool:
    value = getattr(runnable, name)
    if not isinstance(value, bool):
        raise TypeError(f"{name} of {name_of(runnable)} is {value!r}: make it True or False")
    return value
