"""Validation of a CRD's schema: keywords, defaults, and CEL rules with their costs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._cel.cost_estimate import RULE_COST_LIMIT, saturating_product
from appsdk_operator.apiserver._cel.schema_types import MAX_REQUEST, schema_decl_type
from appsdk_operator.apiserver._cel.types import DeclType
from appsdk_operator.apiserver._schema import (
    object_checks,
    pruning,
    validation_rules,
    value_validation,
)
from appsdk_operator.apiserver._schema.field_paths import FieldPathError, resolve_field_path
from appsdk_operator.apiserver._schema.pruning import EMBEDDED, PRESERVE
from appsdk_operator.apiserver._schema.structural_check import (
    has_unsupported_fields,
    structural_problems,
)
from appsdk_operator.apiserver._values.go_text import go_json
from appsdk_operator.apiserver._values.status import FieldError, Verbatim

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_META: Final = ("apiVersion", "kind", "metadata")
_TOTAL: Final = 100_000_000
_LIST_TYPE: Final = "x-kubernetes-list-type"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_KEYS: Final = "x-kubernetes-list-map-keys"
_Schema = Mapping[str, Any]


def schema_problems(schema: _Schema, path: str, *, status: bool) -> Iterator[FieldError]:
    """The validation errors of a version's schema.

    Args:
        schema: the root schema.
        path: its field path.
        status: whether the version has a status subresource.
    """
    if status and schema.get("type") and schema["type"] != "object":
        detail = (
            'only "object" is allowed as the type at the root of the schema if the status '
            "subresource is enabled"
        )
        yield FieldError.invalid(f"{path}.type", schema["type"], detail)
    if schema.get("nullable"):
        detail = "nullable cannot be true at the root"
        yield FieldError.forbidden(f"{path}.nullable", detail)
    checks_rules = False
    if not has_unsupported_fields(schema):
        found = structural_problems(schema, path)
        if not found:
            found = list(_default_problems(schema, path, root=True))
        checks_rules = not found
        yield from found
    walk = _SchemaValidator()
    place = (
        _SchemaPosition(path, cardinality=1) if checks_rules else _SchemaPosition(path, rules=False)
    )
    walk.visit(schema, place)
    yield from [*walk.errors, *walk.rule_errors]
    if walk.total > _TOTAL:
        detail = "contributed to estimated rule cost total exceeding cost limit for entire "
        yield from (
            FieldError.forbidden(at, f"{detail}OpenAPIv3 schema") for at in walk.most_expensive
        )
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield FieldError.forbidden(path, _too_costly(name, walk.total, _TOTAL))


def _too_costly(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:.1f}x"
    if factor < 1.5:
        shown = f"{factor:f}x"
    return (
        f"{name} exceeds budget by factor of {shown} (try simplifying the rule, or adding "
        "maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )


@final
@attrs.frozen
class _SchemaPosition:
    """The position of a node in the schema, and what is known about it there."""

    path: str
    root: bool = True
    rules: bool = True
    cardinality: int | None = None
    known: DeclType | None = None
    in_meta: bool = False
    no_default: str = ""
    no_old: str = ""


@final
class _SchemaValidator:
    """Visits all nodes of a schema and collects their errors."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.rule_errors: list[FieldError] = []
        self.total = 0
        self._costs: list[tuple[int, str]] = []

    @property
    def most_expensive(self) -> list[str]:
        """The paths of the most expensive rules."""
        ordered = sorted(self._costs, key=lambda cost: -cost[0])
        return [path for _cost, path in ordered[:4]]

    def visit(self, schema: _Schema, place: _SchemaPosition) -> None:
        """Check one node and all below it."""
        before = len(self.errors)
        self.errors += _keyword_problems(schema, place)
        self._visit_children(schema, place)
        self.errors += _type_problems(schema, place.path)
        rules = schema.get(validation_rules.RULES) or ()
        for index, rule in enumerate(rules):
            self.errors += _rule_problems(
                schema, rule, f"{place.path}.{validation_rules.RULES}[{index}]"
            )
        if rules and place.rules and len(self.errors) == before:
            self._check_rules(schema, rules, place)

    def _visit_children(self, schema: _Schema, place: _SchemaPosition) -> None:
        path = place.path
        additional, items = schema.get("additionalProperties"), schema.get("items")
        if isinstance(additional, Mapping):
            below = self._below(schema, place, f"{path}.additionalProperties")
            if place.in_meta:
                reason = "inside additionalProperties applying to object metadata"
                below = attrs.evolve(below, no_default=reason)
            self.visit(additional, below)
        for name, child in (schema.get("properties") or {}).items():
            below = self._below(schema, place, f"{path}.properties[{name}]")
            if (place.root or schema.get(EMBEDDED)) and name in _META:
                reason = f"in top-level {name}" if place.root else below.no_default
                below = attrs.evolve(below, in_meta=True, no_default=reason)
            self.visit(child, below)
        for name in ("allOf", "anyOf", "oneOf"):
            for index, part in enumerate(schema.get(name) or ()):
                self.visit(part, self._inside(place, f"{path}.{name}[{index}]"))
        if isinstance(schema.get("not"), Mapping):
            self.visit(schema["not"], self._inside(place, f"{path}.not"))
        if isinstance(items, Mapping):
            below = self._below(schema, place, f"{path}.items")
            if schema.get(_LIST_TYPE) != "map" and not below.no_old:
                below = attrs.evolve(below, no_old=path)
            self.visit(items, below)

    @staticmethod
    def _inside(place: _SchemaPosition, path: str) -> _SchemaPosition:
        return attrs.evolve(place, path=path, root=False, rules=False)

    @staticmethod
    def _below(schema: _Schema, place: _SchemaPosition, path: str) -> _SchemaPosition:
        most: int | None = 1
        if schema.get("type") == "array":
            most = schema.get("maxItems")
        elif schema.get("type") == "object" and schema.get("additionalProperties") is not None:
            most = schema.get("maxProperties")
        cardinality = None
        if most is not None and place.cardinality is not None:
            cardinality = saturating_product(place.cardinality, max(most, 0))
        return attrs.evolve(place, path=path, root=False, cardinality=cardinality)

    def _check_rules(self, schema: _Schema, rules: list[Any], place: _SchemaPosition) -> None:
        known = schema_decl_type(schema, root=place.root or bool(schema.get(EMBEDDED)))
        path = f"{place.path}.{validation_rules.RULES}"
        if known is None:
            detail = (
                "internal error: failed to construct type information for "
                "x-kubernetes-validations rules: unable to convert structural schema to CEL "
                "declarations"
            )
            self.rule_errors.append(FieldError("InternalError", path, f"Internal error: {detail}"))
            return
        for index, rule in enumerate(rules):
            made = validation_rules.compile_rule(schema, rule, known)
            self._check_rule(made, f"{path}[{index}]", place, known)

    def _check_rule(
        self,
        made: validation_rules.CompiledRule,
        path: str,
        place: _SchemaPosition,
        known: DeclType,
    ) -> None:
        errors = self.rule_errors
        shown = Verbatim(_rule_shown(made.rule))
        cardinality = place.cardinality
        if cardinality is None:
            cardinality = MAX_REQUEST // (known.min_size + 1)
        self._add_cost(
            "estimated rule cost", saturating_product(made.cost, cardinality), f"{path}.rule"
        )
        if made.error:
            errors.append(FieldError.invalid(f"{path}.rule", shown, made.error))
        if made.message_error:
            at = f"{path}.messageExpression"
            errors.append(FieldError.invalid(at, shown, made.message_error))
        elif made.message is not None:
            name = "estimated messageExpression cost"
            self._add_cost(name, made.message_cost, f"{path}.messageExpression")
        if made.uses_old and place.no_old:
            detail = (
                "oldSelf cannot be used on the uncorrelatable portion of the schema within "
                f"{place.no_old}"
            )
            errors.append(FieldError.invalid(f"{path}.rule", made.rule["rule"], detail))
        optional = made.rule.get("optionalOldSelf")
        if not made.uses_old and optional is not None:
            detail = "may not be set if oldSelf is not used in rule"
            errors.append(FieldError.invalid(f"{path}.optionalOldSelf", optional, detail))

    def _add_cost(self, name: str, cost: int, path: str) -> None:
        if cost > RULE_COST_LIMIT:
            detail = _too_costly(name, cost, RULE_COST_LIMIT)
            self.rule_errors.append(FieldError.forbidden(path, detail))
        self.total = min(self.total + cost, 2**64 - 1)
        if cost >= _TOTAL // 100:
            self._costs.append((cost, path))


