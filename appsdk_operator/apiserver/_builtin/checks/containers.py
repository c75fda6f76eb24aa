"""Validation of containers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._builtin.checks.common import Errors, Object
from appsdk_operator.apiserver._builtin.checks.resources import resources
from appsdk_operator.apiserver._values.status import FieldError

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_RESOURCES: Final = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_VARIABLE: Final = re.compile(r"[ -<>-~]+")
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ONLY_SIDECARS: Final = "may not be set for init containers without restartPolicy=Always"


def containers(spec: Object, path: str, volumes: Mapping[str, Object]) -> Errors:
    """The containers of a pod."""
    found: Sequence[Object] = spec.get("containers") or ()
    if not found:
        yield FieldError.required(path)
        return
    names: set[str] = set()
    for index, container in enumerate(found):
        at = f"{path}[{index}]"
        yield from _common(container, at, volumes)
        name = container.get("name", "")
        if name in names:
            yield FieldError.duplicate(f"{at}.name", name)
        names.add(name)
        yield from _hooks(container.get("lifecycle"), f"{at}.lifecycle")
        yield from _probes(container, at)
        yield from _restarts(container, at)
    yield from _host_ports(found, path)


def init_containers(spec: Object, path: str, volumes: Mapping[str, Object]) -> Errors:
    """The init containers of a pod."""
    names = {container.get("name", "") for container in spec.get("containers") or ()}
    for index, container in enumerate(spec.get("initContainers") or ()):
        at = f"{path}[{index}]"
        yield from _common(container, at, volumes)
        yield from _restarts(container, at)
        name = container.get("name", "")
        if name in names:
            yield FieldError.duplicate(f"{at}.name", name)
        elif name:
            names.add(name)
        yield from _host_ports([container], path)
        if container.get("restartPolicy") == "Always":
            yield from _hooks(container.get("lifecycle"), f"{at}.lifecycle")
            yield from _probes(container, at)
            continue
        for part in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if part in container:
                yield FieldError.forbidden(f"{at}.{part}", _ONLY_SIDECARS)


def _common(container: Object, at: str, volumes: Mapping[str, Object]) -> Errors:
    name, image = container.get("name", ""), container.get("image", "")
    yield from checks.needed(name, f"{at}.name", checks.label)
    if not image:
        yield FieldError.required(f"{at}.image")
    elif image.strip() != image:
        yield FieldError.invalid(
            f"{at}.image", image, "must not have leading or trailing whitespace"
        )
    policy = container.get("terminationMessagePolicy")
    allowed: tuple[str, ...] = ("File", "FallbackToLogsOnError")
    yield from checks.one_of(policy, allowed, f"{at}.terminationMessagePolicy")
    yield from _ports(container.get("ports") or (), f"{at}.ports")
    for index, variable in enumerate(container.get("env") or ()):
        yield from _variable(variable, f"{at}.env[{index}]")
    yield from _variables_from(container.get("envFrom") or (), f"{at}.envFrom")
    yield from _mounts(container, f"{at}.volumeMounts", volumes)
    yield from _devices(container, f"{at}.volumeDevices", volumes)
    allowed = ("Always", "IfNotPresent", "Never")
    yield from checks.one_of(container.get("imagePullPolicy"), allowed, f"{at}.imagePullPolicy")
    yield from resources(container.get("resources") or {}, f"{at}.resources")
    for resize in container.get("resizePolicy") or ():
        yield from checks.one_of(
            resize.get("resourceName"), ("cpu", "memory"), f"{at}.resizePolicy"
        )
        allowed = ("NotRequired", "RestartContainer")
        yield from checks.one_of(resize.get("restartPolicy"), allowed, f"{at}.resizePolicy")
    yield from _security(container.get("securityContext") or {}, f"{at}.securityContext")


def _restarts(container: Object, at: str) -> Errors:
    allowed = ("Always", "Never", "OnFailure")
    yield from checks.one_of(container.get("restartPolicy"), allowed, f"{at}.restartPolicy")


def _ports(ports: Sequence[Object], path: str) -> Errors:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{path}[{index}]"
        name = port.get("name")
        if name:
            problems = list(checks.port_name(name, f"{at}.name"))
            yield from problems
            if not problems and name in names:
                yield FieldError.duplicate(f"{at}.name", name)
            elif not problems:
                names.add(name)
        yield from checks.needed(
            port.get("containerPort"), f"{at}.containerPort", checks.port_number
        )
        yield from checks.given(port.get("hostPort"), f"{at}.hostPort", checks.port_number)
        yield from checks.one_of(port.get("protocol"), _PROTOCOLS, f"{at}.protocol")


def _host_ports(found: Sequence[Object], path: str) -> Errors:
    seen: set[str] = set()
    for index, container in enumerate(found):
        for number, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            shown = f"{port.get('protocol')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if shown in seen:
                yield FieldError.duplicate(f"{path}[{index}].ports[{number}].hostPort", shown)
            seen.add(shown)


def _variable(variable: Object, at: str) -> Errors:
    name, source = variable.get("name", ""), variable.get("valueFrom")
    if not name:
        yield FieldError.required(f"{at}.name")
    elif not _VARIABLE.fullmatch(name):
        yield FieldError.invalid(
            f"{at}.name",
            name,
            "a valid environment variable name must consist only of printable ASCII characters "
            "other than '='",
        )
    if source is None:
        return
    at = f"{at}.valueFrom"
    if "fieldRef" in source:
        yield from environment_field(source["fieldRef"], f"{at}.fieldRef")
    if "resourceFieldRef" in source:
        yield from resource_field(source["resourceFieldRef"], f"{at}.resourceFieldRef")
    for part in ("configMapKeyRef", "secretKeyRef"):
        if part in source:
            yield from checks.subdomain(source[part].get("name", ""), f"{at}.{part}.name")
            yield from checks.needed(source[part].get("key"), f"{at}.{part}.key", checks.config_key)
    given = [name for name in _SOURCES if name in source]
    if not given:
        names = f"{', '.join(f'`{name}`' for name in _SOURCES[:-1])} or `{_SOURCES[-1]}`"
        yield FieldError.invalid(at, "", f"must specify one of: {names}")
    elif variable.get("value"):
        yield FieldError.invalid(at, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield FieldError.invalid(at, "", "may not have more than one field specified at a time")


_SUBSCRIPT: Final = re.compile(r"metadata\.(annotations|labels)\['(.*)'\]")


def environment_field(reference: Object, at: str, *, whole: bool = False) -> Errors:
    """A field reference; ``whole`` allows all labels or all annotations."""
    wanted = reference.get("fieldPath", "")
    if not reference.get("apiVersion"):
        yield FieldError.required(f"{at}.apiVersion")
    elif not wanted:
        yield FieldError.required(f"{at}.fieldPath")
    elif _SUBSCRIPT.fullmatch(wanted) or wanted in _FIELDS:
        return
    elif not (whole and wanted in ("metadata.labels", "metadata.annotations")):
        detail = f"error converting fieldPath: field label not supported: {wanted}"
        yield FieldError.invalid(f"{at}.fieldPath", wanted, detail)


def resource_field(reference: Object, at: str) -> Errors:
    """A reference to a resource of a container."""
    wanted = reference.get("resource", "")
    if not wanted:
        yield FieldError.required(f"{at}.resource")
    elif wanted not in _RESOURCES and not re.match(r"(limits|requests)\.hugepages-", wanted):
        yield FieldError.not_supported(f"{at}.resource", wanted, _RESOURCES)


def _variables_from(sources: Sequence[Object], path: str) -> Errors:
    for index, source in enumerate(sources):
        given = [name for name in ("configMapRef", "secretRef") if name in source]
        for name in given:
            yield from checks.subdomain(
                source[name].get("name", ""), f"{path}[{index}].{name}.name"
            )
        if not given:
            detail = "must specify one of: `configMapRef` or `secretRef`"
            yield FieldError.invalid(path, "", detail)
        elif len(given) > 1:
            detail = "may not have more than one field specified at a time"
            yield FieldError.invalid(path, "", detail)


def _mounts(container: Object, path: str, volumes: Mapping[str, Object]) -> Errors:
    devices = {
        device.get("name", ""): device.get("devicePath", "")
        for device in container.get("volumeDevices") or ()
    }
    places: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        at, name, place = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        yield from checks.needed(name, f"{at}.name")
        if name not in volumes:
            yield checks.not_found(f"{at}.name", name)
        yield from checks.needed(place, f"{at}.mountPath")
        if place in places:
            yield FieldError.invalid(f"{at}.mountPath", place, "must be unique")
        places.add(place)
        if name in devices:
            yield FieldError.invalid(f"{at}.name", name, "must not already exist in volumeDevices")
        if place in devices.values():
            detail = "must not already exist as a path in volumeDevices"
            yield FieldError.invalid(f"{at}.mountPath", place, detail)
        yield from checks.given(mount.get("subPath"), f"{path}.subPath", checks.relative_path)
        if mount.get("subPathExpr"):
            if mount.get("subPath"):
                detail = "subPathExpr and subPath are mutually exclusive"
                yield FieldError.invalid(f"{at}.subPathExpr", mount["subPathExpr"], detail)
            yield from checks.relative_path(mount["subPathExpr"], f"{path}.subPathExpr")
        yield from _propagation(container, mount, path)


def _propagation(container: Object, mount: Object, at: str) -> Errors:
    allowed: tuple[str, ...] = ("Bidirectional", "HostToContainer", "None")
    yield from checks.choice(mount, "mountPropagation", allowed, at)
    given = mount.get("mountPropagation")
    privileged = (container.get("securityContext") or {}).get("privileged")
    if given == "Bidirectional" and not privileged:
        detail = "Bidirectional mount propagation is available only to privileged containers"
        yield FieldError.forbidden(f"{at}.mountPropagation", detail)
    allowed = ("Disabled", "Enabled", "IfPossible")
    yield from checks.choice(mount, "recursiveReadOnly", allowed, at)
    if mount.get("recursiveReadOnly", "Disabled") == "Disabled":
        return
    path, detail = f"{at}.recursiveReadOnly", "may only be specified when"
    if not mount.get("readOnly"):
        yield FieldError.forbidden(path, f"{detail} readOnly is true")
    if given not in (None, "None"):
        yield FieldError.forbidden(path, f"{detail} mountPropagation is None or not specified")


def _devices(container: Object, path: str, volumes: Mapping[str, Object]) -> Errors:
    mounts = {
        mount.get("name", ""): mount.get("mountPath", "")
        for mount in container.get("volumeMounts") or ()
    }
    names: set[str] = set()
    places: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices") or ()):
        at, name, place = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        yield from checks.needed(name, f"{at}.name")
        if name in names:
            yield FieldError.invalid(f"{at}.name", name, "must be unique")
        if name not in volumes:
            yield checks.not_found(f"{at}.name", name)
        elif not volumes[name].keys() & {"persistentVolumeClaim", "ephemeral"}:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for "
            yield FieldError.invalid(f"{at}.name", name, f"{detail}block mode")
        yield from checks.needed(place, f"{at}.devicePath")
        if place in places:
            yield FieldError.invalid(f"{at}.devicePath", place, "must be unique")
        if ".." in place.split("/"):
            detail = "can not contain backsteps ('..')"
            yield FieldError.invalid(f"{at}.devicePath", place, detail)
        else:
            places.add(place)
        if name in mounts:
            yield FieldError.invalid(f"{at}.name", name, "must not already exist in volumeMounts")
        if place in mounts.values():
            detail = "must not already exist as a path in volumeMounts"
            yield FieldError.invalid(f"{at}.devicePath", place, detail)
        if name:
            names.add(name)


def _probes(container: Object, at: str) -> Errors:
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is None:
            continue
        path = f"{at}.{name}"
        yield from _handler(probe, path)
        for part in (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ):
            yield from checks.not_negative(probe.get(part), f"{path}.{part}")
        grace = probe.get("terminationGracePeriodSeconds")
        if name == "readinessProbe":
            if grace is not None:
                yield FieldError.invalid(
                    f"{path}.terminationGracePeriodSeconds",
                    grace,
                    "must not be set for readinessProbes",
                )
            continue
        if grace is not None and grace <= 0:
            detail = "must be greater than 0"
            yield FieldError.invalid(f"{path}.terminationGracePeriodSeconds", grace, detail)
        if probe.get("successThreshold", 1) != 1:
            detail = "must be 1"
            yield FieldError.invalid(f"{path}.successThreshold", probe["successThreshold"], detail)


def _hooks(hooks: Object | None, at: str) -> Errors:
    for name in ("postStart", "preStop"):
        if hooks and name in hooks:
            yield from _handler(hooks[name], f"{at}.{name}")


def _handler(holder: Object, path: str) -> Errors:
    given = [name for name in _HANDLERS if name in holder]
    if not given:
        yield FieldError.required(path, "must specify a handler type")
        return
    for name in given[1:]:
        detail = "may not specify more than 1 handler type"
        yield FieldError.forbidden(f"{path}.{name}", detail)
    handler, at = holder[given[0]], f"{path}.{given[0]}"
    if given[0] == "exec":
        yield from checks.needed(handler.get("command"), f"{at}.command")
    elif given[0] == "httpGet":
        yield from checks.needed(handler.get("path"), f"{at}.path")
        yield from checks.port_or_name(handler.get("port"), f"{at}.port")
        yield from checks.one_of(handler.get("scheme"), ("HTTP", "HTTPS"), f"{at}.scheme")
        for header in handler.get("httpHeaders") or ():
            if not re.fullmatch("[-A-Za-z0-9]+", header.get("name", "")):
                detail = (
                    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. "
                    "'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
                )
                yield FieldError.invalid(f"{at}.httpHeaders", header.get("name", ""), detail)
    elif given[0] == "tcpSocket":
        yield from checks.port_or_name(handler.get("port"), f"{at}.port")
    elif given[0] == "grpc":
        yield from checks.port_number(handler.get("port", 0), f"{at}.port")


_GO_SECURITY: Final = (
    "Capabilities",
    "Privileged",
    "SELinuxOptions",
    "WindowsOptions",
    "RunAsUser",
    "RunAsGroup",
    "RunAsNonRoot",
    "ReadOnlyRootFilesystem",
    "AllowPrivilegeEscalation",
    "ProcMount",
    "SeccompProfile",
    "AppArmorProfile",
)


def _security(context: Object, at: str) -> Errors:
    for name in ("runAsUser", "runAsGroup"):
        if not 0 <= context.get(name, 0) < 2**31:
            detail = "must be between 0 and 2147483647, inclusive"
            yield FieldError.invalid(f"{at}.{name}", context[name], detail)
    yield from checks.profile(context, "seccompProfile", "seccomp", at)
    yield from checks.profile(context, "appArmorProfile", "AppArmor", at)
    yield from checks.one_of(context.get("procMount"), ("Default", "Unmasked"), f"{at}.procMount")
    if context.get("allowPrivilegeEscalation") is not False:
        return
    shown = checks.internal(
        **{name: context.get(name[0].lower() + name[1:]) for name in _GO_SECURITY}
    )
    if context.get("privileged"):
        detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield FieldError.invalid(at, shown, detail)
    if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
        detail = (
            "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        )
        yield FieldError.invalid(at, shown, detail)
