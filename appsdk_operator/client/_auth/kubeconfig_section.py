"""The maps of a kubeconfig, read by the types that their values must have.

A value of another type is refused with its file and path: taken as text it would be sent garbled,
and left out the request would be anonymous.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from appsdk_operator.client._errors import ConfigError

__all__ = ["KubeconfigSection"]

_WORDS = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}


@attrs.frozen(kw_only=True, repr=False)
class KubeconfigSection:
    """A map, with where it stands. No error shows a value, which may be a secret."""

    values: Mapping[str, Any]
    path: str
    """The path of the map, for example ``users[me].user``."""
    file: str = ""
    """The file that it is in."""
    folder: Path = attrs.field(factory=Path)
    """The folder that relative paths are meant from."""

    @classmethod
    def of(cls, value: object, path: str, file: str, folder: Path) -> KubeconfigSection:
        """A section of this value; none at all is an empty one.

        Raises:
            ConfigError: the value is no map.
        """
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise _wrong(f"{path} in {file}", "a map", value)
        return cls(values=value, path=path, file=file, folder=folder)

    def location(self, key: str) -> str:
        """Where ``key`` is, for error texts."""
        return ".".join(filter(None, (self.path, key))) + (f" in {self.file}" if self.file else "")

    def text(self, key: str) -> str:
        """A text; ``""`` if there is none.

        Raises:
            ConfigError: it is something else.
        """
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise _wrong(self.location(key), "text", value)
        return value or ""

    def flag(self, key: str) -> bool:
        """A truth value, False if there is none: the text ``"false"`` is none of them.

        Raises:
            ConfigError: it is something else.
        """
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise _wrong(self.location(key), "true or false", value)
        return bool(value)

    def texts(self, key: str) -> list[str]:
        """A list of texts.

        Raises:
            ConfigError: it is something else.
        """
        found = []
        for index, value in enumerate(self._list(key)):
            if not isinstance(value, str):
                raise _wrong(self.location(f"{key}[{index}]"), "text", value)
            found.append(value)
        return found

    def section(self, key: str) -> KubeconfigSection:
        """A map in this map.

        Raises:
            ConfigError: it is something else.
        """
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise _wrong(self.location(key), "a map", value)
        return attrs.evolve(self, values=value or {}, path=f"{self.path}.{key}")

    def sections(self, key: str) -> list[KubeconfigSection]:
        """A list of maps.

        Raises:
            ConfigError: it is something else.
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
