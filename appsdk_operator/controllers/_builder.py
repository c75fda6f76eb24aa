"""The controller builder."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, final, overload

import msgspec

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
from appsdk_operator.controllers._protocols import Handler, Source
from appsdk_operator.controllers._reconcile import ReconcileFunction, Reconciler, Request
from appsdk_operator.controllers._sources.kind import KindSource
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import Clock, Metrics
from appsdk_operator.runtime.validation import check_flag

if TYPE_CHECKING:
    from appsdk_operator.controllers._predicates import EventFilter, Predicate
    from appsdk_operator.resource import When, Where

R = TypeVar("R", bound=Hashable)


class BuilderError(ValueError):
    """The description of a controller is invalid; the text has every problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        """The problems, a sentence each."""
        super().__init__("; ".join(self.problems))


class ControllerHost(Protocol):
    """The host that runs a controller, as a builder needs it; a :class:`Manager` is one.

    If the host has ``note_draft(draft)``, each new builder calls it.
    """

    @property
    def cache(self) -> Cache:
        """The cache whose events feed the controller."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of the controller."""
        ...

    @property
    def metrics(self) -> Metrics:
        """The metrics that the controller writes to."""
        ...

    @property
    def controller_options(self) -> ControllerOptions:
        """The defaults for options that the controller does not set."""
        ...

    def add(self, runnable: Any, /) -> Any:
        """Run ``runnable`` with the host."""
        ...


@final
class Draft(msgspec.Struct, eq=False):
    """A controller that is being described, for a host that reports unfinished builders.

    It refers neither to the builder nor to the host.
    """

    calls: list[str] = msgspec.field(default_factory=list)
    """The calls so far, as source text."""
    is_over: bool = False
    """Whether ``build()`` was called."""

    def __str__(self) -> str:
        return ".".join(["controller_for(…)", *self.calls])


@final
class _Watch(msgspec.Struct, frozen=True, kw_only=True):
    """One watched kind, with its handler and predicates."""

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
    """A builder for a controller that will run on ``host``.

        controller_for(manager).for_(WIDGET).owns(kinds.apps.v1.Deployment).complete(reconcile)

    Args:
        host: a :class:`Manager`, or another :class:`ControllerHost`.
        request_type: the type of its requests if they are not object keys. Watches then need
            handlers that make such requests, and ``for_`` and ``owns`` are errors.

    Raises:
        TypeError: ``host`` lacks a member of :class:`ControllerHost`.
    """
    missing = [name for name in _HOST if not hasattr(host, name)]
    if missing:
        raise TypeError(
            f"host={host!r} has no {', no '.join(missing)}: give a Manager, or an object with all "
            "members of ControllerHost"
        )
    return ControllerBuilder(host, request_type)


_HOST = ("cache", "clock", "metrics", "controller_options", "add")


