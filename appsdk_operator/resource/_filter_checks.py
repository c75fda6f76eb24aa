"""The check of a filter's paths against the class or schema of its kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from appsdk_operator.resource._field_paths import Steps
from appsdk_operator.resource._filters import FilterExpression
from appsdk_operator.resource._kind import Kind

if TYPE_CHECKING:
    from appsdk_operator.resource._versions import Versions

_METADATA: Final = (
    *("name", "namespace", "uid", "labels", "annotations", "finalizers", "ownerReferences"),
    *("generation", "resourceVersion", "creationTimestamp", "deletionTimestamp"),
    *("deletionGracePeriodSeconds", "generateName", "managedFields", "selfLink"),
)
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"


def is_builtin(kind: Kind[Any, Any]) -> bool:
    """Whether the group is one of Kubernetes, or of its projects."""
    return "." not in kind.group or kind.group.endswith(".k8s.io")


def check_fields(
    option: str,
    expression: FilterExpression,
    kind: Kind[Any, Any],
    declared: Kind[Any, Any] | Versions[Any, Any] | None = None,
    crd_options: Mapping[str, Any] | None = None,
) -> None:
    """Check that objects of ``kind`` can have the fields of a filter.

    Built-in kinds have the fields of the release of Kubernetes that the kit knows, and those of
    their class. Of other kinds in groups of Kubernetes, such as those of the Gateway API, only the
    fields of the metadata are known.

    Args:
        option: the name of the filter's option, for error texts.
        expression: the filter.
        kind: the kind.
        declared: what its CRD is made of; default: the kind.
        crd_options: options of :func:`custom_resource_definition`.

    Raises:
        ValueError: neither the class nor the schema has a field; the text has the nearest name.
    """
    paths = [each.atom for each in expression.tree.leaves() if each.atom.steps]
    if not paths:
        return
    schema = None if is_builtin(kind) else _schema_of(kind, declared or kind, crd_options or {})
    for atom in paths:
        if atom.steps is None:
            continue
        steps, what = atom.steps(kind), f"{option}: field({atom.field!r})"
        if is_builtin(kind):
            _check_builtin_path(steps, what, kind)
        else:
            _check_path(steps, what, kind, schema)


def _check_builtin_path(steps: Steps, what: str, kind: Kind[Any, Any]) -> None:
    from appsdk_operator.resource._schema.builtin_fields import builtin_fields

    known = builtin_fields()
    try:
        _check_path(steps, what, kind, known.schema_along(kind, steps))
    except ValueError as error:
        if not _class_has(steps, kind):
            raise ValueError(
                f"{error}. These are the fields of Kubernetes {known.version}: for a field of "
                "another release give the kind a class that has the field, with Kind.typed"
            ) from None


def _class_has(steps: Steps, kind: Kind[Any, Any]) -> bool:
    """Whether the class of a kind's spec or status has a field, or cannot say."""
    from appsdk_operator.resource._schema.schemas import schema_of

    root = str(steps[0])
    view = {"spec": kind.spec, "status": kind.status}.get(root)
    if view is None:
        return False
    try:
        schema = schema_of(view, root, rename=kind.rename, lost=[])
    except (NameError, TypeError, ValueError):
        return True
    try:
        _check_path(steps, "", kind, {"properties": {root: schema}})
    except ValueError:
        return False
    return True


def _check_path(steps: Steps, what: str, kind: Kind[Any, Any], schema: Any) -> None:
    where = ""
    for step in steps:
        if where == "metadata":
            if step not in _METADATA:
                raise ValueError(_unknown(what, kind, where, str(step), _METADATA))
            return
        if step == "metadata" and not where:
            where = "metadata"
            continue
        if not isinstance(schema, Mapping) or schema.get(_OPEN):
            return
        if isinstance(step, int):
            if schema.get("type") not in (None, "array"):
                raise ValueError(f"{what}: {_owner(kind, where)} is not a list: leave out [{step}]")
            schema, where = schema.get("items"), f"{where}[{step}]"
            continue
        known = schema.get("properties")
        other = schema.get("additionalProperties")
        if known and step in known:
            schema = known[step]
        elif isinstance(other, Mapping) or other is True:
            schema = other
        elif known or schema.get("type") not in (None, "object"):
            raise ValueError(_unknown(what, kind, where, step, known or ()))
        else:
            return
        where = f"{where}.{step}" if where else step


def _unknown(what: str, kind: Kind[Any, Any], where: str, step: str, known: Iterable[str]) -> str:
    import difflib

    folded = {name.lower().replace("_", ""): name for name in known}
    near = difflib.get_close_matches(step.lower().replace("_", ""), folded, 1, 0.5)
    hint = f", did you mean {folded[near[0]]!r}?" if near else "."
    names = f" There are {', '.join(sorted(known))}" if known else " It is not an object"
    return f"{what}: {_owner(kind, where)} has no field {step!r}{hint}{names}"


def _owner(kind: Kind[Any, Any], where: str) -> str:
    if "." in where or "[" in where:
        return where
    return f"{where} of {kind}" if where else str(kind)


def _schema_of(kind: Kind[Any, Any], declared: Any, crd_options: Mapping[str, Any]) -> Any:
    """The schema of the kind's version; None where there is none."""
    from appsdk_operator.resource._schema.crd import custom_resource_definition

    try:
        crd = custom_resource_definition(declared, **crd_options).to_dict()
    except (NameError, TypeError, ValueError):
        # A class of which no CRD can be made, or none yet: the error comes when it is made.
        return None
    schemas = {each["name"]: each["schema"] for each in crd["spec"]["versions"]}
    return schemas.get(kind.version, {}).get("openAPIV3Schema")
