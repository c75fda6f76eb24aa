"""The App: what an operator is, as one value."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Unpack,
    final,
    overload,
)

import attrs

from appsdk_operator._generics import OtherSpecT, OtherStatusT, SpecT, StatusT
from appsdk_operator._lazy import if_loaded
from appsdk_operator.app._assembly import (
    AppManager,
    Assembly,
    Observer,
    WatcherOptions,
    assemble,
    is_remembered,
)
from appsdk_operator.app._declarations import (
    CAUSES,
    Background,
    Cause,
    Check,
    Converter,
    Declarations,
    Defaulter,
    FunctionOptions,
    Handler,
    Index,
    Owned,
    Reconciling,
    Task,
    Timer,
    Use,
    Validator,
    Watched,
    Webhook,
    name_of,
)
from appsdk_operator.app._decorators import (
    BackgroundDecorator,
    ConverterDecorator,
    DefaulterDecorator,
    ObjectDecorator,
    UpdateDecorator,
)
from appsdk_operator.app._filtered import Filtered, filtered
from appsdk_operator.app._finalizers import finalizers_of
from appsdk_operator.app._health_checks import check_name_of_check
from appsdk_operator.app._kinds import check_names, check_version, crds_of, kinds_of, owned_kinds
from appsdk_operator.app._kopf import Kopf
from appsdk_operator.app._lifespan import LifespanFunction, check_lifespan
from appsdk_operator.app._mistakes import check_function, explains_options, missing_attribute
from appsdk_operator.app._path_checks import (
    check_event_filters,
    check_filters,
    check_index,
    check_indexed_field,
    check_result,
)
from appsdk_operator.app._permission import Permission
from appsdk_operator.app._permissions import permissions_of
from appsdk_operator.app._remember import HandledStates
from appsdk_operator.app._results import result_path
from appsdk_operator.app._returned import returning_nothing, returning_result
from appsdk_operator.app._run import ExitStatus, run_program, start_logging
from appsdk_operator.app._run_options import RunOptions
from appsdk_operator.app._schedules import schedule_of
from appsdk_operator.app._webhooks import add_webhooks
from appsdk_operator.cache import IndexFunction, NamespaceSelection
from appsdk_operator.client import ClientConfig, ClientLike, Edit, live_reader
from appsdk_operator.controllers import (
    ControllerOptions,
    EventFilter,
    Predicate,
    Reconciler,
    Request,
    event_predicates,
)
from appsdk_operator.controllers import (
    Handler as EventHandler,
)
from appsdk_operator.manager import (
    AppOptionsDict,
    CacheSetup,
    ClientSetup,
    FailureEvents,
    Manager,
    ManagerOptions,
    ManagerOptionsDict,
    Runnable,
    as_runnable,
)
from appsdk_operator.resource import (
    FilterExpression,
    FilterMetadata,
    Kind,
    MutableObject,
    Object,
    Versions,
    When,
    Where,
    check_followed_namespace,
    check_kind,
    filter_of,
)
from appsdk_operator.runtime import (
    Metrics,
    StopSignal,
    check_operator_name,
    get_logger,
    present_owner,
    validation,
)
from appsdk_operator.watchers import (
    ErrorHandler,
    JoinedFinalizer,
    ResourceReconciler,
    ResourceWatcher,
    RetryPolicy,
)

if TYPE_CHECKING:
    from appsdk_operator.manager import EventRecorder, LeaderElection
    from appsdk_operator.webhooks import WebhookRule, WebhookRuleOptions, Webhooks

_log: Final = get_logger("appsdk_operator.app")

DEFAULT_FAILURE_EVENTS: Final = FailureEvents(after=None)
"""What an App has unless it sets ``failure_events``, by identity."""

R = TypeVar("R")
Checked = TypeVar("Checked", bound=Callable[[], Any])
Life = TypeVar("Life", bound=LifespanFunction)
T = TypeVar("T", bound=Reconciler[Request] | Callable[[Request], Any])
EventMapper: TypeAlias = EventHandler[Request] | Callable[[Object[Any, Any]], Iterable[Request]]
"""Turns events of another kind into requests."""
Followed: TypeAlias = Kind[Any, Any] | Filtered[Any, Any]
"""A kind whose events reconcile objects of another kind, perhaps with filters."""
_NO_WATCHES: Final[Mapping[Followed, EventMapper]] = MappingProxyType({})
K = TypeVar("K", bound=Kind[Any, Any] | Versions[Any, Any])
Run = TypeVar("Run", bound=Runnable | Callable[[StopSignal], object])


@final
class App:
    """An operator: its name, its kinds, the functions that handle them, and its options.

        app = App("bucket-operator")
        BUCKET = app.own(Kind(group="example.com", version="v1", kind="Bucket"), short_names=["bu"])

        @app.on_add(BUCKET)
        def make(bucket: Object) -> None:
            storage.make(bucket.name)

        @app.on_delete(BUCKET)
        def remove(bucket: Object) -> None:
            storage.remove(bucket.name)

        if __name__ == "__main__":
            app.run()

    Functions may be ``async def``. A decorator registers a function and returns it unchanged.

    The kit compares states to find the functions that are due. For each object and function it
    keeps the state with which the function last succeeded, and compares it with the current state.
    Events, retries and resyncs only say when to compare:

        * ``on_delete`` while the object is being deleted, until it has succeeded,
        * ``on_add`` for an object that was never handled, until it has succeeded,
        * ``on_sync`` once for an object that an earlier process has handled,
        * ``on_update`` when the object differs from the state that the function has handled; the
          function gets that state as the old object,
        * ``every`` when its interval is over.

    So no change is lost to a later one. A failure delays only the function that failed. A call that
    the retry policy gave up is due again when the object changes. For one object, the functions of
    a kind run one at a time, in the order of their declaration. They share one finalizer, on the
    objects of an ``on_delete`` or ``background``. Elsewhere an annotation marks the objects for
    which each ``on_add`` has succeeded. The kit keeps the states in memory and, with ``remember``,
    also on the objects.

    :meth:`watch`, :meth:`reconciler`, :meth:`task` and the webhooks are layers over the packages
    below.

    The app's name is in everything that the operator leaves in a cluster: its finalizers, the field
    manager of its writes, its user agent, Events and Lease. It is also in the names of its
    controllers, which metrics and logs show.

    Declare everything before the first :meth:`manager`, in one thread. After that an App does not
    change, and is thread-safe. Several managers of one App may run in one process.

    Args:
        name: the operator's name, unique in a cluster: at most 40 lower-case letters, digits and
            '-'. It is part of finalizers, so a change of it needs ``previous_names``.
        previous_names: former names. The App recognises finalizers and annotations with these
            names, and replaces them. Default: ``("operator",)``, the name in finalizers of
            operators without a name.
        previous_watchers: the names of watchers in earlier versions of the operator. The App
            recognises their finalizers, and replaces them by its own. Default: none.
        namespaces: the names of the namespaces in which the operator works; default: all. Or
            patterns, such as ``["team-*", "!team-x"]``, or a selector of Namespace labels: the
            operator then follows the matching namespaces as they come and go.
        leader_election: True: one replica works at a time, by a Lease of the app's name in the
            namespace of its pods; or the options of the election. ``appsdk-operator pause`` needs
            it. Default: all replicas work.
        workers: the number of objects of a kind that are handled in parallel, unless
            ``controller_options`` or the options of a reconciler say otherwise; default 8. The
            calls for one object keep their order; with 1 worker, so do the calls of plain functions
            for all objects of a kind. Calls that await something hold no worker, see
            ``max_awaiting``.
        retry_policy: when a failed call of a function, watcher or reconciler is repeated. Default
            for functions and watchers: after about 5, 10, 20, … seconds, and then every 600
            seconds, without an end. Default for reconcilers: that of :class:`ControllerOptions`. A
            call that the policy gives up is made again when the object changes or the operator
            restarts; timers go on at their interval.
        time_limit: seconds that a call of a function may take, unless the function has a limit of
            its own; default 300, None: no limit. At the limit an ``async def`` is cancelled, and
            the stop signal (``current_stop()``) of a plain function is set. A function that goes on
            delays its own object only: a spare worker takes over.
        max_awaiting: how many calls of ``async def`` functions of all kinds may await something at
            once, beyond ``workers``; default 1000. Such a call holds its object and a thread, but
            no worker. Above the bound a further call holds a worker until it has ended. 0: each
            call does.
        paused: a filter of objects, such as ``annotation("example.com/paused")``; default: none.
            For a paused object the kit calls no function, not even ``on_delete`` or a timer, and
            writes nothing to it. A running call ends normally. When the object is no longer paused,
            the kit calls each function once for the changes since then; an update begins at the
            state that the function has handled.
        remember: whether the handled states outlive the process. If so, ``on_update`` gets the old
            object even when the change was made while the operator was down. True: for all kinds
            with functions; False: for none; or a list of kinds. Default: for the kinds of
            :meth:`own` with an ``on_update``. It costs an annotation of at most 16 KiB, and one
            patch for each handled change.
        handled_states: the store of the handled states, and of the marks of objects without a
            finalizer, see :class:`HandledStates`; default: the annotation
            ``<name>.appsdk-operator.io/handled`` of the object.
        adopt: the operator with kopf that this App replaces, see :class:`Kopf`; default: none. The
            App takes the state that kopf has recorded as handled, and replaces kopf's finalizer by
            its own mark. It does not start while a peer of kopf is alive.
        error_handler: called for each failed call of a function for objects or of a watcher, not of
            a reconciler; default: logs it.
        resync: seconds between two calls of watchers for all objects from the local copy; default
            30. For functions the App checks whether one is due.
        options: further options of its managers, see :class:`ManagerOptions`. Unlike there,
            ``failure_events`` has a default: when the kit gives up a call, it records an Event on
            the object.

    Raises:
        TypeError, ValueError: an option is invalid; the text says what to do.

    >>> app = App("bucket-operator", leader_election=True)
    >>> app.options.leader_election.id
    'bucket-operator'
    """

    def __init__(
        self,
        name: str,
        *,
        previous_names: Sequence[str] = ("operator",),
        previous_watchers: Sequence[str] = (),
        namespaces: NamespaceSelection | None = None,
        leader_election: bool | LeaderElection = False,
        workers: int = 8,
        retry_policy: RetryPolicy | None = None,
        time_limit: float | None = 300.0,
        max_awaiting: int = 1000,
        paused: Callable[[Object[Any, Any]], bool] | None = None,
        remember: bool | Iterable[Kind[Any, Any]] | None = None,
        handled_states: HandledStates | None = None,
        adopt: Kopf | None = None,
        error_handler: ErrorHandler | None = None,
        resync: float = 30.0,
        **options: Unpack[AppOptionsDict],
    ) -> None:
        """See the class."""
        check_operator_name(name)
        if not name:
            raise ValueError(
                "name='': give the operator a name, such as 'bucket-operator'; everything that it "
                "leaves in a cluster has this name"
            )
        unknown = [each for each in options if each not in AppOptionsDict.__annotations__]
        if unknown:
            known = (*(App.__init__.__kwdefaults__ or ()), *AppOptionsDict.__annotations__)
            raise TypeError(f"an App has no option {unknown[0]}: it has {', '.join(known)}")
        self._name = name
        self._watchers = WatcherOptions(
            workers=workers,
            retry_policy=retry_policy,
            error_handler=error_handler,
            resync=resync,
            time_limit=time_limit,
            max_awaiting=max_awaiting,
            paused=None if paused is None else filter_of(paused, "paused"),
            remember=_checked_remember(remember),
            handled_states=_checked_states(handled_states),
            adopt=_checked_adopt(adopt),
        )
        watchers = validation.checked_texts("previous_watchers", previous_watchers)
        self._finalizer = JoinedFinalizer(
            tuple(check_operator_name(each, "previous_watchers: name") for each in watchers)
        )
        self._options = _manager_options(
            name, previous_names, namespaces, leader_election, workers, retry_policy, options
        )
        self._declared = Declarations()
        self._is_in_use = False
        self._lock = threading.Lock()
        self._managers: weakref.WeakKeyDictionary[Manager, AppManager] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<App {self._name}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property has failed so
                return object.__getattribute__(self, name)
            raise missing_attribute(self, name)

    # What it is.

    @property
    def name(self) -> str:
        """The operator's name."""
        return self._name

    @property
    def options(self) -> ManagerOptions:
        """The options of its managers."""
        return self._options

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The names of the namespaces in which it works.

        Empty: all namespaces, or the ones that a pattern or a label selector chooses, see
        ``options.cache.namespace_selector``.
        """
        return self._options.cache.namespace_names if self._options.cache else ()

    @property
    def kinds(self) -> tuple[Kind[Any, Any] | Versions[Any, Any], ...]:
        """The kinds whose CRDs are the app's, in the order of their declaration.

        The kinds of :meth:`own` come first, then the kinds that functions handle. A kind of
        Kubernetes (its group has no dot, or is below ``k8s.io``) is left out, and so is a kind
        that :meth:`uses` declares as ``foreign``. A kind in several versions is a ``Versions``.

        Raises:
            ValueError: a kind is handled in several versions, and nothing converts between them.
        """
        return tuple(each.kind for each in owned_kinds(self._declared))

    def crds(
        self, *, service: tuple[str, str] | None = None, url: str = "", ca: bytes = b""
    ) -> list[MutableObject]:
        """The CustomResourceDefinitions of :attr:`kinds`.

        Args:
            service: namespace and name of the Service of the webhook server, which converts kinds
                of several versions.
            url: the address of the webhook server, in place of a Service.
            ca: the PEM certificates of the authority that signed the server's certificate.

        Raises:
            ValueError: as :attr:`kinds`, and as ``custom_resource_definition``.
        """
        return crds_of(self._declared, service=service, url=url, ca=ca)

    @property
    def webhooks(self) -> Webhooks:
        """The app's webhooks by path, with their rules and conversions, without a server."""
        from appsdk_operator.webhooks import Webhooks

        found = Webhooks(metrics=Metrics())
        add_webhooks(found, self._declared)
        return found

    def permissions(self) -> tuple[Permission, ...]:
        """The permissions that follow from the declarations, merged and in order.

        The App cannot know what its functions do with other kinds: declare that by :meth:`uses`.
        """
        return permissions_of(
            self._name,
            self._declared,
            self._options,
            self._watchers.adopt,
            is_remembered=lambda kind: remembers(self, kind),
        )

    def finalizers(self) -> Mapping[Kind[Any, Any], tuple[str, ...]]:
        """The finalizers that the App may have put on objects, in any of its releases.

        They are listed by kind, also for a kind that has only timers by now. They include the
        finalizers of earlier names, of the other versions of a kind, and of additions in progress.
        If a function of the client makes a watcher, the App assumes the default finalizer. A kind
        of several versions is listed by its hub version. A kind that has only reconcilers is listed
        without finalizers: those that they set are not known.

        Raises:
            ValueError: as :attr:`kinds`.
        """
        return finalizers_of(
            self._name, tuple(self._options.previous_names), self._finalizer, self._declared
        )

    # Kinds.

    def own(self, kind: K, **options: Any) -> K:
        """Declare that the CRD of ``kind`` is the app's.

        Args:
            kind: the kind; or its ``Versions``, which the app then converts as well.
            options: options of :func:`~appsdk_operator.resource.custom_resource_definition`, such
                as ``short_names`` and ``printer_columns``.

        Returns:
            The kind.

        Raises:
            ValueError: ``kind`` was declared before; or as ``custom_resource_definition``.
            TypeError: ``kind`` is neither a Kind nor Versions; or as
                ``custom_resource_definition``.
        """
        from appsdk_operator.resource import custom_resource_definition

        if not isinstance(kind, Versions):
            check_kind(kind)
        given: Any = kind
        custom_resource_definition(given, **options)
        declared = Owned(kind=kind, options=options)
        name = declared.hub.qualified_name
        if any(each.hub.qualified_name == name for each in self._declared.owned):
            raise ValueError(
                f"own({name}) is called twice: give all options in one call, and several versions "
                "as Versions"
            )
        for each in self._declared.watching:
            if isinstance(each, Handler):
                check_filters(each.options, each.kind, [declared])
        for timer in self._declared.timers:
            if timer.kind is not None:
                check_filters(timer.options, timer.kind, [declared])
        for reconciling in self._declared.reconciling:
            check_event_filters(reconciling, [declared])
        for background in self._declared.backgrounds:
            check_filters(background.options, background.kind, [declared])
        for index in self._declared.indexes:
            check_indexed_field(index, [declared])
        for one in (*self._declared.watching, *self._declared.timers):
            result = None if isinstance(one, Watched) else one.result
            if result is not None and one.kind is not None:
                check_result(result, one.kind, [declared])
        self._declare(self._declared.owned, declared)
        return kind

    def uses(
        self,
        kind: Kind[Any, Any],
        *,
        verbs: Sequence[str] = ("get", "list", "watch"),
        subresources: Sequence[str] = (),
        names: Sequence[str] = (),
        namespace: str | None = None,
        reason: str = "",
        foreign: bool = False,
    ) -> None:
        """Declare what the app's functions do with ``kind``, for :meth:`permissions`.

        Args:
            kind: the kind.
            verbs: the verbs; default: the verbs of a read through the cache. Empty: no verbs, for a
                declaration of ``foreign`` alone.
            subresources: subresources with the same verbs, such as ``("status",)``.
            names: the names of the objects; default: any.
            namespace: the only namespace; default: the namespaces in which the app works.
            reason: why the app needs this, for the people who read the role.
            foreign: whether the CRD of the kind is somebody else's although the app handles it.

        Raises:
            TypeError, ValueError: an argument is invalid.
        """
        check_kind(kind)
        check_followed_namespace("" if namespace is None else namespace)
        validation.check_text("reason", reason)
        validation.check_flag("foreign", foreign)
        declared = Use(
            kind=kind,
            verbs=_checked_verbs(verbs),
            subresources=validation.checked_texts("subresources", subresources),
            names=validation.checked_texts("names", names),
            namespace=namespace,
            reason=reason,
            is_foreign=foreign,
        )
        self._declare(self._declared.uses, declared)

    # Watchers.

    @explains_options
    def on_add(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        where: Callable[[Object[SpecT, StatusT]], bool] | None = None,
        retry: RetryPolicy | None = None,
        result: str = "",
        time_limit: float | None = None,
    ) -> ObjectDecorator[SpecT, StatusT]:
        """Call the function for an object that was not handled before, until it has succeeded.

        The kit calls several functions of a kind in the order of their declaration, and retries
        each one by itself. After a restart the App's mark shows that an object was handled. If
        there is an ``on_delete`` or ``background`` for the object, the mark is the finalizer;
        otherwise it is an annotation, see ``App(handled_states=…)``.

        Args:
            kind: the kind of the object.
            where: a filter of the objects; default: all. If an object no longer matches the filter
                of ``on_delete``, it keeps its finalizer, and still gets ``on_delete``. If functions
                of the kind have different filters, and the finalizer is the mark, the function is
                called again after a restart: the finalizer does not show for which function the App
                has set it.
            retry: when a failed call is repeated; default: the App's ``retry_policy``.
            result: a field of the status, such as ``status.url``, to which the kit writes the
                returned value unless the field has it already. None leaves the field as it is. If
                the write fails, the call has failed. Default: the function returns nothing.
            time_limit: seconds that a call may take; default: the App's.

        Raises:
            TypeError: ``kind`` is not a Kind, or the function does not take one object.
            ValueError: ``time_limit`` is not above 0; the kind lacks the field of a filter or of
                ``result``, and the text names the nearest one; or there are functions for another
                version of the kind.
        """
        found: ObjectDecorator[SpecT, StatusT] = self._handler(
            kind, "add", where=where, retry=retry, time_limit=time_limit, result=result
        )
        return found

    @explains_options
    def on_sync(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        where: Callable[[Object[SpecT, StatusT]], bool] | None = None,
        retry: RetryPolicy | None = None,
        result: str = "",
        time_limit: float | None = None,
    ) -> ObjectDecorator[SpecT, StatusT]:
        """Call the function at the start, for each object that an earlier process has handled.

        :meth:`changed_meanwhile` shows whether the object was changed while the operator was down.

        For the arguments and errors see :meth:`on_add`.
        """
        found: ObjectDecorator[SpecT, StatusT] = self._handler(
            kind, "sync", where=where, retry=retry, time_limit=time_limit, result=result
        )
        return found

    @explains_options
    def on_update(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        where: Callable[[Object[SpecT, StatusT]], bool] | None = None,
        when: When[SpecT, StatusT] | None = None,
        retry: RetryPolicy | None = None,
        result: str = "",
        time_limit: float | None = None,
    ) -> UpdateDecorator[SpecT, StatusT]:
        """Call the function with the old object and the new one when the object has changed.

            @app.on_update(BUCKET, when=field("spec.size").changed)
            def resize(old: Object, new: Object) -> None:
                storage.resize(new.name, new.spec["size"])

        The old object is the state with which the function last succeeded, so no change is lost
        when a call fails and another change follows. The first old object is the oldest state with
        which an ``on_add`` or ``on_sync`` has succeeded, or else the first state that the App saw.
        If the App remembers the kind, it is the state that an earlier process has handled; fields
        that are not remembered have their current values in it. After a failed call the function is
        called again, even if the object is back in the old state.

        Args:
            kind: as for :meth:`on_add`, as ``where``, ``retry`` and ``time_limit``.
            where: see there.
            when: the changes that are an update: a filter such as ``field("spec.size").changed``,
                or a function of the old object and the new one. A filter of one object sees the new
                object. Default: all changes outside of status and metadata; for kinds without
                ``metadata.generation``, such as ConfigMaps, all changes. With ``when``, changes of
                status and metadata count, too, if they match.
            retry: see there.
            time_limit: see there.
            result: as for :meth:`on_add`.

        Raises:
            TypeError, ValueError: as :meth:`on_add`.
        """
        found: UpdateDecorator[SpecT, StatusT] = self._handler(
            kind,
            "update",
            where=where,
            when=when,
            retry=retry,
            time_limit=time_limit,
            result=result,
        )
        return found

    @explains_options
    def on_delete(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        where: Callable[[Object[SpecT, StatusT]], bool] | None = None,
        retry: RetryPolicy | None = None,
        time_limit: float | None = None,
    ) -> ObjectDecorator[SpecT, StatusT]:
        """Call the function for an object that is being deleted, and still exists.

        The kit releases the object once the function has succeeded. For the arguments and errors
        see :meth:`on_add`.
        """
        found: ObjectDecorator[SpecT, StatusT] = self._handler(
            kind, "delete", where=where, retry=retry, time_limit=time_limit
        )
        return found

    @explains_options
    def watch(
        self,
        kind: Kind[SpecT, StatusT],
        watcher: (
            ResourceWatcher[SpecT, StatusT]
            | ResourceReconciler[SpecT, StatusT]
            | Callable[
                [ClientLike],
                ResourceWatcher[SpecT, StatusT] | ResourceReconciler[SpecT, StatusT],
            ]
        ),
    ) -> None:
        """Call a watcher, or a reconciler of objects, for the events of ``kind``.

        Watchers of a kind run in the order of their declaration. Functions of ``on_…`` and
        ``every`` run together, in the place of the first of them.

        Args:
            kind: the kind.
            watcher: a watcher, such as a :class:`SimpleWatcher`. Or a class or a function that
                makes one from a manager's client; each manager calls it.

        Raises:
            TypeError: ``watcher`` is none of these.
        """
        check_kind(kind)
        declared = Watched(kind=kind, target=watcher, is_factory=_is_factory(watcher))
        self._declare(self._declared.watching, declared)

    # Reconcilers.

    def reconciler(
        self,
        kind: Kind[Any, Any],
        *,
        where: Where[Any, Any] | None = None,
        when: When[Any, Any] | None = None,
        owns: Sequence[Followed] = (),
        watches: Mapping[Followed, EventMapper] = _NO_WATCHES,
        predicates: Iterable[EventFilter] = (),
        name: str = "",
        options: ControllerOptions | None = None,
    ) -> Callable[[T], T]:
        """Reconcile the objects of ``kind``: the function gets a ``Request``, the key of an object.

        Args:
            kind: the kind.
            where: the objects of ``kind`` whose events count, by a filter or a function of the
                object. An update also counts if the old object matches. Default: all.
            when: the updates of ``kind`` that count, by a filter or a function of the old object
                and the new one. Creations and deletions count in any case. Default: all.
            owns: kinds that the function creates: an event of such an object reconciles its owner.
                ``Filtered(KIND, where=…, when=…)`` in place of a kind filters its events.
            watches: other kinds, each with a function from an object to requests, or a handler.
                A kind may have filters, as in ``owns``.
            predicates: further conditions that an event of ``kind`` must meet, all of them: filters
                such as ``field("spec.size").changed | labels("app=web")``, or functions of an
                event.
            name: the controller's name, for a second reconciler of a kind; default: the kind.
            options: options of the controller. If one is None, such as ``retry``, the App's option
                applies.

        Raises:
            TypeError: an argument has the wrong type, or the decorated object is not a reconciler.
            ValueError: the name is taken, or a kind lacks the field of a filter; the text names the
                nearest field.
        """

        def declare(target: T) -> T:
            if isinstance(target, type):
                raise TypeError(
                    f"{name_of(target)} is a class: declare an instance, "
                    f"app.reconciler({kind.kind.upper()})({name_of(target)}())"
                )
            function = getattr(target, "reconcile", target)
            validation.check_callable(
                "reconciler", function, "request", required=True, is_awaited=True
            )
            self._reconciling(kind, target, filters, owns, watches, name, options)
            return target

        check_kind(kind)
        filters = event_predicates(where, when, predicates)
        return declare

    def object_reconciler(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        where: Where[SpecT, StatusT] | None = None,
        when: When[SpecT, StatusT] | None = None,
        owns: Sequence[Followed] = (),
        watches: Mapping[Followed, EventMapper] = _NO_WATCHES,
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
        name: str = "",
        options: ControllerOptions | None = None,
    ) -> ObjectDecorator[SpecT, StatusT]:
        """Reconcile the objects of ``kind``: the function gets the object, if it still exists.

        For the arguments and errors see :meth:`reconciler`.
        """

        def declare(function: Callable[[Object[SpecT, StatusT]], Any]) -> Any:
            validation.check_callable("reconciler", function, "obj", required=True, is_awaited=True)
            self._reconciling(
                kind, function, filters, owns, watches, name, options, takes_object=True
            )
            return function

        check_kind(kind)
        filters = event_predicates(where, when, predicates)
        return declare

    # Timers and tasks.

    @overload
    def every(
        self,
        interval: float,
        kind: None = None,
        *,
        retry: RetryPolicy | None = ...,
        time_limit: float | None = ...,
        first_after: float = ...,
        name: str = ...,
        every_replica: bool = ...,
    ) -> Callable[[Callable[[], R]], Callable[[], R]]: ...
    @overload
    def every(
        self,
        interval: float,
        kind: Kind[SpecT, StatusT],
        *,
        where: Callable[[Object[SpecT, StatusT]], bool] | None = ...,
        retry: RetryPolicy | None = ...,
        time_limit: float | None = ...,
        result: str = ...,
        idle: float = ...,
        first_after: float = ...,
        name: str = ...,
        every_replica: bool = ...,
    ) -> ObjectDecorator[SpecT, StatusT]: ...
    @overload
    def every(
        self,
        *,
        cron: str,
        timezone: str = ...,
        retry: RetryPolicy | None = ...,
        time_limit: float | None = ...,
        name: str = ...,
        every_replica: bool = ...,
    ) -> Callable[[Callable[[], R]], Callable[[], R]]: ...
    @overload
    def every(
        self,
        *,
        kind: Kind[SpecT, StatusT],
        cron: str,
        timezone: str = ...,
        where: Callable[[Object[SpecT, StatusT]], bool] | None = ...,
        retry: RetryPolicy | None = ...,
        time_limit: float | None = ...,
        result: str = ...,
        idle: float = ...,
        name: str = ...,
        every_replica: bool = ...,
    ) -> ObjectDecorator[SpecT, StatusT]: ...
    @explains_options
    def every(
        self,
        interval: float | None = None,
        kind: Kind[Any, Any] | None = None,
        *,
        cron: str = "",
        timezone: str = "",
        where: Callable[[Object[Any, Any]], bool] | None = None,
        retry: RetryPolicy | None = None,
        time_limit: float | None = None,
        result: str = "",
        idle: float = 0.0,
        first_after: float = 0.0,
        name: str = "",
        every_replica: bool = False,
    ) -> Any:
        """Call the function at intervals: for each object of ``kind``, or without one for the app.

            @app.every(60, BUCKET, idle=10)
            def measure(bucket): ...

            @app.every(cron="0 3 * * *", timezone="Europe/Berlin")
            def sweep(): ...

        The kit repeats a failed call as the App's retry policy says, and at the latest after the
        interval or at the next time of ``cron``, even after a ``TerminalError``. A timer of a kind
        never overlaps with another function of its object, and is not called before ``on_add`` of
        the object has succeeded. An object that is being deleted gets no call.

        Args:
            interval: seconds between the end of a call and the next one.
            kind: the kind whose objects the function gets; default: the function takes no object.
            cron: instead of an interval, the times as a crontab line: minute, hour, day of month,
                month, day of week. The kit skips a time that passes while the operator is down, or
                while the previous call runs; it reads the clock when a call ends.
            timezone: the time zone of ``cron``, such as ``Europe/Berlin``; default: UTC. If a
                change to summer time skips a time, the call comes right after the change. A time
                that comes twice counts once.
            where: a filter of the objects; default: all.
            retry: when a failed call is repeated; default: the App's ``retry_policy``.
            time_limit: seconds that a call may take; default: the App's.
            result: as for :meth:`on_add`, for a timer of a kind.
            idle: for a timer of a kind, the seconds without a change of the object's spec that must
                pass before a call; default 0. For kinds without generations every change counts,
                except of the App's finalizers.
            first_after: seconds until the first call for an object, or of the app; default 0. A
                restart begins again.
            name: the name of its controller, if it has one; default: the function's name.
            every_replica: whether it runs on all replicas; default: on the leader. A timer of a
                kind then has its own controller, and may overlap with other functions.

        Raises:
            TypeError: an argument has the wrong type, neither an interval nor ``cron`` is given, or
                both are, or the function takes other arguments.
            ValueError: an interval or time limit of 0 or less, a malformed crontab line, an unknown
                time zone, or a name that is taken; the kind lacks the field of a filter or of
                ``result``, and the text names the nearest one; or there are functions for another
                version of the kind.
        """
        schedule = schedule_of(interval, cron, timezone, idle, first_after)
        validation.check_flag("every_replica", every_replica)
        validation.check_text("name", name)
        options = FunctionOptions(where=where, retry=retry, time_limit=time_limit)
        path = None
        if kind is not None:
            check_filters(options, kind, self._declared.owned)
            check_kind(kind)
            path = result_path(result, kind, self._declared.owned) if result else None
        else:
            about_objects = {"where": where is not None, "result": result, "idle": idle}
            for option, is_given in about_objects.items():
                if is_given:
                    raise TypeError(
                        f"{option}= is about objects, and every(…) without a kind has no objects: "
                        "leave it out, or give a kind"
                    )

        def declare(function: Callable[..., Any]) -> Any:
            arguments = () if kind is None else ("obj",)
            check_function("every", function, *arguments)
            declared = Timer(
                schedule=schedule,
                kind=kind,
                function=(returning_nothing if path is None else returning_result)(function),
                result=path,
                name=self._free_name(name or f"every-{name_of(function).replace('_', '-')}"),
                every_replica=every_replica,
                options=options,
            )
            self._declare(self._declared.timers, declared)
            return function

        return declare

    @explains_options
    def background(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        where: Callable[[Object[SpecT, StatusT]], bool] | None = None,
        retry: RetryPolicy | None = None,
        name: str = "",
    ) -> BackgroundDecorator[SpecT, StatusT]:
        """Run the function for each object, next to the others: a thread, or a coroutine.

            @app.background(BUCKET)
            async def follow(live: Live, stop: StopSignal) -> None:
                while not await stop.wait_async(5.0):
                    await storage.poll(live.object.name)

        It starts once ``on_add`` has succeeded for the object. The kit sets ``stop`` when the
        object is being deleted, no longer matches ``where``, or is paused, and when the operator
        stops or loses the lead. ``on_delete`` waits for the end of the function, and so does a run
        for a new object of the same name: at most one runs at any time. While it runs, the object
        has the App's finalizer.

        If the function has not ended 10 seconds after ``stop`` was set, the kit cancels a
        coroutine. It cannot cancel a thread: it logs the line at which the thread is, and
        everything that waits for the thread goes on waiting.

        If the function returns, it does not start again for the object in this process. If it
        raises, it starts again as ``retry`` says; an error after ten minutes counts as a first
        one. A function that the policy gave up starts again when the spec, labels or annotations
        of the object change.

        A plain function has one thread for each object. For more than a few hundred objects use an
        ``async def`` function: its coroutines share one thread.

        Args:
            kind: the kind of the object.
            where: a filter of the objects; default: all.
            retry: when it starts again after a failure; default: the App's ``retry_policy``.
            name: the name of its runnable; default: the function's name.

        Raises:
            TypeError: ``kind`` is not a Kind, or the function does not take a :class:`Live` and a
                stop signal.
            ValueError: the name is taken; the kind lacks the field of the filter, and the text
                names the nearest one; or there are functions for another version of the kind.
        """
        check_kind(kind)
        options = FunctionOptions(where=where, retry=retry)
        check_filters(options, kind, self._declared.owned)
        validation.check_text("name", name)

        def declare(function: Callable[..., Any]) -> Any:
            check_function("background", function, "live", "stop")
            declared = Background(
                kind=kind,
                function=function,
                name=self._free_name(name or f"background-{name_of(function).replace('_', '-')}"),
                options=options,
            )
            self._declare(self._declared.backgrounds, declared)
            return function

        return declare

    @overload
    def task(self, function: Run, /) -> Run: ...
    @overload
    def task(
        self, function: None = None, /, *, every_replica: bool = ...
    ) -> Callable[[Run], Run]: ...
    def task(self, function: Any = None, /, *, every_replica: bool = False) -> Any:
        """Run the function with each manager, from its start to its end; it gets the stop signal.

            @app.task
            def poll(stop: StopSignal) -> None:
                while not stop.wait(5.0):
                    ...

        An error ends the manager. An object with ``run(stop)`` can be given in place of a function.

        Args:
            function: what to run.
            every_replica: whether it runs on all replicas; default: on the leader.

        Raises:
            TypeError: ``function`` is neither a function nor such an object.
        """
        validation.check_flag("every_replica", every_replica)

        def declare(target: Any) -> Any:
            as_runnable(target)
            self._declare(self._declared.tasks, Task(target=target, every_replica=every_replica))
            return target

        return declare if function is None else declare(function)

    @overload
    def check(self, function: Checked, /) -> Checked: ...
    @overload
    def check(
        self, function: None = None, /, *, ready: bool = ..., name: str = ...
    ) -> Callable[[Checked], Checked]: ...
    def check(self, function: Any = None, /, *, ready: bool = False, name: str = "") -> Any:
        """Ask the function at each probe whether all is well.

            @app.check(ready=True)
            def database() -> str | None:
                return None if pool.is_open else "the pool is closed"

        All is well when the function returns None, True or an empty text. Otherwise it returns the
        reason as text, or False, or raises. Every replica with a health server calls it, with the
        ``timeout`` of that server. Before the lifespans have begun the kit does not call it: until
        then a ready check fails, and any other check passes.

        Args:
            function: the function, without arguments; may be ``async def``.
            ready: True: while the check fails the pod is not ready; it is served at
                ``/readyz/<name>``. Default: while it fails Kubernetes restarts the pod; it is
                served at ``/healthz/<name>``. Use the default for problems that a restart corrects,
                not for another service that is down.
            name: the name of the check; default: the function's name, with '-' for '_'.

        Raises:
            TypeError: the function takes arguments.
            ValueError: the name is taken, or is not a path segment.
        """
        validation.check_flag("ready", ready)
        validation.check_text("name", name)

        def declare(target: Any) -> Any:
            validation.check_callable("check", target, required=True, is_awaited=True)
            declared = Check(
                name=name or name_of(target).strip("<>").replace("_", "-"),
                function=target,
                is_ready_check=ready,
            )
            check_name_of_check(declared, self._declared.checks)
            self._declare(self._declared.checks, declared)
            return target

        return declare if function is None else declare(function)

    def lifespan(self, function: Life) -> Life:
        """Run a generator function around everything else: to its ``yield``, and then the rest.

            @app.lifespan
            def pool() -> Iterator[None]:
                with connect() as connection:
                    connections.append(connection)
                    yield

        The first part runs before the webhooks, the first watch and the first call. The rest runs
        once all of these have ended, even when the manager ends with an error. Both parts run on
        every replica. Several lifespans begin in the order of their declaration, and end in
        reverse. An async lifespan is one task, on the event loop of the App's checks.

        In both parts :attr:`client` can write, but it has no cache to read from: read with
        :attr:`live_client`. The manager raises an error of the first part at once, and an error of
        the rest at its end. If a call exceeds the manager's ``graceful_shutdown_timeout``, it may
        still run when the rest begins.

        Args:
            function: a generator function without arguments, plain or async, with one ``yield``.

        Raises:
            TypeError: ``function`` is not such a function.
        """
        check_lifespan(function)
        self._declare(self._declared.lifespans, function)
        return function

    # The cache.

    def index(
        self,
        kind: Kind[SpecT, StatusT],
        path: str,
        function: IndexFunction[SpecT, StatusT] | None = None,
    ) -> None:
        """Let lists from the cache select objects of ``kind`` by a field, without reading them all.

            app.index(BUCKET, "spec.region")
            app.index(BUCKET, "owner", lambda bucket: [ref.uid for ref in bucket.owner_references])

        and then, in functions of the App::

            app.client.list(BUCKET, field_selector={"owner": uid})

        Every replica caches the kind from the start, even if nothing else of the App needs it.

        Args:
            kind: the kind.
            path: the field, such as ``spec.region``; or any name, with a function.
            function: returns the values under which lists find the object; default: the value at
                ``path``.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the kind has this index already, or lacks the field; the text names the
                nearest field.
        """
        check_kind(kind)
        validation.check_text("path", path, empty=False)
        validation.check_function("function", function)
        declared = Index(kind=kind, path=path, function=function)
        check_index(declared, self._declared)
        self._declare(self._declared.indexes, declared)

    def memo(self, obj: Object[Any, Any]) -> dict[str, Any]:
        """A dict for each object, in which functions remember values while the operator runs.

        Every call for one object returns the same dict, until the object is gone. A new object of
        the same name, with another uid, begins with an empty dict. The dict is in the memory of
        one manager, like :attr:`client`: each replica has its own, and it is empty after a restart
        and in a new leader. Write values that must not be lost to the object's status.

        This method is thread-safe, but the dict is a plain one. Functions of one object do not
        overlap, so they need no lock; webhooks and your own threads do.

        Args:
            obj: an object of a kind that the App handles, in any state. If the object is gone, or
                is about to be created, the App does not keep the dict.

        Raises:
            RuntimeError: as for :attr:`client`.
            NotCachedError: the manager does not cache the kind.
            ValueError: ``obj`` has no uid.
        """
        manager = self._present("memo")
        with self._lock:
            state = self._managers[manager]
        return state.memos.of(obj)

    # Webhooks.

    def default(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        path: str | None = None,
        **options: Unpack[WebhookRuleOptions],
    ) -> DefaulterDecorator[SpecT, StatusT]:
        """Set defaults in new and changed objects, before the API server validates and stores them.

        Args:
            kind: the kind, in the version that the function gets.
            path: where the webhook is served; default ``/mutate-<group>-<version>-<kind>``.
            options: fields of :class:`WebhookRule`, such as ``failure_policy="Ignore"``.

        Raises:
            TypeError: the function does not take a draft, or an option has the wrong type.
            ValueError: the kind has a defaulter already, or a malformed path or option.
        """
        check_kind(kind)

        def declare(function: Callable[[MutableObject[SpecT, StatusT]], Any]) -> Any:
            if any(each.kind == kind for each in self._declared.defaulters):
                raise ValueError(
                    f"default({kind}) is declared twice: join the functions in one, or serve the "
                    "other with webhook(path, …)"
                )
            declared = Defaulter(kind=kind, target=function, path=path, options=options)
            self._check_webhooks(defaulters=[declared])
            self._declare(self._declared.defaulters, declared)
            return function

        return declare

    @overload
    def validate(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        on: Literal["update"],
        path: str | None = ...,
        **options: Unpack[WebhookRuleOptions],
    ) -> UpdateDecorator[SpecT, StatusT]: ...
    @overload
    def validate(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        on: Literal["write", "create", "delete"] = ...,
        path: str | None = ...,
        **options: Unpack[WebhookRuleOptions],
    ) -> ObjectDecorator[SpecT, StatusT]: ...
    def validate(
        self,
        kind: Kind[Any, Any],
        *,
        on: Literal["write", "create", "update", "delete"] = "write",
        path: str | None = None,
        **options: Unpack[WebhookRuleOptions],
    ) -> Any:
        """Validate objects: to refuse one, the function raises, or returns field errors.

        The functions for different operations on a kind are one webhook; give its options with
        one of the functions.

        Args:
            kind: the kind, in the version that the function gets.
            on: ``write`` (default): creations and changes, with the new object; ``create``;
                ``update``: changes, with the old object and the new one; ``delete``.
            path: where the webhook is served; default ``/validate-<group>-<version>-<kind>``.
            options: fields of :class:`WebhookRule`.

        Raises:
            TypeError: the function takes other arguments, or an option has the wrong type.
            ValueError: the kind has a function for the operation already, or a malformed option.
        """
        check_kind(kind)
        if on not in _OPERATIONS:
            raise ValueError(f"on={on!r}: use one of {', '.join(map(repr, _OPERATIONS))}")

        def declare(function: Callable[..., Any]) -> Any:
            operations = _OPERATIONS[on]
            same = [e for e in self._declared.validators if e.kind == kind]
            taken = [each for each in same if set(each.operations) & set(operations)]
            if taken:
                raise ValueError(
                    f"validate({kind}, on={on!r}) is declared twice, by "
                    f"{name_of(taken[0].function)} and {name_of(function)}: join them in one "
                    "function, or serve the other with webhook(path, …)"
                )
            declared = Validator(
                kind=kind,
                operations=operations,
                function=function,
                takes_old=on == "update",
                path=path,
                options=options,
            )
            self._check_webhooks(validators=[*same, declared])
            self._declare(self._declared.validators, declared)
            return function

        return declare

    @overload
    def convert(self, versions: Versions[Any, Any], /) -> None: ...
    @overload
    def convert(
        self,
        versions: Kind[SpecT, StatusT],
        to: Kind[OtherSpecT, OtherStatusT],
        /,
        *,
        deprecated: str | bool = ...,
        served: bool = ...,
        lossless: str | bool = ...,
    ) -> ConverterDecorator[SpecT, StatusT, OtherSpecT, OtherStatusT]: ...
    def convert(
        self,
        versions: Any,
        to: Any = None,
        /,
        *,
        deprecated: str | bool = False,
        served: bool = True,
        lossless: str | bool = False,
    ) -> Any:
        """Convert objects between the versions of a kind: ``convert(VERSIONS)``, or as a decorator.

            @app.convert(BUCKET_V1ALPHA1, BUCKET)
            def upgrade(old: Object, new: MutableObject) -> None:
                new.spec["size"] = int(old.spec["size"])

        Declare a function for each direction. The hub is the version of :meth:`own`, or else the
        newest one.

        Args:
            versions: the ``Versions``; for the decorator, the version that the function converts
                from.
            to: the version that the function converts to.
            deprecated: as for ``Versions.older``, for the version that is not the hub.
            served: as for ``deprecated``.
            lossless: as for ``deprecated``.

        Raises:
            TypeError: an argument or the function is invalid.
            ValueError: the kinds are not two versions of one kind, or the conversion is declared
                already.
        """
        if isinstance(versions, Versions):
            self.own(versions)
            return None
        source, target = check_kind(versions, "versions"), check_kind(to, "to")
        if source.qualified_name != target.qualified_name or source.version == target.version:
            raise ValueError(f"convert({source}, {target}): give two versions of one kind")
        if any((e.source, e.target) == (source, target) for e in self._declared.converters):
            raise ValueError(f"convert({source}, {target}) is declared twice: give one function")

        def declare(function: Callable[..., Any]) -> Any:
            # Checks everything, too.
            Versions(target).older(
                source,
                up=function,
                down=function,
                deprecated=deprecated,
                served=served,
                lossless=lossless,
            )
            declared = Converter(
                source=source,
                target=target,
                function=function,
                deprecated=deprecated,
                served=served,
                lossless=lossless,
            )
            self._declare(self._declared.converters, declared)
            return function

        return declare

    def webhook(self, path: str, handler: Any, *, rule: WebhookRule | None = None) -> None:
        """Serve any other webhook; see :meth:`~appsdk_operator.webhooks.Webhooks.add`.

        Args:
            path: where it is served; begins with a slash.
            handler: an ``Admission``, a ``TokenReviewWebhook``, or a function from an
                ``HTTPRequest`` to an ``HTTPResponse``.
            rule: the requests that the API server is to send there.

        Raises:
            TypeError, ValueError: as ``Webhooks.add``.
        """
        declared = Webhook(path=path, handler=handler, rule=rule)
        self._check_webhooks(webhooks=[*self._declared.webhooks, declared])
        self._declare(self._declared.webhooks, declared)

    # Running.

    def manager(
        self,
        server: ClientConfig | ClientLike,
        *,
        namespaces: NamespaceSelection | None = None,
        **options: Unpack[ManagerOptionsDict],
    ) -> Manager:
        """A Manager that runs the app; for tests, and as a part of a larger program.

        From now on the App takes no declarations.

        Args:
            server: the API server: a config or a client, see :class:`Manager`.
            namespaces: namespaces in place of those of the App, in the same form; ``["*"]``: all.
            options: options that override those of the App.

        Raises:
            TypeError, ValueError, OSError: as :class:`Manager`; or the declarations contradict each
                other.
        """
        if namespaces is not None:
            cache = options.get("cache", self._options.cache)
            options["cache"] = _with_namespaces(cache, namespaces, options.get("cache"))
        return self._assembled(server, options)

    def run(self, options: RunOptions | None = None) -> None:
        """Run as a program, until SIGINT or SIGTERM; the command ``appsdk-operator run`` does this.

        It finds the cluster as :meth:`ClientConfig.load` does, writes log records to standard error
        unless the program has handlers of its own, and returns after a stop.

        Args:
            options: the options of the start; default: from environment variables, see
                :class:`RunOptions`.

        Raises:
            SystemExit: the program failed, or did not start; with a status of
                :class:`ExitStatus`.
        """
        try:
            options = options or RunOptions.from_environment()
        except ValueError as error:
            start_logging(self._name, RunOptions())
            _log.error("%s was not started: %s", self._name, error)
            raise SystemExit(ExitStatus.NOT_STARTED) from None
        start_logging(self._name, options)
        status = run_program(self, options)
        if status is not ExitStatus.STOPPED:
            raise SystemExit(status)

    @property
    def client(self) -> ClientLike:
        """The client of the manager, which reads from the cache.

        Inside a callback it is the client of the callback's manager. Outside of callbacks, and in
        a thread that a callback has started, it is the client of the App's only manager.

        Raises:
            RuntimeError: outside of callbacks, the App has no manager, or several.
        """
        return self._present("client").client

    @property
    def live_client(self) -> ClientLike:
        """Like :attr:`client`, but it always reads from the API server."""
        return self._present("live_client").live_client

    def edit(self, obj: Object[SpecT, StatusT]) -> Edit[SpecT, StatusT]:
        """Change ``obj`` in a ``with`` block; at its end the kit writes the changed fields.

            @app.on_add(BUCKET)
            def make(bucket: Object) -> None:
                url = storage.make(bucket.name)
                with app.edit(bucket) as draft:
                    draft.labels["storage"] = "ready"
                    draft["status"]["url"] = url

        In ``async def`` functions write ``async with``. The draft is a
        :class:`~appsdk_operator.resource.MutableObject` of the newest state in the cache, which
        includes your own writes. If the kind has no class for its status, a missing status is an
        empty dict. The kit sends one merge patch of the changed fields, and another one if the
        status changed. It sends nothing if no field changed, or if the block raises. Set a field
        to None to remove it. Conditions get their times as with :meth:`Client.modify`.

        Changes that others made meanwhile stay. After a concurrent write the kit merges the
        block's changes into the current state, field by field, and writes again, up to 10 times.
        A list counts as one field; conditions, finalizers and owner references are merged by item.
        If the object is gone, the kit writes nothing and raises nothing, even if a new object has
        its name.

        The App's permissions cover the status of its own kinds. For other fields declare
        ``app.uses(BUCKET, verbs=["get", "patch"])``.

        Args:
            obj: the object, for example the one that the function got.

        Returns:
            The context manager; its ``object`` is the object after the block, None when it is gone.

        Raises:
            Conflict: somebody else has changed one of the same fields since the draft was made; the
                text names the field. The kit then calls the function again, as after other errors.
            NotFound: the block changed the status, and the kind has no subresource ``status``.
            ApiError, TransportError: as :meth:`Client.patch`.
            RuntimeError: as :attr:`client`.
        """
        client = self._present("edit").client
        return Edit(client, obj, live=live_reader(client))

    def changed_meanwhile(self, obj: Object[Any, Any]) -> bool | None:
        """Whether the object was changed while the operator was down.

        For ``on_sync``, to tell a mere restart from a change. Only remembered fields count.

        Args:
            obj: the object that the function got.

        Returns:
            Whether it was changed; None if the App does not remember the kind, or the object.

        Raises:
            RuntimeError: as :attr:`client`.
        """
        state = self._managers[self._present("changed_meanwhile")]
        for functions in state.functions:
            if functions.kind == obj.kind:
                return functions.has_changed(obj)
        return None

    @property
    def events(self) -> EventRecorder:
        """The recorder of Events in the app's name, of the same manager as :attr:`client`."""
        return self._present("events").event_recorder(self._name)

    # Internals.

    def _present(self, what: str) -> Manager:
        with self._lock:
            known = dict(self._managers)
        owner = present_owner()
        if isinstance(owner, Manager) and owner in known:
            return owner
        running = [manager for manager, state in known.items() if state.is_running]
        waiting = [manager for manager, state in known.items() if state.is_waiting]
        found = running or waiting
        if len(found) == 1:
            return found[0]
        if not found:
            raise RuntimeError(
                f"app.{what} belongs to a manager, and none of {self._name} runs: read it in the "
                "app's functions, after app.manager(…), or while app.run() runs"
            )
        how = "run" if running else "were made"
        raise RuntimeError(
            f"app.{what} belongs to a manager, and {len(found)} of {self._name} {how}: read it "
            "in the app's functions, or use manager.client"
        )

    def _assembled(
        self,
        server: ClientConfig | ClientLike,
        options: ManagerOptionsDict,
        observer: Observer | None = None,
    ) -> Manager:
        self._is_in_use = True
        assembly = Assembly(
            app=self,
            name=self._name,
            declared=self._declared,
            options=attrs.evolve(self._options, **options),
            watchers=self._watchers,
            finalizer=self._finalizer,
            observer=observer or Observer(),
        )
        manager, state = assemble(assembly, server)
        with self._lock:
            self._managers[manager] = state
        return manager

    def _declare(self, declarations: list[Any], declared: Any) -> None:
        if self._is_in_use:
            raise RuntimeError(
                f"{self._name} has a manager already, which would not see this declaration: "
                "declare everything before app.manager(…) and app.run()"
            )
        for kind in kinds_of(declared):
            check_names(kind, self._declared.names)
        if isinstance(declared, _FUNCTIONS) and declared.kind is not None:
            functions = [each for each in self._declared.functions if isinstance(each, _FUNCTIONS)]
            check_version(declared.kind, functions)
        declarations.append(declared)
        if isinstance(declared, _HANDLING) and declared.kind is not None:
            self._declared.handled.setdefault(declared.kind)
        if isinstance(declared, (*_FUNCTIONS, Watched)):
            self._declared.functions.append(declared)

    def _handler(self, kind: Any, cause: Cause, result: str = "", **options: Any) -> Any:
        check_kind(kind)
        validation.check_text("result", result)
        written = result_path(result, kind, self._declared.owned) if result else None
        checked = FunctionOptions(**options)
        check_filters(checked, kind, self._declared.owned)

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            check_function(f"on_{cause}", function, *CAUSES[cause])
            declared = Handler(
                kind=kind,
                cause=cause,
                function=(returning_nothing if written is None else returning_result)(function),
                unchecked=function if written is None else None,
                result=written,
                options=checked,
            )
            self._declare(self._declared.watching, declared)
            return function

        return declare

    def _reconciling(
        self,
        kind: Kind[Any, Any],
        target: Any,
        filters: tuple[tuple[str, Predicate[Any, Any]], ...],
        owns: Sequence[Followed],
        watches: Mapping[Followed, Any],
        name: str,
        options: ControllerOptions | None,
        *,
        takes_object: bool = False,
    ) -> None:
        validation.check_text("name", name)
        if isinstance(owns, (Kind, Filtered)) or not isinstance(watches, Mapping):
            raise TypeError("owns takes a list of kinds, and watches functions by kind")
        if options is not None:
            validation.check_instance(
                "options",
                options,
                ControllerOptions,
                "ControllerOptions(max_concurrent_reconciles=4)",
            )
        declared = Reconciling(
            kind=kind,
            target=target,
            takes_object=takes_object,
            name=self._free_name(name or kind.kind.lower()),
            filters=filters,
            owned=tuple(filtered(each, "owns") for each in owns),
            watched=tuple((filtered(each, "watches"), watches[each]) for each in watches),
            options=options,
        )
        check_event_filters(declared, self._declared.owned)
        self._declare(self._declared.reconciling, declared)

    def _free_name(self, name: str) -> str:
        taken = {each.name for each in self._declared.reconciling}
        taken |= {each.name for each in self._declared.timers}
        taken |= {each.name for each in self._declared.backgrounds}
        if name in taken:
            raise ValueError(
                f"{name!r} is the name of another controller of {self._name}: give one by name="
            )
        return name

    def _check_webhooks(self, **declared: Any) -> None:
        from appsdk_operator.webhooks import Webhooks

        add_webhooks(Webhooks(metrics=Metrics()), Declarations(**declared))


