"""The client: verbs on kinds and objects."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, final

from appsdk_operator.client import _calls
from appsdk_operator.client._config import ClientConfig
from appsdk_operator.client._errors import Expired
from appsdk_operator.client._options import (
    FieldValidation,
    Propagation,
    Selector,
    delete_body,
    write_query,
)
from appsdk_operator.client._patches import Patch
from appsdk_operator.client._request import JSON, Request, check_namespace, query_of, selector_text
from appsdk_operator.client._subresource import SubresourceClient
from appsdk_operator.client._watch import WatchStream, silence_limit_of
from appsdk_operator.resource import Kind, ListPage, MutableObject, Object, decode_list
from appsdk_operator.runtime import Clock, Metrics, StopSignal, default_metrics, system_clock

if TYPE_CHECKING:
    from appsdk_operator.client._discovery import Discovery

__all__ = ["Client"]

_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")


@final
class Client:
    """Talks to one API server.

    Reads and writes go to the server, each call is one request (:meth:`list` one a page).
    Thread-safe: share one client between all threads; close it, or use it in a ``with`` block.

    Every method raises :class:`ApiError` when the server says no, :class:`TransportError` when
    there is no answer, :class:`ConfigError` when the credentials cannot be used, ``ValueError``
    for arguments that no server would take, and :class:`~appsdk_operator.resource.DecodeError`
    when an answer is not what the kind promises.

    Args:
        config: where the server is, see :class:`ClientConfig`.
        clock: times the waits between retries; default: the machine's.
        metrics: where requests are counted; default: the kit's own registry.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock = system_clock,
        metrics: Metrics | None = None,
    ) -> None:
        # Not at the top: http.client and ssl take as long to import as all the rest together.
        from appsdk_operator.client._transport import Transport

        self._config = config
        self._transport = Transport(config, clock=clock, metrics=metrics or default_metrics())
        self._discovery: Discovery | None = None

    @property
    def config(self) -> ClientConfig:
        """How the server is reached."""
        return self._config

    def close(self) -> None:
        """Close all connections; requests and watches under way end. Harmless when done twice."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._config.server}>"

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """One object.

        Args:
            kind: what it is.
            name: its name.
            namespace: its namespace; leave empty for cluster-scoped kinds.

        Raises:
            NotFound: there is none.
        """
        return self._object(kind, "GET", "get", namespace=namespace, name=name, repeatable=True)

    def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: Selector = None,
        field_selector: Selector = None,
        limit: int = 500,
        resource_version: str | None = None,
        resource_version_match: str | None = None,
        allow_inconsistent: bool = False,
        stop: StopSignal | None = None,
    ) -> Iterator[Object]:
        """The objects of a kind, fetched page by page while they are iterated.

        What comes is one state of the cluster, that of the first page. Servers keep it for some
        minutes only: when the iteration takes longer, it raises :class:`Expired` and the caller
        lists anew; with ``allow_inconsistent`` it goes on with the present state of the rest
        instead, so that objects that changed meanwhile may be missed or be newer than the others.

        Args:
            kind: what to list.
            namespace: where; default: everywhere.
            label_selector: as text or as a mapping of labels to values.
            field_selector: the same for fields.
            limit: objects per request, 0 for all in one; default 500.
            resource_version: the state to list, see :meth:`list_page`.
            resource_version_match: how it is meant.
            allow_inconsistent: go on when the state of the first page is no longer kept.
            stop: ends the iteration with :class:`RequestStopped` when set.

        Raises:
            Expired: the state of the first page is no longer kept.
        """
        token = ""
        while True:
            try:
                page = self.list_page(
                    kind,
                    namespace=namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    limit=limit,
                    continue_token=token,
                    resource_version=None if token else resource_version,
                    resource_version_match=None if token else resource_version_match,
                    stop=stop,
                )
            except Expired as error:
                if not (allow_inconsistent and token and error.continue_token):
                    raise
                token = error.continue_token
                continue
            yield from page.items
            token = page.continue_token
            if not token:
                return

    def list_page(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: Selector = None,
        field_selector: Selector = None,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
        resource_version_match: str | None = None,
        retry: bool = True,
        stop: StopSignal | None = None,
    ) -> ListPage:
        """One page of a list.

        Args:
            kind: what to list.
            namespace: where; default: everywhere.
            label_selector: as text or as a mapping of labels to values.
            field_selector: the same for fields.
            limit: the most objects to take, 0 for all; default 500. Servers ignore it for
                ``resource_version="0"`` when they answer from memory.
            continue_token: the token of the page before; empty for the first page.
            resource_version: ``"0"`` for any state the server has in memory, another for one that
                is not older; default: the present state.
            resource_version_match: ``"Exact"`` or ``"NotOlderThan"``; default: the server's.
            retry: wait for failures that pass; False for callers with a backoff of their own.
            stop: raises :class:`RequestStopped` when set.

        Raises:
            Expired: the token, or the resource version, is too old.
        """
        request = _calls.request(
            kind,
            "GET",
            "list",
            namespace=namespace,
            query=query_of(
                labelSelector=selector_text(label_selector),
                fieldSelector=selector_text(field_selector),
                limit=limit or None,
                **{"continue": continue_token},
                resourceVersion=resource_version,
                resourceVersionMatch=resource_version_match,
            ),
            repeatable=True,
            retry=retry,
        )
        return decode_list(kind, self._transport.send(request, stop=stop).body)

    def create(
        self,
        obj: Object | MutableObject,
        *,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object:
        """Make an object, and return what the server made of it.

        Args:
            obj: the object; without a name it needs ``metadata.generateName``.
            dry_run: have the server do everything but store it.
            field_manager: who is written down as owner of the fields; default: the user agent's
                first word.
            field_validation: what the server does about unknown and doubled fields, ``"Ignore"``,
                ``"Warn"`` or ``"Strict"``; default: the server's, ``"Warn"``.

        Raises:
            AlreadyExists: the name is taken.
            Invalid: the server does not take it as it is.
        """
        return self._object(
            obj.kind,
            "POST",
            "create",
            namespace=obj.namespace,
            query=write_query(dry_run, field_manager, field_validation),
            body=_calls.encode_object(obj),
        )

    def update(
        self,
        obj: Object | MutableObject,
        *,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object:
        """Replace an object, and return what the server made of it.

        With a resource version in it, the server refuses when the object has changed since; without
        one, custom resources are refused and most other kinds overwritten.

        Args: as :meth:`create`.

        Raises:
            Conflict: it was changed since it was read.
            NotFound: there is none of this name.
            Invalid: the server does not take it as it is.
        """
        return self._object(
            obj.kind,
            "PUT",
            "update",
            namespace=obj.namespace,
            name=_calls.name_of(obj),
            query=write_query(dry_run, field_manager, field_validation),
            body=_calls.encode_object(obj),
            repeatable=bool(obj.resource_version),
        )

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object:
        """Change parts of an object, and return what became of it.

        Args:
            kind: what it is.
            name: its name.
            patch: a :class:`JsonPatch`, :class:`MergePatch` or :class:`StrategicMergePatch`.
            namespace: its namespace; leave empty for cluster-scoped kinds.
            dry_run, field_manager, field_validation: as :meth:`create`.

        Raises:
            NotFound: there is none of this name.
            Conflict: the patch names a resource version, and the object has changed since.
            Invalid: the result is not taken.
        """
        return self._object(
            kind,
            "PATCH",
            "patch",
            namespace=namespace,
            name=name,
            query=write_query(dry_run, field_manager, field_validation),
            body=patch.body(),
            content_type=patch.content_type,
            repeatable=patch.is_guarded,
        )

    def apply(
        self,
        obj: Object | MutableObject,
        *,
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
        field_validation: FieldValidation | None = None,
    ) -> Object:
        """Have the fields in ``obj`` be as they are there, and make it if needed (server-side
        apply).

        Fields that this manager applied before and that are no longer in ``obj`` are removed.

        Args:
            obj: only the fields that the manager wants to own; without ``managedFields``.
            field_manager: who owns the fields; must be given.
            force: take fields from other managers.
            dry_run, field_validation: as :meth:`create`.

        Raises:
            Conflict: another manager owns one of the fields, and ``force`` is not given.
        """
        return self._object(
            obj.kind,
            "PATCH",
            "patch",
            namespace=obj.namespace,
            name=_calls.name_of(obj),
            query=_calls.apply_query(field_manager, field_validation, dry_run=dry_run, force=force),
            body=_calls.encode_object(obj),
            content_type=_calls.APPLY,
            repeatable=True,
        )

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation | None = None,
        grace_period: float | None = None,
        dry_run: bool = False,
    ) -> Object | None:
        """Delete an object.

        Args:
            kind: what it is.
            name: its name.
            namespace: its namespace; leave empty for cluster-scoped kinds.
            uid: delete only the object with this uid, not another of the same name.
            resource_version: delete only if it has not changed since.
            propagation: what becomes of the objects it owns: ``"Background"``, ``"Foreground"`` or
                ``"Orphan"``; default: the kind's, mostly in the background.
            grace_period: seconds a pod has to end; 0 deletes at once; default: the object's own.
            dry_run: have the server do everything but delete it.

        Returns:
            The object when it waits for its finalizers or its grace period; None when the server
            only says that it is done.

        Raises:
            NotFound: there is none of this name.
            Conflict: ``uid`` or ``resource_version`` are not those of the object.
        """
        request = _calls.request(
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
            repeatable=bool(uid or resource_version),
        )
        return _calls.object_or_none(kind, self._transport.send(request).body)

    def delete_collection(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: Selector = None,
        field_selector: Selector = None,
        propagation: Propagation | None = None,
        grace_period: float | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete all objects of a kind in one namespace, or those that the selectors choose.

        Args:
            kind: what to delete.
            namespace: where; must be given for kinds that live in namespaces.
            label_selector: as text or as a mapping of labels to values.
            field_selector: the same for fields.
            propagation, grace_period, dry_run: as :meth:`delete`.
        """
        check_namespace(kind, namespace)
        request = _calls.request(
            kind,
            "DELETE",
            "deletecollection",
            namespace=namespace,
            query=query_of(
                labelSelector=selector_text(label_selector),
                fieldSelector=selector_text(field_selector),
            ),
            body=delete_body(propagation=propagation, grace_period=grace_period, dry_run=dry_run),
        )
        self._transport.send(request)

    def watch(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: Selector = None,
        field_selector: Selector = None,
        resource_version: str | None = None,
        timeout: float | None = None,
        bookmarks: bool = True,
        send_initial_events: bool = False,
        silence_limit: float | None = None,
        stop: StopSignal | None = None,
    ) -> WatchStream:
        """Open a watch. It is not tried again: who watches has to resume anyway.

        Args:
            kind: what to watch.
            namespace: where; default: everywhere.
            label_selector: as text or as a mapping of labels to values.
            field_selector: the same for fields.
            resource_version: the state after which events are wanted, usually that of a list;
                default: the present objects first, as ADDED events, then what happens.
            timeout: the seconds after which the server is to end the watch; default: 300 to 600 at
                random, as in client-go, so that watches do not all end at once.
            bookmarks: have the server send its resource version about once a minute.
            send_initial_events: have the present objects sent first, in one consistent state, with
                a bookmark at its end (Kubernetes 1.32 on; others answer 422).
            silence_limit: the seconds without a byte after which the connection counts as dead;
                default: 90 with bookmarks, but never more than 5 s after ``timeout``.
            stop: closes the stream when set, and raises :class:`RequestStopped` while it opens.

        Raises:
            Expired: the resource version is too old: list anew.
        """
        if timeout is None:
            timeout = random.uniform(300.0, 600.0)
        limit = silence_limit_of(timeout, silence_limit, bookmarks=bookmarks)
        request = _calls.request(
            kind,
            "GET",
            "watch",
            namespace=namespace,
            query=query_of(
                watch=True,
                labelSelector=selector_text(label_selector),
                fieldSelector=selector_text(field_selector),
                resourceVersion=resource_version,
                resourceVersionMatch="NotOlderThan" if send_initial_events else None,
                sendInitialEvents=send_initial_events,
                allowWatchBookmarks=bookmarks,
                timeoutSeconds=math.ceil(timeout),
            ),
            repeatable=True,
            retry=False,
        )
        opened = self._transport.open(request, stop=stop)
        stream = WatchStream(kind, request, opened, silence_limit=limit)
        stream.close_when(self._transport.stop)
        if stop is not None:
            stream.close_when(stop)
        return stream

    @property
    def status(self) -> SubresourceClient:
        """The client for ``status``: ``client.status.update(obj)``."""
        return self.subresource("status")

    def subresource(self, name: str) -> SubresourceClient:
        """The client for a subresource, for example ``scale``, ``eviction`` or ``token``."""
        return SubresourceClient(self._transport, name)

    @property
    def discovery(self) -> Discovery:
        """What the server serves."""
        from appsdk_operator.client._discovery import Discovery

        if self._discovery is None:
            self._discovery = Discovery(lambda path: self.request("GET", path))
        return self._discovery

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
        """Any request, for what the other methods do not cover; retries, errors and credentials
        are as everywhere.

        Args:
            method: the HTTP method.
            path: the quoted path after the server's address, for example ``/version``.
            query: the query parameters, unquoted.
            body: the body.
            content_type: its media type; default: JSON.
            accept: the media types wanted; default: JSON.

        Returns:
            The answer's body.
        """
        if not method.isalpha() or not path.startswith("/") or not _PATH.fullmatch(path):
            raise ValueError(
                f"{method} {path!r} is no request: the path starts with '/', is quoted, and has no "
                "query of its own"
            )
        request = Request(
            method=method.upper(),
            path=path,
            query=list(query.items() if isinstance(query, Mapping) else query),
            body=body,
            content_type=content_type,
            accept=accept,
            repeatable=method.upper() in {"GET", "HEAD"},
        )
        return self._transport.send(request).body

    def _object(self, kind: Kind, method: str, verb: str, **parts: Any) -> Object:
        request = _calls.request(kind, method, verb, **parts)
        return Object.from_json(kind, self._transport.send(request).body)
