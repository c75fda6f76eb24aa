"""What API servers do with CronJobs, with the operator's webhooks at hand."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator import Client, Invalid, JsonPatch, MergePatch, MutableObject, Object
from appsdk_operator.client import ApiError
from appsdk_operator.runtime import system_clock
from appsdk_operator.testing import APIServer, ControlPlane
from examples.cronjob.api import CronJob, CronJobV2, Schedule
from examples.cronjob.in_process import running_operator
from examples.cronjob.webhooks import check, check_change, set_defaults
from tests.examples.cronjob.cron_tools import TEMPLATE, spec

DEFAULTS = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
}
SET = {
    "concurrencyPolicy": "Replace",
    "suspend": True,
    "successfulJobsHistoryLimit": 0,
    "failedJobsHistoryLimit": 0,
}
NEVER = "0 0 30 12 *"


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def server(request: pytest.FixtureRequest) -> Iterator[APIServer | ControlPlane]:
    """An API server."""
    if request.param == "embedded":
        with APIServer() as embedded:
            yield embedded
        return
    with request.getfixturevalue("shared_plane").lent() as real:
        yield real


@pytest.fixture
def client(server: APIServer | ControlPlane) -> Iterator[Client]:
    """A client of the server, which asks the operator's webhooks."""
    with Client(server.client_config()) as client, running_operator(client, system_clock):
        yield client


@pytest.fixture
def name() -> str:
    """The name of a new CronJob."""
    return f"test-{uuid.uuid4().hex[:8]}"


def create(client: Client, name: str, schedule: str = NEVER, **fields: Any) -> Object:
    """Create a CronJob in v1."""
    body = spec(schedule, **fields)
    return client.create(MutableObject.new(CronJob, name, namespace="default", spec=body))


def create_v2(client: Client, name: str, schedule: Any, **fields: Any) -> Object:
    """Create a CronJob in v2."""
    body = {"schedule": schedule, "jobTemplate": TEMPLATE, **fields}
    return client.create(MutableObject.new(CronJobV2, name, namespace="default", spec=body))


def without_template(obj: Object) -> dict[str, Any]:
    """The spec but for the template."""
    return {key: value for key, value in obj.to_dict()["spec"].items() if key != "jobTemplate"}


def test_what_is_left_out_is_defaulted(client: Client, name: str) -> None:
    made = create(client, name)
    assert without_template(made) == {"schedule": NEVER, **DEFAULTS}
    assert made["spec"]["jobTemplate"]["spec"] == TEMPLATE["spec"]


def test_what_is_set_stays(client: Client, name: str) -> None:
    assert without_template(create(client, name, **SET)) == {"schedule": NEVER, **SET}


def test_what_a_change_takes_away_is_defaulted_again(client: Client, name: str) -> None:
    create(client, name, **SET)
    gone = MergePatch({"spec": dict.fromkeys(SET)})
    changed = client.patch(CronJob, name, gone, namespace="default")
    assert without_template(changed) == {"schedule": NEVER, **DEFAULTS}


def test_defaults_touch_nothing_else() -> None:
    sent = Object.from_dict(
        CronJob,
        {
            "metadata": {"name": "a", "labels": {"b": "c"}},
            "spec": {**spec(NEVER), "unknown": 2**80, "suspend": True},
        },
    )
    draft = sent.mutable_copy()
    set_defaults(draft)
    patch = JsonPatch.between(sent, draft)
    assert sorted((step["op"], step["path"], step["value"]) for step in patch.operations) == [
        ("add", "/spec/concurrencyPolicy", "Allow"),
        ("add", "/spec/failedJobsHistoryLimit", 1),
        ("add", "/spec/successfulJobsHistoryLimit", 3),
    ]


def test_a_schedule_that_is_none_is_refused_with_the_field_and_the_reason(
    client: Client, name: str
) -> None:
    with pytest.raises(Invalid) as caught:
        create(client, name, "invalid-cron-schedule")
    assert caught.value.status == 422
    assert caught.value.message == (
        'admission webhook "validate.cronjobs.batch.tutorial.kubebuilder.io" denied the request: '
        f'CronJob.batch.tutorial.kubebuilder.io "{name}" is invalid: spec.schedule: Invalid value: '
        '"invalid-cron-schedule": Expected exactly 5 fields, found 1: invalid-cron-schedule'
    )
    (cause,) = caught.value.causes
    assert (cause.reason, cause.field) == ("FieldValueInvalid", "spec.schedule")
    assert cause.message == (
        'Invalid value: "invalid-cron-schedule": '
        "Expected exactly 5 fields, found 1: invalid-cron-schedule"
    )


