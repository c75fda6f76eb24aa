"""Validation of CustomResourceDefinitions, except for their schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, final
from urllib.parse import urlsplit

from appsdk_operator.apiserver._crds.compiled_schemas import CompiledSchemas
from appsdk_operator.apiserver._schema.field_paths import FieldPathError, resolve_field_path
from appsdk_operator.apiserver._values.go_text import go_json
from appsdk_operator.apiserver._values.names import label_problems, subdomain_problems
from appsdk_operator.apiserver._values.status import FieldError, Verbatim
from appsdk_operator.apiserver._webhooks.client_configs import client_config_errors

APPROVAL: Final = "api-approved.kubernetes.io"
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = (
    *("byte", "date", "date-time", "double", "float", "int32", "int64", "password"),
)
_MAX_SELECTABLE: Final = 8
_Spec = Mapping[str, Any]


def is_protected(group: str) -> bool:
    """Whether the group is protected: one of the Kubernetes project."""
    return group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))


def approval_of(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """The approval state of a protected group, and the reason as text."""
    text = (metadata.get("annotations") or {}).get(APPROVAL, "")
    if not text:
        return "missing", (
            "protected groups must have approval annotation "
            f'"{APPROVAL}", see https://github.com/kubernetes/enhancements/pull/1111'
        )
    if text.startswith("unapproved"):
        return "bypassed", f'not approved: "{text}"'
    parts = urlsplit(text)
    if parts.scheme and parts.netloc:
        return "approved", f"approved in {text}"
    return "invalid", (
        f'protected groups must have approval annotation "{APPROVAL}" with either a URL or a '
        'reason starting with "unapproved", see '
        "https://github.com/kubernetes/enhancements/pull/1111"
    )


def definition_problems(
    new: dict[str, Any], old: dict[str, Any] | None, schemas: CompiledSchemas
) -> Iterator[FieldError]:
    """The validation errors of a definition, given the old one."""
    spec: dict[str, Any] = new.get("spec") or {}
    if old is None:
        wanted = f"{(spec.get('names') or {}).get('plural') or ''}.{spec.get('group') or ''}"
        name = new["metadata"].get("name", "")
        if name and name != wanted:
            detail = 'must be spec.names.plural+"."+spec.group'
            yield FieldError.invalid("metadata.name", name, detail)
    yield from _Checker(spec, schemas).problems()
    if old is not None:
        yield from _change_problems(spec, old)
    yield from status_problems(new)
    yield from _stored_problems(new)
    yield from approval_problems(new, old)
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        yield FieldError.invalid("spec.preserveUnknownFields", value=True, detail=detail)


def status_problems(new: Mapping[str, Any]) -> Iterator[FieldError]:
    """The validation errors of the names in the status of a definition."""
    names = (new.get("status") or {}).get("acceptedNames") or {}
    yield from _name_problems(names, "status.acceptedNames")


def _change_problems(spec: _Spec, old: dict[str, Any]) -> Iterator[FieldError]:
    before = old["spec"]
    names, known = spec.get("names") or {}, before.get("names") or {}
    conditions = (old.get("status") or {}).get("conditions") or ()
    fixed: list[tuple[str, Any, Any]] = []
    if any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions):
        fixed += [
            ("scope", spec.get("scope"), before.get("scope")),
            ("names.kind", names.get("kind"), known.get("kind")),
        ]
    fixed += [
        ("group", spec.get("group"), before.get("group")),
        ("names.plural", names.get("plural"), known.get("plural")),
    ]
    for name, value, was in fixed:
        if value != was:
            yield FieldError.invalid(f"spec.{name}", value or "", "field is immutable")


def _stored_problems(new: Mapping[str, Any]) -> Iterator[FieldError]:
    stored: list[str] = (new.get("status") or {}).get("storedVersions") or []
    path = "status.storedVersions"
    if not stored:
        yield FieldError.invalid(path, None, "must have at least one stored version")
        return
    versions = (new.get("spec") or {}).get("versions") or ()
    for version in versions:
        name = version.get("name")
        if version.get("storage") and name not in stored:
            yield FieldError.invalid(path, stored, f"must have the storage version {name}")
    names = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in names:
            yield FieldError.invalid(
                f"{path}[{index}]",
                name,
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions",
            )


def approval_problems(
    new: Mapping[str, Any], old: Mapping[str, Any] | None
) -> Iterator[FieldError]:
    """The validation errors of the approval annotation of a protected group."""
    if not is_protected((new.get("spec") or {}).get("group") or ""):
        return
    state, reason = approval_of(new["metadata"])
    if old is not None and approval_of(old["metadata"])[0] == state:
        return
    path = f"metadata.annotations[{APPROVAL}]"
    if state == "missing":
        yield FieldError.required(path, reason)
    elif state == "invalid":
        yield FieldError.invalid(path, new["metadata"]["annotations"][APPROVAL], reason)


def _name_problems(names: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name in ("plural", "singular", "kind", "listKind"):
        value = names.get(name) or ""
        mixed = name in ("kind", "listKind")
        problems = label_problems(value.lower() if mixed else value) if value else []
        if problems:
            words = "may have mixed case, but should otherwise match: " if mixed else ""
            yield FieldError.invalid(f"{path}.{name}", value, words + ",".join(problems))
    for name in ("shortNames", "categories"):
        for index, value in enumerate(names.get(name) or ()):
            if problems := label_problems(value):
                at = f"{path}.{name}[{index}]"
                yield FieldError.invalid(at, value, ",".join(problems))
        if name == "shortNames" and names.get("kind") and names["kind"] == names.get("listKind"):
            detail = "kind and listKind may not be the same"
            yield FieldError.invalid(f"{path}.listKind", names["kind"], detail)


@final
class _Checker:
    """Validates a ``spec``.

    Errors in a part that all versions share are reported once, at the top level.
    """

    def __init__(self, spec: _Spec, schemas: CompiledSchemas) -> None:
        self._spec = spec
        self._schemas = schemas
        self._versions: list[dict[str, Any]] = list(spec.get("versions") or ())
        first = self._versions[0] if self._versions else {}
        self._common = {
            name
            for name in ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
            if all(version.get(name) == first.get(name) for version in self._versions)
        }

    def problems(self) -> Iterator[FieldError]:
        """All errors."""
        spec = self._spec
        yield from _group_problems(spec.get("group") or "")
        yield from _choice("spec.scope", spec.get("scope"), ("Cluster", "Namespaced"))
        for index, version in enumerate(self._versions):
            if (version.get("schema") or {}).get("openAPIV3Schema") is None:
                at = f"spec.versions[{index}].schema.openAPIV3Schema"
                yield FieldError.required(at)
        for index, version in enumerate(self._versions):
            at = f"spec.versions[{index}]"
            if problems := label_problems(version.get("name") or ""):
                name = version.get("name") or ""
                yield FieldError.invalid(f"{at}.name", name, ",".join(problems))
            yield from _warning_problems(version, f"{at}.deprecationWarning")
            yield from self._parts(version, at, common=False)
        yield from self._version_problems()
        names = spec.get("names") or {}
        for name in ("plural", "singular", "kind", "listKind"):
            if not names.get(name):
                yield FieldError.required(f"spec.names.{name}")
        yield from _name_problems(names, "spec.names")
        if self._versions:
            yield from self._parts(self._versions[0], "spec", common=True)
        yield from _conversion_problems(spec.get("conversion"))

    def _parts(self, version: dict[str, Any], path: str, *, common: bool) -> Iterator[FieldError]:
        """The errors of a version's own parts, or of the parts that all versions share."""

        def shown(name: str) -> bool:
            return (name in self._common) == common and version.get(name) is not None

        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        holder = "validation" if common else "schema"
        if shown("schema") and isinstance(schema, Mapping):
            status = (version.get("subresources") or {}).get("status") is not None
            at = f"{path}.{holder}.openAPIV3Schema"
            yield from self._schemas.problems(schema, at, status=status)
        if shown("subresources"):
            yield from _scale_problems(version["subresources"].get("scale"), f"{path}.subresources")
        if shown("additionalPrinterColumns"):
            for index, column in enumerate(version["additionalPrinterColumns"]):
                yield from _column_problems(column, f"{path}.additionalPrinterColumns[{index}]")
        if shown("selectableFields") and isinstance(schema, Mapping):
            fields = version["selectableFields"]
            yield from _selectable_problems(fields, schema, f"{path}.selectableFields")

    def _version_problems(self) -> Iterator[FieldError]:
        names = [version.get("name") for version in self._versions]
        shown = Verbatim(f"[{','.join(map(self._shown, self._versions))}]")
        if len(set(names)) != len(names):
            detail = "must contain unique version names"
            yield FieldError.invalid("spec.versions", shown, detail)
        if sum(bool(version.get("storage")) for version in self._versions) != 1:
            detail = "must have exactly one version marked as storage version"
            given = shown if self._spec.get("versions") is not None else None
            yield FieldError.invalid("spec.versions", given, detail)
        if names and (problems := label_problems(names[0] or "")):
            yield FieldError.invalid("spec.version", names[0] or "", ",".join(problems))

    def _shown(self, version: Mapping[str, Any]) -> str:
        """A version as the real server prints it: its internal form as JSON."""
        known = {
            "Name": version.get("name") or "",
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
        }
        parts = [f'"{name}":{go_json(value)}' for name, value in known.items()]
        rest = ("Schema", "Subresources", "AdditionalPrinterColumns", "SelectableFields")
        parts += [f'"{name}":null' for name in rest]
        return f"{{{','.join(parts)}}}"