def handled_kinds(app: App) -> tuple[Kind[Any, Any], ...]:
    """The kinds that functions of the App handle, in the order of their declaration."""
    return tuple(app._declared.handled)  # noqa: SLF001 - of this module


def functions_of(app: App) -> tuple[Handler, ...]:
    """The functions of the App's ``on_…`` declarations, in their order."""
    watching = app._declared.watching  # noqa: SLF001 - of this module
    return tuple(each for each in watching if isinstance(each, Handler))


def remembers(app: App, kind: Kind[Any, Any]) -> bool:
    """Whether the App records what its functions have handled of objects of a kind."""
    options = app._watchers  # noqa: SLF001 - of this module
    return is_remembered(kind, app._declared, options.remember)  # noqa: SLF001 - of this module


def is_paused(app: App, obj: Object[Any, Any]) -> bool:
    """Whether the App calls nothing for an object in this state; what it takes an error for."""
    paused = app._watchers.paused  # noqa: SLF001 - of this module
    try:
        return paused is not None and bool(paused(obj))
    except Exception:
        return False


def metadata_of_filters(app: App) -> tuple[FilterMetadata, ...]:
    """The labels and annotations that make a difference to filters of the App's functions."""
    declared = app._declared  # noqa: SLF001 - of this module
    filters: list[Any] = []
    for each in (*declared.watching, *declared.timers, *declared.backgrounds):
        if not isinstance(each, Watched):
            filters += (each.options.where, each.options.when)
    for reconciling in declared.reconciling:
        filters += (each for _, each in reconciling.filters)
    return _metadata_of(filters)


