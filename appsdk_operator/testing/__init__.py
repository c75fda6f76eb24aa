"""Test operators without a cluster: a Kubernetes API server in the process, on a real socket."""

from appsdk_operator.testing._crds import install_crds as install_crds
from appsdk_operator.testing._server import APIServer as APIServer

__all__ = ["APIServer", "install_crds"]
