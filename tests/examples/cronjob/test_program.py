"""The program of a pod, on an API server that has nothing but its manifests."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

from appsdk_operator import Client, Invalid, MutableObject, kinds
from appsdk_operator.testing import APIServer, running
from examples.cronjob import program
from examples.cronjob.api import CronJob, CronJobV2, Schedule
from tests.examples.cronjob.cron_tools import spec
from tests.waiting import eventually

FREE = "127.0.0.1:0"


def test_the_program_runs_on_what_its_manifests_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setattr("sys.argv", ["program", "--manifests"])
    program.main()
    manifests = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [each["kind"] for each in manifests] == [
        "CustomResourceDefinition",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]

    address = f"127.0.0.1:{free_port}"
    with (
        APIServer(services={"cronjob-system/webhooks": f"https://{address}"}) as server,
        Client(server.client_config()) as client,
    ):
        client.create(MutableObject.new(kinds.core.v1.Namespace, "cronjob-system"))
        for each in program.manifests():
            client.create(each)
        manager = program.make_manager(
            server.client_config(),
            webhooks=address,
            health=FREE,
            metrics=FREE,
        )
        with running(manager, timeout=60.0):
            draft = MutableObject.new(CronJob, "a", namespace="default", spec=spec("* * * * *"))
            made = client.create(draft)
            assert made.spec.concurrency_policy == "Allow"
            assert client.get(CronJobV2, "a", namespace="default").spec.schedule == Schedule()
            wrong = MutableObject.new(CronJob, "b", namespace="default", spec=spec("never"))
            with pytest.raises(Invalid, match="exactly 5 fields"):
                client.create(wrong)
            # It leads, and its controllers may still be about to start.
            assert eventually(lambda: is_ready(manager.addresses["health"]), 60.0)


def is_ready(address: str) -> bool:
    """Whether the probe of a pod would succeed."""
    try:
        with urlopen(f"http://{address}/readyz") as answer:
            return bool(answer.status == 200)
    except HTTPError as error:
        error.close()
        return False
