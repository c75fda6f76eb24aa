"""``appsdk-operator pause`` and ``resume``: annotations of a Lease, and what is said."""

from __future__ import annotations

import datetime as dt
import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from appsdk_operator import cli, kinds
from appsdk_operator.client import Client
from appsdk_operator.resource import MutableObject
from appsdk_operator.testing import APIServer
from tests.shared_plane import SharedPlane

LEASE = kinds.coordination.v1.Lease
NAME = "bucket-operator"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with APIServer() as server, Client(server.client_config()) as client:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        monkeypatch.setenv("APPSDK_KUBECONFIG", str(tmp_path / "kubeconfig"))
        client.create(MutableObject.new(kinds.core.v1.Namespace, NAME))
        client.create(MutableObject.new(LEASE, NAME, namespace=NAME))
        yield client


def annotations(api: Client) -> dict[str, str]:
    return dict(api.get(LEASE, NAME, namespace=NAME).annotations)


def test_a_pause_and_its_end_are_annotations_of_the_lease(
    api: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dt.datetime.now(dt.UTC)
    assert cli.main(["pause", NAME, "--for", "1h30m", "--reason", "storage is moved"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{NAME} is asked to be paused by {getpass.getuser()}@")
    assert said.endswith(": storage is moved\n")
    found = annotations(api)
    until = dt.datetime.fromisoformat(found["appsdk-operator.io/paused-until"])
    assert abs((until - before).total_seconds() - 5400) < 60
    assert found["appsdk-operator.io/pause-reason"] == "storage is moved"
    assert cli.main(["resume", NAME]) == 0
    assert f"{NAME} goes on: it was paused by" in capsys.readouterr().out
    assert annotations(api) == {}
    assert cli.main(["resume", NAME]) == 0
    assert capsys.readouterr().out == f"{NAME} was not paused\n"


def test_a_pause_of_somebody_else_is_kept_unless_it_is_to_be_replaced(
    api: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["pause", NAME, "--by", "ann", "--reason", "hers"]) == 0
    assert cli.main(["pause", NAME, "--by", "bob", "--reason", "his"]) == 1
    said = capsys.readouterr().err
    assert "is paused by ann until" in said
    assert "--replace" in said
    assert annotations(api)["appsdk-operator.io/paused-by"] == "ann"
    assert cli.main(["pause", NAME, "--by", "bob", "--reason", "his", "--replace"]) == 0
    assert annotations(api)["appsdk-operator.io/paused-by"] == "bob"


@pytest.mark.parametrize("command", [["pause", "--reason", "x"], ["resume"]])
def test_an_operator_without_a_lease_is_not_found(
    api: Client, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert cli.main([*command, "other", "-n", NAME]) == 1
    said = capsys.readouterr().err
    assert f"there is no Lease other in namespace {NAME}" in said
    assert "leader_election=True" in said
    assert "--replace" not in said


@pytest.mark.parametrize(
    ("holder", "age", "is_seen"),
    [("pod-1", 5.0, True), ("pod-1", 3600.0, False), ("", 5.0, False), ("pod-1", None, False)],
)
def test_a_lease_that_no_replica_renews_is_paused_with_a_warning(
    api: Client,
    capsys: pytest.CaptureFixture[str],
    holder: str,
    age: float | None,
    is_seen: bool,
) -> None:
    draft = api.get(LEASE, NAME, namespace=NAME).mutable_copy()
    draft["spec"] = {"holderIdentity": holder} if holder else {}
    if age is not None:
        renewed = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age)
        draft["spec"]["renewTime"] = renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    api.update(draft)
    assert cli.main(["pause", NAME, "--reason", "x"]) == 0
    assert annotations(api)["appsdk-operator.io/pause-reason"] == "x"
    said = capsys.readouterr().err
    assert ("Warning: no replica has renewed the Lease" in said) is not is_seen
    assert ("leader_election=True" in said) is not is_seen


@pytest.mark.parametrize("time", ["", "soon", "30", "-5m", "1h 30m", "5w"])
def test_a_time_that_cannot_be_read_is_refused(
    time: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["pause", NAME, "--for", time, "--reason", "x"])
    assert "is not a time such as 30m, 2h or 1h30m" in capsys.readouterr().err


def test_a_pause_has_a_reason_and_a_sensible_length(
    api: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["pause", NAME])
    assert "--reason" in capsys.readouterr().err
    assert cli.main(["pause", NAME, "--reason", ""]) == 1
    assert "reason" in capsys.readouterr().err
    assert cli.main(["pause", NAME, "--reason", "x", "--for", "400d"]) == 1
    assert "1 second to a year" in capsys.readouterr().err


@pytest.mark.real
def test_a_real_server_keeps_the_pause_while_the_leader_renews_its_lease(
    tmp_path: Path, shared_plane: SharedPlane
) -> None:
    with shared_plane.lent() as plane, Client(plane.client_config()) as client:
        plane.write_kubeconfig(tmp_path / "kubeconfig")
        client.create(MutableObject.new(LEASE, NAME, namespace="default"))
        where = ["-n", "default", "--kubeconfig", str(tmp_path / "kubeconfig")]
        assert cli.main(["pause", NAME, *where, "--by", "ann", "--reason", "incident"]) == 0
        draft = client.get(LEASE, NAME, namespace="default").mutable_copy()
        draft["spec"] = {"holderIdentity": "pod-1"}
        client.update(draft)
        found = client.get(LEASE, NAME, namespace="default")
        assert found.annotations["appsdk-operator.io/paused-by"] == "ann"
        assert found.annotations["appsdk-operator.io/pause-reason"] == "incident"
        assert cli.main(["resume", NAME, *where]) == 0
        assert not client.get(LEASE, NAME, namespace="default").annotations
