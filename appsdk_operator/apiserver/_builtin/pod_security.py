"""The Pod Security Standards, as the admission plugin ``PodSecurity`` enforces them.

The label ``pod-security.kubernetes.io/enforce`` of a namespace names the level. Whatever version
of the standards its other label names, pods are compared with the newest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, final

from appsdk_operator.apiserver._storage.storage import Storage
from appsdk_operator.apiserver._values.status import forbidden

_Object = Mapping[str, Any]
_LABEL: Final = "pod-security.kubernetes.io/enforce"
_VERSION: Final = f"{_LABEL}-version"
_CAPABILITIES: Final = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
_SYSCTLS: Final = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
_SELINUX: Final = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_VOLUMES: Final = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
        *("name", "persistentVolumeClaim", "projected", "secret"),
    }
)
_PROFILES: Final = ("RuntimeDefault", "Localhost")


@final
class PodSecurity:
    """Refuses pods that the level of their namespace does not allow."""

    def __init__(self, storage: Storage) -> None:
        """The levels are those of the namespaces in ``storage``."""
        self._namespaces = storage.collection("namespaces")

    def check(self, new: _Object, old: _Object | None) -> None:
        """Check a new pod, or new ephemeral containers of one.

        Raises:
            StatusError: 403, it violates the standards.
        """
        spec = new["spec"]
        if old is not None and spec.get("ephemeralContainers") == old["spec"].get(
            "ephemeralContainers"
        ):
            return
        record = self._namespaces.records.get(new["metadata"].get("namespace", ""))
        labels = record.labels if record is not None else {}
        level = labels.get(_LABEL, "privileged")
        # As on the real server, an unknown level is the strictest one.
        found = [] if level == "privileged" else list(_violations(spec, level != "baseline"))
        if found:
            version = labels.get(_VERSION, "latest")
            why = f'violates PodSecurity "{level}:{version}": {", ".join(found)}'
            raise forbidden("pods", "", new["metadata"].get("name", ""), why)


def _violations(spec: _Object, restricted: bool) -> Iterator[str]:
    containers = [
        container
        for field in ("initContainers", "containers", "ephemeralContainers")
        for container in spec.get(field) or ()
    ]
    pod = spec.get("securityContext") or {}
    namespaces = [
        f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)
    ]
    sysctls = [each["name"] for each in pod.get("sysctls") or () if each["name"] not in _SYSCTLS]
    allowed = {"NET_BIND_SERVICE"} if restricted else _CAPABILITIES
    volumes = [
        f'volume "{volume["name"]}" uses restricted volume type "{kind}"'
        for volume in spec.get("volumes") or ()
        for kind in volume
        if (kind not in _VOLUMES if restricted else kind == "hostPath")
    ]
    windows = (spec.get("os") or {}).get("name") == "windows"

    def blamed(
        text: str, wrong: Callable[[_Object, _Object], Any], *, whole: bool = False
    ) -> list[str]:
        """The error for the containers, and with ``whole`` for the pod, that are ``wrong``."""
        found = [f'"{each["name"]}"' for each in containers if wrong(_context(each), each)]
        noun = "containers" if len(found) > 1 else "container"
        subjects = ["pod"] if whole and wrong(pod, {}) else []
        subjects += [f"{noun} {', '.join(found)}"] if found else []
        return [f"{' and '.join(subjects)} {text}"] if subjects else []

    def inherited(name: str, context: _Object) -> Any:
        return context.get(name, pod.get(name))

    rules: list[tuple[str, Iterable[str]]] = [
        (
            "forbidden AppArmor profile",
            blamed(
                'must not set AppArmor profile type to "Unconfined"',
                lambda context, _: _type(context, "appArmorProfile") not in ("", *_PROFILES),
                whole=True,
            ),
        ),
        ("host namespaces", namespaces),
        ("restricted volume types" if restricted else "hostPath volumes", volumes),
        ("hostPort", blamed("uses a hostPort", lambda _, each: any(map(_host_port, _ports(each))))),
        (
            "hostProcess",
            blamed(
                "must not set securityContext.windowsOptions.hostProcess=true",
                lambda context, _: (context.get("windowsOptions") or {}).get("hostProcess"),
                whole=True,
            ),
        ),
        (
            "privileged",
            blamed(
                "must not set securityContext.privileged=true",
                lambda context, _: context.get("privileged"),
            ),
        ),
        (
            "procMount",
            blamed(
                'must not set securityContext.procMount to "Unmasked"',
                lambda context, _: context.get("procMount", "Default") != "Default",
            ),
        ),
        (
            "seLinuxOptions",
            blamed(
                "set forbidden securityContext.seLinuxOptions",
                lambda context, _: _selinux(context),
                whole=True,
            ),
        ),
        ("forbidden sysctls", sysctls),
        (
            "unrestricted capabilities" if restricted else "non-default capabilities",
            []
            if windows and restricted
            else [
                *(
                    blamed(
                        'must set securityContext.capabilities.drop=["ALL"]',
                        lambda context, _: "ALL" not in _capabilities(context, "drop"),
                    )
                    if restricted
                    else ()
                ),
                *blamed(
                    "must not include others in securityContext.capabilities.add",
                    lambda context, _: set(_capabilities(context, "add")) - allowed,
                ),
            ],
        ),
    ]
    if not restricted:
        unconfined = 'must not set securityContext.seccompProfile.type to "Unconfined"'
        rules.append(
            (
                "seccompProfile",
                blamed(
                    unconfined,
                    lambda context, _: _type(context, "seccompProfile") not in ("", *_PROFILES),
                    whole=True,
                ),
            )
        )
    else:
        rules += [
            (
                "allowPrivilegeEscalation != false",
                []
                if windows
                else blamed(
                    "must set securityContext.allowPrivilegeEscalation=false",
                    lambda context, _: context.get("allowPrivilegeEscalation") is not False,
                ),
            ),
            (
                "runAsNonRoot != true",
                blamed(
                    "must set securityContext.runAsNonRoot=true",
                    lambda context, _: inherited("runAsNonRoot", context) is not True,
                ),
            ),
            (
                "runAsUser=0",
                blamed(
                    "must not set runAsUser=0",
                    lambda context, _: context.get("runAsUser") == 0,
                    whole=True,
                ),
            ),
            (
                "seccompProfile",
                []
                if windows
                else blamed(
                    'must set securityContext.seccompProfile.type to "RuntimeDefault" or '
                    '"Localhost"',
                    lambda context, _: (
                        (inherited("seccompProfile", context) or {}).get("type") not in _PROFILES
                    ),
                ),
            ),
        ]
    for reason, details in rules:
        if text := "; ".join(details):
            yield f"{reason} ({text})"


def _context(container: _Object) -> _Object:
    return container.get("securityContext") or {}


def _ports(container: _Object) -> Iterable[_Object]:
    return container.get("ports") or ()


def _host_port(port: _Object) -> bool:
    return bool(port.get("hostPort"))


def _type(context: _Object, profile: str) -> str:
    return str((context.get(profile) or {}).get("type", ""))


def _selinux(context: _Object) -> bool:
    options = context.get("seLinuxOptions") or {}
    return bool(
        options.get("type", "") not in _SELINUX or options.get("user") or options.get("role")
    )


def _capabilities(context: _Object, change: str) -> Iterable[str]:
    return (context.get("capabilities") or {}).get(change) or ()
