from appsdk_operator.manager._core.cluster import (
    CacheSetup as CacheSetup,
    ClientSetup as ClientSetup,
    Cluster as Cluster,
)
from appsdk_operator.manager._core.lifecycle import (
    Elected as Elected,
    ElectorLike as ElectorLike,
)
from appsdk_operator.manager._core.manager import (
    Manager as Manager,
)
from appsdk_operator.manager._core.operator import (
    Operator as Operator,
    OperatorController as OperatorController,
)
from appsdk_operator.manager._core.options import (
    ManagerOptions as ManagerOptions,
)
from appsdk_operator.manager._core.runnable import (
    LeaderElectionRunnable as LeaderElectionRunnable,
    ReadyRunnable as ReadyRunnable,
    Runnable as Runnable,
    RunnableGroup as RunnableGroup,
    WarmUpRunnable as WarmUpRunnable,
)
from appsdk_operator.manager._election.client import (
    LeaseClient as LeaseClient,
)
from appsdk_operator.manager._election.elector import (
    Elector as Elector,
)
from appsdk_operator.manager._election.fence import (
    Fence as Fence,
    FencedClient as FencedClient,
)
from appsdk_operator.manager._election.options import (
    LeaderElection as LeaderElection,
    LeadershipLost as LeadershipLost,
    elector_config as elector_config,
)
from appsdk_operator.manager._election.pause import (
    Pause as Pause,
)
from appsdk_operator.manager._election.pause_requests import (
    NotPausedError as NotPausedError,
    pause_operator as pause_operator,
    resume_operator as resume_operator,
)
from appsdk_operator.manager._events.correlator import (
    EventOptions as EventOptions,
)
from appsdk_operator.manager._events.failures import (
    FailureEvents as FailureEvents,
)
from appsdk_operator.manager._events.objects import (
    ObjectReference as ObjectReference,
)
from appsdk_operator.manager._events.recorder import (
    EventBroadcaster as EventBroadcaster,
    EventClient as EventClient,
    EventRecorder as EventRecorder,
)
from appsdk_operator.manager._servers.auth_filter import (
    AuthFilter as AuthFilter,
)
from appsdk_operator.manager._servers.checks import (
    HealthCheck as HealthCheck,
    HealthChecks as HealthChecks,
)
from appsdk_operator.manager._servers.health import (
    HealthServer as HealthServer,
    HealthServerOptions as HealthServerOptions,
)
from appsdk_operator.manager._servers.metrics import (
    MetricsServer as MetricsServer,
    MetricsServerOptions as MetricsServerOptions,
)
from appsdk_operator.manager._servers.profile import (
    ProfileServer as ProfileServer,
    ProfileServerOptions as ProfileServerOptions,
)
from appsdk_operator.manager._shards.shards import (
    SHARDS_LABEL as SHARDS_LABEL,
    Shards as Shards,
)
from appsdk_operator.serving import (
    HTTPLimits as HTTPLimits,
    HTTPRequest as HTTPRequest,
    HTTPResponse as HTTPResponse,
    HTTPServer as HTTPServer,
    TLSOptions as TLSOptions,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.manager._core.manager import (
    OWN_READY_CHECKS as OWN_READY_CHECKS,
)
from appsdk_operator.manager._core.options import (
    AppOptionsDict as AppOptionsDict,
    ManagerOptionsDict as ManagerOptionsDict,
)
from appsdk_operator.manager._core.runnable import (
    as_runnable as as_runnable,
    name_of as name_of,
)
from appsdk_operator.manager._election.pause_requests import (
    why_nobody_sees as why_nobody_sees,
)
from appsdk_operator.manager._servers.endpoint_server import (
    HTTPFilter as HTTPFilter,
)
from appsdk_operator.serving import (
    HTTPHandler as HTTPHandler,
)
