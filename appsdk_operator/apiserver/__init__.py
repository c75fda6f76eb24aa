"""The embedded Kubernetes API server; users meet it as :class:`appsdk_operator.testing.APIServer`.

It answers HTTP requests as kube-apiserver does: discovery, lists, watches, writes, server-side
apply, custom resources, admission, RBAC. It has no kubelet, no scheduler and no controllers, except
for garbage collection and the deletion of namespaces.

``docs/internals/apiserver.md`` describes its layers, which an import contract holds, and how to add
a built-in kind, a list option or a CEL function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import homes, loader

if TYPE_CHECKING:
    from appsdk_operator.apiserver._auth.access_table import Access as Access
    from appsdk_operator.apiserver._auth.access_table import AccessTable as AccessTable
    from appsdk_operator.apiserver._authority import Authority as Authority
    from appsdk_operator.apiserver._authority import private_pem as private_pem
    from appsdk_operator.apiserver._fault_rules import FaultRule as FaultRule
    from appsdk_operator.apiserver._fault_rules import FaultSchedule as FaultSchedule
    from appsdk_operator.apiserver._fault_rules import RequestFacts as RequestFacts
    from appsdk_operator.apiserver._fault_rules import combined as combined
    from appsdk_operator.apiserver._http.fault_effects import ConnectionCut as ConnectionCut
    from appsdk_operator.apiserver._http.fault_effects import FaultyWire as FaultyWire
    from appsdk_operator.apiserver._http.fault_effects import apply_first as apply_first
    from appsdk_operator.apiserver._http.fault_effects import object_name_in as object_name_in
    from appsdk_operator.apiserver._http.fault_effects import send_paced as send_paced
    from appsdk_operator.apiserver._http.fault_effects import wait_for_release as wait_for_release
    from appsdk_operator.apiserver._http.fault_effects import watch_rules as watch_rules
    from appsdk_operator.apiserver._http.faults import Faults as Faults
    from appsdk_operator.apiserver._http.faults import LoggedRequest as LoggedRequest
    from appsdk_operator.apiserver._http.frontend import Frontend as Frontend
    from appsdk_operator.apiserver._http.http_request import HttpRequest as HttpRequest
    from appsdk_operator.apiserver._http.listeners import close_listeners as close_listeners
    from appsdk_operator.apiserver._http.server_thread import ServerThread as ServerThread
    from appsdk_operator.apiserver._kubeconfig import kubeconfig as kubeconfig
    from appsdk_operator.apiserver._kubeconfig import write_kubeconfig as write_kubeconfig
    from appsdk_operator.apiserver._schema import builtin_schemas as builtin_schemas
    from appsdk_operator.apiserver._server import APIServer as APIServer
    from appsdk_operator.apiserver._values.routes import Route as Route
    from appsdk_operator.apiserver._values.routes import parse_path as parse_path
    from appsdk_operator.apiserver._values.routes import selected_name as selected_name
    from appsdk_operator.apiserver._values.routes import verb_of as verb_of
    from appsdk_operator.apiserver._values.status import StatusError as StatusError

_MODULES = {
    "apiserver._auth.access_table": (
        "Access",
        "AccessTable",
    ),
    "apiserver._authority": (
        "Authority",
        "private_pem",
    ),
    "apiserver._fault_rules": (
        "FaultRule",
        "FaultSchedule",
        "RequestFacts",
        "combined",
    ),
    "apiserver._http.fault_effects": (
        "ConnectionCut",
        "FaultyWire",
        "apply_first",
        "object_name_in",
        "send_paced",
        "wait_for_release",
        "watch_rules",
    ),
    "apiserver._http.faults": (
        "Faults",
        "LoggedRequest",
    ),
    "apiserver._http.frontend": ("Frontend",),
    "apiserver._http.http_request": ("HttpRequest",),
    "apiserver._http.listeners": ("close_listeners",),
    "apiserver._http.server_thread": ("ServerThread",),
    "apiserver._kubeconfig": (
        "kubeconfig",
        "write_kubeconfig",
    ),
    "apiserver._schema.builtin_schemas": ("builtin_schemas",),
    "apiserver._server": ("APIServer",),
    "apiserver._values.routes": (
        "Route",
        "parse_path",
        "selected_name",
        "verb_of",
    ),
    "apiserver._values.status": ("StatusError",),
}
_HOMES = homes(_MODULES)

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(_HOMES)