def test_a_name_may_have_52_characters(client: Client, name: str) -> None:
    create(client, name.ljust(52, "x"))
    long = name.ljust(53, "x")
    with pytest.raises(Invalid) as caught:
        create(client, long)
    (cause,) = caught.value.causes
    assert cause.field == "metadata.name"
    assert cause.message == f'Invalid value: "{long}": must be no more than 52 characters'


def test_a_generated_name_may_have_no_more_either(client: Client) -> None:
    draft = MutableObject.new(CronJob, "", namespace="default", spec=spec(NEVER))
    draft.metadata["generateName"] = "x" * 48
    with pytest.raises(Invalid, match="must be no more than 52 characters"):
        client.create(draft)


def test_all_mistakes_are_told_at_once(client: Client, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        create(client, name.ljust(60, "x"), "61 * * * *")
    assert [cause.field for cause in caught.value.causes] == ["metadata.name", "spec.schedule"]
    assert "[metadata.name: Invalid value: " in caught.value.message


def test_a_change_is_checked_as_well(client: Client, name: str) -> None:
    create(client, name)
    with pytest.raises(Invalid, match=r"spec\.schedule"):
        client.patch(CronJob, name, MergePatch({"spec": {"schedule": "soon"}}), namespace="default")
    changed = MergePatch({"spec": {"schedule": "0 0 * * *"}})
    client.patch(CronJob, name, changed, namespace="default")


def test_an_object_that_is_on_its_way_out_is_not_kept_by_its_mistakes() -> None:
    wrong = {"metadata": {"name": "a"}, "spec": spec("soon")}
    gone = {
        "metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec("soon"),
    }
    old, new = (Object.from_dict(CronJob, each) for each in (wrong, gone))
    assert [error.field for error in check(new)] == ["spec.schedule"]
    assert check_change(old, new) == []
    assert [error.field for error in check_change(old, old)] == ["spec.schedule"]


def test_the_schema_refuses_what_no_webhook_has_to_look_at(client: Client, name: str) -> None:
    for fields in ({"concurrencyPolicy": "Perhaps"}, {"failedJobsHistoryLimit": -1}):
        with pytest.raises(ApiError):
            create(client, name, **fields)


def test_both_versions_show_the_same_object(client: Client, name: str) -> None:
    made = create(client, name, "*/5 1 2 3 MON")
    v2 = client.get(CronJobV2, name, namespace="default")
    assert v2.spec.schedule == Schedule("*/5", "1", "2", "3", "MON")
    assert v2.uid == made.uid
    assert without_template(v2) | {"schedule": None} == DEFAULTS | {"schedule": None}
    (listed,) = client.list(CronJobV2, namespace="default", field_selector=f"metadata.name={name}")
    assert listed.spec == v2.spec


def test_what_is_written_in_v2_is_defaulted_and_checked_as_well(client: Client, name: str) -> None:
    made = create_v2(client, name, {"hour": "3"})
    assert made.spec.schedule == Schedule(hour="3")
    assert without_template(made) | {"schedule": None} == DEFAULTS | {"schedule": None}
    assert client.get(CronJob, name, namespace="default").spec.schedule == "* 3 * * *"

    with pytest.raises(Invalid) as caught:
        client.patch(
            CronJobV2,
            name,
            MergePatch({"spec": {"schedule": {"minute": "61"}}}),
            namespace="default",
        )
    (cause,) = caught.value.causes
    assert cause.field == "spec.schedule"
    assert cause.message == 'Invalid value: "61 3 * * *": Bad minute'

    with pytest.raises(ApiError, match=r"spec\.schedule: '1 2 . . . .' has not 5 fields"):
        create_v2(client, f"{name}-2", {"minute": "1 2"})


def test_a_change_in_v2_leaves_what_v2_cannot_hold(client: Client, name: str) -> None:
    create(client, name, "0  0 30   12 *")
    client.patch(CronJobV2, name, MergePatch({"spec": {"suspend": True}}), namespace="default")
    found = client.get(CronJob, name, namespace="default")
    assert found.spec.schedule == "0  0 30   12 *"
    assert found.spec.suspend is True
    assert found.annotations == {}


def test_the_status_can_be_written_in_each_version(client: Client, name: str) -> None:
    create(client, name, suspend=True)
    status = MergePatch({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}})
    client.status.patch(CronJobV2, name, status, namespace="default")
    found = client.get(CronJob, name, namespace="default").status
    assert found is not None
    assert found.last_schedule_time is not None
