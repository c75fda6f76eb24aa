"""The examples run as their README says, and tell the timeline that they promise."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appsdk_operator import Client, ClientConfig, Kind, MutableObject, kinds
from appsdk_operator.controllers import wait_for
from appsdk_operator.testing import APIServer
from tests.shared_plane import SharedPlane
from tests.waiting import eventually

pytestmark = [pytest.mark.programs, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).parents[2] / "examples"

COMPOSE_WATCHERS = """\
added   colors: the ledger says {'favourite': 'blue'}
        colors: blue -> red
updated colors: the ledger says {'favourite': 'red'}
updated colors: the ledger says {'favourite': 'red'}
deleted colors: the ledger says None
"""

RETRY_POLICIES = """\
flaky: attempt 0 failed: busy, come back in 0.1 s
flaky: attempt 1 failed: busy, come back in 0.2 s
flaky: copied, port 80
  retries that wait: 0
hopeless: attempt 0 failed: the port is not a number
  retries that wait: 0
slow: attempt 0 failed: busy, come back in 3600 s
  retries that wait: 1
  slow: the retry is kept
  retries that wait: 1
  slow: the retry is dropped
slow: copied, port 8080
  retries that wait: 0
"""

NAMESPACES = """\
-- team-red is served
team-red/first is number 1 of its team
-- team-green is served
team-green/first is number 1 of its team
-- team-red is served no more
team-green/second is number 2 of its team
"""

REPLICASET_CONTROLLER = """\
-- created with 3 replicas
3 pods: example-web-0, example-web-1, example-web-2
-- one pod is deleted by hand
3 pods: example-web-0, example-web-1, example-web-2
-- scaled to 1
1 pod: example-web-0
-- deleted
"""

TYPED_SPEC = """\
vault: db, kept 7 times
vault: db, mail, kept 7 times
refused: spec.target.keep
status: BackupStatus(saved=2)
"""

TOUCHED = (
    kinds.core.v1.ConfigMap,
    kinds.core.v1.Namespace,
    kinds.core.v1.Pod,
    kinds.apps.v1.ReplicaSet,
    kinds.batch.v1.Job,
    kinds.apiextensions.v1.CustomResourceDefinition,
    kinds.admissionregistration.v1.MutatingWebhookConfiguration,
    kinds.admissionregistration.v1.ValidatingWebhookConfiguration,
)
SHARDED = """\
red and green: the shares are 4, 4
blue comes: the shares are 3, 3, 2
red is killed: the shares are 4, 4
green is asked to stop, and ends with status 0: the shares are 8
12 objects: nobody wrote too late
"""

CRONJOB = """\
-- created with a schedule and a template
policy Allow, suspended: False
keeps 3 jobs that succeeded and 1 that failed
-- mistakes
spec.schedule Invalid value: "every Monday": Expected exactly 5 fields, found 2: every Monday
metadata.name Invalid value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": \
must be no more than 52 characters
-- the same CronJob in v2
Schedule(minute='30', hour='4', day_of_month='*', month='*', day_of_week='MON')
-- v2 is changed, and v1 read
* * * * *
-- time passes, a minute in a second
"""

STORIES = {
    "sharded": SHARDED,
    "compose_watchers": COMPOSE_WATCHERS,
    "retry_policies": RETRY_POLICIES,
    "namespaces": NAMESPACES,
    "replicaset_controller": REPLICASET_CONTROLLER,
    "typed_spec": TYPED_SPEC,
}


OTHERS = [
    "issue_tracker",
    "leader_election",
    "cronjob",
]
"""Examples that tell something else each time."""


def run(name: str, *arguments: str) -> str:
    """What an example prints; it must end with status 0 and without a word on stderr."""
    program = [EXAMPLES / f"{name}.py"]
    if not program[0].exists():
        program = ["-m", f"examples.{name}"]
    command = [sys.executable, "-W", "error", *program, *arguments]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=300, cwd=EXAMPLES.parent
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize("name", STORIES)
def test_an_example_tells_its_timeline(name: str) -> None:
    assert run(name) == STORIES[name]


@pytest.mark.long
@pytest.mark.parametrize("name", [*STORIES, *OTHERS])
def test_an_example_runs_on_the_cluster_of_a_kubeconfig_and_cleans_up(
    name: str, tmp_path: Path
) -> None:
    with APIServer() as server:
        there = {kind: server.objects(kind) for kind in TOUCHED}
        server.write_kubeconfig(tmp_path / "kubeconfig")
        timeline = run(name, "--kubeconfig", str(tmp_path / "kubeconfig"))
        assert timeline == STORIES.get(name, timeline)
        # The server's controllers delete the content of namespaces and of CRDs after them.
        with contextlib.suppress(AssertionError):  # the next line says what is left
            eventually(lambda: {kind: server.objects(kind) for kind in TOUCHED} == there, 30.0)
        assert {kind: server.objects(kind) for kind in TOUCHED} == there


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("name", [*STORIES, *OTHERS])
def test_an_example_tells_the_same_timeline_on_a_real_control_plane(name: str, real: Path) -> None:
    timeline = run(name, "--kubeconfig", str(real))
    assert timeline == STORIES.get(name, timeline)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, shared_plane: SharedPlane) -> Iterator[Path]:
    """The kubeconfig of a real control plane."""
    kubeconfig = tmp_path_factory.mktemp("real") / "kubeconfig"
    with shared_plane.lent() as plane:
        plane.write_kubeconfig(kubeconfig)
        yield kubeconfig


def test_the_demo_sees_everything_come_as_promised() -> None:
    timeline = run("issue_tracker")
    assert "#1        triage   add     flaky         fails, will be retried" in timeline
    assert "-- the operator is down: slow-search is deleted, while-away is created" in timeline
    assert "#2        triage   delete  slow-search   ok" in timeline
    assert re.search(r"^\d+ calls: everything came as promised\n\Z", timeline, re.MULTILINE)


def test_the_lead_passes_on_and_nobody_writes_too_late() -> None:
    timeline = run("leader_election")
    names = "red|green|blue"
    assert re.fullmatch(
        rf"({names}) leads\n"
        rf"\1 is killed: ({names}) took over after \d\.\d s\n"
        rf"\2 is put to sleep: ({names}) took over after \d\.\d s\n"
        r"\2 wakes up, sees that it has lost the lead, and ends with status 1\n"
        r"\3 is asked to stop, and ends with status 0\n"
        r"nobody holds the Lease any more\n"
        r"\d+ writes, in turn by \1, \2, \3: nobody wrote too late\n",
        timeline,
    ), timeline


def test_the_cron_job_is_checked_and_its_jobs_come_and_go() -> None:
    timeline = run("cronjob")
    assert timeline.startswith(CRONJOB)
    events = [line.split() for line in timeline.removeprefix(CRONJOB).splitlines()]
    started, done, deleted = (
        [time for time, what in events if what == each]
        for each in ("started", "succeeded", "deleted")
    )
    assert len(done) >= 5
    assert started[: len(done)] == done
    assert deleted == done[: len(deleted)]
    assert len(deleted) >= 2


def test_the_property_holds_for_the_careful_watcher_and_not_for_the_careless_one() -> None:
    timeline = run("property_test_order")
    assert timeline.startswith("careful: the property held in 200 histories\ncareless: announced ")
    assert "operator is called for a (watcher 0): fails with ConnectionError" in timeline


def test_the_app_greets_and_parts() -> None:
    greeting = Kind(group="hello.example.com", version="v1", kind="Greeting")
    with subprocess.Popen(
        [sys.executable, "-m", "appsdk_operator", "run", EXAMPLES / "app_hello.py", "--dev"],
        env={key: value for key, value in os.environ.items() if key != "KUBECONFIG"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            kubeconfig = ""
            for line in process.stdout:
                kubeconfig = line.partition("KUBECONFIG=")[2].strip() or kubeconfig
                if "hello has started" in line:
                    break
            with Client(ClientConfig.from_kubeconfig(kubeconfig)) as client:
                new = MutableObject.new(greeting, "a", namespace="default", spec={"name": "you"})
                client.create(new)
                wait_for(
                    client,
                    greeting,
                    "a",
                    lambda obj: obj.get("status") == {"text": "hello you"},
                    namespace="default",
                )
                client.delete(greeting, "a", namespace="default")
                assert any("goodbye you" in line for line in process.stdout)
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
        finally:
            process.kill()
    assert process.returncode == 0, rest


def test_the_table_of_examples_is_complete() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    packages = {path.parent.name for path in EXAMPLES.glob("*/__main__.py")}
    assert set(re.findall(r"^\| \[(\w+\.py)\]", text, re.MULTILINE)) == programs
    projects = {path.parent.name for path in EXAMPLES.glob("*/pyproject.toml")}
    assert set(re.findall(r"^\| \[(\w+)/\]", text, re.MULTILINE)) == packages | projects
    started = r"^\$ (?:python|appsdk-operator run) examples/(\w+\.py)(?: --dev)?$"
    assert set(re.findall(started, text, re.MULTILINE)) == programs
    assert set(re.findall(r"^\$ python -m examples\.(\w+)$", text, re.MULTILINE)) == packages
    assert set(re.findall(r"^\$ cd examples/(\w+)$", text, re.MULTILINE)) == projects