@final
class ControllerBuilder(Generic[R]):
    """Builds a controller; each method returns the builder.

    Each method refuses wrong types at once. :meth:`build` checks the combination and raises one
    :class:`BuilderError` with all problems. The builder starts nothing. Not thread-safe. Names and
    rules are as in controller-runtime's builder.
    """

    def __init__(self, host: ControllerHost, request_type: type[Any]) -> None:
        """Use :func:`controller_for`."""
        self._host = host
        self._request_type = request_type
        self._for: Kind | None = None
        self._owned: list[Kind] = []
        self._watch_factories: list[Callable[[], _Watch]] = []
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

    # Watches.

    def for_(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        where: Where[SpecT, StatusT] | None = None,
        when: When[SpecT, StatusT] | None = None,
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
        metadata_only: bool = False,
    ) -> ControllerBuilder[R]:
        """Reconcile the objects of ``kind``: an event requests its object.

        Unless :meth:`named` sets another name, the kind is also the controller's name. It selects
        the concurrency in the host's ``kind_concurrency``, and logs show it. Call this once.

        Args:
            kind: the kind to reconcile.
            where: the objects whose events count: a :class:`Filter` such as ``labels("app=web")``,
                or a function of the object. An update also counts if the old object matches.
            when: the updates that count: a :class:`ChangeFilter` such as
                ``field("spec.size").changed``, or a function of the old object and the new one.
                Creations and deletions count in any case.
            predicates: further conditions: an event of this kind must pass ``where``, ``when`` and
                all of these. Functions of an event, or filters, see :class:`Predicate`.
            metadata_only: whether the local copy only needs metadata. The process has one copy of a
                kind: reading the spec of such an object is an error.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the class of the kind does not have a filter's field.
        """
        _check_kind(kind)
        if self._for is not None:
            self._problems.append(
                f"for_() was called for {self._for} and for {kind}: a controller reconciles one "
                "kind; for events of another kind use watches() or owns()"
            )
        else:
            self._for = kind
        self._draft.calls.append(f"for_({kind})")
        self._require_object_requests(f"for_({kind})")
        filters = _checked_predicates(kind, where, when, predicates)
        return self._watch(kind, for_object(), filters, metadata_only=metadata_only)

    def owns(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        match_every_owner: bool = False,
        where: Where[SpecT, StatusT] | None = None,
        when: When[SpecT, StatusT] | None = None,
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
        metadata_only: bool = False,
    ) -> ControllerBuilder[R]:
        """Watch ``kind``: an event requests the object of :meth:`for_` that owns its object.

        Args:
            kind: the kind of the owned objects, which the reconciler creates.
            match_every_owner: whether every owner of the kind is requested, and not only the owner
                whose reference has ``controller: true``.
            where: as for :meth:`for_`, as ``when`` and ``predicates``.
            when: see there.
            predicates: see there.
            metadata_only: as for :meth:`for_`.

        Raises:
            TypeError: an argument has the wrong type.
        """
        _check_kind(kind)
        check_flag("match_every_owner", match_every_owner)
        check_flag("metadata_only", metadata_only)
        self._owned.append(kind)
        self._require_object_requests(f"owns({kind})")
        filters = _checked_predicates(kind, where, when, predicates)

        def make() -> _Watch:
            assert self._for is not None
            handler = for_owner(self._for, only_controller=not match_every_owner)
            return _Watch(
                kind=kind, handler=handler, predicates=filters, metadata_only=metadata_only
            )

        self._watch_factories.append(make)
        return self

    def watches(
        self,
        kind: Kind[SpecT, StatusT],
        handler: Handler[R, SpecT, StatusT] | Callable[[Object[SpecT, StatusT]], Iterable[R]],
        *,
        where: Where[SpecT, StatusT] | None = None,
        when: When[SpecT, StatusT] | None = None,
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
        metadata_only: bool = False,
    ) -> ControllerBuilder[R]:
        """Watch ``kind``: ``handler`` turns its events into requests.

        Args:
            kind: the kind to watch.
            handler: a :class:`Handler`, or a function that maps an object to requests, as for
                :func:`map_objects`. If the function returns anything but requests of this
                controller, the call fails.
            where: as for :meth:`for_`, as ``when`` and ``predicates``.
            when: see there.
            predicates: see there.
            metadata_only: as for :meth:`for_`.

        Raises:
            TypeError: an argument has the wrong type.
        """
        _check_kind(kind)
        made: Handler[Any]
        if isinstance(handler, Handler):
            check_handler(handler)
            made = handler
        else:
            made = map_objects(handler)
        made = with_request_type(made, self._request_type)
        filters = _checked_predicates(kind, where, when, predicates)
        return self._watch(kind, made, filters, metadata_only=metadata_only)

    def watches_metadata(
        self,
        kind: Kind[SpecT, StatusT],
        handler: Handler[R, SpecT, StatusT] | Callable[[Object[SpecT, StatusT]], Iterable[R]],
        *,
        where: Where[SpecT, StatusT] | None = None,
        when: When[SpecT, StatusT] | None = None,
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
    ) -> ControllerBuilder[R]:
        """:meth:`watches` with ``metadata_only=True``."""
        return self.watches(
            kind, handler, where=where, when=when, predicates=predicates, metadata_only=True
        )

    def watches_raw_source(self, source: Source[R]) -> ControllerBuilder[R]:
        """Take requests from ``source``: a channel, a timer, the cache of another cluster.

        The predicates of :meth:`with_event_filter` do not apply to it; a source has its own.

        Raises:
            TypeError: ``source`` is not a source.
        """
        check_source(source)
        self._sources.append(source)
        return self

    def with_event_filter(self, *predicates: EventFilter) -> ControllerBuilder[R]:
        """Filter the events of all watched kinds, before the watch's own predicates.

        An event must pass all of these predicates. They apply to all watched kinds, whether added
        before or after this call, but not to raw sources.

        Raises:
            TypeError: a predicate is neither a :class:`Predicate` nor a function of an event.
        """
        from appsdk_operator.controllers._predicates import as_predicates

        self._filters += as_predicates(predicates)
        return self

    # Options.

    def with_options(self, options: ControllerOptions) -> ControllerBuilder[R]:
        """Set the controller's options; the host's ``controller_options`` are the defaults.

        Raises:
            TypeError: ``options`` is not a ControllerOptions.
        """
        if not isinstance(options, ControllerOptions):
            raise TypeError(f"options={options!r}: give ControllerOptions(…)")
        if self._options is not None:
            self._problems.append("with_options() was called twice: give one ControllerOptions")
        self._options = options
        return self

    def named(self, name: str) -> ControllerBuilder[R]:
        """Set the name for metrics and logs; default: the lower-case kind of :meth:`for_`.

        The name must be unique in the process.

        Raises:
            ValueError: the name is empty.
        """
        check_name(name)
        self._draft.calls.append(f"named({name!r})")
        if self._name not in (None, name):
            self._problems.append(f"named() was called with {self._name!r} and with {name!r}")
        self._name = name
        return self

    # Building.

    def complete(self, reconciler: Reconciler[R] | ReconcileFunction[R]) -> Controller[R]:
        """Build the controller, and add it to the host.

        Returns:
            The controller.

        Raises:
            BuilderError, TypeError, ValueError: as :meth:`build`.
            Exception: an error of the host.
        """
        controller = self.build(reconciler)
        try:
            self._host.add(controller)
        except BaseException:
            controller.close()
            raise
        return controller

    def build(self, reconciler: Reconciler[R] | ReconcileFunction[R]) -> Controller[R]:
        """Build the controller; the caller runs it, or adds it to a manager.

        Args:
            reconciler: a :class:`Reconciler` or a function; it may be ``async def``.

        Raises:
            BuilderError: the description is invalid; the text has every problem.
            TypeError: ``reconciler`` is neither.
            ValueError: the name is in use.
        """
        self._draft.is_over = True
        checked_reconciler(reconciler)
        problems = self._find_problems()
        if problems:
            raise BuilderError(problems)
        host = self._host
        watches = [make() for make in self._watch_factories]
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
        predicates: tuple[Predicate, ...],
        *,
        metadata_only: bool,
    ) -> ControllerBuilder[R]:
        check_flag("metadata_only", metadata_only)
        watch = _Watch(
            kind=kind, handler=handler, predicates=predicates, metadata_only=metadata_only
        )
        self._watch_factories.append(lambda: watch)
        return self

    def _kind_sources(self, watches: list[_Watch]) -> list[Source[R]]:
        # There is one copy of a kind: it is whole if any watch needs it whole.
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

    def _require_object_requests(self, what: str) -> None:
        if self._request_type is not Request:
            self._problems.append(
                f"{what} requests ObjectKeys, but this controller takes "
                f"{self._request_type.__name__}: use watches() with a handler that makes such "
                "requests"
            )

    def _find_problems(self) -> list[str]:
        problems = list(self._problems)
        if self._is_built:
            problems.append("this builder has built its controller already: make a new builder")
        if self._for is None and self._owned:
            kinds = ", ".join(map(str, self._owned))
            problems.append(
                f"owns({kinds}) needs for_(), the kind of the owners; or use watches() with "
                "for_owner()"
            )
        if not self._watch_factories and not self._sources:
            problems.append(
                "it watches nothing, so it would never reconcile: call for_(), watches() or "
                "watches_raw_source()"
            )
        if self._for is None and self._name is None:
            problems.append("it has no name: call for_(), whose kind is its name, or named()")
        return problems


def _checked_predicates(
    kind: Kind,
    where: Where[Any, Any] | None,
    when: When[Any, Any] | None,
    predicates: Iterable[EventFilter[Any, Any]],
) -> tuple[Predicate[Any, Any], ...]:
    if where is None and when is None and isinstance(predicates, tuple) and not predicates:
        return ()
    from appsdk_operator.controllers._predicates import event_predicates
    from appsdk_operator.resource import check_fields

    found = event_predicates(where, when, predicates)
    for option, each in found:
        check_fields(option, each, kind)
    return tuple(each for _, each in found)


def _check_kind(kind: object) -> None:
    if not isinstance(kind, Kind):
        raise TypeError(f"kind={kind!r}: give a Kind")
