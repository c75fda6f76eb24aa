"""Recorded roles are enough for the examples, and nothing can be taken from them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest

from appsdk_operator import (
    Client,
    ClientConfig,
    Manager,
    MergePatch,
    MutableObject,
    Object,
    kinds,
)
from appsdk_operator.app import Permission
from appsdk_operator.client import AlreadyExists, NotFound
from appsdk_operator.testing import install_crds
from examples import (
    app_hello,
    ephemeral_volume_claim,
    leader_election,
    replicaset_controller,
    sharded,
)
from tests.privilege import (
    Example,
    RbacServer,
    Stage,
    check_roles,
    control_plane_server,
    embedded_server,
    recorded,
)
from tests.shared_plane import SharedPlane

CONFIG_MAP = kinds.core.v1.ConfigMap
EVENT = kinds.events.v1.Event
NAMESPACE = "default"


# -- hello -----------------------------------------------------------------------------------------


def greet_and_part(stage: Stage) -> None:
    kind, admin = app_hello.GREETING, stage.admin
    admin.create(MutableObject.new(kind, stage.name, namespace=NAMESPACE, spec={}))
    stage.until(lambda: status_of(stage) == {"text": "hello world"})
    admin.delete(kind, stage.name, namespace=NAMESPACE)
    stage.until(lambda: status_of(stage) is None)


def status_of(stage: Stage) -> object:
    """The status of the Greeting; None if it is gone."""
    with contextlib.suppress(NotFound):
        found = stage.admin.get(app_hello.GREETING, stage.name, namespace=NAMESPACE)
        return found.get("status", {})
    return None


def remove_greeting(stage: Stage) -> None:
    """Delete what a refused operator has left."""
    patch = MergePatch({"metadata": {"finalizers": None}})
    for write in (
        lambda: stage.admin.delete(app_hello.GREETING, stage.name, namespace=NAMESPACE),
        lambda: stage.admin.patch(app_hello.GREETING, stage.name, patch, namespace=NAMESPACE),
    ):
        with contextlib.suppress(NotFound):
            write()


HELLO = Example(
    name="app_hello",
    app=app_hello.app,
    prepare=lambda admin: install_crds(admin, app_hello.app.crds()),
    operator=lambda config, _: app_hello.app.manager(config),
    timeline=greet_and_part,
    namespaces=(NAMESPACE,),
    tidy=remove_greeting,
)


# -- replica sets ----------------------------------------------------------------------------------


@contextlib.contextmanager
def replica_sets(config: ClientConfig, _: Stage) -> Iterator[Manager]:
    with Manager(config) as manager:
        replicaset_controller.add_controller(manager)
        yield manager


def scale(stage: Stage) -> None:
    kind, admin = replicaset_controller.REPLICA_SET, stage.admin
    labels = {"app": stage.name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "web", "image": "example.com/web"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    draft = MutableObject.new(kind, stage.name, namespace=NAMESPACE, spec=spec)
    admin.create(draft)
    for count in (1, 0):
        if not count:
            fewer = MergePatch({"spec": {"replicas": 0}})
            admin.patch(kind, stage.name, fewer, namespace=NAMESPACE)
        says = replicaset_controller.says(count)
        stage.until(lambda says=says: says(admin.get(kind, stage.name, namespace=NAMESPACE)))


def remove_replica_set(stage: Stage) -> None:
    with contextlib.suppress(NotFound):
        stage.admin.delete(replicaset_controller.REPLICA_SET, stage.name, namespace=NAMESPACE)


REPLICA_SETS = Example(
    name="replicaset_controller",
    operator=replica_sets,
    timeline=scale,
    namespaces=(NAMESPACE,),
    tidy=remove_replica_set,
)


# -- elections -------------------------------------------------------------------------------------


def make_ledger(admin: Client) -> None:
    draft = MutableObject.new(CONFIG_MAP, leader_election.LEDGER, namespace=NAMESPACE, data={})
    admin.create(draft)


def is_written(stage: Stage, name: str, key: str) -> bool:
    """Whether the operator of this play wrote its name into a ConfigMap."""
    found = stage.admin.get(CONFIG_MAP, name, namespace=NAMESPACE)
    return found.get("data", {}).get(key) == stage.name


def remove_leases(stage: Stage) -> None:
    stage.admin.delete_collection(leader_election.LEASE, namespace=NAMESPACE)


ELECTION = Example(
    name="leader_election",
    prepare=make_ledger,
    operator=lambda config, stage: leader_election.operator(
        config, stage.name, namespace=NAMESPACE, lease_duration=4.0
    ),
    timeline=lambda stage: stage.until(lambda: is_written(stage, leader_election.LEDGER, "writer")),
    tidy=remove_leases,
    own_namespace=NAMESPACE,
)


def make_object(admin: Client) -> None:
    draft = MutableObject.new(CONFIG_MAP, "sharded", namespace=NAMESPACE, data={})
    draft.labels.update(sharded.LABEL)
    admin.create(draft)


SHARDED = Example(
    name="sharded",
    prepare=make_object,
    operator=lambda config, stage: sharded.operator(
        config, stage.name, namespace=NAMESPACE, lease_duration=4.0
    ),
    timeline=lambda stage: stage.until(lambda: is_written(stage, "sharded", "owner")),
    tidy=remove_leases,
    own_namespace=NAMESPACE,
)


# -- claims of storage -----------------------------------------------------------------------------


def prepare_storage(admin: Client) -> None:
    """The CRD, and a class of storage whose claims may grow."""
    install_crds(admin, ephemeral_volume_claim.app.crds())
    metadata = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    grows = MutableObject.new(kinds.storage.v1.StorageClass, "grows", metadata=metadata)
    grows["provisioner"], grows["allowVolumeExpansion"] = "example.com/none", True
    admin.create(grows)


def keep_a_claim(stage: Stage) -> None:
    """A claim is made, bound as a cluster does it, and grows."""
    kind, claims, admin = ephemeral_volume_claim.EVC, ephemeral_volume_claim.PVC, stage.admin
    spec = ephemeral_volume_claim.Spec(size="1Gi")
    draft = MutableObject.new(kind, stage.name, namespace=NAMESPACE, spec=spec)
    draft.labels["app"] = "shop"
    owner = admin.create(draft)
    stage.until(lambda: labels_of_claim(stage) == {"app": "shop"})
    volume = MergePatch({"spec": {"volumeName": f"volume-{stage.name}"}})
    admin.patch(claims, stage.name, volume, namespace=NAMESPACE)
    admin.status.patch(
        claims, stage.name, MergePatch({"status": {"phase": "Bound"}}), namespace=NAMESPACE
    )
    larger = MergePatch({"spec": {"size": "2Gi"}})
    admin.patch(kind, stage.name, larger, namespace=NAMESPACE)
    stage.until(lambda: size_of_claim(stage) == "2Gi")
    stage.until(lambda: admin.get(kind, owner.name, namespace=NAMESPACE).status is not None)
    stage.until(lambda: any(event_of(each, stage.name) for each in admin.list(EVENT)))


def claim_of(stage: Stage) -> Object | None:
    with contextlib.suppress(NotFound):
        return stage.admin.get(ephemeral_volume_claim.PVC, stage.name, namespace=NAMESPACE)
    return None


def labels_of_claim(stage: Stage) -> dict[str, str]:
    claim = claim_of(stage)
    return {} if claim is None else dict(claim.labels)


def size_of_claim(stage: Stage) -> str:
    claim = claim_of(stage)
    return "" if claim is None else str(claim["spec"]["resources"]["requests"]["storage"])


def remove_claim(stage: Stage) -> None:
    patch = MergePatch({"metadata": {"finalizers": None}})
    for kind in (ephemeral_volume_claim.EVC, ephemeral_volume_claim.PVC):
        for write in (stage.admin.delete, functools.partial(stage.admin.patch, patch=patch)):
            with contextlib.suppress(NotFound):
                write(kind, stage.name, namespace=NAMESPACE)


CLAIMS = Example(
    name="ephemeral_volume_claim",
    app=ephemeral_volume_claim.app,
    prepare=prepare_storage,
    operator=lambda config, _: ephemeral_volume_claim.app.manager(config),
    timeline=keep_a_claim,
    namespaces=(NAMESPACE,),
    tidy=remove_claim,
)


# -- cron jobs -------------------------------------------------------------------------------------


def install_cron_job(admin: Client) -> None:
    """The CRD alone: nothing reaches the webhooks, which would refuse what the timeline creates."""
    from examples.cronjob import program

    install_crds(admin, program.manifests()[:1])


def install_webhooks(stage: Stage) -> None:
    """What the operator injects its certificates into; for kinds that nobody writes."""
    from examples.cronjob import program

    for draft in program.manifests()[1:]:
        for webhook in draft["webhooks"]:
            webhook["rules"][0]["resources"] = ["nothing"]
        with contextlib.suppress(AlreadyExists):
            stage.admin.create(draft)


@contextlib.contextmanager
def cron_jobs(config: ClientConfig, stage: Stage) -> Iterator[Manager]:
    from examples.cronjob import program

    install_webhooks(stage)
    free = "127.0.0.1:0"
    with program.make_manager(config, webhooks=free, health=free, metrics=free) as manager:
        yield manager


def run_jobs(stage: Stage) -> None:
    """A job is due, made, done, and deleted as the one that is too many."""
    from examples.cronjob.api import CronJob, Job
    from examples.cronjob.job_player import finish
    from examples.cronjob.program import SECRET
    from tests.examples.cronjob.cron_tools import spec

    admin, name = stage.admin, stage.name
    limits = {"successfulJobsHistoryLimit": 0, "concurrencyPolicy": "Forbid"}
    draft = MutableObject.new(CronJob, name, namespace=NAMESPACE, spec=spec("* * * * *", **limits))
    admin.create(draft)
    long_ago = f"{datetime.now(UTC) - timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ}"
    patch = MergePatch({"status": {"lastScheduleTime": long_ago}})
    admin.status.patch(CronJob, name, patch, namespace=NAMESPACE)

    def jobs() -> list[str]:
        found = list(admin.list(Job, namespace=NAMESPACE))
        return [job.name for job in found if job.name.startswith(name)]

    stage.until(jobs)
    (job,) = jobs()
    stage.until(lambda: any(event_of(each, name) for each in admin.list(EVENT)))
    finish(admin, admin.get(Job, job, namespace=NAMESPACE))
    stage.until(lambda: job not in jobs())
    admin.get(kinds.core.v1.Secret, SECRET, namespace=CRON_JOBS.own_namespace)


def event_of(event: Object, name: str) -> bool:
    """Whether an Event is of an object."""
    return event["regarding"]["name"] == name


def remove_cron_job(stage: Stage) -> None:
    """Delete the objects of a play, and the certificates."""
    from examples.cronjob import program
    from examples.cronjob.api import CronJob

    for kind, name, namespace in (
        (CronJob, stage.name, NAMESPACE),
        (kinds.core.v1.Secret, program.SECRET, program.NAMESPACE),
        (leader_election.LEASE, "cronjob-operator", program.NAMESPACE),
        *((each.kind, each.name, "") for each in program.manifests()[1:]),
    ):
        with contextlib.suppress(NotFound):
            stage.admin.delete(kind, name, namespace=namespace)
    crd = program.manifests()[0]
    no_bundle = MergePatch(
        {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": None}}}}}
    )
    stage.admin.patch(crd.kind, crd.name, no_bundle)


CRON_JOBS = Example(
    name="cronjob",
    prepare=install_cron_job,
    operator=cron_jobs,
    timeline=run_jobs,
    tidy=remove_cron_job,
    namespaces=(NAMESPACE,),
    own_namespace="cronjob-system",
    proved_elsewhere=("leases",),
)
EXAMPLES = [
    HELLO,
    REPLICA_SETS,
    ELECTION,
    SHARDED,
    CLAIMS,
    CRON_JOBS,
]

# -- the tests -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def needs() -> Callable[[Example], tuple[Permission, ...]]:
    """What an example needs; recorded once."""
    return cache(recorded)


@pytest.fixture(scope="module")
def embedded() -> Iterator[RbacServer]:
    with embedded_server() as server:
        yield server


@pytest.fixture(scope="module")
def plane(shared_plane: SharedPlane) -> Iterator[RbacServer]:
    with control_plane_server(shared_plane) as server:
        yield server


def test_the_record_of_an_example_is_short_and_has_no_more_than_its_kind(
    needs: Callable[[Example], tuple[Permission, ...]],
) -> None:
    found = [(each.resources[0], each.is_cluster_wide, each.verbs) for each in needs(HELLO)]
    assert found == [
        ("greetings", False, ("patch",)),
        ("greetings", True, ("list", "watch")),
        ("greetings/status", False, ("patch",)),
    ]


each_example = pytest.mark.parametrize(
    "example", EXAMPLES, ids=lambda example: getattr(example, "name", None)
)


@each_example
def test_with_less_than_its_role_an_example_is_refused_what_the_error_names(
    example: Example,
    needs: Callable[[Example], tuple[Permission, ...]],
    embedded: RbacServer,
) -> None:
    check_roles(embedded, example, needs(example))


@pytest.mark.real
@pytest.mark.long
@each_example
def test_so_it_is_on_a_real_server(
    example: Example,
    needs: Callable[[Example], tuple[Permission, ...]],
    plane: RbacServer,
) -> None:
    check_roles(plane, example, needs(example))
