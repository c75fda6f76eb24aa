"""Table columns of events, roles, configuration, and the remaining kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._builtin.tables.columns import (
    Object,
    Since,
    TableColumn,
    columns,
    condition_of,
    containers,
    get,
    labels_text,
    reference_text,
    selector_text,
)


def _first_seen(event: Object) -> Since:
    first: Since = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp")
    return first or event.get("eventTime")


def _last_seen(event: Object) -> Since:
    if event.get("series"):
        seen: Since = event["series"].get("lastObservedTime")
        return seen
    last: Since = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    return last or _first_seen(event)


def _about(event: Object) -> Mapping[str, str]:
    return event.get("involvedObject") or event.get("regarding") or {}


def _about_text(event: Object) -> str:
    about = _about(event)
    kind, name = about.get("kind", "").lower(), about.get("name", "")
    return f"{kind}/{name}" if kind else name


def _source(event: Object) -> str:
    source = event.get("source") or event.get("deprecatedSource") or {}
    component = source.get("component") or event.get("reportingComponent", "")
    component = component or event.get("reportingController", "")
    host = source.get("host") or event.get("reportingInstance", "")
    return f"{component}, {host}" if host else component


def _count(event: Object) -> Any:
    if event.get("series"):
        return event["series"].get("count", 0)
    return event.get("count") or event.get("deprecatedCount") or 1


_EVENT: Final = columns(
    ("Last Seen=~|<unknown>", _last_seen),
    "Type=type, Reason=reason",
    ("Object", _about_text),
    ("*Subobject", lambda event: _about(event).get("fieldPath")),
    ("*Source", _source),
    ("Message", lambda event: (event.get("message") or event.get("note") or "").strip()),
    ("*First Seen=~|<unknown>", _first_seen),
    ("*Count", _count),
    "*Name",
)


def _used(status: Object, *, of_limits: bool) -> str:
    hard, used = status.get("hard") or {}, status.get("used") or {}
    return ", ".join(
        f"{name}: {used.get(name, '0')}/{hard[name]}"
        for name in sorted(hard)
        if name.startswith("limits.") is of_limits
    )


def _subjects(kind: str, name_of: Callable[[Object], str]) -> Callable[[Iterable[Object]], str]:
    return lambda found: ", ".join(name_of(each) for each in found if each.get("kind") == kind)


def _name(subject: Object) -> str:
    return str(subject.get("name", ""))


def _namespaced_name(subject: Object) -> str:
    return reference_text(subject, "namespace")


_ROLE_BINDING: Final = columns(
    "Name",
    ("Role=roleRef", reference_text),
    "Age",
    ("*Users=subjects", _subjects("User", _name)),
    ("*Groups=subjects", _subjects("Group", _name)),
    ("*ServiceAccounts=subjects", _subjects("ServiceAccount", _namespaced_name)),
)


def _availability(service: Object) -> str:
    condition = condition_of(service, "Available")
    status, reason = condition.get("status", "Unknown"), condition.get("reason")
    return f"{status} ({reason})" if reason and status != "True" else status


def _controller(owners: Iterable[Object]) -> str | None:
    for each in owners:
        if each.get("controller"):
            group = str(each.get("apiVersion", "")).rpartition("/")[0]
            kind = str(each.get("kind", "")).lower()
            return f"{kind}.{group}/{each['name']}" if group else f"{kind}/{each['name']}"
    return None


def _request_state(request: Object) -> str:
    kinds = [each.get("type") for each in get(request, "status", "conditions", default=())]
    state = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    if "Failed" in kinds:
        state += ",Failed"
    return f"{state},Issued" if get(request, "status", "certificate") else state


def _class_name(storage_class: Object) -> str:
    metadata = storage_class["metadata"]
    is_default = "storageclass.kubernetes.io/is-default-class"
    is_marked = (metadata.get("annotations") or {}).get(is_default) == "true"
    return f"{metadata['name']} (default)" if is_marked else metadata["name"]


_DATA: Final = (
    "Data",
    lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
)
_HOOKS: Final = columns("Name", ("Webhooks:integer=webhooks|0", len), "Age")

COLUMNS: Final[dict[str, tuple[TableColumn, ...]]] = {
    "apiservices.apiregistration.k8s.io": columns(
        "Name",
        ("Service=spec.service|Local", _namespaced_name),
        ("Available", _availability),
        "Age",
    ),
    "certificatesigningrequests.certificates.k8s.io": columns(
        "Name, Age, SignerName=spec.signerName|<none>, Requestor=spec.username",
        "RequestedDuration=~spec.expirationSeconds|<none>",
        ("Condition", _request_state),
    ),
    "clusterrolebindings.rbac.authorization.k8s.io": _ROLE_BINDING,
    "configmaps": columns("Name", _DATA, "Age"),
    "controllerrevisions.apps": columns(
        "Name",
        ("Controller=metadata.ownerReferences|<none>", _controller),
        "Revision=revision|0, Age",
    ),
    "csinodes.storage.k8s.io": columns("Name", ("Drivers:integer=spec.drivers|0", len), "Age"),
    "events": _EVENT,
    "events.events.k8s.io": _EVENT,
    "leases.coordination.k8s.io": columns("Name, Holder=spec.holderIdentity, Age"),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _HOOKS,
    "namespaces": columns("Name, Status=status.phase, Age"),
    "networkpolicies.networking.k8s.io": columns(
        "Name", ("Pod-Selector=spec.podSelector||<none>", selector_text), "Age"
    ),
    "podtemplates": columns(
        "Name",
        *containers("template", priority=""),
        ("Pod Labels=template.metadata.labels||<none>", labels_text),
    ),
    "priorityclasses.scheduling.k8s.io": columns(
        "Name, Value:integer=value|0, Global-Default:boolean=globalDefault|false, Age",
        "PreemptionPolicy=preemptionPolicy",
    ),
    "resourcequotas": columns(
        "Name",
        ("Request=status", lambda status: _used(status, of_limits=False)),
        ("Limit=status", lambda status: _used(status, of_limits=True)),
        "Age",
    ),
    "rolebindings.rbac.authorization.k8s.io": _ROLE_BINDING,
    "runtimeclasses.node.k8s.io": columns("Name, Handler=handler, Age"),
    "secrets": columns("Name, Type=type", _DATA, "Age"),
    "serviceaccounts": columns("Name, Age"),
    "storageclasses.storage.k8s.io": columns(
        ("Name", _class_name),
        "Provisioner=provisioner, ReclaimPolicy=reclaimPolicy|Delete",
        "VolumeBindingMode=volumeBindingMode|<unset>",
        "AllowVolumeExpansion=allowVolumeExpansion|false, Age",
    ),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _HOOKS,
    "volumeattachments.storage.k8s.io": columns(
        "Name, Attacher=spec.attacher, PV=spec.source.persistentVolumeName, Node=spec.nodeName",
        "Attached:boolean=status.attached|false, Age",
    ),
}
