"""Structural schemas of custom resources: pruning, defaulting and validation of objects.

They work on plain JSON values in this order, as on the real server. A schema is compiled once, when
its definition is served, because every write uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._schema import (
    object_checks,
    pruning,
    validation_rules,
    value_validation,
)
from appsdk_operator.apiserver._values.status import FieldError

_BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_UNCHECKED: Final = FieldError(
    "FieldValueInvalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


@final
class StructuralSchema:
    """The compiled schema of one version of a custom resource."""

    def __init__(self, schema: Mapping[str, Any], scale: Mapping[str, Any] | None = None) -> None:
        """Compile the schema of an object; ``scale`` defines its scale subresource."""
        self.has_defaults: bool = pruning.has_defaults(schema)
        self._schema = schema
        self._scale = scale
        self._prune_only: pruning.Pruner | None = None
        self._prune_and_default = pruning.compile_pruner(schema, root=True)
        self._coerce = object_checks.metadata_coercion(schema)
        self._values = value_validation.compile_validation(_without_common_fields(schema))
        status = (schema.get("properties") or {}).get("status")
        self._status = value_validation.compile_validation(status) if status else None
        self._embedded = object_checks.embedded_object_checks(schema)
        self._lists = object_checks.list_type_checks(schema)
        self._rules = validation_rules.SchemaRules.of(schema, root=True)

    def is_made_of(self, schema: Mapping[str, Any], scale: Mapping[str, Any] | None) -> bool:
        """Whether it was compiled from this schema and scale."""
        return self._schema == schema and self._scale == scale

    def prune_and_default(self, obj: dict[str, Any]) -> list[str]:
        """Drop unknown fields and nulls, fill in defaults; return the paths of unknown fields.

        Raises:
            DecodeError: the metadata of an embedded object cannot be decoded.
        """
        dropped: list[str] = []
        self._prune_and_default(obj, "", dropped)
        dropped.sort()
        if self._coerce is not None:
            self._coerce(obj, dropped)
        return dropped

    def default_status(self, obj: dict[str, Any]) -> bool:
        """Fill in the default of a missing status; return whether there is one."""
        defaults: dict[str, Any] = {}
        if "status" not in obj and self.has_defaults:
            self._prune_and_default(defaults, "", [])
            if "status" in defaults:
                obj["status"] = defaults["status"]
                return True
        return False

    def prune(self, obj: dict[str, Any]) -> None:
        """Drop unknown fields and nulls."""
        if self._prune_only is None:
            self._prune_only = pruning.compile_pruner(self._schema, root=True, defaults=False)
        self._prune_only(obj, "", [])

    def validate(
        self,
        new: dict[str, Any],
        old: dict[str, Any] | None,
        errors: list[FieldError],
        *,
        status_only: bool = False,
    ) -> list[str]:
        """Add the violations of the schema in ``new``; values unchanged from ``old`` may stay.

        Args:
            new: the new state.
            old: the old state; None on create.
            errors: the errors found so far, to extend.
            status_only: whether only the status can have changed.

        Returns:
            Warnings for rules that the old state violates as well.
        """
        found: list[FieldError] = []
        if status_only and old is not None:
            self._check_status(new, old, found)
        else:
            self._values(new, value_validation.ABSENT if old is None else old, "", found)
        errors += dict.fromkeys(found)
        if self._scale is not None:
            errors += object_checks.scale_problems(new, self._scale, spec=not status_only)
        return self._check_whole(new, old, errors)

    def _check_status(
        self, new: dict[str, Any], old: dict[str, Any], errors: list[FieldError]
    ) -> None:
        if "status" not in new or self._status is None:
            return
        before = old.get("status", value_validation.ABSENT)
        if before is value_validation.ABSENT or not value_validation.json_equal(
            new["status"], before
        ):
            found: list[FieldError] = []
            self._status(new["status"], before, "", found)
            errors += map(_below_status, found)

    def _check_whole(
        self, new: dict[str, Any], old: dict[str, Any] | None, errors: list[FieldError]
    ) -> list[str]:
        if self._embedded is not None:
            self._embedded(new, "", errors)
        if self._lists is not None:
            before: list[FieldError] = []
            if old is not None:
                self._lists(old, "", before)
            if not before:
                self._lists(new, "", errors)
        if self._rules is None:
            return []
        if any(error.reason in _BLOCKING for error in errors):
            errors.append(_UNCHECKED)
            return []
        was = value_validation.ABSENT if old is None else old
        return self._rules.check(new, was, errors)


def _below_status(error: FieldError) -> FieldError:
    field = "status" if error.field == "<nil>" else f"status.{error.field}"
    return attrs.evolve(error, field=field)


def _without_common_fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without type and metadata fields that declare nothing but a type, for speed."""
    properties = dict(schema.get("properties") or {})
    for name in ("apiVersion", "kind", "metadata"):
        declared = properties.get(name) or {}
        if not set(declared) - {"type", "description"}:
            properties.pop(name, None)
    return {**schema, "properties": properties}
