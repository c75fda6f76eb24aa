"""Detection of lists whose pages do not end."""

from __future__ import annotations

from typing import final

from appsdk_operator.client._errors import BadResponse
from appsdk_operator.resource import ListPage

MAX_EMPTY_PAGES = 10
"""Servers fill each page but the last; a server that filters late may send some empty ones."""


@final
class PaginationGuard:
    """Checks that each page of one list, ``what``, brings something new."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tokens: set[int] = set()
        self._pages: set[int] = set()
        self._empty = 0

    def check(self, page: ListPage) -> None:
        """Check the next page of the list.

        Raises:
            BadResponse: its continue token or its objects came before, or too many pages in a row
                were empty: the list would not end.
        """
        if not page.continue_token:
            return
        token = hash(page.continue_token)
        if token in self._tokens:
            raise self._endless("the same continue token came twice")
        self._tokens.add(token)
        if not page.items and not page.undecodable:
            self._empty += 1
            if self._empty >= MAX_EMPTY_PAGES:
                raise self._endless(f"{self._empty} pages in a row had no items")
            return
        self._empty = 0
        if page.items:
            first, last = page.items[0], page.items[-1]
            seen = hash((first.namespace, first.name, last.namespace, last.name, len(page.items)))
            if seen in self._pages:
                raise self._endless(f"the page that begins with {first.key} came twice")
            self._pages.add(seen)

    def _endless(self, what: str) -> BadResponse:
        return BadResponse(
            f"{self._what} does not end: {what}, each with a token to continue; after "
            f"{len(self._tokens)} pages it is given up. Does a proxy or an aggregated API server "
            "ignore the parameter continue? limit=0 asks for all in one page"
        )
