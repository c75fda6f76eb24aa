"""CEL validation rules of a schema (``x-kubernetes-validations``): compilation and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._cel import cost_estimate, expressions
from appsdk_operator.apiserver._cel.schema_types import (
    CelConverter,
    cel_converter,
    schema_decl_type,
    with_object_metadata,
)
from appsdk_operator.apiserver._cel.types import (
    BOOL,
    STRING,
    DeclType,
    Type,
    optional_of,
)
from appsdk_operator.apiserver._cel.values import NONE, CelError, Optional
from appsdk_operator.apiserver._schema.field_paths import FieldPathError, resolve_field_path
from appsdk_operator.apiserver._schema.value_validation import ABSENT, correlate, json_equal
from appsdk_operator.apiserver._values.status import FieldError, Verbatim

RULES: Final = "x-kubernetes-validations"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_BUDGET: Final = 10_000_000
_MAX_MESSAGE: Final = 5 * 1024
_OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


@final
@attrs.define
class CompiledRule:
    """A rule with its program, or the error of its compilation, and its estimated cost."""

    rule: Mapping[str, Any]
    program: expressions.Program | None = None
    error: str = ""
    cost: int = 0
    uses_old: bool = False
    message: expressions.Program | None = None
    message_error: str = ""
    message_cost: int = 0
    field: str = ""

    @property
    def shown(self) -> str:
        """The rule as messages name it: its ``message``, else its text."""
        return str(self.rule.get("message") or self.rule["rule"]).strip()


def compile_rule(
    schema: Mapping[str, Any], rule: Mapping[str, Any], known: DeclType
) -> CompiledRule:
    """Compile a rule of ``schema``; ``known`` is the declared type of its values."""
    made = CompiledRule(rule)
    optional = bool(rule.get("optionalOldSelf"))
    variables = {
        "self": known.type,
        "oldSelf": optional_of(known.type) if optional else known.type,
    }
    text = str(rule.get("rule") or "")
    if not text.strip():
        return made
    made.program, made.error = _program(text, variables, BOOL)
    if made.error:
        made.error = _PROBLEMS.get(made.error, f"compilation failed: {made.error}")
        return made
    assert made.program is not None
    made.uses_old = made.program.uses("oldSelf")
    made.cost = cost_estimate.estimate_cost(made.program.root, known)
    expression = rule.get("messageExpression")
    if expression:
        made.message, problem = _program(str(expression), variables, STRING)
        if problem:
            made.message_error = _PROBLEMS.get(
                problem, f"messageExpression compilation failed: {problem}"
            )
        elif made.message is not None:
            made.message_cost = cost_estimate.estimate_cost(made.message.root, known)
    if rule.get("fieldPath"):
        try:
            made.field = resolve_field_path(str(rule["fieldPath"]), schema)[0]
        except FieldPathError:
            made.field = ""
    return made


_PROBLEMS: Final = {
    "bool": "cel expression must evaluate to a bool",
    "string": "messageExpression must evaluate to a string",
}


def _program(
    text: str, variables: Mapping[str, Type], wanted: Type
) -> tuple[expressions.Program | None, str]:
    try:
        program = expressions.compile(text, variables)
    except expressions.CompileError as error:
        return None, str(error)
    return (program, "") if program.type == wanted else (None, wanted.name)


@attrs.define
class _CheckState:
    """The state of one check: errors, warnings and the cost budget that is left."""

    errors: list[FieldError]
    warnings: list[str]
    budget: int = _BUDGET


NearestOldState = tuple[Any, Any] | None
"""The closest enclosing value with an old value, and that old value."""


@final
class SchemaRules:
    """The rules of a schema and of all schemas below it."""

    def __init__(self, schema: Mapping[str, Any], known: DeclType, *, root: bool) -> None:
        """Compile the rules of ``schema``; ``root``: it is the schema of a whole object."""
        self._schema = schema
        self._rules = [compile_rule(schema, rule, known) for rule in schema.get(RULES) or ()]
        self._convert: CelConverter | None = cel_converter(
            with_object_metadata(schema) if root else schema
        )
        self._type = str(schema.get("type") or "")
        self._fields: dict[str, SchemaRules] = {}
        properties = (with_object_metadata(schema) if root else schema).get("properties") or {}
        for name, child in properties.items():
            below = _child_rules(child, f"self.{name}")
            if below is not None:
                self._fields[name] = below
        additional, items = schema.get("additionalProperties"), schema.get("items")
        self._values = _child_rules(additional) if isinstance(additional, Mapping) else None
        self._items = _child_rules(items) if isinstance(items, Mapping) else None

    @classmethod
    def of(cls, schema: Mapping[str, Any], *, root: bool) -> SchemaRules | None:
        """Compile the rules of a schema; None if it has no rules."""
        if not _has_rules(schema):
            return None
        known = schema_decl_type(schema, root=root)
        return None if known is None else cls(schema, known, root=root)

    def check(self, new: Any, old: Any, errors: list[FieldError], path: str = "") -> list[str]:
        """Add the violations in ``new`` to ``errors``; return the warnings.

        ``old`` is ``ABSENT`` for new objects.
        """
        state = _CheckState(errors, [])
        nearest = None if old is ABSENT else (new, old)
        self.visit(new, old, path, state, nearest)
        return state.warnings

    def visit(
        self, value: Any, old: Any, path: str, state: _CheckState, nearest: NearestOldState
    ) -> bool:
        """Check a value; False once the cost budget is spent."""
        if value is None:
            return True
        if self._rules and not self._check_rules(value, old, path, state, nearest):
            return False
        if isinstance(value, dict):
            return self._check_fields(value, old, path, state, nearest)
        if isinstance(value, list) and self._items is not None:
            find = correlate(self._schema, old) if old is not ABSENT else None
            for index, item in enumerate(value):
                before = find(item) if find is not None else ABSENT
                around = nearest if before is ABSENT else (item, before)
                if not self._items.visit(item, before, f"{path}[{index}]", state, around):
                    return False
        return True

    def _check_fields(
        self,
        value: dict[str, Any],
        old: Any,
        path: str,
        state: _CheckState,
        nearest: NearestOldState,
    ) -> bool:
        known = old if isinstance(old, dict) else {}
        for name, item in value.items():
            if self._values is not None:
                below, at = self._values, f"{path}[{name}]"
            elif name in self._fields:
                below, at = self._fields[name], f"{path}.{name}" if path else name
            else:
                continue
            before = known.get(name, ABSENT)
            around = nearest if before is ABSENT else (item, before)
            if not below.visit(item, before, at, state, around):
                return False
        return True

    def _check_rules(
        self, value: Any, old: Any, path: str, state: _CheckState, nearest: NearestOldState
    ) -> bool:
        convert = self._convert
        has_old = old is not ABSENT and old is not None
        current = value if convert is None else convert(value)
        previous = (old if convert is None else convert(old)) if has_old else None
        for rule in self._rules:
            if rule.program is None:
                continue
            optional = bool(rule.rule.get("optionalOldSelf"))
            if rule.uses_old and not has_old and not optional:
                continue
            variables: dict[str, Any] = {"self": current}
            if optional:
                variables["oldSelf"] = Optional(previous) if has_old else NONE
            elif has_old:
                variables["oldSelf"] = previous
            failed = self._evaluate(rule, variables, path, state)
            if failed is None:
                return False
            if failed:
                plain = {"self": current, **({"oldSelf": previous} if has_old else {})}
                error = self._failure(rule, value, plain, path, state)
                if not rule.uses_old and nearest is not None and json_equal(*nearest):
                    state.warnings.append(str(error))
                else:
                    state.errors.append(error)
        return True

    def _evaluate(
        self, rule: CompiledRule, variables: dict[str, Any], path: str, state: _CheckState
    ) -> bool | None:
        """Whether the value violates the rule; None if no further rule may run."""
        assert rule.program is not None
        field = path or "<nil>"
        if state.budget <= 0:
            state.errors.append(FieldError.invalid(field, self._type, _OUT_OF_BUDGET))
            return None
        try:
            value, cost = rule.program.evaluate_with_cost(variables)
        except CelError as error:
            detail = f"{error} evaluating rule: {rule.shown}"
            cancelled = str(error).startswith("operation cancelled")
            if cancelled:
                detail = (
                    f"'{error}': no further validation rules will be run due to call cost exceeds "
                    f"limit for rule: {rule.shown}"
                )
            elif str(error).startswith("no such overload"):
                detail = (
                    f"'{error}': call arguments did not match a supported operator, function or "
                    f"macro signature for rule: {rule.shown}"
                )
            state.errors.append(FieldError.invalid(field, self._type, detail))
            return None if cancelled else False
        if cost > state.budget:
            state.errors.append(FieldError.invalid(field, self._type, _OUT_OF_BUDGET))
            return None
        state.budget -= cost
        return value is not True

    def _failure(
        self,
        rule: CompiledRule,
        value: Any,
        variables: dict[str, Any],
        path: str,
        state: _CheckState,
    ) -> FieldError:
        detail = self._message(rule, variables, state)
        if not detail:
            message = str(rule.rule.get("message") or "").strip()
            detail = message or f"failed rule: {rule.shown}"
        at = path
        if rule.field:
            at = f"{path}.{rule.field}" if path else rule.field
        return _REASONS.get(str(rule.rule.get("reason") or ""), _invalid)(
            at or "<nil>", _OMITTED if self._type in ("object", "array") else value, detail
        )

    @staticmethod
    def _message(rule: CompiledRule, variables: dict[str, Any], state: _CheckState) -> str:
        """The result of ``messageExpression``; ``""`` if it cannot be used."""
        if rule.message is None:
            return ""
        try:
            text, cost = rule.message.evaluate_with_cost(variables)
        except CelError:
            return ""
        state.budget -= cost
        text = text.strip()
        return "" if "\n" in text or len(text.encode()) > _MAX_MESSAGE else text


_OMITTED: Final = Verbatim("")


def _invalid(field: str, value: Any, detail: str) -> FieldError:
    if value is _OMITTED:
        return FieldError("FieldValueInvalid", field, f"Invalid value: {detail}")
    return FieldError.invalid(field, value, detail)


def _duplicate(field: str, value: Any, _detail: str) -> FieldError:
    if value is _OMITTED:
        return FieldError("FieldValueDuplicate", field, "Duplicate value")
    return FieldError.duplicate(field, value)


_REASONS: Final[dict[str, Callable[[str, Any, str], FieldError]]] = {
    "FieldValueForbidden": lambda field, _value, detail: FieldError.forbidden(field, detail),
    "FieldValueRequired": lambda field, _value, detail: FieldError.required(field, detail),
    "FieldValueDuplicate": _duplicate,
}


def _has_rules(schema: Mapping[str, Any]) -> bool:
    if schema.get(RULES):
        return True
    parts = list((schema.get("properties") or {}).values())
    parts += [schema.get("items"), schema.get("additionalProperties")]
    return any(_has_rules(part) for part in parts if isinstance(part, Mapping))


def _child_rules(schema: Mapping[str, Any], path: str = "self") -> SchemaRules | None:
    if not _has_rules(schema):
        return None
    root = bool(schema.get(_EMBEDDED))
    known = schema_decl_type(schema, root=root, path=path)
    return None if known is None else SchemaRules(schema, known, root=root)
