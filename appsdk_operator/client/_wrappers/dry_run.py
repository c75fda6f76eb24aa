"""A client whose writes are dry runs."""

from __future__ import annotations

from typing import Unpack

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._api.options import (
    DeleteCollectionOptions,
    DeleteOptions,
    WriteOptions,
)
from appsdk_operator.client._wrappers.write_options import WriteOptionsClient
from appsdk_operator.resource import Kind, Object

__all__ = ["DryRunClient"]


class DryRunClient(WriteOptionsClient):
    """Every write is a dry run: the server validates, defaults and answers, but stores nothing.

    Reads and watches are real.
    """

    def _set_options(self, options: WriteOptions) -> None:
        options["dry_run"] = True

    def delete(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[DeleteOptions]
    ) -> Object[SpecT, StatusT] | None:
        """As :meth:`Client.delete` with ``dry_run``."""
        options["dry_run"] = True
        return self.inner.delete(kind, name, **options)

    def delete_collection(self, kind: Kind, **options: Unpack[DeleteCollectionOptions]) -> None:
        """As :meth:`Client.delete_collection` with ``dry_run``."""
        options["dry_run"] = True
        self.inner.delete_collection(kind, **options)
