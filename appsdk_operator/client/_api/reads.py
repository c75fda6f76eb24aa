"""The verbs that read."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._api import request_builders
from appsdk_operator.client._api.options import ListPageOptions
from appsdk_operator.client._api.pages import PageProgress
from appsdk_operator.client._errors import Expired
from appsdk_operator.client._request import query_of, selectors_of
from appsdk_operator.client._transport.watch import WatchStream, silence_limit_of
from appsdk_operator.resource import (
    DecodeError,
    FieldSelection,
    Kind,
    LabelSelection,
    ListPage,
    Object,
    Undecodable,
)
from appsdk_operator.runtime import StopSignal
from appsdk_operator.runtime.validation import (
    check_choice,
    check_count,
    check_environment,
    check_flag,
    check_text,
)

if TYPE_CHECKING:
    from appsdk_operator.client._transport.transport import Transport

__all__ = ["Reads"]


class Reads:
    """The half of :class:`Client` that changes nothing."""

    _transport: Transport

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT]:
        """One object.

        Args:
            kind: what it is.
            name: its name.
            namespace: its namespace; leave empty for cluster-scoped kinds.

        Raises:
            NotFound: there is none.
        """
        request = request_builders.request(
            kind, "GET", "get", namespace=namespace, name=name, repeatable=True
        )
        return self._transport.send(
            request, decode=lambda body: request_builders.answered(request, kind, body)
        )

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
        """The objects of a kind, fetched page by page while they are iterated.

        What comes is one state of the cluster, that of the first page. Servers keep it for some
        minutes only: when the iteration takes longer, it raises :class:`Expired` and the caller
        lists anew; with ``allow_inconsistent`` it goes on with the present state of the rest
        instead, so that objects that changed meanwhile may be missed or be newer than the others.

        Args:
            kind: what to list.
            namespace: where; default: everywhere.
            label_selector: as text, as a mapping of labels to values, or as a LabelSelector.
            field_selector: the same for fields.
            limit: objects per request, 0 for all in one; default 500.
            resource_version: the state to list, see :meth:`list_page`.
            resource_version_match: how it is meant.
            allow_inconsistent: go on when the state of the first page is no longer kept.
            stop: ends the iteration with :class:`RequestStopped` when set.

        Raises:
            Expired: the state of the first page is no longer kept.
            DecodeError: objects cannot be read; raised at the end, after all others have come.
            BadResponse: the server's pages do not come to an end.
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
        # Makes no request: what is wrong is refused now, and not with the first page.
        query = selectors_of(label_selector, field_selector)
        request_builders.request(kind, "GET", "list", namespace=namespace, query=query)
        return self._pages(kind, options, allow_inconsistent=allow_inconsistent)

    def _pages(
        self, kind: Kind, options: ListPageOptions, *, allow_inconsistent: bool
    ) -> Iterator[Object]:
        token = ""
        progress = PageProgress(f"the list of {kind}")
        undecodable: Sequence[Undecodable] = ()
        while True:
            try:
                page = self.list_page(kind, **options)
            except Expired as error:
                if not (allow_inconsistent and token and error.continue_token):
                    raise
                token = error.continue_token
            else:
                progress.check(page)
                yield from page.items
                undecodable = (*undecodable, *page.undecodable)
                token = page.continue_token
            if not token:
                break
            # The token says which state it is.
            options["continue_token"] = token
            options["resource_version"] = options["resource_version_match"] = None
        if undecodable:
            shown = "; ".join(f"{item}: {item.error}" for item in undecodable[:3])
            raise DecodeError(
                f"{len(undecodable)} of the {kind} cannot be read, all others came: {shown}; mend "
                "or delete them on the server, or use list_page, which returns them beside the "
                "others"
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
            kind: what to list.
            namespace: where; default: everywhere.
            label_selector: as text, as a mapping of labels to values, or as a LabelSelector.
            field_selector: the same for fields.
            limit: the most objects to take, 0 for all; default 500. Servers ignore it for
                ``resource_version="0"`` when they answer from memory.
            continue_token: the token of the page before; empty for the first page.
            resource_version: ``"0"`` for any state the server has in memory, another for one that
                is not older; default: the present state.
            resource_version_match: ``"Exact"`` or ``"NotOlderThan"``; default: the server's.
            retry: wait for failures that pass; False for callers with a backoff of their own.
            metadata_only: ask for the metadata of the objects alone; servers that cannot do that
                send all.
            stop: raises :class:`RequestStopped` when set.

        Returns:
            The page; objects that cannot be read are among its ``undecodable``.

        Raises:
            Expired: the token, or the resource version, is too old.
            DecodeError: it is no list.
        """
        check_count("limit", limit, 0)
        check_text("continue_token", continue_token)
        _check_version(resource_version, resource_version_match)
        check_flag("retry", retry)
        check_environment(stop=stop)
        request = request_builders.request(
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
            accept=request_builders.accepted(
                f"{request_builders.PARTIAL}List", metadata_only=metadata_only
            ),
            repeatable=True,
            retry=retry,
        )
        return self._transport.send(
            request, stop=stop, decode=lambda body: request_builders.page_of(request, kind, body)
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
        """Open a watch. It is not tried again: who watches has to resume anyway.

        Args:
            kind: what to watch.
            namespace: where; default: everywhere.
            label_selector: as text, as a mapping of labels to values, or as a LabelSelector.
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
            metadata_only: ask for the metadata of the objects alone, as :meth:`list_page`.
            stop: closes the stream when set, and raises :class:`RequestStopped` while it opens.

        Raises:
            Expired: the resource version is too old: list anew.
        """
        _check_version(resource_version)
        check_flag("bookmarks", bookmarks)
        check_flag("send_initial_events", send_initial_events)
        check_environment(stop=stop)
        if timeout is None:
            timeout = random.uniform(300.0, 600.0)
        limit = silence_limit_of(timeout, silence_limit, bookmarks=bookmarks)
        request = request_builders.request(
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
            accept=request_builders.accepted(request_builders.PARTIAL, metadata_only=metadata_only),
            repeatable=True,
            retry=False,
        )
        opened = self._transport.open(request, stop=stop)
        stream = WatchStream(kind, request, opened, silence_limit=limit)
        stream.close_when(self._transport.stop)
        if stop is not None:
            stream.close_when(stop)
        return stream


def _check_version(version: str | None, match: str | None = None) -> None:
    if version is not None:
        check_text("resource_version", version)
    check_choice("resource_version_match", match, "", "Exact", "NotOlderThan")
