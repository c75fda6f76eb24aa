"""Validation of pods and pod templates."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any, Final

from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._builtin.checks import scheduling
from appsdk_operator.apiserver._builtin.checks.common import Errors, Object
from appsdk_operator.apiserver._builtin.checks.containers import containers, init_containers
from appsdk_operator.apiserver._builtin.checks.resources import quantity
from appsdk_operator.apiserver._builtin.checks.volumes import volumes
from appsdk_operator.apiserver._values.status import FieldError

_RANGE: Final = "must be between 0 and 2147483647, inclusive"
_SYSCTL: Final = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SEARCH: Final = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_MUTABLE: Final = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)


def pod(new: Object, old: Object | None) -> Errors:
    """A pod."""
    spec = new.get("spec") or {}
    yield from pod_spec(spec, "spec")
    if old is None:
        if spec.get("ephemeralContainers"):
            yield FieldError.forbidden("spec.ephemeralContainers", "cannot be set on create")
        return
    yield from _pod_update(spec, old.get("spec") or {})


def _pod_update(spec: Object, before: Object) -> Errors:
    for name in ("containers", "initContainers"):
        if len(spec.get(name) or ()) != len(before.get(name) or ()):
            yield FieldError.forbidden(
                f"spec.{name}", "pod updates may not add or remove containers"
            )
            return
        for index, container in enumerate(spec.get(name) or ()):
            yield from checks.needed(container.get("image"), f"spec.{name}[{index}].image")
    deadline, was = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if deadline is None and was is not None:
        detail = "must not update from a positive integer to nil value"
        yield FieldError.invalid("spec.activeDeadlineSeconds", None, detail)
    elif deadline is not None and was is not None and deadline > was:
        detail = "must be less than or equal to previous value"
        yield FieldError.invalid("spec.activeDeadlineSeconds", deadline, detail)
        return
    if not _only_adds(spec.get("tolerations") or (), before.get("tolerations") or ()):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield FieldError.forbidden("spec.tolerations", detail)
    gates = [gate.get("name") for gate in before.get("schedulingGates") or ()]
    for gate in spec.get("schedulingGates") or ():
        if gate.get("name") not in gates:
            detail = "only deletion is allowed, but found new scheduling gate "
            yield FieldError.forbidden("spec.schedulingGates", detail + f"'{gate.get('name')}'")
    munged = copy.deepcopy(dict(spec))
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        munged.pop(name, None)
        if name in before:
            munged[name] = before[name]
    for name in ("containers", "initContainers"):
        for container, other in zip(munged.get(name) or (), before.get(name) or (), strict=True):
            container["image"] = other.get("image")
    if gates:
        for name in ("nodeSelector", "affinity"):
            munged.pop(name, None)
            if name in before:
                munged[name] = before[name]
    # ephemeralContainers changes through its own subresource, and is not compared here.
    munged.pop("ephemeralContainers", None)
    other = {name: value for name, value in before.items() if name != "ephemeralContainers"}
    if munged != other:
        detail = f"pod updates may not change fields other than {','.join(_MUTABLE)}"
        yield FieldError.forbidden("spec", detail)


def _only_adds(tolerations: Sequence[Object], before: Sequence[Object]) -> bool:
    """Whether all tolerations are still there, though perhaps for another time."""

    def without_time(toleration: Object) -> dict[str, Any]:
        return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}

    present = [without_time(toleration) for toleration in tolerations]
    return all(without_time(toleration) in present for toleration in before)


def template(given: Object, path: str) -> Errors:
    """A pod template."""
    metadata = given.get("metadata") or {}
    yield from checks.labels(metadata.get("labels"), f"{path}.labels")
    for name in metadata.get("annotations") or {}:
        yield from checks.key(name.lower(), f"{path}.annotations")
    yield from pod_spec(given.get("spec") or {}, f"{path}.spec")
    if (given.get("spec") or {}).get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        yield FieldError.forbidden(f"{path}.spec.ephemeralContainers", detail)


def pod_spec(spec: Object, at: str) -> Errors:
    """A pod spec."""
    mounted = {volume.get("name", ""): volume for volume in spec.get("volumes") or ()}
    yield from volumes(spec.get("volumes") or (), f"{at}.volumes")
    yield from _claims(spec.get("resourceClaims") or (), f"{at}.resourceClaims")
    yield from containers(spec, f"{at}.containers", mounted)
    yield from init_containers(spec, f"{at}.initContainers", mounted)
    if spec.get("hostNetwork"):
        yield from _ports_of_host(spec.get("containers") or (), f"{at}.containers")
    policies: tuple[str, ...] = ("Always", "OnFailure", "Never")
    yield from checks.one_of(spec.get("restartPolicy"), policies, f"{at}.restartPolicy")
    policies = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    yield from checks.one_of(spec.get("dnsPolicy"), policies, f"{at}.dnsPolicy")
    yield from checks.labels(spec.get("nodeSelector"), f"{at}.nodeSelector")
    yield from _security(spec, f"{at}.securityContext")
    yield from scheduling.affinity(spec.get("affinity") or {}, f"{at}.affinity")
    yield from _resolver(spec, f"{at}.dnsConfig")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        path = f"{at}.readinessGates[{index}].conditionType"
        yield from checks.key(gate.get("conditionType", ""), path)
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        yield from checks.key(gate.get("name", ""), f"{at}.schedulingGates[{index}]")
    constraints = spec.get("topologySpreadConstraints") or ()
    yield from scheduling.spread(constraints, f"{at}.topologySpreadConstraints")
    if spec.get("hostUsers") is False:
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(name):
                yield FieldError.forbidden(f"{at}.{name}", "when `hostUsers` is false")
    yield from _names(spec, at)
    yield from scheduling.tolerations(spec.get("tolerations") or (), f"{at}.tolerations")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        path = f"{at}.hostAliases[{index}]"
        yield from checks.address(alias.get("ip", ""), f"{path}.ip")
        for number, name in enumerate(alias.get("hostnames") or ()):
            yield from checks.subdomain(name, f"{path}.hostnames[{number}]")
    for name in ("priorityClassName", "runtimeClassName"):
        yield from checks.given(spec.get(name), f"{at}.{name}", checks.subdomain)
    allowed = ("PreemptLowerPriority", "Never")
    yield from checks.one_of(spec.get("preemptionPolicy"), allowed, f"{at}.preemptionPolicy")
    for name, value in (spec.get("overhead") or {}).items():
        yield from quantity(name, value, f"{at}.overhead.limits[{name}]")
    system = (spec.get("os") or {}).get("name")
    yield from checks.one_of(system, ("linux", "windows"), f"{at}.os")


def _ports_of_host(found: Any, path: str) -> Errors:
    """The ports of containers in the node's network, which are filled in where they are absent."""
    for index, container in enumerate(found):
        for number, port in enumerate(container.get("ports") or ()):
            wanted = port.get("hostPort") or 0
            if wanted and wanted != port.get("containerPort"):
                detail = "must match `containerPort` when `hostNetwork` is true"
                at = f"{path}[{index}].ports[{number}].hostPort"
                yield FieldError.invalid(at, wanted, detail)


