"""Run controllers together, stop them together, and say which one failed.

A :class:`Manager` has the cache and the clients that controllers share, takes part in the leader
election, serves health and metrics, and starts and stops everything in order. An :class:`Operator`
is the small form: controllers that start, fail and stop together.

Guarantees:
    * What fails ends all the rest, and is raised; nothing that never started is started by a stop.
    * What others rely on starts before them, is ready before they start, and ends after them.
    * The lease of the leader is held until what runs on the leader only has ended. Once it has run
      out by the own clock, the manager's clients refuse to write.

Caveats:
    * Plain code that does not look at its stop signal cannot be ended: after a stop or a lost
      lease the process lives on until it returns. End such a process with a second signal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import loader

if TYPE_CHECKING:
    from appsdk_operator.manager._auth_filter import AuthFilter as AuthFilter
    from appsdk_operator.manager._certificates import CertificatePair as CertificatePair
    from appsdk_operator.manager._certificates import TLSOptions as TLSOptions
    from appsdk_operator.manager._cluster import CacheSetup as CacheSetup
    from appsdk_operator.manager._cluster import ClientSetup as ClientSetup
    from appsdk_operator.manager._cluster import Cluster as Cluster
    from appsdk_operator.manager._elector import Elector as Elector
    from appsdk_operator.manager._event_objects import ObjectReference as ObjectReference
    from appsdk_operator.manager._event_recorder import EventBroadcaster as EventBroadcaster
    from appsdk_operator.manager._event_recorder import EventClient as EventClient
    from appsdk_operator.manager._event_recorder import EventRecorder as EventRecorder
    from appsdk_operator.manager._event_series import EventOptions as EventOptions
    from appsdk_operator.manager._fence import Fence as Fence
    from appsdk_operator.manager._fence import FencedClient as FencedClient
    from appsdk_operator.manager._health_checks import HealthCheck as HealthCheck
    from appsdk_operator.manager._health_checks import HealthChecks as HealthChecks
    from appsdk_operator.manager._health_server import HealthServer as HealthServer
    from appsdk_operator.manager._health_server import HealthServerOptions as HealthServerOptions
    from appsdk_operator.manager._http_connection import HTTPLimits as HTTPLimits
    from appsdk_operator.manager._http_messages import HTTPHandler as HTTPHandler
    from appsdk_operator.manager._http_messages import HTTPRequest as HTTPRequest
    from appsdk_operator.manager._http_messages import HTTPResponse as HTTPResponse
    from appsdk_operator.manager._http_server import HTTPServer as HTTPServer
    from appsdk_operator.manager._lease_client import LeaseClient as LeaseClient
    from appsdk_operator.manager._lease_options import LeaderElection as LeaderElection
    from appsdk_operator.manager._lease_options import LeadershipLost as LeadershipLost
    from appsdk_operator.manager._lease_options import elector_config as elector_config
    from appsdk_operator.manager._lifecycle import Elected as Elected
    from appsdk_operator.manager._lifecycle import ElectorLike as ElectorLike
    from appsdk_operator.manager._manager import Manager as Manager
    from appsdk_operator.manager._manager_options import ManagerOptions as ManagerOptions
    from appsdk_operator.manager._metrics_server import HTTPFilter as HTTPFilter
    from appsdk_operator.manager._metrics_server import MetricsServer as MetricsServer
    from appsdk_operator.manager._metrics_server import MetricsServerOptions as MetricsServerOptions
    from appsdk_operator.manager._operator import Operator as Operator
    from appsdk_operator.manager._operator import OperatorController as OperatorController
    from appsdk_operator.manager._profile_server import ProfileServer as ProfileServer
    from appsdk_operator.manager._profile_server import ProfileServerOptions as ProfileServerOptions
    from appsdk_operator.manager._runnable import LeaderElectionRunnable as LeaderElectionRunnable
    from appsdk_operator.manager._runnable import ReadyRunnable as ReadyRunnable
    from appsdk_operator.manager._runnable import Runnable as Runnable
    from appsdk_operator.manager._runnable import RunnableGroup as RunnableGroup
    from appsdk_operator.manager._runnable import WarmUpRunnable as WarmUpRunnable
    from appsdk_operator.manager._shards import SHARDS_LABEL as SHARDS_LABEL
    from appsdk_operator.manager._shards import Shards as Shards

_MODULES = {
    "_auth_filter": ("AuthFilter",),
    "_certificates": ("CertificatePair", "TLSOptions"),
    "_cluster": ("CacheSetup", "ClientSetup", "Cluster"),
    "_elector": ("Elector",),
    "_event_objects": ("ObjectReference",),
    "_event_recorder": ("EventBroadcaster", "EventClient", "EventRecorder"),
    "_event_series": ("EventOptions",),
    "_fence": ("Fence", "FencedClient"),
    "_health_checks": ("HealthCheck", "HealthChecks"),
    "_health_server": ("HealthServer", "HealthServerOptions"),
    "_http_connection": ("HTTPLimits",),
    "_http_messages": ("HTTPHandler", "HTTPRequest", "HTTPResponse"),
    "_http_server": ("HTTPServer",),
    "_lease_client": ("LeaseClient",),
    "_lease_options": ("LeaderElection", "LeadershipLost", "elector_config"),
    "_lifecycle": ("Elected", "ElectorLike"),
    "_manager": ("Manager",),
    "_manager_options": ("ManagerOptions",),
    "_metrics_server": ("HTTPFilter", "MetricsServer", "MetricsServerOptions"),
    "_operator": ("Operator", "OperatorController"),
    "_profile_server": ("ProfileServer", "ProfileServerOptions"),
    "_runnable": (
        "LeaderElectionRunnable",
        "ReadyRunnable",
        "Runnable",
        "RunnableGroup",
        "WarmUpRunnable",
    ),
    "_shards": ("SHARDS_LABEL", "Shards"),
}

__all__ = [
    "SHARDS_LABEL",
    "AuthFilter",
    "CacheSetup",
    "CertificatePair",
    "ClientSetup",
    "Cluster",
    "Elected",
    "Elector",
    "ElectorLike",
    "EventBroadcaster",
    "EventClient",
    "EventOptions",
    "EventRecorder",
    "Fence",
    "FencedClient",
    "HTTPFilter",
    "HTTPHandler",
    "HTTPLimits",
    "HTTPRequest",
    "HTTPResponse",
    "HTTPServer",
    "HealthCheck",
    "HealthChecks",
    "HealthServer",
    "HealthServerOptions",
    "LeaderElection",
    "LeaderElectionRunnable",
    "LeadershipLost",
    "LeaseClient",
    "Manager",
    "ManagerOptions",
    "MetricsServer",
    "MetricsServerOptions",
    "ObjectReference",
    "Operator",
    "OperatorController",
    "ProfileServer",
    "ProfileServerOptions",
    "ReadyRunnable",
    "Runnable",
    "RunnableGroup",
    "Shards",
    "TLSOptions",
    "WarmUpRunnable",
    "elector_config",
]

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(
        __name__,
        {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names},
    )


def __dir__() -> list[str]:
    return sorted(__all__)
