"""CustomResourceDefinitions: defaults and checks, conditions, and serving what they define."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, final

from appsdk_operator.runtime import Clock
from appsdk_operator.testing._server._field_managers import FieldManagers
from appsdk_operator.testing._server._managed_fields import SERVER
from appsdk_operator.testing._server._metadata import timestamp
from appsdk_operator.testing._server._resources import (
    Catalog,
    Column,
    Resource,
    Rules,
    ServedVersion,
)
from appsdk_operator.testing._server._schema import Structure
from appsdk_operator.testing._server._status import FieldError
from appsdk_operator.testing._server._storage import Event, Record, Storage

__all__ = ["CLEANUP", "CRD_RULES", "Definitions"]

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_GROUP: Final = "apiextensions.k8s.io"
_CUSTOM: Final = Rules(custom=True, generation=True, unconditional_update=False)


def _prepare_create(obj: dict[str, Any]) -> None:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    _fill_in(spec)
    stored = [
        version.get("name")
        for version in spec.get("versions") or ()
        if isinstance(version, dict) and version.get("storage")
    ]
    obj["status"] = {
        "acceptedNames": {"plural": "", "kind": ""},
        "conditions": [],
        "storedVersions": stored,
    }


def _prepare_update(new: dict[str, Any], _old: dict[str, Any]) -> None:
    if isinstance(new.get("spec"), dict):
        _fill_in(new["spec"])


def _prepare_delete(obj: dict[str, Any]) -> bool:
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if CLEANUP not in finalizers and "deletionTimestamp" not in obj["metadata"]:
        finalizers.append(CLEANUP)
    return True


def _fill_in(spec: dict[str, Any]) -> None:
    names = spec.get("names")
    if isinstance(names, dict) and isinstance(names.get("kind"), str):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


def _validate(new: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    spec = new.get("spec")
    if not isinstance(spec, dict):
        return [FieldError.required("spec")]
    errors = _validate_names(new, spec)
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        value = spec.get("scope", "")
        errors.append(
            FieldError.not_supported("spec.scope", value, ("Cluster", "Namespaced"))
            if value
            else FieldError.required("spec.scope")
        )
    versions = spec.get("versions")
    if not isinstance(versions, list) or not versions:
        errors.append(
            FieldError.required(
                "spec.versions", "must have exactly one version marked as storage version"
            )
        )
        return errors
    errors += _validate_versions(versions)
    if old is not None:
        errors += _validate_change(spec, old["spec"])
    return errors


def _validate_names(new: dict[str, Any], spec: dict[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    group, names = spec.get("group"), spec.get("names")
    if not isinstance(group, str) or not group:
        errors.append(FieldError.required("spec.group"))
    elif "." not in group:
        errors.append(
            FieldError.invalid("spec.group", group, "should be a domain with at least one dot")
        )
    if not isinstance(names, dict):
        return [*errors, FieldError.required("spec.names")]
    errors += [
        FieldError.required(f"spec.names.{name}")
        for name in ("plural", "singular", "kind", "listKind")
        if not isinstance(names.get(name), str) or not names.get(name)
    ]
    wanted = f"{names.get('plural')}.{group}"
    if new["metadata"].get("name") != wanted:
        errors.append(
            FieldError.invalid(
                "metadata.name",
                new["metadata"].get("name", ""),
                'must be spec.names.plural+"."+spec.group',
            )
        )
    return errors


def _validate_versions(versions: list[Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    storing = 0
    for index, version in enumerate(versions):
        at = f"spec.versions[{index}]"
        if not isinstance(version, dict) or not isinstance(version.get("name"), str):
            errors.append(FieldError.required(f"{at}.name"))
            continue
        storing += bool(version.get("storage"))
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not isinstance(schema, dict):
            errors.append(
                FieldError.required(f"{at}.schema.openAPIV3Schema", "schemas are required")
            )
            continue
        if schema.get("type") != "object":
            kind = schema.get("type", "")
            field = f"{at}.schema.openAPIV3Schema.type"
            errors.append(
                FieldError.invalid(field, kind, "must be object at the root")
                if kind
                else FieldError.required(field, "must not be empty at the root")
            )
        errors += _validate_schema(schema, f"{at}.schema.openAPIV3Schema")
    names = [version.get("name") for version in versions if isinstance(version, dict)]
    if storing != 1:
        errors.append(
            FieldError.invalid(
                "spec.versions", names, "must have exactly one version marked as storage version"
            )
        )
    return errors


def _validate_schema(schema: dict[str, Any], at: str) -> list[FieldError]:
    """What would make the server stumble over the schema later: patterns and bad nesting."""
    errors: list[FieldError] = []
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        try:
            re.compile(pattern)
        except re.error as error:
            errors.append(
                FieldError.invalid(
                    f"{at}.pattern",
                    pattern,
                    f"must be a valid regular expression, but isn't: {error}",
                )
            )
    children: list[tuple[str, Any]] = [
        (f"{at}.properties[{name}]", child)
        for name, child in (schema.get("properties") or {}).items()
    ]
    children += [(f"{at}.{name}", schema.get(name)) for name in ("items", "additionalProperties")]
    for path, child in children:
        if isinstance(child, dict):
            if not any(
                child.get(name)
                for name in (
                    "type",
                    "x-kubernetes-int-or-string",
                    "x-kubernetes-preserve-unknown-fields",
                )
            ):
                errors.append(
                    FieldError.required(
                        f"{path}.type", "must not be empty for specified object fields"
                    )
                )
            errors += _validate_schema(child, path)
    return errors


def _validate_change(new: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    return [
        FieldError.invalid(f"spec.{name}", new.get(name), "field is immutable")
        for name in ("group", "scope")
        if new.get(name) != old.get(name)
    ]


CRD_RULES: Final = Rules(
    generation=True,
    unconditional_update=False,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_delete=_prepare_delete,
    validate=_validate,
)


@final
class Definitions:
    """Serves what the stored definitions define, and notes on them that it does."""

    def __init__(
        self,
        storage: Storage,
        catalog: Catalog,
        clock: Clock,
        on_gone: Callable[[Resource], None],
        fields: FieldManagers,
    ) -> None:
        """``on_gone`` is told of each resource that is served no more; ``fields`` know owners."""
        self._storage = storage
        self._catalog = catalog
        self._clock = clock
        self._on_gone = on_gone
        self._fields = fields
        self._collection = storage.collection(f"customresourcedefinitions.{_GROUP}")

    def notice(self, event: Event) -> None:
        """Act on a change of a definition."""
        record = event.record
        obj = record.decode()
        if event.type == "DELETED":
            self._withdraw(obj)
        elif record.deleting:
            resource = self._catalog.resource(obj["spec"]["group"], obj["spec"]["names"]["plural"])
            if resource is not None and resource.rules.custom:
                resource.terminating = True
            self._note_terminating(record, obj)
        elif taken := self._taken(obj["spec"]):
            self._note_refused(record, obj, taken)
        else:
            self._serve(obj)
            self._note_established(record, obj)

    def _taken(self, spec: dict[str, Any]) -> str:
        """The name that another resource of the group has already, or ``""``."""
        group, names = spec["group"], spec["names"]
        mine = self._catalog.resource(group, names["plural"])
        if mine is not None and not mine.rules.custom:
            return str(names["plural"])
        for other in self._catalog:
            if other.group == group and other is not mine:
                for name in (names["kind"], names["listKind"]):
                    if name in (other.kind, other.list_kind):
                        return str(name)
        return ""

    def _serve(self, obj: dict[str, Any]) -> None:
        spec = obj["spec"]
        group, names = spec["group"], spec["names"]
        resource = self._catalog.resource(group, names["plural"])
        if resource is None:
            resource = Resource(
                group=group,
                plural=names["plural"],
                singular=names["singular"],
                kind=names["kind"],
                namespaced=spec["scope"] == "Namespaced",
                collection=self._storage.collection(f"{names['plural']}.{group}"),
                rules=_CUSTOM,
            )
            self._catalog.add(resource)
        resource.singular, resource.kind = names["singular"], names["kind"]
        resource.list_kind = names["listKind"]
        resource.short_names = tuple(names.get("shortNames") or ())
        resource.categories = tuple(names.get("categories") or ())
        resource.versions = {
            version["name"]: _served(resource, version, resource.versions.get(version["name"]))
            for version in spec["versions"]
        }
        resource.storage_version = next(
            version["name"] for version in spec["versions"] if version.get("storage")
        )

    def _withdraw(self, obj: dict[str, Any]) -> None:
        group, plural = obj["spec"]["group"], obj["spec"]["names"]["plural"]
        resource = self._catalog.resource(group, plural)
        if resource is not None and resource.rules.custom:
            self._catalog.remove(group, plural)
            self._on_gone(resource)
            self._storage.drop(resource.collection.name)

    def _note_established(self, record: Record, obj: dict[str, Any]) -> None:
        names = obj["spec"]["names"]
        status = obj.get("status") or {}
        stored = list(status.get("storedVersions") or ())
        stored += [
            version["name"]
            for version in obj["spec"]["versions"]
            if version.get("storage") and version["name"] not in stored
        ]
        conditions = [
            self._condition(status, "NamesAccepted", "NoConflicts", "no conflicts found"),
            self._condition(
                status,
                "Established",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
        ]
        wanted = {"conditions": conditions, "acceptedNames": names, "storedVersions": stored}
        self._note(record, obj, {**status, **wanted})

    def _note_refused(self, record: Record, obj: dict[str, Any], name: str) -> None:
        now = timestamp(self._clock.time())
        status = obj.get("status") or {}
        if any(c.get("type") == "NamesAccepted" for c in status.get("conditions") or ()):
            return
        conditions = [
            {
                "type": "NamesAccepted",
                "status": "False",
                "lastTransitionTime": now,
                "reason": "NamesConflict",
                "message": f'"{name}" is already in use',
            },
            {
                "type": "Established",
                "status": "False",
                "lastTransitionTime": now,
                "reason": "NotAccepted",
                "message": "not all names are accepted",
            },
        ]
        self._note(record, obj, {**status, "conditions": conditions})

    def _note_terminating(self, record: Record, obj: dict[str, Any]) -> None:
        status = obj.get("status") or {}
        kept = [c for c in status.get("conditions") or () if c.get("type") != "Terminating"]
        condition = self._condition(
            status,
            "Terminating",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        )
        self._note(record, obj, {**status, "conditions": [*kept, condition]})

    def _condition(
        self, status: dict[str, Any], kind: str, reason: str, message: str
    ) -> dict[str, Any]:
        for condition in status.get("conditions") or ():
            if condition.get("type") == kind and condition.get("status") == "True":
                present: dict[str, Any] = condition
                return present
        return {
            "type": kind,
            "status": "True",
            "lastTransitionTime": timestamp(self._clock.time()),
            "reason": reason,
            "message": message,
        }

    def _note(self, record: Record, obj: dict[str, Any], status: dict[str, Any]) -> None:
        if obj.get("status") != status:
            obj["status"] = status
            served = self._catalog.find(_GROUP, "v1", "customresourcedefinitions")
            assert served is not None
            self._fields.of(served, "status").updated(record.decode(), obj, SERVER)
            self._storage.put(self._collection, record.key, obj)


def _served(
    resource: Resource, version: dict[str, Any], known: ServedVersion | None
) -> ServedVersion:
    """The version as it is served now; a known one is changed, so that its watches go on."""
    served = known or ServedVersion(resource, version["name"])
    served.subresources = version.get("subresources") or {}
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    served.schema = schema
    served.structure = Structure(schema, served.subresources.get("scale"))
    served.served = bool(version.get("served"))
    served.columns = tuple(_columns(version))
    served.selectable_fields = frozenset(
        field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()
    )
    served.warning = ""
    if version.get("deprecated"):
        served.warning = version.get("deprecationWarning") or (
            f"{served.api_version} {resource.kind} is deprecated"
        )
    return served


def _columns(version: dict[str, Any]) -> list[Column]:
    return [
        Column(
            column["name"],
            column["type"],
            column["jsonPath"],
            column.get("description", ""),
            column.get("format", ""),
            column.get("priority", 0),
        )
        for column in version.get("additionalPrinterColumns") or ()
    ]