_RULE_FIELDS: Final = {
    "rule": "",
    "message": "",
    "messageExpression": "",
    "reason": None,
    "fieldPath": "",
    "optionalOldSelf": None,
}


def _rule_shown(rule: Mapping[str, Any]) -> str:
    """A rule as the real server prints it: its internal form as JSON."""
    parts = [
        f'"{name[0].upper()}{name[1:]}":{go_json(rule.get(name, missing))}'
        for name, missing in _RULE_FIELDS.items()
    ]
    return f"{{{','.join(parts)}}}"


# -- keywords --------------------------------------------------------------------------------

_UNSUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions")


def _keyword_problems(schema: _Schema, place: _SchemaPosition) -> Iterator[FieldError]:
    path, type_ = place.path, schema.get("type")
    if type_ and type_ not in _TYPES:
        yield FieldError.not_supported(f"{path}.type", type_, _TYPES)
    if schema.get("default") is not None and place.no_default:
        yield FieldError.forbidden(f"{path}.default", f"must not be set {place.no_default}")
    for name in (*_UNSUPPORTED, "dependencies", "$ref"):
        if schema.get(name) or (name in ("dependencies", "additionalItems") and name in schema):
            yield FieldError.forbidden(f"{path}.{name}", f"{name} is not supported")
    if type_ == "null":
        detail = "type cannot be set to null, use nullable as an alternative"
        yield FieldError.forbidden(f"{path}.type", detail)
    if isinstance(schema.get("items"), list) and schema["items"]:
        detail = "items must be a schema object and not an array"
        yield FieldError.forbidden(f"{path}.items", detail)
    if place.in_meta and schema.get(EMBEDDED):
        yield FieldError.forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield FieldError.forbidden(f"{path}.uniqueItems", detail)
    additional = schema.get("additionalProperties")
    if additional is not None and additional is not True and schema.get("properties"):
        detail = "additionalProperties and properties are mutual exclusive"
        yield FieldError.forbidden(f"{path}.additionalProperties", detail)