def _group_problems(group: str) -> Iterator[FieldError]:
    if not group:
        yield FieldError.required("spec.group")
    elif problems := subdomain_problems(group):
        yield FieldError.invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield FieldError.invalid("spec.group", group, "should be a domain with at least one dot")


def _choice(path: str, value: Any, known: tuple[str, ...]) -> Iterator[FieldError]:
    if not value:
        yield FieldError.required(path)
    elif value not in known:
        yield FieldError.not_supported(path, value, known)


def _warning_problems(version: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    if not version.get("deprecated"):
        detail = "can only be set for deprecated versions"
        yield FieldError.invalid(path, warning, detail)
        return
    if len(warning.encode()) > 256:
        yield FieldError.invalid(path, warning, "must be <= 256 characters long")
    if not warning:
        yield FieldError.invalid(path, warning, "must not be an empty string")
    for index, char in enumerate(warning):
        if not char.isprintable():
            yield FieldError.invalid(
                path,
                warning,
                "must only contain printable UTF-8 characters; non-printable character found at "
                f"index {index}",
            )
            break


def _path_problems(value: str, path: str) -> list[FieldError]:
    if value.startswith("."):
        return []
    detail = "must be a simple json path starting with ."
    return [FieldError.invalid(path, value, detail)]


def _scale_problems(scale: Mapping[str, Any] | None, path: str) -> Iterator[FieldError]:
    if scale is None:
        return
    for name, places in (
        ("specReplicasPath", (".spec.",)),
        ("statusReplicasPath", (".status.",)),
        ("labelSelectorPath", (".spec.", ".status.")),
    ):
        at, value = f"{path}.scale.{name}", scale.get(name) or ""
        if not value:
            if name != "labelSelectorPath":
                yield FieldError.required(at)
        elif problems := _path_problems(value, at):
            yield from problems
        elif not value.startswith(places):
            where = "either .spec or .status" if len(places) > 1 else places[0][:-1]
            yield FieldError.invalid(at, value, f"should be a json path under {where}")


def _column_problems(column: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield FieldError.required(f"{path}.name")
    kind, format_, where = (column.get(name) or "" for name in ("type", "format", "jsonPath"))
    known = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield FieldError.required(f"{path}.type", known)
    elif kind not in _COLUMN_TYPES:
        yield FieldError.invalid(f"{path}.type", kind, known)
    if format_ and format_ not in _COLUMN_FORMATS:
        detail = f"must be one of {','.join(_COLUMN_FORMATS)}"
        yield FieldError.invalid(f"{path}.format", format_, detail)
    if not where:
        yield FieldError.required(f"{path}.JSONPath")
    else:
        yield from _path_problems(where, f"{path}.JSONPath")


def _selectable_problems(
    fields: list[dict[str, Any]], schema: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, field in enumerate(fields):
        at, value = f"{path}[{index}].jsonPath", field.get("jsonPath") or ""
        if not value:
            yield FieldError.required(at)
            continue
        try:
            shown, found, first = resolve_field_path(value, schema, brackets=False)
        except FieldPathError as error:
            yield FieldError.invalid(at, value, f"is an invalid path: {error}")
            continue
        if first == "metadata":
            yield FieldError.invalid(at, value, "must not point to fields in metadata")
        if found.get("type") not in ("string", "boolean", "integer"):
            yield FieldError.invalid(
                at,
                value,
                "must point to a field of type string, boolean or integer. Enum string fields and "
                "strings with formats are allowed.",
            )
        if shown in seen:
            yield FieldError.duplicate(at, value)
        seen.add(shown)
    if len(seen) > _MAX_SELECTABLE:
        message = f"Too many: {len(seen)}: must have at most {_MAX_SELECTABLE} items"
        yield FieldError("FieldValueTooMany", path, message)


# -- conversion ------------------------------------------------------------------------------


def _conversion_problems(conversion: Mapping[str, Any] | None) -> Iterator[FieldError]:
    if conversion is None:
        return
    path = "spec.conversion"
    strategy = conversion.get("strategy")
    yield from _choice(f"{path}.strategy", strategy, ("None", "Webhook"))
    webhook = conversion.get("webhook")
    config = (webhook or {}).get("clientConfig")
    accepted = (webhook or {}).get("conversionReviewVersions") or []
    if strategy != "Webhook":
        detail = "should not be set when strategy is not set to Webhook"
        if config is not None:
            yield FieldError.forbidden(f"{path}.webhookClientConfig", detail)
        if accepted:
            yield FieldError.forbidden(f"{path}.conversionReviewVersions", detail)
        return
    at = f"{path}.webhookClientConfig"
    if config is None:
        yield FieldError.required(at, "required when strategy is set to Webhook")
    else:
        yield from client_config_errors(config, at)
    yield from _review_problems(accepted, f"{path}.conversionReviewVersions")


def _review_problems(versions: list[str], path: str) -> Iterator[FieldError]:
    if not versions:
        yield FieldError.required(path)
        return
    for index, version in enumerate(versions):
        at = f"{path}[{index}]"
        if version in versions[:index]:
            yield FieldError.invalid(at, version, "duplicate version")
            continue
        for problem in label_problems(version):
            yield FieldError.invalid(at, version, problem)
    if not {"v1", "v1beta1"} & set(versions):
        detail = "must include at least one of v1, v1beta1"
        yield FieldError.invalid(path, versions, detail)
