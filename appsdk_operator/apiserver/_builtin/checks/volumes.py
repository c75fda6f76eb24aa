"""Validation of pod volumes, persistent volumes, claims and storage classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._builtin.checks.common import Errors, Object
from appsdk_operator.apiserver._builtin.checks.containers import environment_field, resource_field
from appsdk_operator.apiserver._builtin.checks.scheduling import node_terms
from appsdk_operator.apiserver._values.status import FieldError

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_HOST_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
# The order in which the real server checks the sources of a volume.
_ORDER: Final = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
)


def volumes(found: Sequence[Object], path: str) -> Errors:
    """The volumes of a pod."""
    names: set[str] = set()
    for index, volume in enumerate(found):
        at, name = f"{path}[{index}]", volume.get("name", "")
        yield from _source(volume, at)
        if not name:
            yield FieldError.required(f"{at}.name")
            continue
        problems = list(checks.label(name, f"{at}.name"))
        yield from problems
        if not problems and name in names:
            yield FieldError.duplicate(f"{at}.name", name)
        names.add(name)


def _source(volume: Object, at: str) -> Errors:
    given = [name for name in _ORDER if name in volume]
    if not given:
        yield FieldError.required(at, "must specify a volume type")
        return
    for name in given[1:]:
        yield FieldError.forbidden(f"{at}.{name}", "may not specify more than 1 volume type")
    yield from _checked(given[0], volume[given[0]], f"{at}.{given[0]}")


# The fields that a source must have.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "awsElasticBlockStore": ("volumeID",),
    "azureDisk": ("diskName", "diskURI"),
    "azureFile": ("secretName", "shareName"),
    "cephfs": ("monitors",),
    "cinder": ("volumeID",),
    "configMap": ("name",),
    "csi": ("driver",),
    "flexVolume": ("driver",),
    "gcePersistentDisk": ("pdName",),
    "gitRepo": ("repository",),
    "glusterfs": ("endpoints", "path"),
    "hostPath": ("path",),
    "iscsi": ("targetPortal", "iqn"),
    "local": ("path",),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "quobyte": ("registry", "volume"),
    "rbd": ("monitors", "image"),
    "scaleIO": ("gateway", "system", "volumeName"),
    "secret": ("secretName",),
    "storageos": ("volumeName",),
    "vsphereVolume": ("volumePath",),
}


def _checked(name: str, source: Object, at: str) -> Errors:
    yield from checks.required(source, _NEEDED.get(name, ()), at)
    check = _SOURCES.get(name)
    if check is not None:
        yield from check(source, at)


def _empty(source: Object, at: str) -> Errors:
    if checks.amount_of(source.get("sizeLimit", "0")) < 0:
        detail = "SizeLimit field must be a valid resource quantity"
        yield FieldError.forbidden(f"{at}.sizeLimit", detail)


def _host(source: Object, at: str) -> Errors:
    yield from _local(source, at)
    yield from checks.one_of(source.get("type"), _HOST_TYPES, f"{at}.type")


def _files(source: Object, at: str) -> Errors:
    yield from _mode(source.get("defaultMode"), f"{at}.defaultMode")
    yield from _items(source.get("items") or (), f"{at}.items")


def _mode(mode: int | None, path: str) -> Errors:
    if mode is not None and not 0 <= mode <= 0o777:
        detail = "must be a number between 0 and 0777 (octal), both inclusive"
        yield FieldError.invalid(path, mode, detail)


def _items(items: Sequence[Object], path: str) -> Errors:
    for index, item in enumerate(items):
        at = f"{path}[{index}]"
        yield from checks.needed(item.get("key"), f"{at}.key")
        yield from checks.needed(item.get("path"), f"{at}.path", checks.relative_path)
        yield from _mode(item.get("mode"), f"{at}.mode")


def _downward(source: Object, at: str) -> Errors:
    yield from _mode(source.get("defaultMode"), f"{at}.defaultMode")
    for item in source.get("items") or ():
        yield from _downward_file(item, at)


def _downward_file(item: Object, at: str) -> Errors:
    yield from checks.needed(item.get("path"), f"{at}.path", checks.relative_path)
    if "fieldRef" in item:
        yield from environment_field(item["fieldRef"], f"{at}.fieldRef", whole=True)
    elif "resourceFieldRef" in item:
        yield from checks.required(
            item["resourceFieldRef"], ("containerName",), f"{at}.resourceFieldRef"
        )
        yield from resource_field(item["resourceFieldRef"], f"{at}.resourceFieldRef")
    else:
        yield FieldError.required(at, "one of fieldRef and resourceFieldRef is required")


def _nfs(source: Object, at: str) -> Errors:
    if not source.get("path", "").startswith("/"):
        yield FieldError.invalid(f"{at}.path", source.get("path", ""), "must be an absolute path")


def _projected(source: Object, at: str) -> Errors:
    yield from _mode(source.get("defaultMode"), f"{at}.defaultMode")
    paths: set[str] = set()
    for part in source.get("sources") or ():
        for name in ("secret", "configMap", "downwardAPI"):
            for item in (part.get(name) or {}).get("items") or ():
                if item.get("path") in paths:
                    yield FieldError.invalid(at, item["path"], "conflicting duplicate paths")
                paths.add(item.get("path", ""))
    for index, part in enumerate(source.get("sources") or ()):
        path = f"{at}.sources[{index}]"
        for name, wanted in (("secret", "name"), ("configMap", "name")):
            inner: Object | None = part.get(name)
            if inner is not None:
                yield from checks.needed(inner.get(wanted), f"{path}.{name}.{wanted}")
                yield from _items(inner.get("items") or (), f"{path}.{name}.items")
        for item in (part.get("downwardAPI") or {}).get("items") or ():
            yield from _downward_file(item, f"{path}.downwardAPI")
        token = part.get("serviceAccountToken")
        if token is not None:
            if token.get("expirationSeconds", 3600) < 600:
                yield FieldError.invalid(
                    f"{path}.serviceAccountToken.expirationSeconds",
                    token["expirationSeconds"],
                    "may not specify a duration less than 10 minutes",
                )
            yield from checks.needed(token.get("path"), f"{at}.path")


def _csi(source: Object, at: str) -> Errors:
    yield from checks.given(source.get("driver"), f"{at}.driver", _driver)


def _driver(name: str, path: str) -> Errors:
    if len(name) > 63:
        yield FieldError("FieldValueTooLong", path, "Too long: may not be more than 63 bytes")
    yield from checks.subdomain(name.lower(), path)


def _ephemeral(source: Object, at: str) -> Errors:
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield FieldError.required(f"{at}.volumeClaimTemplate")
    else:
        yield from claim_spec(template.get("spec") or {}, f"{at}.volumeClaimTemplate.spec")


def _local(source: Object, at: str) -> Errors:
    if ".." in source.get("path", "").split("/"):
        yield FieldError.invalid(f"{at}.path", source["path"], "must not contain '..'")


_SOURCES: Final = {
    "configMap": _files,
    "csi": _csi,
    "downwardAPI": _downward,
    "emptyDir": _empty,
    "ephemeral": _ephemeral,
    "hostPath": _host,
    "local": _local,
    "nfs": _nfs,
    "projected": _projected,
    "secret": _files,
}


# -- claims, persistent volumes and their classes --------------------------------------------


def claim(new: Object, old: Object | None) -> Errors:
    """A PersistentVolumeClaim."""
    yield from claim_spec(new.get("spec") or {}, "spec")
    if old is not None:
        spec, before = dict(new["spec"]), dict(old["spec"])
        bound = (new.get("status") or {}).get("phase") == "Bound"
        if not before.get("volumeName"):
            spec.pop("volumeName", None)
        if bound:
            sizes = [
                checks.amount_of((part.get(field) or {}).get("storage", "0"))
                for part, field in (
                    (spec.get("resources") or {}, "requests"),
                    (before.get("resources") or {}, "requests"),
                    (old.get("status") or {}, "capacity"),
                )
            ]
            if sizes[0] < sizes[1] and sizes[0] <= sizes[2]:
                detail = "field can not be less than status.capacity"
                yield FieldError.forbidden("spec.resources.requests.storage", detail)
            for part in (spec, before):
                part.pop("resources", None)
                part.pop("volumeAttributesClassName", None)
        if "storageClassName" not in before:
            spec.pop("storageClassName", None)
        if spec != before:
            detail = (
                "spec is immutable after creation except resources.requests and "
                "volumeAttributesClassName for bound claims"
            )
            yield FieldError.forbidden("spec", detail)


def claim_spec(spec: Object, path: str) -> Errors:
    """The spec of a claim."""
    modes = spec.get("accessModes") or ()
    if not modes:
        detail = "at least 1 access mode is required"
        yield FieldError.required(f"{path}.accessModes", detail)
    yield from checks.selector(spec.get("selector"), f"{path}.selector")
    yield from _access_modes(modes, f"{path}.accessModes")
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield FieldError.required(f"{path}.resources[storage]")
    elif checks.amount_of(size) <= 0:
        yield FieldError.invalid(f"{path}.resources[storage]", size, "must be greater than zero")
    yield from checks.given(
        spec.get("storageClassName"), f"{path}.storageClassName", checks.subdomain
    )
    allowed = ("Block", "Filesystem")
    yield from checks.choice(spec, "volumeMode", allowed, path)


def _access_modes(modes: Sequence[str], path: str) -> Errors:
    for mode in modes:
        if mode not in _MODES:
            yield FieldError.not_supported(path, mode, _MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        yield FieldError.forbidden(path, detail)


_SECRETS: Final = (
    "controllerExpandSecretRef",
    "controllerPublishSecretRef",
    "nodeExpandSecretRef",
    "nodePublishSecretRef",
    "nodeStageSecretRef",
)


def persistent_volume(new: Object, old: Object | None) -> Errors:
    """A PersistentVolume."""
    yield from _persistent(new.get("spec") or {})
    if old is not None:
        given, before = (
            {name: part.get("spec", {}).get(name) for name in (*_ORDER, "local")}
            for part in (new, old)
        )
        if given != before:
            detail = "spec.persistentvolumesource is immutable after creation"
            yield FieldError.forbidden("spec.persistentvolumesource", detail)
        now, was = (part.get("spec", {}).get("nodeAffinity") for part in (new, old))
        if was is not None and now != was:
            detail = "field is immutable, except for updating from beta label to GA"
            yield FieldError.invalid("nodeAffinity", now, detail)


def _persistent(spec: Object) -> Errors:
    modes, capacity = spec.get("accessModes") or (), spec.get("capacity")
    yield from checks.needed(modes, "spec.accessModes")
    yield from _access_modes(modes, "spec.accessModes")
    yield from checks.needed(capacity, "spec.capacity")
    if not capacity or set(capacity) != {"storage"}:
        yield FieldError.not_supported("spec.capacity", capacity or None, ("storage",))
    for name, value in (capacity or {}).items():
        if name == "storage" and checks.amount_of(value) <= 0:
            yield FieldError.invalid(f"spec.capacity[{name}]", value, "must be greater than zero")
    policy = spec.get("persistentVolumeReclaimPolicy")
    allowed: tuple[str, ...] = ("Delete", "Recycle", "Retain")
    yield from checks.one_of(policy, allowed, "spec.persistentVolumeReclaimPolicy")
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms")
    if "nodeAffinity" in spec:
        yield from node_terms(terms or (), "spec.nodeAffinity.required.nodeSelectorTerms")
    given = [name for name in ("hostPath", *_ORDER, "local") if name in spec]
    given = list(dict.fromkeys(given))
    for name in given[1:]:
        yield FieldError.forbidden(f"spec.{name}", "may not specify more than 1 volume type")
    if not given:
        yield FieldError.required("spec", "must specify a volume type")
    else:
        yield from _checked(given[0], spec[given[0]], f"spec.{given[0]}")
    if given[:1] == ["csi"]:
        yield from checks.required(spec["csi"], ("volumeHandle",), "spec.csi")
        for name in _SECRETS:
            if name in spec["csi"]:
                yield from _secret(spec["csi"][name], f"spec.csi.{name}")
    if given[:1] == ["local"] and not terms:
        yield FieldError.required("spec.nodeAffinity", "Local volume requires node affinity")
    if policy == "Recycle" and (spec.get("hostPath") or {}).get("path") == "/":
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        yield FieldError.forbidden("spec.persistentVolumeReclaimPolicy", detail)
    yield from checks.given(spec.get("storageClassName"), "spec.storageClassName", checks.subdomain)
    allowed = ("Block", "Filesystem")
    yield from checks.choice(spec, "volumeMode", allowed, "spec")


def _secret(reference: Object, at: str) -> Errors:
    yield from checks.required(reference, ("name", "namespace"), at)
    yield from checks.given(reference.get("name"), f"{at}.name", checks.subdomain)
    yield from checks.given(reference.get("namespace"), f"{at}.namespace", checks.label)


def csi_node(new: Object, old: Object | None) -> Errors:
    """A CSINode: its drivers stay what they are, but for the number of volumes."""
    drivers: Sequence[Object] = new["spec"]["drivers"] or ()
    before = {each["name"]: each for each in ((old or {}).get("spec") or {}).get("drivers") or ()}
    seen: set[str] = set()
    for index, driver in enumerate(drivers):
        at, name = f"spec.drivers[{index}]", driver.get("name", "")
        yield from checks.subdomain(name, f"{at}.name")
        yield from checks.needed(driver.get("nodeID"), f"{at}.nodeID")
        count = (driver.get("allocatable") or {}).get("count")
        yield from checks.not_negative(count, f"{at}.allocatable.count")
        if name in seen:
            yield FieldError.duplicate(f"{at}.name", name)
        seen.add(name)
        for key in driver.get("topologyKeys") or ():
            yield from checks.key(key, at)
        now, was = ({**each, "allocatable": None} for each in (driver, before.get(name, driver)))
        yield from checks.unchanged(now, was, "spec.drivers")


def attachment(new: Object, _old: Object | None) -> Errors:
    """A VolumeAttachment."""
    spec = new.get("spec") or {}
    yield from _driver(spec.get("attacher", ""), "spec.attacher")
    yield from checks.subdomain(spec.get("nodeName", ""), "spec.nodeName")
    source = spec.get("source") or {}
    given = [name for name in ("persistentVolumeName", "inlineVolumeSpec") if source.get(name)]
    if not given:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        yield FieldError.required("spec.source", detail)
    elif len(given) > 1:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        yield FieldError.forbidden("spec.source", detail)


def csi_driver(new: Object, _old: Object | None) -> Errors:
    """A CSIDriver."""
    spec, allowed = new.get("spec") or {}, ("Persistent", "Ephemeral")
    policies = ("File", "None", "ReadWriteOnceWithFSType")
    yield from checks.choice(spec, "fsGroupPolicy", policies, "spec")
    yield from (
        FieldError.not_supported("spec.volumeLifecycleModes", mode, allowed)
        for mode in spec.get("volumeLifecycleModes") or ()
        if mode not in allowed
    )


def storage_class(new: Object, _old: Object | None) -> Errors:
    """A StorageClass."""
    provisioner = new.get("provisioner", "")
    if not provisioner:
        yield FieldError.required("provisioner")
    else:
        yield from checks.key(provisioner.lower(), "provisioner")
    for name in new.get("parameters") or ():
        if not name:
            yield FieldError.invalid("parameters", "", "field can not be empty.")
    yield from checks.one_of(new.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy")
    allowed = ("Immediate", "WaitForFirstConsumer")
    yield from checks.one_of(new.get("volumeBindingMode"), allowed, "volumeBindingMode")
    for index, term in enumerate(new.get("allowedTopologies") or ()):
        for number, part in enumerate(term.get("matchLabelExpressions") or ()):
            at = f"allowedTopologies[{index}].matchLabelExpressions[{number}]"
            yield from checks.needed(part.get("values"), f"{at}.values")
            yield from checks.key(part.get("key", ""), f"{at}.key")
