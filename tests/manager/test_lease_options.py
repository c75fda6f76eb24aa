"""The options of a leader election: which times fit together, and where the Lease is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from appsdk_operator.app import ENVIRONMENT
from appsdk_operator.client import ClientConfig
from appsdk_operator.manager import LeaderElection, elector_config
from appsdk_operator.manager._election import options as _lease_options
from appsdk_operator.manager._election.options import namespace_of


def test_the_defaults_are_those_of_controller_runtime() -> None:
    options = LeaderElection(id="x")
    times = (options.lease_duration, options.renew_deadline, options.retry_period)
    assert times == (15.0, 10.0, 2.0)
    assert not options.release_on_cancel
    assert options.request_timeout == 5.0
    assert options.margin == 2.5


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"lease_duration": 10.0}, "must be longer than renew_deadline"),
        ({"lease_duration": 9.0}, "must be longer than renew_deadline"),
        ({"renew_deadline": 15.0}, "must be longer than renew_deadline"),
        ({"renew_deadline": 2.4}, "more than one try"),
        ({"retry_period": 9.0}, "more than one try"),
        ({"retry_period": 0.0}, "more than 0"),
        ({"retry_period": -1.0}, "more than 0"),
        ({"renew_deadline": 0.0}, "more than 0"),
        ({"lease_duration": 0.0}, "more than 0"),
        ({"lease_duration": float("nan")}, "more than 0"),
        ({"lease_duration": float("inf")}, "more than 0"),
        ({"fence_margin": -0.1}, "fence_margin"),
        ({"fence_margin": 5.1}, "use 0 to 5"),
        ({"identity": ""}, "identity"),
        ({"namespace": ""}, "namespace"),
        ({"id": ""}, "name of a Lease"),
        ({"id": "a/b"}, "name of a Lease"),
        ({"id": None}, "name of a Lease"),
        ({"id": "My Operator"}, "lower-case letters"),
        ({"id": "a..b"}, "lower-case letters"),
        ({"id": "a\n"}, "lower-case letters"),
        ({"id": "a" * 254}, "lower-case letters"),
    ],
)
def test_options_that_cannot_work_are_refused_when_they_are_given(
    times: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        LeaderElection(**{"id": "x", **times})


def test_times_that_just_fit_are_taken() -> None:
    LeaderElection(id="x", lease_duration=10.01, renew_deadline=10.0, retry_period=8.3)
    assert LeaderElection(id="x", fence_margin=5.0).margin == 5.0
    assert LeaderElection(id="x", fence_margin=0.0).margin == 0.0


@pytest.mark.parametrize(("given", "written"), [(15.0, 15), (1.5, 2), (0.4, 1), (2.0001, 3)])
def test_a_lease_counts_whole_seconds_rounded_up(given: float, written: int) -> None:
    options = LeaderElection(
        id="x", lease_duration=given, renew_deadline=given * 0.7, retry_period=given / 4
    )
    assert options.record_duration == written


def test_a_request_may_take_half_the_renew_deadline_and_a_second_at_least() -> None:
    options = LeaderElection(id="x", lease_duration=2.0, renew_deadline=1.0, retry_period=0.3)
    assert options.request_timeout == 1.0


def test_a_namespace_is_required_outside_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lease_options, "NAMESPACE_FILE", str(tmp_path / "namespace"))
    with pytest.raises(ValueError, match=r"give LeaderElection\(namespace=…\)") as raised:
        namespace_of(LeaderElection(id="x"))
    for name in ("leader_election", "leader_election_namespace"):
        assert ENVIRONMENT[name] in str(raised.value)  # what a program has instead
    assert namespace_of(LeaderElection(id="x", namespace="ops")) == "ops"


def test_in_a_pod_the_namespace_is_that_of_the_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "namespace"
    monkeypatch.setattr(_lease_options, "NAMESPACE_FILE", str(file))
    file.write_text("team-red\n")
    assert namespace_of(LeaderElection(id="x")) == "team-red"
    file.write_text("")
    with pytest.raises(ValueError, match="is empty"):
        namespace_of(LeaderElection(id="x"))


def test_the_elections_client_is_impatient_and_names_itself() -> None:
    config = ClientConfig(server="https://10.0.0.1", qps=5.0)
    own = elector_config(config, LeaderElection(id="x"))
    assert own.user_agent == f"{config.user_agent} leader-election"
    assert (own.connect_timeout, own.read_timeout) == (5.0, 5.0)
    assert (own.qps, own.max_retries) == (None, 0)
    assert (config.qps, config.max_retries) == (5.0, 4), "the given one stays as it is"
    hasty = attrs.evolve(config, connect_timeout=2.0, read_timeout=3.0)
    own = elector_config(hasty, LeaderElection(id="x"))
    assert (own.connect_timeout, own.read_timeout) == (2.0, 3.0)
