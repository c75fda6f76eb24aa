"""Runs the CronJob operator, and plays its user, on an API server in the process.

Run ``python -m examples.cronjob``. With ``--kubeconfig FILE`` it does the same there; take a bare
control plane on this machine, which reaches the webhooks, and whose jobs nobody else runs.
"""

from __future__ import annotations

import argparse
import contextlib

from appsdk_operator import Client, ClientConfig, Invalid, MergePatch, MutableObject
from appsdk_operator.client import ClientLike, NotFound
from appsdk_operator.controllers import is_condition_true
from appsdk_operator.resource import WatchEventType
from appsdk_operator.testing import APIServer

from .api import CronJob, CronJobSpec, CronJobV2, Job, JobTemplate
from .controller import SCHEDULED_AT
from .fast_time import FastClock
from .in_process import running_operator

NAMESPACE = "default"
NAME = "report"
JOBS = 5
PATIENCE = 30.0
TEMPLATE = JobTemplate(
    spec={
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "report", "image": "example.com/report"}],
            }
        }
    }
)


def tell(client: ClientLike) -> None:
    """Do what a user would do, and print what became of it."""
    print("-- created with a schedule and a template", flush=True)
    spec = CronJobSpec(schedule="30 4 * * MON", job_template=TEMPLATE)
    made = client.create(MutableObject.new(CronJob, NAME, namespace=NAMESPACE, spec=spec))
    print(f"policy {made.spec.concurrency_policy}, suspended: {made.spec.suspend}")
    print(
        f"keeps {made.spec.successful_jobs_history_limit} jobs that succeeded "
        f"and {made.spec.failed_jobs_history_limit} that failed"
    )

    print("-- mistakes", flush=True)
    for name, schedule in (("wrong", "every Monday"), ("x" * 53, "* * * * *")):
        spec = CronJobSpec(schedule=schedule, job_template=TEMPLATE)
        try:
            client.create(MutableObject.new(CronJob, name, namespace=NAMESPACE, spec=spec))
        except Invalid as error:
            print(error.causes[0].field, error.causes[0].message)

    print("-- the same CronJob in v2", flush=True)
    v2 = client.get(CronJobV2, NAME, namespace=NAMESPACE)
    print(v2.spec.schedule)

    print("-- v2 is changed, and v1 read", flush=True)
    every_minute = {"minute": "*", "hour": "*", "dayOfWeek": "*"}
    patch = MergePatch({"spec": {"schedule": every_minute}})
    client.patch(CronJobV2, NAME, patch, namespace=NAMESPACE)
    print(client.get(CronJob, NAME, namespace=NAMESPACE).spec.schedule)

    print("-- time passes, a minute in a second", flush=True)
    tell_of_jobs(client, since=made.resource_version)


def tell_of_jobs(client: ClientLike, *, since: str) -> None:
    """Print what happens to jobs, until some have succeeded and the oldest are deleted."""
    done: list[str] = []
    deleted: list[str] = []
    with client.watch(Job, namespace=NAMESPACE, resource_version=since, timeout=PATIENCE) as stream:
        for event in stream.events():
            if event.object is None:
                continue
            job = event.object
            time = job.annotations.get(SCHEDULED_AT, "")[11:16]
            if event.type is WatchEventType.ADDED:
                print(f"{time} started", flush=True)
            elif event.type is WatchEventType.DELETED:
                print(f"{time} deleted", flush=True)
                deleted.append(job.name)
            elif is_condition_true(job, "Complete") and job.name not in done:
                print(f"{time} succeeded", flush=True)
                done.append(job.name)
            if len(done) >= JOBS and len(deleted) >= JOBS - 3:
                return
    raise TimeoutError(f"only {len(done)} jobs were done in {PATIENCE:.0f} s")


def delete_all(client: ClientLike) -> None:
    """Leave nothing behind, also where nobody collects garbage."""
    with contextlib.suppress(NotFound):
        client.delete(CronJob, NAME, namespace=NAMESPACE)
    for job in client.list(Job, namespace=NAMESPACE):
        if SCHEDULED_AT in job.annotations:
            with contextlib.suppress(NotFound):
                client.delete(Job, job.name, namespace=NAMESPACE, propagation="Background")


def main() -> None:
    """Run on the cluster that was asked for, or on an API server in this process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kubeconfig", help="run on this cluster; default: in the process")
    options = parser.parse_args()
    clock = FastClock()
    with contextlib.ExitStack() as stack:
        if options.kubeconfig:
            config = ClientConfig.from_kubeconfig(options.kubeconfig)
        else:
            config = ClientConfig(server=stack.enter_context(APIServer(clock=clock)).url)
        client = stack.enter_context(Client(config))
        stack.enter_context(running_operator(client, clock))
        stack.callback(delete_all, client)
        tell(client)


if __name__ == "__main__":
    main()
