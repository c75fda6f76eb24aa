"""The compiled schemas of definitions, and their errors: each is computed once."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, final

import msgspec

from appsdk_operator.apiserver._crds.schema_validation import schema_problems
from appsdk_operator.apiserver._schema.structural_schema import StructuralSchema
from appsdk_operator.apiserver._values.status import FieldError

# Those of the definitions that a few servers have at the same time, in all their versions.
_SIZE: Final = 128
_T = TypeVar("_T")
_encode: Final = msgspec.json.Encoder().encode


@final
class CompiledSchemas:
    """What was computed for the last schemas. Thread-safe.

    Versions of one definition often have the same schema, and a definition that is validated is
    served next.
    """

    def __init__(self) -> None:
        """Nothing is computed yet."""
        self._known: dict[bytes, Any] = {}
        self._lock = threading.Lock()

    def problems(
        self, schema: Mapping[str, Any], path: str, *, status: bool
    ) -> tuple[FieldError, ...]:
        """The validation errors of a schema at ``path``; see :func:`schema_problems`."""
        return self._computed(
            ("problems", schema, path, status),
            lambda: tuple(schema_problems(schema, path, status=status)),
        )

    def structural(
        self, schema: Mapping[str, Any], scale: Mapping[str, Any] | None
    ) -> StructuralSchema:
        """The compiled form of a valid schema; ``scale`` defines its scale subresource."""
        return self._computed(
            ("structural", schema, scale), lambda: StructuralSchema(schema, scale)
        )

    def _computed(self, key: tuple[Any, ...], compute: Callable[[], _T]) -> _T:
        digest = hashlib.blake2b(_encode(key), digest_size=16).digest()
        with self._lock:
            if digest in self._known:
                found: _T = self._known[digest]
                return found
        made = compute()
        with self._lock:
            self._known[digest] = made
            while len(self._known) > _SIZE:
                del self._known[next(iter(self._known))]
        return made


SHARED: Final = CompiledSchemas()
"""Those of all servers of the process: compiled schemas never change."""
