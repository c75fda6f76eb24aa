"""CustomResourceDefinitions: defaults, conditions, and the resources they define."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, final

from appsdk_operator.apiserver._crds.compiled_schemas import CompiledSchemas
from appsdk_operator.apiserver._crds.validation import (
    approval_of,
    approval_problems,
    definition_problems,
    is_protected,
    status_problems,
)
from appsdk_operator.apiserver._managed_fields.entries import SERVER
from appsdk_operator.apiserver._managed_fields.field_managers import FieldManagers
from appsdk_operator.apiserver._schema.metadata import timestamp
from appsdk_operator.apiserver._storage.resources import (
    Catalog,
    Column,
    Resource,
    SelectableFields,
    ServedVersion,
    Strategy,
    version_priority,
)
from appsdk_operator.apiserver._storage.storage import Event, Record, Storage
from appsdk_operator.apiserver._values import jsonpath
from appsdk_operator.apiserver._values.run_sync import run_sync
from appsdk_operator.apiserver._values.status import FieldError
from appsdk_operator.resource import field_text
from appsdk_operator.runtime import Clock

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_GROUP: Final = "apiextensions.k8s.io"
# In the order of the real server's discovery.
_VERBS: Final = (
    *("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"),
)
_CUSTOM: Final = Strategy(custom=True, generation=True, unconditional_update=False)


def _prepare_create(obj: dict[str, Any]) -> None:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    _fill_in(spec)
    stored = [version.get("name") for version in _versions(spec) if version.get("storage")][:1]
    obj["status"] = {
        "acceptedNames": {"plural": "", "kind": ""},
        "conditions": None,
        "storedVersions": stored,
    }


def _prepare_update(new: dict[str, Any], _old: dict[str, Any]) -> None:
    spec = new.get("spec")
    if not isinstance(spec, dict):
        return
    _fill_in(spec)
    stored: list[str] = (new.get("status") or {}).get("storedVersions") or []
    added = [
        version["name"]
        for version in _versions(spec)
        if version.get("storage") and version.get("name") not in stored
    ]
    if added:
        new["status"] = {**(new.get("status") or {}), "storedVersions": [*stored, *added[:1]]}


def _versions(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [version for version in spec.get("versions") or () if isinstance(version, dict)]


def _fill_in(spec: dict[str, Any]) -> None:
    names = spec.get("names")
    if isinstance(names, dict) and isinstance(names.get("kind"), str):
        names["singular"] = names.get("singular") or names["kind"].lower()
        if not names.get("listKind") and names["kind"]:
            names["listKind"] = f"{names['kind']}List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    conversion: dict[str, Any] = spec["conversion"]
    config = (conversion.get("webhook") or {}).get("clientConfig") or {}
    if isinstance(config.get("service"), dict):
        config["service"].setdefault("port", 443)


def _validate(
    new: dict[str, Any], old: dict[str, Any] | None, schemas: CompiledSchemas
) -> Iterator[FieldError]:
    if old is None or new.get("spec") != old.get("spec"):
        return definition_problems(new, old, schemas)
    if new.get("status") != old.get("status"):
        return status_problems(new)
    return approval_problems(new, old)


def _compile_ahead(
    new: dict[str, Any], old: dict[str, Any] | None, schemas: CompiledSchemas
) -> None:
    """Compile the schemas of a definition for its validation, and if it is valid for serving it."""
    if old is None:
        _prepare_create(new)
    else:
        _prepare_update(new, old)
    if not list(_validate(new, old, schemas)):
        for version in _versions(new["spec"]):
            schemas.structural(*_schema_and_scale(version))


def _schema_and_scale(version: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    scale = (version.get("subresources") or {}).get("scale")
    return version["schema"]["openAPIV3Schema"], scale


def crd_strategy(clock: Clock, schemas: CompiledSchemas) -> Strategy:
    """The strategy of CustomResourceDefinitions; ``schemas`` keeps what it compiles."""

    def prepare_delete(obj: dict[str, Any]) -> bool:
        metadata = obj["metadata"]
        finalizers = metadata.setdefault("finalizers", [])
        if "deletionTimestamp" not in metadata:
            if CLEANUP not in finalizers:
                finalizers.append(CLEANUP)
            message = (
                "CustomResourceDefinition marked for deletion; CustomResource deletion will begin "
                "soon"
            )
            condition = ("Terminating", "True", "InstanceDeletionPending", message)
            _set_condition(obj, condition, clock.time())
        return True

    return Strategy(
        generation=True,
        unconditional_update=False,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        prepare_delete=prepare_delete,
        compile_ahead=lambda new, old: _compile_ahead(new, old, schemas),
        validate=lambda new, old: _validate(new, old, schemas),
    )


def _set_condition(obj: dict[str, Any], condition: tuple[str, str, str, str], now: float) -> None:
    """Set a condition: type, status, reason, message. A new status sets the transition time."""
    status = obj["status"] = {**(obj.get("status") or {})}
    conditions = [{**known} for known in status.get("conditions") or ()]
    kind, state, reason, message = condition
    made = {
        "type": kind,
        "status": state,
        "lastTransitionTime": timestamp(now),
        "reason": reason,
        "message": message,
    }
    for index, known in enumerate(conditions):
        if known.get("type") == kind:
            if known.get("status") == state:
                made["lastTransitionTime"] = known["lastTransitionTime"]
            conditions[index] = made
            break
    else:
        conditions.append(made)
    status["conditions"] = conditions


@final
class CRDController:
    """Serves the resources of stored definitions, and keeps their status conditions."""

    def __init__(
        self,
        storage: Storage,
        catalog: Catalog,
        clock: Clock,
        end_watches: Callable[[Resource], None],
        fields: FieldManagers,
        schemas: CompiledSchemas,
    ) -> None:
        """``end_watches`` is called for each resource that is no longer served or has changed."""
        self._schemas = schemas
        self._storage = storage
        self._catalog = catalog
        self._clock = clock
        self._end_watches = end_watches
        self._fields = fields
        self._definitions: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._collection = storage.collection(f"customresourcedefinitions.{_GROUP}")
        self._putting = False

    def on_event(self, event: Event) -> None:
        """React to a change of a definition."""
        record = event.record
        if self._putting:
            return
        obj = record.decode()
        if event.type == "DELETED":
            self._stop_serving(obj)
            self._recheck_names(obj)
            return
        if record.deleting:
            resource = self._resource(obj)
            if resource is not None:
                resource.terminating = True
            self._set_terminating_condition(record, obj)
            return
        self._set_approval_condition(obj)
        names = (obj.get("status") or {}).get("acceptedNames")
        if names == obj["spec"]["names"] and self._condition_is(obj, "Established"):
            self._serve(obj)
            self._put_status(record, obj)
        else:
            self._decide_names(record, obj)

    def on_repeated_event(self, event: Event) -> None:
        """Serve a definition whose conditions come with the next events, written already."""
        obj = event.record.decode()
        if self._condition_is(obj, "Established", "False", reason="Installing"):
            self._serve(obj)

    def _resource(self, obj: dict[str, Any]) -> Resource | None:
        """The resource of a definition; None while it is not served."""
        spec = obj["spec"]
        found = self._catalog.resource(spec["group"], spec["names"]["plural"])
        return found if found is not None and found.strategy.custom else None

    # -- names -------------------------------------------------------------------------------

    def _decide_names(self, record: Record, obj: dict[str, Any]) -> None:
        """Accept names without conflict, and serve the resource once it is established."""
        before = (obj.get("status") or {}).get("acceptedNames") or {}
        accepted, problem = self._accepted(obj)
        if problem is None:
            self._set_condition(obj, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
        else:
            self._set_condition(obj, "NamesAccepted", "False", *problem)
        obj["status"]["acceptedNames"] = accepted
        established = self._condition_is(obj, "Established")
        if not established and problem is not None:
            message = "not all names are accepted"
            self._set_condition(obj, "Established", "False", "NotAccepted", message)
        elif not established:
            message = "the initial names have been accepted"
            self._set_condition(obj, "Established", "False", "Installing", message)
            self._put(record.key, obj)
            obj = self._collection.records[record.key].decode()
            self._set_condition(obj, "Established", "True", "InitialNamesAccepted", message)
            established = True
        if established:
            self._serve(obj)
        self._put_status(record, obj)
        if {**before} != accepted:
            self._recheck_names(obj)

    def _recheck_names(self, obj: dict[str, Any]) -> None:
        """Check the names of the group's other definitions again: some may have become free."""
        group = obj["spec"]["group"]
        for key in list(self._collection.keys):
            record = self._collection.records.get(key)
            if record is None or record.deleting or not key.endswith(f".{group}"):
                continue
            other = record.decode()
            names = (other.get("status") or {}).get("acceptedNames")
            if other["spec"]["group"] == group and other["spec"]["names"] != names:
                self._decide_names(record, other)

    def _accepted(self, obj: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, str] | None]:
        """The accepted names, and the last conflict."""
        wanted: dict[str, Any] = obj["spec"]["names"]
        mine: dict[str, Any] = {**((obj.get("status") or {}).get("acceptedNames") or {})}
        resources, kinds = self._names_in_use(obj)
        problem: tuple[str, str] | None = None
        for name, reason, used in (
            ("plural", "PluralConflict", resources),
            ("singular", "SingularConflict", resources),
            ("shortNames", "ShortNamesConflict", resources),
            ("kind", "KindConflict", kinds),
            ("listKind", "ListKindConflict", kinds),
        ):
            value = wanted.get(name)
            values = [value] if name != "shortNames" else list(value or ())
            has = [mine.get(name)] if name != "shortNames" else list(mine.get(name) or ())
            taken = [text for text in values if text not in has and text in used]
            if not taken:
                mine[name] = value
                continue
            texts = [f'"{text}" is already in use' for text in taken]
            message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
            problem = (reason, message)
        mine["categories"] = wanted.get("categories")
        mine.setdefault("plural", "")
        mine.setdefault("kind", "")
        return {name: value for name, value in mine.items() if value is not None}, problem

    def _names_in_use(self, obj: dict[str, Any]) -> tuple[set[str], set[str]]:
        group, name = obj["spec"]["group"], obj["metadata"]["name"]
        resources: set[str] = set()
        kinds: set[str] = set()
        for key in self._collection.keys:
            if key == name or not key.endswith(f".{group}"):
                continue
            other = self._collection.records[key].decode()
            if other["spec"]["group"] == group:
                names = (other.get("status") or {}).get("acceptedNames") or {}
                resources |= {names.get("plural", ""), names.get("singular", "")}
                resources |= set(names.get("shortNames") or ())
                kinds |= {names.get("kind", ""), names.get("listKind", "")}
        for builtin in self._catalog.of_group(group):
            if not builtin.strategy.custom:
                resources |= {builtin.plural, builtin.singular}
                kinds.add(builtin.kind)
        return resources - {""}, kinds - {""}

    # -- serving -----------------------------------------------------------------------------

    def _serve(self, obj: dict[str, Any]) -> None:
        spec, names = obj["spec"], obj["status"]["acceptedNames"]
        resource = self._resource(obj)
        # As on the real server, which makes another storage of a changed definition.
        if resource is not None and self._definitions[obj["metadata"]["name"]] != (spec, names):
            self._end_watches(resource)
        self._definitions[obj["metadata"]["name"]] = spec, names
        if resource is None:
            resource = Resource(
                group=spec["group"],
                plural=names["plural"],
                singular=names["singular"],
                kind=names["kind"],
                namespaced=spec["scope"] == "Namespaced",
                collection=self._storage.new_collection(f"{names['plural']}.{spec['group']}"),
                strategy=_CUSTOM,
                verbs=_VERBS,
            )
            self._catalog.add(resource)
        resource.singular, resource.kind = names["singular"], names["kind"]
        resource.list_kind = names["listKind"]
        resource.short_names = tuple(names.get("shortNames") or ())
        resource.categories = tuple(names.get("categories") or ())
        resource.versions = {
            version["name"]: self._served(resource, version) for version in spec["versions"]
        }
        for version in spec["versions"]:
            served = resource.versions[version["name"]]
            served.warning = _deprecation_warning(resource, version, spec["versions"])
        resource.storage_version = next(
            version["name"] for version in spec["versions"] if version.get("storage")
        )

    def _served(self, resource: Resource, version: dict[str, Any]) -> ServedVersion:
        """The served version; an existing one is changed in place, for requests in progress."""
        known = resource.versions.get(version["name"])
        served = known or ServedVersion(resource, version["name"])
        served.subresources = version.get("subresources") or {}
        schema, scale = _schema_and_scale(version)
        if served.structural_schema is None or not served.structural_schema.is_made_of(
            schema, scale
        ):
            served.structural_schema = self._schemas.structural(schema, scale)
            # Objects stored before are pruned and defaulted by the new schema on every read.
            served.schema_since = self._storage.revision if known is not None else 0
        served.schema = schema
        served.served = bool(version.get("served"))
        served.columns = _columns(version)
        paths = [
            field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()
        ]
        served.selectable = SelectableFields(
            {path: field_text(path) for path in paths},
            refusal="field label not supported: {}",
        )
        return served

    def _stop_serving(self, obj: dict[str, Any]) -> None:
        resource = self._resource(obj)
        if resource is not None:
            self._catalog.remove(resource.group, resource.plural)
            self._end_watches(resource)
            del self._definitions[obj["metadata"]["name"]]
            self._storage.drop(resource.collection.name)

    # -- conditions --------------------------------------------------------------------------

    def _set_terminating_condition(self, record: Record, obj: dict[str, Any]) -> None:
        if CLEANUP in record.finalizers:
            reason, message = "InstanceDeletionInProgress", "CustomResource deletion is in progress"
            self._set_condition(obj, "Terminating", "True", reason, message)
            self._put_status(record, obj)

    def _set_approval_condition(self, obj: dict[str, Any]) -> None:
        """Set the condition about the approval of a protected group."""
        if not is_protected(obj["spec"]["group"]):
            return
        state, reason = approval_of(obj["metadata"])
        kind = "KubernetesAPIApprovalPolicyConformant"
        status, word = {
            "approved": ("True", "ApprovedAnnotation"),
            "bypassed": ("False", "UnapprovedAnnotation"),
            "invalid": ("False", "InvalidAnnotation"),
        }.get(state, ("False", "MissingAnnotation"))
        self._set_condition(obj, kind, status, word, reason)

    @staticmethod
    def _condition_is(
        obj: dict[str, Any], kind: str, status: str = "True", *, reason: str = ""
    ) -> bool:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return any(
            each.get("type") == kind
            and each.get("status") == status
            and (not reason or each.get("reason") == reason)
            for each in conditions
        )

    def _set_condition(self, obj: dict[str, Any], *condition: str) -> None:
        kind, state, reason, message = condition
        _set_condition(obj, (kind, state, reason, message), self._clock.time())

    def _put(self, key: str, obj: dict[str, Any]) -> None:
        """Store a definition without reacting to that change."""
        served = self._catalog.find(_GROUP, "v1", "customresourcedefinitions")
        assert served is not None
        present = self._collection.records[key].decode()
        # Nothing converts definitions, so nothing is waited for.
        run_sync(self._fields.of(served, "status").updated(present, obj, SERVER))
        self._putting = True
        try:
            self._storage.put(self._collection, key, obj)
        finally:
            self._putting = False

    def _put_status(self, record: Record, obj: dict[str, Any]) -> None:
        """Store the status, if it has changed."""
        present = self._collection.records.get(record.key)
        if present is None or (present.decode().get("status") == obj.get("status")):
            return
        self._put(record.key, obj)


def _deprecation_warning(
    resource: Resource, version: dict[str, Any], versions: list[dict[str, Any]]
) -> str:
    """The warning about a deprecated version; empty for others."""
    if not version.get("deprecated"):
        return ""
    own: str | None = version.get("deprecationWarning")
    if own is not None:
        return own
    better = [
        other["name"]
        for other in versions
        if other.get("served")
        and not other.get("deprecated")
        and version_priority(other["name"]) < version_priority(version["name"])
    ]
    warning = f"{resource.group}/{version['name']} {resource.kind} is deprecated"
    if better:
        best = min(better, key=version_priority)
        warning += f"; use {resource.group}/{best} {resource.kind}"
    return warning


def _columns(version: dict[str, Any]) -> tuple[Column, ...] | None:
    """The printer columns before the first one whose path has no syntax; None without any."""
    columns = version.get("additionalPrinterColumns")
    if not columns:
        return None
    return tuple(
        Column(
            column["name"],
            column["type"],
            column["jsonPath"],
            column.get("description")
            or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}",
            column.get("format", ""),
            column.get("priority", 0),
        )
        for column in itertools.takewhile(
            lambda column: jsonpath.is_valid(column["jsonPath"]), columns
        )
    )
