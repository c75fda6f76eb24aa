from appsdk_operator.apiserver import (
    APIServer as APIServer,
    FaultRule as FaultRule,
    FaultSchedule as FaultSchedule,
)
from appsdk_operator.testing._broken_promise import (
    BrokenPromise as BrokenPromise,
)
from appsdk_operator.testing._control_plane.control_plane import (
    ControlPlane as ControlPlane,
    ControlPlaneError as ControlPlaneError,
)
from appsdk_operator.testing._conversion_check import (
    check_conversion as check_conversion,
)
from appsdk_operator.testing._install.crds import (
    install_crds as install_crds,
)
from appsdk_operator.testing._install.webhooks import (
    install_webhooks as install_webhooks,
    remove_webhooks as remove_webhooks,
)
from appsdk_operator.testing._memory.server import (
    MemoryServer as MemoryServer,
)
from appsdk_operator.testing._proxy.proxy import (
    FaultProxy as FaultProxy,
)
from appsdk_operator.testing._running import (
    running as running,
)
from appsdk_operator.testing._world.check_operator import (
    check_operator as check_operator,
)
from appsdk_operator.testing._world.cluster import (
    Process as Process,
)
from appsdk_operator.testing._world.histories import (
    Step as Step,
)
from appsdk_operator.testing._world.journal import (
    Entry as Entry,
    Journal as Journal,
)
from appsdk_operator.testing._world.promises import (
    Promise as Promise,
    check_converged as check_converged,
    check_exclusion as check_exclusion,
    check_object_order as check_object_order,
    check_watcher_order as check_watcher_order,
)
from appsdk_operator.testing._world.simulation import (
    Simulation as Simulation,
)
from appsdk_operator.testing._world.world import (
    Replica as Replica,
    World as World,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.apiserver import (
    Access as Access,
    LoggedRequest as LoggedRequest,
)
from appsdk_operator.testing._memory.server import (
    MemoryView as MemoryView,
)
