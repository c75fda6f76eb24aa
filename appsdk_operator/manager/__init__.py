"""Managers and operators: they run controllers together, in order, and report which one failed.

A :class:`Manager` has the cache and the clients that controllers share, takes part in the leader
election, serves health and metrics, and starts and stops everything in order. An :class:`Operator`
is the small form: controllers that start, fail and stop together.

Guarantees:
    * A runnable that fails stops all others, and its error is raised. A stop starts nothing.
    * A dependency, such as the cache, starts first, is ready before its users start, and ends after
      them.
    * The leader's Lease is held until everything that runs on the leader only has ended. Once it
      has expired by this process' clock, the manager's clients refuse to write.

Caveats:
    * A function that ignores its stop signal cannot be ended: after a stop or a lost Lease the
      process lives on until it returns. A second signal ends such a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import homes, loader

if TYPE_CHECKING:
    from appsdk_operator.manager._core.cluster import CacheSetup as CacheSetup
    from appsdk_operator.manager._core.cluster import ClientSetup as ClientSetup
    from appsdk_operator.manager._core.cluster import Cluster as Cluster
    from appsdk_operator.manager._core.lifecycle import Elected as Elected
    from appsdk_operator.manager._core.lifecycle import ElectorLike as ElectorLike
    from appsdk_operator.manager._core.manager import Manager as Manager
    from appsdk_operator.manager._core.operator import Operator as Operator
    from appsdk_operator.manager._core.operator import OperatorController as OperatorController
    from appsdk_operator.manager._core.options import ManagerOptions as ManagerOptions
    from appsdk_operator.manager._core.options import ManagerOptionsDict as ManagerOptionsDict
    from appsdk_operator.manager._core.runnable import (
        LeaderElectionRunnable as LeaderElectionRunnable,
    )
    from appsdk_operator.manager._core.runnable import ReadyRunnable as ReadyRunnable
    from appsdk_operator.manager._core.runnable import Runnable as Runnable
    from appsdk_operator.manager._core.runnable import RunnableGroup as RunnableGroup
    from appsdk_operator.manager._core.runnable import WarmUpRunnable as WarmUpRunnable
    from appsdk_operator.manager._core.runnable import as_runnable as as_runnable
    from appsdk_operator.manager._core.runnable import name_of as name_of
    from appsdk_operator.manager._election.client import LeaseClient as LeaseClient
    from appsdk_operator.manager._election.elector import Elector as Elector
    from appsdk_operator.manager._election.fence import Fence as Fence
    from appsdk_operator.manager._election.fence import FencedClient as FencedClient
    from appsdk_operator.manager._election.options import LeaderElection as LeaderElection
    from appsdk_operator.manager._election.options import LeadershipLost as LeadershipLost
    from appsdk_operator.manager._election.options import elector_config as elector_config
    from appsdk_operator.manager._events.correlator import EventOptions as EventOptions
    from appsdk_operator.manager._events.failures import FailureEvents as FailureEvents
    from appsdk_operator.manager._events.objects import ObjectReference as ObjectReference
    from appsdk_operator.manager._events.recorder import EventBroadcaster as EventBroadcaster
    from appsdk_operator.manager._events.recorder import EventClient as EventClient
    from appsdk_operator.manager._events.recorder import EventRecorder as EventRecorder
    from appsdk_operator.manager._servers.auth_filter import AuthFilter as AuthFilter
    from appsdk_operator.manager._servers.checks import HealthCheck as HealthCheck
    from appsdk_operator.manager._servers.checks import HealthChecks as HealthChecks
    from appsdk_operator.manager._servers.endpoint_server import HTTPFilter as HTTPFilter
    from appsdk_operator.manager._servers.health import HealthServer as HealthServer
    from appsdk_operator.manager._servers.health import HealthServerOptions as HealthServerOptions
    from appsdk_operator.manager._servers.metrics import MetricsServer as MetricsServer
    from appsdk_operator.manager._servers.metrics import (
        MetricsServerOptions as MetricsServerOptions,
    )
    from appsdk_operator.manager._servers.profile import ProfileServer as ProfileServer
    from appsdk_operator.manager._servers.profile import (
        ProfileServerOptions as ProfileServerOptions,
    )
    from appsdk_operator.manager._shards.shards import SHARDS_LABEL as SHARDS_LABEL
    from appsdk_operator.manager._shards.shards import Shards as Shards
    from appsdk_operator.serving import CertificateFiles as CertificateFiles
    from appsdk_operator.serving import HTTPHandler as HTTPHandler
    from appsdk_operator.serving import HTTPLimits as HTTPLimits
    from appsdk_operator.serving import HTTPRequest as HTTPRequest
    from appsdk_operator.serving import HTTPResponse as HTTPResponse
    from appsdk_operator.serving import HTTPServer as HTTPServer
    from appsdk_operator.serving import TLSOptions as TLSOptions

_MODULES = {
    "serving": (
        "CertificateFiles",
        "HTTPHandler",
        "HTTPLimits",
        "HTTPRequest",
        "HTTPResponse",
        "HTTPServer",
        "TLSOptions",
    ),
    "manager._servers.auth_filter": ("AuthFilter",),
    "manager._core.cluster": ("CacheSetup", "ClientSetup", "Cluster"),
    "manager._election.elector": ("Elector",),
    "manager._events.objects": ("ObjectReference",),
    "manager._events.recorder": ("EventBroadcaster", "EventClient", "EventRecorder"),
    "manager._events.correlator": ("EventOptions",),
    "manager._events.failures": ("FailureEvents",),
    "manager._election.fence": ("Fence", "FencedClient"),
    "manager._servers.checks": ("HealthCheck", "HealthChecks"),
    "manager._servers.endpoint_server": ("HTTPFilter",),
    "manager._servers.health": ("HealthServer", "HealthServerOptions"),
    "manager._election.client": ("LeaseClient",),
    "manager._election.options": ("LeaderElection", "LeadershipLost", "elector_config"),
    "manager._core.lifecycle": ("Elected", "ElectorLike"),
    "manager._core.manager": ("Manager",),
    "manager._core.options": ("ManagerOptions",),
    "manager._servers.metrics": ("MetricsServer", "MetricsServerOptions"),
    "manager._core.operator": ("Operator", "OperatorController"),
    "manager._servers.profile": ("ProfileServer", "ProfileServerOptions"),
    "manager._core.runnable": (
        "LeaderElectionRunnable",
        "ReadyRunnable",
        "Runnable",
        "RunnableGroup",
        "WarmUpRunnable",
    ),
    "manager._shards.shards": ("SHARDS_LABEL", "Shards"),
}

# Not part of the public surface.
_FOR_OTHER_ROOMS = {
    "manager._core.options": ("ManagerOptionsDict",),
    "manager._core.runnable": (
        "as_runnable",
        "name_of",
    ),
}

_HOMES = homes(_MODULES, _FOR_OTHER_ROOMS)

__all__ = [*homes(_MODULES)]  # noqa: PLE0604 - strings, all of them

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