def _type_problems(schema: _Schema, path: str) -> Iterator[FieldError]:
    if schema.get(PRESERVE) is False:
        at = f"{path}.{PRESERVE}"
        yield FieldError.invalid(at, value=False, detail="must be true or undefined")
    yield from _wanted_type(schema, path, _MAP_TYPE, "object")
    kind = schema.get(_MAP_TYPE)
    if kind is not None and kind not in ("atomic", "granular"):
        yield FieldError.not_supported(f"{path}.{_MAP_TYPE}", kind, ("atomic", "granular"))
    list_type = schema.get(_LIST_TYPE)
    items = schema.get("items")
    if list_type is not None and schema.get("type") != "array":
        yield from _wanted_type(schema, path, _LIST_TYPE, "array")
    elif list_type == "set" and isinstance(items, Mapping):
        yield from _set_problems(items, f"{path}.items")
    if list_type is not None and list_type not in ("atomic", "set", "map"):
        known = ("atomic", "set", "map")
        yield FieldError.not_supported(f"{path}.{_LIST_TYPE}", list_type, known)
    keys = schema.get(_KEYS) or []
    if keys and list_type != "map":
        detail, at = f"must be map if {_KEYS} is non-empty", f"{path}.{_LIST_TYPE}"
        if list_type is None:
            yield FieldError.required(at, detail)
        else:
            yield FieldError.invalid(at, list_type, detail)
    if list_type == "map":
        yield from _map_problems(keys, items, path)
    if list_type in ("set", "map") and isinstance(items, Mapping):
        yield from _item_problems(list_type, keys, items, f"{path}.items")


def _wanted_type(schema: _Schema, path: str, name: str, wanted: str) -> Iterator[FieldError]:
    found = schema.get("type") or ""
    if schema.get(name) is not None and found != wanted:
        detail, at = f"must be {wanted} if {name} is specified", f"{path}.type"
        yield FieldError.invalid(at, found, detail) if found else FieldError.required(at, detail)


def _set_problems(items: _Schema, path: str) -> Iterator[FieldError]:
    detail = f"must be atomic as item of a list with {_LIST_TYPE}=set"
    kind = items.get(_LIST_TYPE)
    if items.get("type") == "array" and kind not in (None, "atomic"):
        yield FieldError.invalid(f"{path}.{_LIST_TYPE}", kind, detail)
    if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        # As on the real server, the error shows the list type, not the map type.
        yield FieldError.invalid(f"{path}.{_MAP_TYPE}", kind, detail)


