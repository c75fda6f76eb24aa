"""Test operators without a cluster, down to the order of events.

* :class:`APIServer`: a Kubernetes API server in the process, on a real socket.
* :class:`Simulation`: an operator on a :class:`ModelServer`, without threads and sockets, where the
  test decides what happens when; with checkers of the kit's promises.
* :func:`install_crds`: CRDs from objects or files, on any server.
"""

from appsdk_operator.testing._checks import check_converged as check_converged
from appsdk_operator.testing._checks import check_exclusion as check_exclusion
from appsdk_operator.testing._checks import check_object_order as check_object_order
from appsdk_operator.testing._checks import check_watcher_order as check_watcher_order
from appsdk_operator.testing._crds import install_crds as install_crds
from appsdk_operator.testing._model_server import Fault as Fault
from appsdk_operator.testing._model_server import ModelServer as ModelServer
from appsdk_operator.testing._server import APIServer as APIServer
from appsdk_operator.testing._simulation import BrokenPromise as BrokenPromise
from appsdk_operator.testing._simulation import Call as Call
from appsdk_operator.testing._simulation import Process as Process
from appsdk_operator.testing._simulation import Simulation as Simulation

__all__ = [
    "APIServer",
    "BrokenPromise",
    "Call",
    "Fault",
    "ModelServer",
    "Process",
    "Simulation",
    "check_converged",
    "check_exclusion",
    "check_object_order",
    "check_watcher_order",
    "install_crds",
]
