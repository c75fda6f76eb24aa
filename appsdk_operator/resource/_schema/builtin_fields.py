"""The names of the fields of the built-in kinds, from a data file that is read for each check.

Nothing stays in memory: a check reads the file in half a millisecond, and an operator has few of
them, when it is declared. ``hack/builtin_fields.py`` generates the file.
"""

from __future__ import annotations

import pkgutil
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from appsdk_operator.resource._kind import Kind

_Steps = tuple[str | int, ...]

_PACKAGE: Final = "appsdk_operator.resource._schema"
_FILE: Final = "builtin_fields.json.gz"


class BuiltinFields(msgspec.Struct, frozen=True):
    """The content of the data file.

    A code stands for the type of a field: null is a scalar, a number a definition, ``[code]`` a
    list, ``{"": code}`` a map with free keys, and true anything.
    """

    version: str
    """The release of Kubernetes, for example ``1.36``."""
    kinds: list[tuple[str, str, str, int]]
    """Group, version, kind, and the code of its definition."""
    definitions: list[msgspec.Raw]
    """A mapping from fields to codes each."""

    def schema_along(self, kind: Kind[Any, Any], steps: _Steps) -> Mapping[str, Any] | None:
        """The OpenAPI schema of a kind, with the fields along a path only; None for other kinds."""
        name = (kind.group, kind.version, kind.kind)
        found = (code for *known, code in self.kinds if tuple(known) == name)
        code = next(found, None)
        return None if code is None else self._schema(code, steps)

    def _schema(self, code: Any, steps: _Steps) -> Mapping[str, Any]:
        below = steps[1:]
        if code is True or not steps:
            return {"x-kubernetes-preserve-unknown-fields": True}
        if isinstance(code, list):
            return {"type": "array", "items": self._schema(code[0], below)}
        if isinstance(code, dict):
            return {"type": "object", "additionalProperties": self._schema(code[""], below)}
        if code is None:
            return {"type": "string"}  # or another scalar
        fields = msgspec.json.decode(self.definitions[code], type=dict[str, Any])
        named = {name: self._schema(fields[name], below) for name in steps[:1] if name in fields}
        return {"type": "object", "properties": {**dict.fromkeys(fields), **named}}


def builtin_fields() -> BuiltinFields:
    """The content of the data file, read anew."""
    packed = pkgutil.get_data(_PACKAGE, _FILE)
    assert packed is not None
    return msgspec.json.decode(zlib.decompress(packed, zlib.MAX_WBITS | 16), type=BuiltinFields)