def metadata_of_pauses(app: App) -> tuple[FilterMetadata, ...]:
    """The labels and annotations that make a difference to ``paused=``."""
    return _metadata_of([app._watchers.paused])  # noqa: SLF001 - of this module


def _metadata_of(filters: Iterable[Any]) -> tuple[FilterMetadata, ...]:
    trees = (each.tree for each in filters if isinstance(each, FilterExpression))
    return tuple(
        dict.fromkeys(one for tree in trees for leaf in tree.leaves() for one in leaf.atom.metadata)
    )


def timers_of(app: App) -> tuple[Timer, ...]:
    """The App's timers, in the order of their declaration."""
    return tuple(app._declared.timers)  # noqa: SLF001 - of this module


def observed_manager(
    app: App,
    server: ClientConfig | ClientLike,
    observer: Observer,
    **options: Unpack[ManagerOptionsDict],
) -> Manager:
    """The App's manager, with all that it calls wrapped by ``observer``.

    Args:
        app: the App.
        server: as for :meth:`App.manager`.
        observer: wraps watchers, reconcilers and functions.
        options: as for :meth:`App.manager`.
    """
    return app._assembled(server, options, observer)  # noqa: SLF001 - of this module


_FUNCTIONS = (Handler, Timer, Background)
_HANDLING = (Handler, Watched, Reconciling, Timer, Background, Defaulter, Validator)
_OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "write": ("create", "update"),
    "create": ("create",),
    "update": ("update",),
    "delete": ("delete",),
}