def _claims(found: Any, path: str) -> Errors:
    for index, claim in enumerate(found):
        at, name = f"{path}[{index}]", claim.get("name", "")
        yield from checks.needed(name, f"{at}.name", checks.label)
        names = ("resourceClaimName", "resourceClaimTemplateName")
        given = [part for part in names if claim.get(part)]
        if len(given) != 1:
            shown = checks.internal(
                Name=name,
                ResourceClaimName=claim.get(names[0]),
                ResourceClaimTemplateName=claim.get(names[1]),
            )
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            if given:
                detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be"
                detail += " specified"
            yield FieldError.invalid(at, shown, detail)


def _names(spec: Object, at: str) -> Errors:
    for name in ("serviceAccountName", "nodeName"):
        yield from checks.given(spec.get(name), f"{at}.{name}", checks.subdomain)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        detail = "must be between 1 and 2147483647, inclusive"
        yield FieldError.invalid(f"{at}.activeDeadlineSeconds", deadline, detail)
    for name in ("hostname", "subdomain"):
        yield from checks.given(spec.get(name), f"{at}.{name}", checks.label)


def _security(spec: Object, at: str) -> Errors:
    context = spec.get("securityContext") or {}
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        if not 0 <= context.get(name, 0) < 2**31:
            yield FieldError.invalid(f"{at}.{name}", context[name], _RANGE)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group < 2**31:
            yield FieldError.invalid(f"{at}.supplementalGroups[{index}]", group, _RANGE)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield FieldError.invalid(f"{at}.shareProcessNamespace", True, detail)
    yield from checks.profile(context, "seccompProfile", "seccomp", at)
    yield from checks.profile(context, "appArmorProfile", "AppArmor", at)
    yield from checks.choice(context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"), at)
    yield from checks.choice(context, "supplementalGroupsPolicy", ("Merge", "Strict"), at)
    yield from checks.choice(context, "seLinuxChangePolicy", ("MountOption", "Recursive"), at)
    names: set[str] = set()
    for index, entry in enumerate(context.get("sysctls") or ()):
        name = entry.get("name", "")
        if name in names:
            yield FieldError.duplicate(f"{at}.sysctls[{index}].name", name)
        names.add(name)
        if not name:
            yield FieldError.required(f"{at}.sysctls[{index}].name")
        elif not _SYSCTL.fullmatch(name):
            detail = f"must have at most 253 characters and match regex ^{_SYSCTL.pattern}$"
            yield FieldError.invalid(f"{at}.sysctls[{index}].name", name, detail)


def _resolver(spec: Object, at: str) -> Errors:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None" and config is None:
        yield FieldError.required(at, "must provide `dnsConfig` when `dnsPolicy` is None")
    servers = (config or {}).get("nameservers") or []
    if spec.get("dnsPolicy") == "None" and config is not None and not servers:
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield FieldError.required(f"{at}.nameservers", detail)
    if len(servers) > 3:
        detail = "must not have more than 3 nameservers"
        yield FieldError.invalid(f"{at}.nameservers", servers, detail)
    for index, server in enumerate(servers):
        yield from checks.address(server, f"{at}.nameservers[{index}]")
    for index, search in enumerate((config or {}).get("searches") or ()):
        if not re.fullmatch(_SEARCH, search.removesuffix(".")):
            detail = (
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
                "characters, '_', '-' or '.', and must start and end with an alphanumeric "
                f"character (e.g. 'example.com', regex used for validation is '{_SEARCH}')"
            )
            yield FieldError.invalid(f"{at}.searches[{index}]", search, detail)
    for index, option in enumerate((config or {}).get("options") or ()):
        if not option.get("name"):
            yield FieldError.required(f"{at}.options[{index}]", "must not be empty")
