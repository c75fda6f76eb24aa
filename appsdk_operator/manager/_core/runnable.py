"""What a manager runs, and in which of its groups."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, final, runtime_checkable

import attrs

from appsdk_operator.cache import Cache, Informer
from appsdk_operator.runtime import StopSignal
from appsdk_operator.watchers import KubernetesInformer

__all__ = [
    "LeaderElectionRunnable",
    "Placement",
    "ReadyRunnable",
    "Runnable",
    "RunnableFunction",
    "RunnableGroup",
    "WarmUpRunnable",
    "as_runnable",
    "name_of",
    "placements",
]


@runtime_checkable
class Runnable(Protocol):
    """Anything that a :class:`Manager` can run."""

    def run(self, stop: StopSignal, /) -> object:
        """Do the work until ``stop`` is set; what is raised ends the manager. May be async."""
        ...


@runtime_checkable
class LeaderElectionRunnable(Protocol):
    """A runnable that says whether it is for the leader only; without a word it is."""

    @property
    def needs_leader_election(self) -> bool:
        """False: it runs on every replica."""
        ...


@runtime_checkable
class WarmUpRunnable(Protocol):
    """A runnable that prepares on every replica for the moment in which it may run."""

    def warm_up(self, stop: StopSignal, /) -> object:
        """Get ready and return; what was started may go on until ``stop`` is set."""
        ...


@runtime_checkable
class ReadyRunnable(Protocol):
    """A runnable that others have to wait for: its group has started when all are ready."""

    def wait_until_ready(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait until others may rely on it; False when stopped or after ``timeout`` seconds.

        May be async. One that says False while nobody stopped it is asked again a moment later.
        """
        ...


class RunnableGroup(enum.StrEnum):
    """The groups of a manager, in the order in which they start.

    A runnable that belongs in a group other than :func:`placements` would find has one of these
    as its attribute ``runnable_group``.
    """

    HTTP_SERVERS = "http-servers"
    """Metrics, health, profiles: on every replica, from the first moment to the last."""
    WEBHOOKS = "webhooks"
    """Before the caches, because the API server asks a conversion webhook to answer a list."""
    CACHES = "caches"
    """Everything after them finds the caches synced."""
    OTHERS = "others"
    """What runs on every replica."""
    WARM_UP = "warm-up"
    """Preparations of what will run on the leader."""
    LEADER_ELECTION = "leader-election"
    """What runs on the leader only."""


ReadyCheck: TypeAlias = Callable[[StopSignal, float | None], bool]


@attrs.frozen(kw_only=True)
class Placement:
    """What one group has to run for one runnable."""

    group: RunnableGroup
    run: Callable[[StopSignal], object]
    wait_until_ready: ReadyCheck | None = None
    """What the start of the group waits for."""
    is_ready_when_ended: bool = False
    """The start of the group waits until ``run`` has returned."""


@final
class RunnableFunction:
    """A function as a runnable; it runs on the leader only.

    >>> RunnableFunction(print).name
    'print'
    """

    def __init__(self, function: Callable[[StopSignal], object]) -> None:
        """Run ``function(stop)``; an ``async def`` one gets an event loop of its own."""
        self.function = function
        self.name = str(getattr(function, "__qualname__", None) or function)

    def run(self, stop: StopSignal) -> object:
        """Call it."""
        return self.function(stop)

    def __repr__(self) -> str:
        return f"<function {self.name}>"


def as_runnable(value: Runnable | Callable[[StopSignal], object]) -> Runnable:
    """``value``, or the runnable that it is when it is a plain function.

    Raises:
        TypeError: it is neither; the text says what to do.
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
        pass  # a builtin that does not say what it takes
    return RunnableFunction(value)


def name_of(runnable: object) -> str:
    """What logs and errors call it: its ``name``, or its class."""
    name = getattr(runnable, "name", None)
    return name if isinstance(name, str) and name else type(runnable).__name__


def placements(runnable: Runnable, *, group: RunnableGroup | None = None) -> Sequence[Placement]:
    """Where a manager runs ``runnable``: in ``group``, or else the first that fits:

    1. the group that its attribute ``runnable_group`` names;
    2. a server, which has ``only_serve_when_leader``: True → leader election, else HTTP servers;
    3. a cache or a single informer → caches;
    4. ``needs_leader_election`` is False → others, else leader election; and one with a method
       ``warm_up`` is in the warm-up too.

    The rules are controller-runtime's.

    Raises:
        TypeError: one of these attributes is not what it should be.
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
    if isinstance(runnable, (Cache, Informer, KubernetesInformer)):
        return RunnableGroup.CACHES
    if hasattr(runnable, "needs_leader_election") and not _flag(runnable, "needs_leader_election"):
        return RunnableGroup.OTHERS
    return RunnableGroup.LEADER_ELECTION


def _flag(runnable: Any, name: str) -> bool:
    value = getattr(runnable, name)
    if not isinstance(value, bool):
        raise TypeError(f"{name} of {name_of(runnable)} is {value!r}: make it True or False")
    return value