def _manager_options(
    name: str,
    previous_names: Sequence[str],
    namespaces: NamespaceSelection | None,
    leader_election: bool | LeaderElection,
    workers: int,
    retry_policy: RetryPolicy | None,
    options: AppOptionsDict,
) -> ManagerOptions:
    election: Any = leader_election
    if not isinstance(election, (bool, *if_loaded("appsdk_operator.manager", "LeaderElection"))):
        raise TypeError(
            f"leader_election={election!r}: give True, or LeaderElection(id=…) with its options"
        )
    if isinstance(election, bool):
        from appsdk_operator.manager import LeaderElection

        election = LeaderElection(id=name) if election else None
    cache = options.get("cache")
    if namespaces is not None:
        cache = _with_namespaces(cache, namespaces, cache)
    client = options.get("client") or ClientSetup()
    if client.field_owner is None:
        client = attrs.evolve(client, field_owner=name)
    controllers = ControllerOptions(max_concurrent_reconciles=workers, retry=retry_policy)
    if (own := options.get("controller_options")) is not None:
        controllers = own.over(controllers)
    given: dict[str, Any] = {
        "failure_events": DEFAULT_FAILURE_EVENTS,
        **options,
        "cache": cache,
        "client": client,
        "controller_options": controllers,
    }
    return ManagerOptions(
        name=name, previous_names=previous_names, leader_election=election, **given
    )


