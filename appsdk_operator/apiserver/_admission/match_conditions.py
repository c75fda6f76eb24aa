"""Match conditions: CEL expressions that decide which writes a webhook is called for.

They see ``object``, ``oldObject``, ``request`` and ``namespaceObject``; there is no ``authorizer``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._cel import expressions
from appsdk_operator.apiserver._cel.types import (
    BOOL,
    DYN,
    STRING,
    DeclType,
    Type,
    list_of,
    map_of,
    object_type,
)
from appsdk_operator.apiserver._values.names import key_problems
from appsdk_operator.apiserver._values.status import FieldError

_MAX: Final = 64


def _record(type_name: str, /, **fields: Type) -> Type:
    schema_decl_type = DeclType(DYN)
    schema_decl_type.fields = {key: DeclType(type_) for key, type_ in fields.items()}
    schema_decl_type.keys = {key: key for key in fields}
    schema_decl_type.type = object_type(type_name, schema_decl_type)
    return schema_decl_type.type


_KIND: Final = _record("kubernetes.GroupVersionKind", group=STRING, version=STRING, kind=STRING)
_RESOURCE: Final = _record(
    "kubernetes.GroupVersionResource", group=STRING, version=STRING, resource=STRING
)
_USER: Final = _record(
    "kubernetes.UserInfo",
    username=STRING,
    uid=STRING,
    groups=list_of(STRING),
    extra=map_of(STRING, list_of(STRING)),
)
_VARIABLES: Final[dict[str, Type]] = {
    "object": DYN,
    "oldObject": DYN,
    "namespaceObject": DYN,
    "request": _record(
        "kubernetes.AdmissionRequest",
        kind=_KIND,
        resource=_RESOURCE,
        subResource=STRING,
        requestKind=_KIND,
        requestResource=_RESOURCE,
        requestSubResource=STRING,
        name=STRING,
        namespace=STRING,
        operation=STRING,
        userInfo=_USER,
        dryRun=BOOL,
        options=DYN,
    ),
}


class ConditionError(Exception):
    """A condition fails to evaluate, and none is false; the text says why."""


@final
@attrs.frozen
class MatchConditions:
    """The match conditions of one webhook."""

    programs: tuple[expressions.Program, ...]

    @classmethod
    def read(cls, conditions: Iterable[Mapping[str, Any]]) -> MatchConditions:
        """The conditions of a valid configuration."""
        programs = (_compiled(item["expression"].strip())[0] for item in conditions)
        return cls(tuple(program for program in programs if program is not None))

    def hold(self, request: Mapping[str, Any], namespace: Mapping[str, Any] | None) -> bool:
        """Whether all of them hold for the request of a review, and its namespace.

        Raises:
            ConditionError: some fail to evaluate, and none is false.
        """
        fields = {k: v for k, v in request.items() if k not in ("uid", "object", "oldObject")}
        variables = {
            "object": request["object"],
            "oldObject": request["oldObject"],
            "namespaceObject": namespace,
            "request": fields,
        }
        errors: list[str] = []
        for program in self.programs:
            try:
                if not program.evaluate(variables):
                    return False
            except expressions.CelError as error:
                errors.append(f"expression '{program.expression}' resulted in error: {error}")
        if errors:
            listed = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            raise ConditionError(listed)
        return True


def match_condition_errors(conditions: list[Any], at: str) -> Iterator[FieldError]:
    """The validation errors of a webhook's match conditions."""
    if len(conditions) > _MAX:
        message = f"Too many: {len(conditions)}: must have at most {_MAX} items"
        yield FieldError("FieldValueTooMany", at, message)
    names: set[str] = set()
    for index, condition in enumerate(conditions):
        field = f"{at}[{index}]"
        expression = (condition.get("expression") or "").strip()
        if not expression:
            yield FieldError.required(f"{field}.expression")
        elif problem := _problem(expression):
            yield FieldError.invalid(f"{field}.expression", condition["expression"], problem)
        name = condition.get("name") or ""
        if not name:
            yield FieldError.required(f"{field}.name")
        for problem in key_problems(name) if name else ():
            yield FieldError.invalid(f"{field}.name", name, problem)
        if name and name in names:
            yield FieldError.duplicate(f"{field}.name", name)
        names.add(name)


def _problem(expression: str) -> str:
    program, error = _compiled(expression)
    if program is None:
        return f"compilation failed: {error}"
    return "" if program.type == BOOL else f"must evaluate to bool but got {program.type}"


# As many as a handful of webhooks can have. They are validated, and then read after each change of
# any configuration.
@functools.lru_cache(maxsize=4 * _MAX)
def _compiled(expression: str) -> tuple[expressions.Program | None, str]:
    """The program of an expression, or the error of its compilation."""
    try:
        return expressions.compile(expression, _VARIABLES), ""
    except expressions.CompileError as error:
        return None, str(error)
