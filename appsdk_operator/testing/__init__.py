"""Test operators without a cluster, down to the order of events.

* :class:`APIServer`: a Kubernetes API server in the process, on a real socket.
* :class:`MemoryServer`: the same server without socket and thread; :class:`MemoryView`: clients
  without a socket for an :class:`APIServer` that runs.
* :class:`ControlPlane`: the real etcd and kube-apiserver, with the same interface.
* :class:`FaultProxy`: cuts, stalls and delays the connections to any of them.
* :class:`FaultSchedule` of :class:`FaultRule`: which fault applies to which requests, and how
  often; the embedded server and the proxy take the same rules.
* :class:`Simulation`: an operator on a :class:`ModelServer`, without threads and sockets: the test
  decides the order of requests and events. With checkers of the kit's promises.
* :func:`check_operator`: a property test of an operator over generated histories, faults and
  crashes; a failure prints a short story and the call that replays it.
  :mod:`appsdk_operator.testing.strategies` has Hypothesis strategies for objects.
* :func:`check_conversion`: a property test of the conversions between the versions of a kind; a
  failure shows a small object and what became of it.
* :class:`World`: whole operators with their threads on a manual clock; a seed gives the same run
  each time.
* :func:`running`: runs anything with ``run(stop)`` in a thread for the length of a ``with`` block.
* :func:`install_crds`, :func:`install_webhooks`: install from objects or files, on any server;
  :func:`remove_webhooks`.

The servers need the extra ``testing``: ``pip install 'appsdk-operator[testing]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appsdk_operator._lazy import homes, loader

if TYPE_CHECKING:
    from appsdk_operator.apiserver import Access as Access
    from appsdk_operator.apiserver import APIServer as APIServer
    from appsdk_operator.apiserver import FaultRule as FaultRule
    from appsdk_operator.apiserver import FaultSchedule as FaultSchedule
    from appsdk_operator.apiserver import LoggedRequest as LoggedRequest
    from appsdk_operator.testing._broken_promise import BrokenPromise as BrokenPromise
    from appsdk_operator.testing._control_plane.control_plane import ControlPlane as ControlPlane
    from appsdk_operator.testing._control_plane.control_plane import (
        ControlPlaneError as ControlPlaneError,
    )
    from appsdk_operator.testing._conversion_check import check_conversion as check_conversion
    from appsdk_operator.testing._install.crds import install_crds as install_crds
    from appsdk_operator.testing._install.webhooks import install_webhooks as install_webhooks
    from appsdk_operator.testing._install.webhooks import remove_webhooks as remove_webhooks
    from appsdk_operator.testing._memory.server import MemoryServer as MemoryServer
    from appsdk_operator.testing._memory.server import MemoryView as MemoryView
    from appsdk_operator.testing._proxy.proxy import FaultProxy as FaultProxy
    from appsdk_operator.testing._running import running as running
    from appsdk_operator.testing._simulation.checks import check_converged as check_converged
    from appsdk_operator.testing._simulation.checks import check_exclusion as check_exclusion
    from appsdk_operator.testing._simulation.checks import check_object_order as check_object_order
    from appsdk_operator.testing._simulation.checks import (
        check_watcher_order as check_watcher_order,
    )
    from appsdk_operator.testing._simulation.model_server import Fault as Fault
    from appsdk_operator.testing._simulation.model_server import ModelServer as ModelServer
    from appsdk_operator.testing._simulation.simulation import Call as Call
    from appsdk_operator.testing._simulation.simulation import Process as Process
    from appsdk_operator.testing._simulation.simulation import Simulation as Simulation
    from appsdk_operator.testing._world.check_operator import check_operator as check_operator
    from appsdk_operator.testing._world.histories import Step as Step
    from appsdk_operator.testing._world.journal import Entry as Entry
    from appsdk_operator.testing._world.journal import Journal as Journal
    from appsdk_operator.testing._world.promises import Promise as Promise
    from appsdk_operator.testing._world.world import Replica as Replica
    from appsdk_operator.testing._world.world import World as World

_MODULES = {
    "testing._simulation.checks": (
        "check_converged",
        "check_exclusion",
        "check_object_order",
        "check_watcher_order",
    ),
    "testing._control_plane.control_plane": ("ControlPlane", "ControlPlaneError"),
    "testing._conversion_check": ("check_conversion",),
    "testing._install.crds": ("install_crds",),
    "testing._world.histories": ("Step",),
    "testing._world.check_operator": ("check_operator",),
    "testing._memory.server": ("MemoryServer", "MemoryView"),
    "testing._simulation.model_server": ("Fault", "ModelServer"),
    "testing._world.promises": ("Promise",),
    "testing._proxy.proxy": ("FaultProxy",),
    "testing._running": ("running",),
    "apiserver": ("APIServer", "Access", "FaultRule", "FaultSchedule", "LoggedRequest"),
    "testing._simulation.simulation": ("Call", "Process", "Simulation"),
    "testing._broken_promise": ("BrokenPromise",),
    "testing._world.journal": ("Entry", "Journal"),
    "testing._install.webhooks": ("install_webhooks", "remove_webhooks"),
    "testing._world.world": ("Replica", "World"),
}
_HOMES = homes(_MODULES)
_EXTRA = ("aiohttp", "cryptography")

__all__ = [*_HOMES]  # noqa: PLE0604 - strings, all of them

_load = loader(__name__, _HOMES)


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        try:
            return _load(name)
        except ModuleNotFoundError as error:
            if error.name in _EXTRA:
                raise ImportError(
                    f"{name} needs {error.name}: pip install 'appsdk-operator[testing]'",
                    name=error.name,
                ) from error
            raise


def __dir__() -> list[str]:
    return sorted(__all__)
