"""The sections of a kubeconfig, with values checked for their type.

A value of another type is refused with its file and path: as text it would be sent garbled, and
without it the request would be anonymous.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from appsdk_operator.client._errors import ConfigError

_WORDS = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}


@attrs.frozen(kw_only=True, repr=False)
class KubeconfigSection:
    """A map with its location. No error shows a value, which may be a secret."""

    values: Mapping[str, Any]
    path: str
    """The path of the map, for example ``users[me].user``."""
    file: str = ""
    """The file that contains it."""
    folder: Path = attrs.field(factory=Path)
    """The base of relative paths."""

    @classmethod
    def of(cls, value: object, path: str, file: str, folder: Path) -> KubeconfigSection:
        """A section of this value; None makes an empty one.

        Raises:
            ConfigError: the value is not a map.
        """
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise _wrong(f"{path} in {file}", "a map", value)
        return cls(values=value, path=path, file=file, folder=folder)

    def location(self, key: str) -> str:
        """The path and file of ``key``, for error texts."""
        return ".".join(filter(None, (self.path, key))) + (f" in {self.file}" if self.file else "")

    def text(self, key: str) -> str:
        """The text at ``key``; ``""`` if absent.

        Raises:
            ConfigError: it has another type.
        """
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise _wrong(self.location(key), "text", value)
        return value or ""

    def flag(self, key: str) -> bool:
        """The bool at ``key``; False if absent. The text ``"false"`` is refused.

        Raises:
            ConfigError: it has another type.
        """
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise _wrong(self.location(key), "true or false", value)
        return bool(value)

    def texts(self, key: str) -> list[str]:
        """The list of texts at ``key``; empty if absent.

        Raises:
            ConfigError: it has another type.
        """
        found = []
        for index, value in enumerate(self._list(key)):
            if not isinstance(value, str):
                raise _wrong(self.location(f"{key}[{index}]"), "text", value)
            found.append(value)
        return found

    def section(self, key: str) -> KubeconfigSection:
        """The map at ``key``; empty if absent.

        Raises:
            ConfigError: it has another type.
        """
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise _wrong(self.location(key), "a map", value)
        return attrs.evolve(self, values=value or {}, path=f"{self.path}.{key}")

    def sections(self, key: str) -> list[KubeconfigSection]:
        """The list of maps at ``key``; empty if absent.

        Raises:
            ConfigError: it has another type.
        """
        found = []
        for index, value in enumerate(self._list(key)):
            if not isinstance(value, Mapping):
                raise _wrong(self.location(f"{key}[{index}]"), "a map", value)
            found.append(attrs.evolve(self, values=value, path=f"{self.path}.{key}[{index}]"))
        return found

    def _list(self, key: str) -> list[Any]:
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise _wrong(self.location(key), "a list", value)
        return value or []


def _wrong(place: str, wanted: str, value: object) -> ConfigError:
    given = _WORDS.get(type(value), "a map" if isinstance(value, Mapping) else "something else")
    quote = wanted == "text" and isinstance(value, (bool, int, float))
    remedy = ": put quotes around it" if quote else ""
    return ConfigError(f"{place} must be {wanted}, but is {given}{remedy}")