def _with_namespaces(
    setup: CacheSetup | None, namespaces: NamespaceSelection, given: CacheSetup | None
) -> CacheSetup:
    """``setup`` with ``namespaces``; ``given`` is one that the same call has.

    Raises:
        ValueError: there are none, or ``given`` has some.
    """
    if isinstance(namespaces, Sequence) and not namespaces:
        raise ValueError(
            "namespaces is empty: name some, or leave it out for all; ['*'] means all, too"
        )
    if given is not None and given.namespaces:
        raise ValueError("namespaces and cache=CacheSetup(namespaces=…): give only one of them")
    return attrs.evolve(setup or CacheSetup(), namespaces=namespaces)


def _checked_remember(given: Any) -> bool | tuple[Kind[Any, Any], ...] | None:
    if given is None or isinstance(given, bool):
        return given
    if isinstance(given, (Kind, str)) or not isinstance(given, Iterable):
        raise TypeError(f"remember={given!r}: give True, False, or a list of kinds")
    return tuple(check_kind(each, "remember") for each in given)


def _checked_adopt(given: Any) -> Kopf | None:
    if given is None or isinstance(given, Kopf):
        return given
    raise TypeError(f"adopt={given!r}: give Kopf(), with the operator's own settings as options")


def _checked_states(given: Any) -> HandledStates | None:
    if given is None:
        return None
    if isinstance(given, type) or not isinstance(given, HandledStates):
        raise TypeError(
            f"handled_states={given!r}: give an object with load(obj) and store(obj, state)"
        )
    validation.check_callable("handled_states.load", given.load, "obj", required=True)
    validation.check_callable("handled_states.store", given.store, "obj", "state", required=True)
    return given


def _checked_verbs(verbs: Sequence[str]) -> tuple[str, ...]:
    given = validation.checked_texts("verbs", verbs)
    for verb in given:
        if not verb.isalpha() or verb != verb.lower():
            raise ValueError(f"verbs has {verb!r}: use get, list, watch, create, update, …")
    return given


def _is_factory(watcher: Any) -> bool:
    if not isinstance(watcher, type):
        if isinstance(watcher, ResourceWatcher):
            return False
        if callable(getattr(watcher, "reconcile", None)):
            return False
    if not callable(watcher):
        raise TypeError(
            f"watcher={watcher!r} is not a watcher: give an object with add, update and delete, a "
            "SimpleWatcher(…), or a function of the client that makes one"
        )
    validation.check_callable("watcher", watcher, "client")
    return True
