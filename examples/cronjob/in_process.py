"""The whole operator in this process, with all that it needs in the cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from appsdk_operator import (
    Client,
    Invalid,
    MutableObject,
    StopSignal,
    custom_resource_definition,
    kinds,
)
from appsdk_operator.client import ClientLike
from appsdk_operator.controllers import until, wait_for
from appsdk_operator.manager import Manager
from appsdk_operator.runtime import Clock
from appsdk_operator.serving import SelfSigned
from appsdk_operator.testing import install_crds, running
from appsdk_operator.webhooks import (
    WebhookServer,
    install_configurations,
    remove_configurations,
    webhook_configurations,
)

from .api import CronJob, CronJobSpec, JobTemplate
from .controller import add_controller
from .conversion import VERSIONS
from .fast_time import OnClock
from .job_player import add_job_player
from .webhooks import add_webhooks

__all__ = ["running_operator"]

CRD = kinds.apiextensions.v1.CustomResourceDefinition


@contextlib.contextmanager
def running_operator(client: Client, clock: Clock) -> Generator[None]:
    """Run the operator, with all that it needs in the cluster."""
    certificates = SelfSigned()
    server = WebhookServer("127.0.0.1:0", certificates=certificates)
    with (
        Manager(client.config, webhook_server=server) as manager,
        contextlib.ExitStack() as clean_up,
    ):
        host = OnClock(manager, clock)
        add_controller(host, manager.client, manager.event_recorder("cronjob-controller"))
        add_job_player(host, manager.client, seconds=25.0)
        add_webhooks(manager)

        crd = custom_resource_definition(VERSIONS, url=f"{server.url}/convert", ca=certificates.pem)
        install_crds(client, [crd])
        clean_up.callback(remove_crd, client, crd.name)
        configurations = webhook_configurations(
            manager, name="cronjob-example", url=server.url, ca=certificates.pem
        )
        install_configurations(client, configurations)
        clean_up.callback(remove_configurations, client, configurations)
        with running(manager):
            wait_until_asked(client)
            yield


def remove_crd(client: ClientLike, name: str) -> None:
    """Delete the CRD with all CronJobs, and wait until it is gone."""
    client.delete(CRD, name)
    wait_for(client, CRD, name, until.deleted(), timeout=30.0)


def wait_until_asked(client: ClientLike) -> None:
    """Wait until the API server asks both webhooks, which takes a real one about a second."""
    good, bad = (
        MutableObject.new(
            CronJob,
            "probe",
            namespace="default",
            spec=CronJobSpec(schedule=schedule, job_template=JobTemplate(spec={})),
        )
        for schedule in ("* * * * *", "never")
    )
    pause = StopSignal()
    for _ in range(100):
        is_defaulted = client.create(good, dry_run=True).spec.suspend is not None
        try:
            client.create(bad, dry_run=True)
        except Invalid:
            if is_defaulted:
                return
        pause.wait(0.1)
    raise TimeoutError("the API server does not ask the webhooks: does it reach this machine?")