def _map_problems(keys: list[str], items: Any, path: str) -> Iterator[FieldError]:
    if not keys:
        detail = f"must not be empty if {_LIST_TYPE} is map"
        yield FieldError.required(f"{path}.{_KEYS}", detail)
    if items is None:
        detail = f"must have a schema if {_LIST_TYPE} is map"
        yield FieldError.required(f"{path}.items", detail)
    if not isinstance(items, Mapping):
        return
    found = items.get("type") or ""
    if found != "object":
        detail = f"must be object if parent array's {_LIST_TYPE} is map"
        yield FieldError.invalid(f"{path}.items.type", found, detail)
        return
    seen: set[str] = set()
    for key in keys:
        child = (items.get("properties") or {}).get(key)
        if child is None:
            detail = "entries must all be names of item properties"
            yield FieldError.invalid(f"{path}.{_KEYS}", keys, detail)
        elif child.get("type") in ("array", "object"):
            detail = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            yield FieldError.invalid(f"{path}.items.properties[{key}].type", found, detail)
        if key in seen:
            detail = "must not contain duplicate entries"
            yield FieldError.invalid(f"{path}.{_KEYS}", keys, detail)
        seen.add(key)


def _item_problems(kind: str, keys: list[str], items: _Schema, path: str) -> Iterator[FieldError]:
    if items.get("nullable"):
        detail = f"cannot be nullable when {_LIST_TYPE} is {kind}"
        yield FieldError.forbidden(f"{path}.nullable", detail)
    if kind != "map":
        return
    for key in keys:
        child = (items.get("properties") or {}).get(key)
        if child is None:
            continue
        at, reason = f"{path}.properties[{key}]", f"this property is in {_KEYS}, so it"
        if key not in (items.get("required") or ()) and child.get("default") is None:
            detail = f"{reason} must have a default or be a required property"
            yield FieldError.required(f"{at}.default", detail)
        if child.get("nullable"):
            yield FieldError.forbidden(f"{at}.nullable", f"{reason} cannot be nullable")


_REASONS: Final = (
    *("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"),
)


def _rule_problems(schema: _Schema, rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    text, message = str(rule.get("rule") or "").strip(), str(rule.get("message") or "")
    if not text:
        yield FieldError.required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        detail = "must be non-empty if specified"
        yield FieldError.invalid(f"{path}.message", message, detail)
    elif _has_breaks(message.strip()):
        yield FieldError.invalid(f"{path}.message", message, "must not contain line breaks")
    elif _has_breaks(text) and not message.strip():
        detail = "message must be specified if rule contains line breaks"
        yield FieldError.required(f"{path}.message", detail)
    expression = str(rule.get("messageExpression") or "")
    if expression and not expression.strip():
        detail = "messageExpression must be non-empty if specified"
        yield FieldError.required(f"{path}.messageExpression", detail)
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        yield FieldError.not_supported(f"{path}.reason", reason, _REASONS)
    field = str(rule.get("fieldPath") or "")
    if not field:
        return
    at = f"{path}.fieldPath"
    if not field.strip():
        yield FieldError.invalid(at, field, "must be non-empty if specified")
    if _has_breaks(field):
        yield FieldError.invalid(at, field, "must not contain line breaks")
    try:
        resolve_field_path(field, schema)
    except FieldPathError:
        yield FieldError.invalid(at, field, "must be a valid path")


def _has_breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


# -- defaults --------------------------------------------------------------------------------


def _default_problems(schema: _Schema, path: str, *, root: bool = False) -> Iterator[FieldError]:
    default = schema.get("default")
    if default is not None:
        yield from _one_default(schema, default, f"{path}.default")
    if isinstance(schema.get("items"), Mapping):
        yield from _default_problems(schema["items"], f"{path}.items")
    for name, child in (schema.get("properties") or {}).items():
        if not (root and name in _META):
            yield from _default_problems(child, f"{path}.properties[{name}]")


def _one_default(schema: _Schema, default: Any, path: str) -> Iterator[FieldError]:
    shown = Verbatim(go_json(default)) if isinstance(default, (dict, list)) else default
    pruned = copy.deepcopy(default)
    dropped: list[str] = []
    if isinstance(pruned, (dict, list)):
        prune = pruning.compile_pruner(schema, root=bool(schema.get(EMBEDDED)), defaults=False)
        prune(pruned, "", dropped)
    if dropped:
        yield FieldError.invalid(path, shown, "must not have unknown fields")
    errors: list[FieldError] = []
    embedded = object_checks.embedded_object_checks(schema)
    if embedded is not None:
        embedded(copy.deepcopy(default), "", errors)
    if not errors:
        value_validation.compile_validation(schema)(default, value_validation.ABSENT, "", errors)
    if not errors and (rules := validation_rules.SchemaRules.of(schema, root=False)) is not None:
        rules.check(default, value_validation.ABSENT, errors)
    for error in errors:
        field = path if error.field == "<nil>" else f"{path}.{error.field}"
        yield attrs.evolve(error, field=field)
