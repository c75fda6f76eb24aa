"""The client: the verbs on objects, each a request to the API server."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator._lazy import if_loaded, lazy_pattern
from appsdk_operator.client._api import request_builders
from appsdk_operator.client._api.dropped_status import warn_of_dropped_status
from appsdk_operator.client._api.options import (
    FieldValidation,
    ListPageOptions,
    Propagation,
    apply_query,
    delete_body,
    write_query,
)
from appsdk_operator.client._api.pagination import PaginationGuard
from appsdk_operator.client._api.protocols import Change
from appsdk_operator.client._api.subresource import SubresourceClient
from appsdk_operator.client._auth.config import ClientConfig
from appsdk_operator.client._errors import Expired
from appsdk_operator.client._request import JSON, Request, query_of, selectors_of
from appsdk_operator.client._secret_texts import is_secret_path
from appsdk_operator.client._transport.watch import WatchStream, silence_limit_of
from appsdk_operator.resource import (
    PARTIAL_METADATA_KIND,
    AnyObject,
    DecodeError,
    Kind,
    ListPage,
    Object,
    Patch,
    Undecodable,
)
from appsdk_operator.runtime import (
    Clock,
    Metrics,
    StopSignal,
    present_clock,
    present_metrics,
)
from appsdk_operator.runtime.validation import (
    check_choice,
    check_count,
    check_environment,
    check_flag,
    check_text,
)

if TYPE_CHECKING:
    from appsdk_operator.client._api.aio import AsyncClient
    from appsdk_operator.client._api.discovery import Discovery
    from appsdk_operator.client._transport.contact import ServerContact
    from appsdk_operator.resource import FieldSelection, LabelSelection
    from appsdk_operator.runtime import ActivityObserver


_PATH = lazy_pattern(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")


@final
class Client:
    """Talks to one API server.

    Each call is one request; :meth:`list` sends one for each page.
    Thread-safe: share one client between all threads; close it, or use it in a ``with`` block.

    Every method raises :class:`ApiError` when the server refuses, :class:`TransportError` without
    an answer, :class:`ConfigError` when the credentials cannot be used, ``ValueError``
    for arguments that no server accepts, and :class:`~appsdk_operator.resource.DecodeError`
    when an answer does not fit the kind.

    Args:
        config: the server's address and the credentials, see :class:`ClientConfig`.
        clock: the clock of the waits between retries; default: the machine's.
        metrics: the metrics that count requests; default: the kit's own registry.

    Raises:
        TypeError: ``config`` is not a :class:`ClientConfig`.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        # Imported here: ssl takes as long to import as all the rest together.
        from appsdk_operator.client._transport.transport import Transport

        _check_config(config)
        check_environment(clock=clock, metrics=metrics)
        self._config = config
        self._transport = Transport(
            config, clock=present_clock(clock), metrics=present_metrics(metrics)
        )
        self._discovery: Discovery | None = None
        self._status_warned: set[Kind] = set()

    @property
    def config(self) -> ClientConfig:
        """The configuration."""
        return self._config

    @property
    def contact(self) -> ServerContact:
        """When the server was heard last; who looks at it, such as a Manager, asks the server."""
        return self._transport.contact

    def observe_activity(self, observer: ActivityObserver) -> Callable[[], None]:
        """Call ``observer`` for each request; returns a function that ends this.

        ``Manager.observe_activity`` observes the clients of a manager.
        """
        return self._transport.observers.add(observer)

    def close(self) -> None:
        """Abort all requests and watches, close all connections. Calling it twice is harmless."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._config.server}>"

    @property
    def aio(self) -> AsyncClient:
        """The same verbs as coroutines, for ``async def`` functions."""
        from appsdk_operator.client._api.aio import AsyncClient

        return AsyncClient(self)

    @property
    def status(self) -> SubresourceClient:
        """The client for ``status``: ``client.status.update(obj)``."""
        return self.subresource("status")

    def subresource(self, name: str) -> SubresourceClient:
        """The client for a subresource, for example ``scale``, ``eviction`` or ``token``."""
        return SubresourceClient(self._transport, name)

    @property
    def discovery(self) -> Discovery:
        """The versions, groups and kinds that the server serves."""
        from appsdk_operator.client._api.discovery import Discovery

        if self._discovery is None:
            self._discovery = Discovery(self._get_path, get_once=self._get_path_once)
        return self._discovery

    def _get_path(self, path: str) -> bytes:
        return self.request("GET", path)

    def _get_path_once(self, path: str) -> bytes:
        request = Request(method="GET", path=path, accept=JSON, repeatable=True, retry=False)
        return self._transport.send(request)

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT]:
        """Read one object.

        Args:
            kind: its kind.
            name: its name.
            namespace: its namespace; leave empty for cluster-scoped kinds.

        Raises:
            NotFound: it does not exist.
        """
        request = request_builders.build_request(
            kind, "GET", "get", namespace=namespace, name=name, repeatable=True
        )
        return self._send_for_object(request, kind)

    def list(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        limit: int = 500,
        resource_version: str | None = None,
        resource_version_match: str | None = None,
        allow_inconsistent: bool = False,
        stop: StopSignal | None = None,
    ) -> Iterator[Object[SpecT, StatusT]]:
        """The objects of a kind, fetched page by page during the iteration.

        All pages show the state of the first page. Servers keep that state for some minutes only: a
        longer iteration raises :class:`Expired`, and the caller has to list again. With
        ``allow_inconsistent`` it goes on with the current state of the rest instead; objects that
        changed meanwhile may be missing or be newer than the others.

        Args:
            kind: the kind.
            namespace: the namespace; default: all namespaces.
            label_selector: as text, as a mapping of labels to values, or as a LabelSelector.
            field_selector: the same for fields.
            limit: objects per request, 0 for all in one; default 500.
            resource_version: the state to list, see :meth:`list_page`.
            resource_version_match: ``"Exact"`` or ``"NotOlderThan"``, see :meth:`list_page`.
            allow_inconsistent: go on after the state of the first page has expired.
            stop: ends the iteration with :class:`RequestStopped` when set.

        Raises:
            Expired: the server has dropped the state of the first page.
            DecodeError: objects cannot be read; raised at the end, after all others.
            BadResponse: the server's pages do not end.
        """
        options: ListPageOptions = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
            "limit": limit,
            "resource_version": resource_version,
            "resource_version_match": resource_version_match,
            "stop": stop,
        }
        check_count("limit", limit, 0)
        check_flag("allow_inconsistent", allow_inconsistent)
        _check_version(resource_version, resource_version_match)
        check_environment(stop=stop)
        # Built but not sent: wrong arguments fail now, and not with the first page.
        query = selectors_of(label_selector, field_selector)
        request_builders.build_request(kind, "GET", "list", namespace=namespace, query=query)
        return self._pages(kind, options, allow_inconsistent=allow_inconsistent)

    def _pages(
        self, kind: Kind, options: ListPageOptions, *, allow_inconsistent: bool
    ) -> Iterator[Object]:
        token = inconsistent = ""
        progress = PaginationGuard(f"the list of {kind.qualified_name}")
        undecodable: Sequence[Undecodable] = ()
        while True:
            try:
                page = self.list_page(kind, **options)
            except Expired as error:
                # The token for the rest does not expire: a list whose does would never end.
                if not (allow_inconsistent and token != inconsistent and error.continue_token):
                    raise
                token = inconsistent = error.continue_token
            else:
                progress.check(page)
                yield from page.items
                undecodable = (*undecodable, *page.undecodable)
                token = page.continue_token
            if not token:
                break
            # The token implies the resource version.
            options["continue_token"] = token
            options["resource_version"] = options["resource_version_match"] = None
        if undecodable:
            shown = "; ".join(f"{item}: {item.error}" for item in undecodable[:3])
            raise DecodeError(
                f"{len(undecodable)} of the {kind.qualified_name} cannot be read, all others were "
                f"returned: {shown}; fix or delete them on the server, or use list_page, which "
                "returns them next to the others"
            ) from undecodable[0].error

    def list_page(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
        resource_version_match: str | None = None,
        retry: bool = True,
        metadata_only: bool = False,
        stop: StopSignal | None = None,
    ) -> ListPage[SpecT, StatusT]:
        """One page of a list.

        Args:
            kind: the kind.
            namespace: the namespace; default: all namespaces.
            label_selector: as text, as a mapping of labels to values, or as a LabelSelector.
            field_selector: the same for fields.
            limit: the maximum number of objects, 0 for all; default 500. Servers ignore it for
                ``resource_version="0"`` when they answer from memory.
            continue_token: the token of the page before; empty for the first page.
            resource_version: ``"0"``: any state in the server's memory; another version: a state
                that is not older; default: the current state.
            resource_version_match: ``"Exact"`` or ``"NotOlderThan"``; default: the server's.
            retry: retry transient failures; False for callers with their own backoff.
            metadata_only: request only the objects' metadata; other servers send whole objects.
            stop: raises :class:`RequestStopped` when set.

        Returns:
            The page; objects that cannot be read are among its ``undecodable``.

        Raises:
            Expired: the token, or the resource version, is too old.
            DecodeError: the answer is not a list.
        """
        check_count("limit", limit, 0)
        check_text("continue_token", continue_token)
        _check_version(resource_version, resource_version_match)
        check_flag("retry", retry)
        check_environment(stop=stop)
        request = request_builders.build_request(
            kind,
            "GET",
            "list",
            namespace=namespace,
            query=[
                *selectors_of(label_selector, field_selector),
                *query_of(
                    limit=limit or None,
                    **{"continue": continue_token},
                    resourceVersion=resource_version,
                    resourceVersionMatch=resource_version_match,
                ),
            ],
            accept=request_builders.accept_header(
                f"{PARTIAL_METADATA_KIND}List", metadata_only=metadata_only
            ),
            repeatable=True,
            retry=retry,
        )
        return self._transport.send(
            request,
            stop=stop,
            decode=lambda body: request_builders.decode_page(request, kind, body),
        )

    def watch(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        resource_version: str | None = None,
        timeout: float | None = None,
        bookmarks: bool = True,
        send_initial_events: bool = False,
        silence_limit: float | None = None,
        metadata_only: bool = False,
        stop: StopSignal | None = None,
    ) -> WatchStream[SpecT, StatusT]:
        """Open a watch. The client does not retry a failure: every watch has to resume anyway.

        Args:
            kind: the kind.
            namespace: the namespace; default: all namespaces.
            label_selector: as text, as a mapping of labels to values, or as a LabelSelector.
            field_selector: the same for fields.
            resource_version: the version of the state before the first event, usually of a list;
                default: the existing objects as ADDED events, then all later events.
            timeout: the seconds after which the server ends the watch; default: 300 to 600 at
                random, as in client-go, so watches do not all end at once.
            bookmarks: request the server's resource version about once a minute.
            send_initial_events: request the existing objects first, in one consistent state that
                ends with a bookmark (from Kubernetes 1.32 on; others answer 422).
            silence_limit: the seconds without a byte after which the connection counts as dead;
                default: 90 with bookmarks, but never more than 5 s after ``timeout``.
            metadata_only: request only the objects' metadata, as :meth:`list_page`.
            stop: closes the stream when set, and raises :class:`RequestStopped` while it opens.

        Raises:
            Expired: the resource version is too old: list again.
        """
        _check_version(resource_version)
        check_flag("bookmarks", bookmarks)
        check_flag("send_initial_events", send_initial_events)
        check_environment(stop=stop)
        if timeout is None:
            timeout = random.uniform(300.0, 600.0)
        limit = silence_limit_of(timeout, silence_limit, bookmarks=bookmarks)
        request = request_builders.build_request(
            kind,
            "GET",
            "watch",
            namespace=namespace,
            query=[
                *query_of(watch=True),
                *selectors_of(label_selector, field_selector),
                *query_of(
                    resourceVersion=resource_version,
                    resourceVersionMatch="NotOlderThan" if send_initial_events else None,
                    sendInitialEvents=send_initial_events,
                    allowWatchBookmarks=bookmarks,
                    timeoutSeconds=math.ceil(timeout),
                ),
            ],
            accept=request_builders.accept_header(
                PARTIAL_METADATA_KIND, metadata_only=metadata_only
            ),
            repeatable=True,
            retry=False,
        )
        opened = self._transport.open(request, stop=stop)
        stream = WatchStream(
            kind,
            request,
            opened,
            silence_limit=limit,
            metrics=self._transport.metrics,
            heard=self._transport.heard,
        )
        stream.close_when(self._transport.stop)
        if stop is not None:
            stream.close_when(stop)
        return stream

    def create(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Create an object, and return it as the server stored it.

        If the status is a subresource, the server drops a status, and the log warns once for each
        kind. Write the status afterwards with ``client.status.update``.

        Args:
            obj: the object; without a name it needs ``metadata.generateName``.
            dry_run: the server does everything but store it.
            field_manager: the owner of the fields; default: the first word of the user agent.
            field_validation: the treatment of unknown and duplicate fields, ``"Ignore"``,
                ``"Warn"`` or ``"Strict"``; default: the server's, ``"Warn"``.

        Raises:
            AlreadyExists: the name is taken.
            Invalid: the server refuses its content.
        """
        request = request_builders.create_request(
            obj,
            query=write_query(dry_run, field_manager, field_validation),
        )
        answer = self._send_for_object(request, obj.kind)
        warn_of_dropped_status(self._status_warned, "create", obj.get("status"), answer)
        return answer

    def update(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Replace an object, and return it as the server stored it.

        With a resource version, the server refuses if the object has changed since then. Without
        one, it refuses custom resources and overwrites most other kinds. If the status is a
        subresource, the server drops a changed status, and the log warns: use
        ``client.status.update``.

        Args: as :meth:`create`.

        Raises:
            Conflict: the object has changed since it was read.
            NotFound: no object has this name.
            Invalid: the server refuses its content.
        """
        request = request_builders.update_request(
            obj,
            query=write_query(dry_run, field_manager, field_validation),
        )
        answer = self._send_for_object(request, obj.kind)
        if obj.resource_version:  # without one, a different status need not be a changed one
            warn_of_dropped_status(self._status_warned, "update", obj.get("status"), answer)
        return answer

    def patch(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Change parts of an object, and return the result.

        Args:
            kind: its kind.
            name: its name.
            patch: a :class:`JsonPatch`, :class:`MergePatch` or :class:`StrategicMergePatch`.
            namespace: its namespace; leave empty for cluster-scoped kinds.
            dry_run, field_manager, field_validation: as :meth:`create`.

        Raises:
            NotFound: no object has this name.
            Conflict: the patch names a resource version, and the object has changed since.
            Invalid: the server refuses the result.
        """
        request = request_builders.patch_request(
            kind,
            name,
            patch,
            namespace=namespace,
            query=write_query(dry_run, field_manager, field_validation),
        )
        answer = self._send_for_object(request, kind)
        merge: Any = patch
        if isinstance(merge, if_loaded("appsdk_operator.resource", "MergePatch")):
            warn_of_dropped_status(self._status_warned, "patch", merge.fields.get("status"), answer)
        return answer

    def apply(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Server-side apply: set the fields in ``obj``, and create the object if it is missing.

        The server removes fields that this manager applied before and that ``obj`` no longer has.

        Args:
            obj: the fields that the manager wants to own, and no others; without ``managedFields``.
            field_manager: the owner of the fields; required.
            force: take over fields of other managers.
            dry_run, field_validation: as :meth:`create`.

        Raises:
            Conflict: another manager owns one of the fields, and ``force`` is not given.
        """
        request_builders.check_object(obj)  # before its options
        request = request_builders.apply_request(
            obj,
            query=apply_query(dry_run, field_manager, field_validation, force),
        )
        return self._send_for_object(request, obj.kind)

    def delete(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation | None = None,
        grace_period: float | None = None,
        dry_run: bool = False,
    ) -> Object[SpecT, StatusT] | None:
        """Delete an object.

        Args:
            kind: its kind.
            name: its name.
            namespace: its namespace; leave empty for cluster-scoped kinds.
            uid: delete only the object with this uid, not another of the same name.
            resource_version: delete only this version of the object.
            propagation: the treatment of the objects that it owns: ``"Background"``,
                ``"Foreground"`` or ``"Orphan"``; default: the kind's, mostly ``"Background"``.
            grace_period: the seconds that a pod has to end; 0 deletes it at once; default: the
                object's own.
            dry_run: the server does everything but delete it.

        Returns:
            The object while it waits for its finalizers or its grace period; None when it is gone
            and the server answers with a Status.

        Raises:
            NotFound: no object has this name.
            Conflict: the object has another ``uid`` or ``resource_version``.
        """
        request = request_builders.build_request(
            kind,
            "DELETE",
            "delete",
            namespace=namespace,
            name=name,
            body=delete_body(
                uid=uid,
                resource_version=resource_version,
                propagation=propagation,
                grace_period=grace_period,
                dry_run=dry_run,
            ),
            answer_uid=uid,
            repeatable=bool(uid or resource_version),
        )
        return self._transport.send(
            request, decode=lambda body: request_builders.decode_delete_answer(request, kind, body)
        )

    def delete_collection(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        propagation: Propagation | None = None,
        grace_period: float | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete the objects of a kind in one namespace, all or the ones that the selectors match.

        Args:
            kind: the kind.
            namespace: the namespace; required for namespaced kinds.
            label_selector: as text, as a mapping of labels to values, or as a LabelSelector.
            field_selector: the same for fields.
            propagation, grace_period, dry_run: as :meth:`delete`.
        """
        request = request_builders.build_request(
            kind,
            "DELETE",
            "deletecollection",
            namespace=namespace,
            query=selectors_of(label_selector, field_selector),
            body=delete_body(propagation=propagation, grace_period=grace_period, dry_run=dry_run),
        )
        self._transport.send(request)

    def modify(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        change: Change[SpecT, StatusT],
        *,
        namespace: str = "",
    ) -> Object[SpecT, StatusT]:
        """Read an object, change a copy, and write the changed fields.

            client.modify(BUCKET, "photos", lambda draft: draft.labels.update(team="web"))

        The client sends one merge patch of the changed fields, and another one if the status
        changed, each for the version that it read. If no field changed, it sends nothing. After a
        concurrent write it reads the object and calls ``change`` again, up to 10 times with growing
        pauses; it does not repeat a patch that has succeeded. Set a field to None to remove it. A
        condition without ``lastTransitionTime`` keeps the time of its previous state if the status
        is the same; otherwise it gets the current time. If ``kind`` has no class for its status, a
        missing status is an empty dict in the draft.

        Args:
            kind: its kind.
            name: its name.
            change: changes the :class:`~appsdk_operator.resource.MutableObject` that it gets; may
                be ``async def``. It may be called several times, and after a lost answer even for
                an object that has the change already: set values, do not count.
            namespace: its namespace; leave empty for cluster-scoped kinds.

        Returns:
            The object after the change.

        Raises:
            NotFound: it does not exist, or ``change`` changed the status of a kind without the
                subresource ``status``.
            Conflict: every attempt met a concurrent write.
            ValueError: ``change`` changed the name or namespace.
            TypeError: ``change`` is not a function, or returned another object.
        """
        from appsdk_operator.client._api import edits

        steps = edits.modify_steps(kind, name, change, namespace=namespace)
        return edits.run_steps(steps, self, self).object

    def _send_for_object(
        self, request: Request, kind: Kind[SpecT, StatusT]
    ) -> Object[SpecT, StatusT]:
        return self._transport.send(
            request, decode=lambda body: request_builders.decode_answer(request, kind, body)
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """Send any request, with the retries, errors and credentials of the other methods.

        Args:
            method: the HTTP method.
            path: the quoted path after the server's address, for example ``/version``.
            query: the query parameters, unquoted.
            body: the body.
            content_type: its media type; default: JSON.
            accept: the media types of the answer; default: JSON.

        Returns:
            The answer's body.
        """
        check_text("method", method)
        check_text("path", path)
        check_text("content_type", content_type)
        check_text("accept", accept)
        if body is not None and not isinstance(body, bytes):
            raise TypeError(f"body is of type {type(body).__name__}: give bytes, text.encode()")
        _check_query(query)
        if not method.isalpha() or not path.startswith("/") or not _PATH.fullmatch(path):
            raise ValueError(
                f"{method} {path!r} is not a request: the path starts with '/', is quoted, and has "
                "no query of its own"
            )
        request = Request(
            method=method.upper(),
            path=path,
            query=list(query.items() if isinstance(query, Mapping) else query),
            body=body,
            content_type=content_type,
            accept=accept,
            repeatable=method.upper() in {"GET", "HEAD"},
            secret=body is not None and is_secret_path(path),
        )
        return self._transport.send(request)


def _check_version(version: str | None, match: str | None = None) -> None:
    if version is not None:
        check_text("resource_version", version)
    check_choice("resource_version_match", match, "", "Exact", "NotOlderThan")


def _check_query(query: object) -> None:
    pairs = query.items() if isinstance(query, Mapping) else query
    if (
        isinstance(pairs, str)
        or not isinstance(pairs, Iterable)
        or not all(
            isinstance(pair, tuple)
            and len(pair) == 2
            and all(isinstance(part, str) for part in pair)
            for pair in pairs
        )
    ):
        raise TypeError(f"query={query!r}: give a mapping of texts, or a list of pairs of texts")


def _check_config(config: object) -> None:
    if not isinstance(config, ClientConfig):
        example = ".load()"
        if isinstance(config, str) and "://" in config:
            example = f"(server={config!r})"
        elif isinstance(config, (str, os.PathLike)):
            example = f".load({os.fspath(config)!r})"
        raise TypeError(
            f"config={config!r} is not a ClientConfig: give one, for example ClientConfig{example}"
        )
