"""Puts a controller together: what it is for, what else concerns it, and how it works."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar, final, overload

import attrs

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache import Cache
from appsdk_operator.controllers._checks import check_name, check_source, checked_reconciler
from appsdk_operator.controllers._engine.controller import Controller
from appsdk_operator.controllers._handlers import (
    check_handler,
    for_object,
    for_owner,
    map_objects,
    with_request_type,
)
from appsdk_operator.controllers._options import ControllerOptions
from appsdk_operator.controllers._predicates import Predicate, as_predicates
from appsdk_operator.controllers._protocols import EventFilter, Handler, Source
from appsdk_operator.controllers._reconcile import ReconcileFunction, Reconciler, Request
from appsdk_operator.controllers._sources.kind import KindSource
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import Clock, Metrics

__all__ = ["BuilderError", "ControllerBuilder", "ControllerHost", "controller_for"]

R = TypeVar("R", bound=Hashable)


class BuilderError(ValueError):
    """A controller was described in a way that cannot work; the text has every reason."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        """What is wrong, a sentence each."""
        super().__init__("; ".join(self.problems))


class ControllerHost(Protocol):
    """What a builder needs of where the controller will run; a :class:`Manager` is one.

    One that has ``note_draft(draft)``, too, is told of each controller that is begun.
    """

    @property
    def cache(self) -> Cache:
        """Where the events of kinds come from."""
        ...

    @property
    def clock(self) -> Clock:
        """What the controller waits on."""
        ...

    @property
    def metrics(self) -> Metrics:
        """Where it publishes."""
        ...

    @property
    def controller_options(self) -> ControllerOptions:
        """What its own options leave open."""
        ...

    def add(self, runnable: Any, /) -> Any:
        """Run it with everything else."""
        ...


@final
@attrs.define(eq=False)
class Draft:
    """What a host is told of a controller that is being described, so that it may ask after it.

    It holds neither the builder nor the host.
    """

    said: list[str] = attrs.field(factory=list)
    """The calls so far, as they are written."""
    is_over: bool = False
    """Whether its builder was asked to build it."""

    def __str__(self) -> str:
        return ".".join(["controller_for(…)", *self.said])


@final
@attrs.frozen(kw_only=True)
class _Watch:
    """A kind whose events are watched."""

    kind: Kind
    handler: Handler[Any]
    predicates: tuple[Predicate, ...]
    metadata_only: bool


@overload
def controller_for(host: ControllerHost) -> ControllerBuilder[Request]: ...


@overload
def controller_for(host: ControllerHost, *, request_type: type[R]) -> ControllerBuilder[R]: ...


def controller_for(
    host: ControllerHost, *, request_type: type[Any] = Request
) -> ControllerBuilder[Any]:
    """Begin to describe a controller that will run on ``host``.

        controller_for(manager).for_(WIDGET).owns(kinds.apps.v1.Deployment).complete(reconcile)

    Args:
        host: a :class:`Manager`, or what else has a cache and runs things.
        request_type: what its requests are, where they are no objects' keys; then watches need
            handlers that make such requests, and ``for_`` and ``owns`` cannot be used.

    Raises:
        TypeError: ``host`` lacks something.
    """
    missing = [name for name in _HOST if not hasattr(host, name)]
    if missing:
        raise TypeError(
            f"host={host!r} has no {', no '.join(missing)}: give a Manager, or all that "
            "ControllerHost names"
        )
    return ControllerBuilder(host, request_type)


_HOST = ("cache", "clock", "metrics", "controller_options", "add")


@final
class ControllerBuilder(Generic[R]):
    """A controller being described; each method returns the builder.

    Wrong types are refused at once. What does not go together is found by :meth:`build`, all of it
    in one :class:`BuilderError`. Nothing happens before that. Not thread-safe. The words and rules
    are those of controller-runtime's builder.
    """

    def __init__(self, host: ControllerHost, request_type: type[Any]) -> None:
        """Use :func:`controller_for`."""
        self._host = host
        self._request_type = request_type
        self._for: Kind | None = None
        self._owned: list[Kind] = []
        self._makers: list[Callable[[], _Watch]] = []
        self._sources: list[Source[R]] = []
        self._filters: tuple[Predicate, ...] = ()
        self._options: ControllerOptions | None = None
        self._name: str | None = None
        self._problems: list[str] = []
        self._is_built = False
        self._draft = Draft()
        note_draft = getattr(host, "note_draft", None)
        if callable(note_draft):
            note_draft(self._draft)

    # What it watches.

    def for_(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
        metadata_only: bool = False,
    ) -> ControllerBuilder[R]:
        """Reconcile the objects of ``kind``: an event of one requests it.

        Gives the controller its name, if :meth:`named` gives no other, the kind in its logs, and
        the concurrency that the host's ``kind_concurrency`` has for the kind. Once only.

        Args:
            kind: what is reconciled.
            predicates: all of them must let an event pass; for this kind only.
            metadata_only: whether the local copy needs to hold the metadata alone. There is one
                copy of a kind for the whole process: reading such an object's spec is an error.

        Raises:
            TypeError: an argument has no form that is known.
        """
        _check_kind(kind)
        if self._for is not None:
            self._problems.append(
                f"for_() was called for {self._for} and for {kind}: a controller reconciles one "
                "kind; for events of another one use watches() or owns()"
            )
        else:
            self._for = kind
        self._draft.said.append(f"for_({kind})")
        self._need_keys(f"for_({kind})")
        return self._watch(kind, for_object(), predicates, metadata_only=metadata_only)

    def owns(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        match_every_owner: bool = False,
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
        metadata_only: bool = False,
    ) -> ControllerBuilder[R]:
        """Events of ``kind`` request the object of :meth:`for_` that owns it.

        Args:
            kind: what the reconciler makes for its objects.
            match_every_owner: whether every owner of the kind is requested, and not only the one
                whose reference says ``controller: true``.
            predicates: as for :meth:`for_`.
            metadata_only: as for :meth:`for_`.

        Raises:
            TypeError: an argument has no form that is known.
        """
        _check_kind(kind)
        self._owned.append(kind)
        self._need_keys(f"owns({kind})")
        filters = as_predicates(predicates)

        def make() -> _Watch:
            assert self._for is not None
            handler = for_owner(self._for, only_controller=not match_every_owner)
            return _Watch(
                kind=kind, handler=handler, predicates=filters, metadata_only=metadata_only
            )

        self._makers.append(make)
        return self

    def watches(
        self,
        kind: Kind[SpecT, StatusT],
        handler: Handler[R, SpecT, StatusT] | Callable[[Object[SpecT, StatusT]], Iterable[R]],
        *,
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
        metadata_only: bool = False,
    ) -> ControllerBuilder[R]:
        """Events of ``kind`` request what ``handler`` says.

        Args:
            kind: whose events.
            handler: a :class:`Handler`, or a function that maps an object to requests, as for
                :func:`map_objects`; what it returns that is no request of this controller, is a
                failure of its own.
            predicates: as for :meth:`for_`.
            metadata_only: as for :meth:`for_`.

        Raises:
            TypeError: an argument has no form that is known.
        """
        _check_kind(kind)
        made: Handler[Any]
        if isinstance(handler, Handler):
            check_handler(handler)
            made = handler
        else:
            made = map_objects(handler)
        made = with_request_type(made, self._request_type)
        return self._watch(kind, made, predicates, metadata_only=metadata_only)

    def watches_metadata(
        self,
        kind: Kind[SpecT, StatusT],
        handler: Handler[R, SpecT, StatusT] | Callable[[Object[SpecT, StatusT]], Iterable[R]],
        *,
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
    ) -> ControllerBuilder[R]:
        """The same with ``metadata_only``."""
        return self.watches(kind, handler, predicates=predicates, metadata_only=True)

    def watches_raw_source(self, source: Source[R]) -> ControllerBuilder[R]:
        """Requests come from ``source`` too: a channel, a timer, the cache of another cluster.

        The predicates of :meth:`with_event_filter` are not applied to it: it has its own.

        Raises:
            TypeError: it is no source.
        """
        check_source(source)
        self._sources.append(source)
        return self

    def with_event_filter(self, *predicates: EventFilter) -> ControllerBuilder[R]:
        """All of ``predicates`` must let an event pass, before the watch's own are asked.

        For all kinds that are watched, whether said before or after this; not for raw sources.

        Raises:
            TypeError: one is neither a :class:`Predicate` nor a function of an event.
        """
        self._filters += as_predicates(predicates)
        return self

    # How it works.

    def with_options(self, options: ControllerOptions) -> ControllerBuilder[R]:
        """Work as ``options`` say; what they leave open the host's say.

        Raises:
            TypeError: they are none.
        """
        if not isinstance(options, ControllerOptions):
            raise TypeError(f"options={options!r}: give ControllerOptions(…)")
        if self._options is not None:
            self._problems.append("with_options() was called twice: give one ControllerOptions")
        self._options = options
        return self

    def named(self, name: str) -> ControllerBuilder[R]:
        """Call it ``name``, in its metrics and logs; default: the lower-case kind of :meth:`for_`.

        No two controllers of a process have the same.

        Raises:
            ValueError: it is empty.
        """
        check_name(name)
        self._draft.said.append(f"named({name!r})")
        if self._name not in (None, name):
            self._problems.append(f"named() was called with {self._name!r} and with {name!r}")
        self._name = name
        return self

    # The end.

    def complete(self, reconciler: Reconciler[R] | ReconcileFunction[R]) -> Controller[R]:
        """Build it, and let the host run it.

        Returns:
            The controller.

        Raises:
            BuilderError, TypeError, ValueError: as :meth:`build`.
            Exception: what the host refuses.
        """
        controller = self.build(reconciler)
        try:
            self._host.add(controller)
        except BaseException:
            controller.close()
            raise
        return controller

    def build(self, reconciler: Reconciler[R] | ReconcileFunction[R]) -> Controller[R]:
        """Build it and leave it to the caller to run it, or to add it to something that does.

        Args:
            reconciler: a :class:`Reconciler` or a function; it may be ``async def``.

        Raises:
            BuilderError: what was said does not go together; the text has every reason.
            TypeError: the reconciler is none.
            ValueError: the name is in use.
        """
        self._draft.is_over = True
        checked_reconciler(reconciler)
        problems = self._found()
        if problems:
            raise BuilderError(problems)
        host = self._host
        watches = [make() for make in self._makers]
        controller: Controller[R] = Controller(
            self._name or (self._for.kind.lower() if self._for is not None else ""),
            reconciler,
            options=(self._options or ControllerOptions()).over(
                host.controller_options, kind=self._for
            ),
            kind=self._for,
            clock=host.clock,
            metrics=host.metrics,
        )
        self._is_built = True
        try:
            for source in (*self._kind_sources(watches), *self._sources):
                controller.watch(source)
        except BaseException:
            controller.close()
            raise
        return controller

    def _watch(
        self,
        kind: Kind,
        handler: Handler[Any],
        predicates: Iterable[EventFilter],
        *,
        metadata_only: bool,
    ) -> ControllerBuilder[R]:
        watch = _Watch(
            kind=kind,
            handler=handler,
            predicates=as_predicates(predicates),
            metadata_only=metadata_only,
        )
        self._makers.append(lambda: watch)
        return self

    def _kind_sources(self, watches: list[_Watch]) -> list[Source[R]]:
        # There is one copy of a kind: who needs it whole decides.
        whole = {watch.kind for watch in watches if not watch.metadata_only}
        return [
            KindSource(
                self._host.cache,
                watch.kind,
                watch.handler,
                (*self._filters, *watch.predicates),
                metadata_only=watch.kind not in whole,
                clock=self._host.clock,
                metrics=self._host.metrics,
            )
            for watch in watches
        ]

    def _need_keys(self, what: str) -> None:
        if self._request_type is not Request:
            self._problems.append(
                f"{what} makes requests of objects' keys, and this controller's are "
                f"{self._request_type.__name__}: use watches() with a handler that makes those"
            )

    def _found(self) -> list[str]:
        problems = list(self._problems)
        if self._is_built:
            problems.append("this builder has built its controller: begin with another one")
        if self._for is None and self._owned:
            kinds = ", ".join(map(str, self._owned))
            problems.append(
                f"owns({kinds}) needs for_(): say whose objects own them, or use watches() with "
                "for_owner()"
            )
        if not self._makers and not self._sources:
            problems.append(
                "nothing is watched, so that nothing would ever be reconciled: call for_(), "
                "watches() or watches_raw_source()"
            )
        if self._for is None and self._name is None:
            problems.append("it has no name: call for_(), whose kind is its name, or named()")
        return problems


def _check_kind(kind: object) -> None:
    if not isinstance(kind, Kind):
        raise TypeError(f"kind={kind!r}: give a Kind")
