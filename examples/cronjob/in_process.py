"""The whole operator in this process, with all that it needs in the cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from appsdk_operator import Client, custom_resource_definition, kinds
from appsdk_operator.client import ClientLike
from appsdk_operator.controllers import until, wait_for
from appsdk_operator.manager import Manager
from appsdk_operator.runtime import Clock
from appsdk_operator.testing import install_crds, running
from appsdk_operator.webhooks import DevelopmentServer

from .controller import add_controller
from .conversion import VERSIONS
from .fast_time import OnClock
from .job_player import add_job_player
from .webhooks import add_webhooks

__all__ = ["running_operator"]

CRD = kinds.apiextensions.v1.CustomResourceDefinition


@contextlib.contextmanager
def running_operator(client: Client, clock: Clock) -> Generator[None]:
    """Run the operator and an API server on this machine, and the controllers on a clock."""
    # It installs its webhooks while it runs. The CRD has the conversion from the beginning, because
    # a real API server is not at home for a moment after each change of it.
    server = DevelopmentServer(client.config, "cronjob", host="127.0.0.1", unsafe_any_cluster=True)
    crd = custom_resource_definition(VERSIONS, url=f"{server.url}/convert", ca=server.pem)
    with (
        Manager(client.config, webhook_server=server) as manager,
        contextlib.ExitStack() as clean_up,
    ):
        host = OnClock(manager, clock)
        add_controller(host, manager.client, manager.event_recorder("cronjob-controller"))
        add_job_player(host, manager.client, seconds=25.0)
        add_webhooks(manager)
        install_crds(client, [crd])
        clean_up.callback(remove_crd, client, crd.name)
        with running(manager):
            yield


def remove_crd(client: ClientLike, name: str) -> None:
    """Delete the CRD with all CronJobs, and wait until it is gone."""
    client.delete(CRD, name)
    wait_for(client, CRD, name, until.deleted(), timeout=30.0)
