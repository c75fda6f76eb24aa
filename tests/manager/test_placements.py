"""Where a runnable belongs, and what it is called."""

from __future__ import annotations

from typing import Any

import pytest

from appsdk_operator.cache import Cache, Informer
from appsdk_operator.manager import RunnableGroup
from appsdk_operator.manager._core.runnable import (
    RunnableFunction,
    as_runnable,
    name_of,
    placements,
)
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import StopSignal
from tests.simulations import no_client


class Scripted:
    """A runnable."""

    def run(self, stop: StopSignal) -> None: ...


class TestClassification:
    """Where a runnable belongs."""

    @pytest.mark.parametrize(
        ("attributes", "groups"),
        [
            ({}, ["leader-election"]),
            ({"needs_leader_election": True}, ["leader-election"]),
            ({"needs_leader_election": False}, ["others"]),
            ({"only_serve_when_leader": True}, ["leader-election"]),
            ({"only_serve_when_leader": False}, ["http-servers"]),
            ({"only_serve_when_leader": False, "needs_leader_election": False}, ["http-servers"]),
            ({"runnable_group": RunnableGroup.WEBHOOKS}, ["webhooks"]),
            ({"runnable_group": "caches", "needs_leader_election": True}, ["caches"]),
            ({"warm_up": lambda _: None}, ["warm-up", "leader-election"]),
            (
                {"warm_up": lambda _: None, "needs_leader_election": True},
                ["warm-up", "leader-election"],
            ),
            ({"warm_up": lambda _: None, "needs_leader_election": False}, ["warm-up", "others"]),
        ],
    )
    def test_what_a_runnable_says_of_itself_decides_on_its_group(
        self, attributes: dict[str, Any], groups: list[str]
    ) -> None:
        runnable = type("R", (), {"run": lambda *_: None})()
        for name, value in attributes.items():
            setattr(runnable, name, value)
        assert [str(placement.group) for placement in placements(runnable)] == groups

    def test_caches_and_informers_are_waited_for_among_the_caches(self) -> None:
        client = no_client()
        cache = Cache(client)
        informer = Informer(kinds.core.v1.ConfigMap, client)
        for runnable in (cache, informer):
            [placement] = placements(runnable)
            assert placement.group is RunnableGroup.CACHES
            assert placement.wait_until_ready == runnable.wait_for_sync

    def test_a_synced_word_alone_makes_nobody_wait_outside_of_the_caches(self) -> None:
        runnable = type("R", (), {"run": lambda *_: None, "wait_for_sync": lambda *_: False})()
        [placement] = placements(runnable)
        assert placement.wait_until_ready is None

    def test_a_plain_function_runs_on_the_leader_and_has_its_own_name(self) -> None:
        def tidy_up(stop: StopSignal) -> None: ...

        runnable = as_runnable(tidy_up)
        [placement] = placements(runnable)
        assert placement.group is RunnableGroup.LEADER_ELECTION
        assert name_of(runnable).endswith("tidy_up")
        assert "tidy_up" in repr(runnable)

    def test_a_runnable_without_a_name_is_called_by_its_class(self) -> None:
        assert name_of(type("Sweeper", (), {})()) == "Sweeper"
        assert name_of(type("Sweeper", (), {"name": 7})()) == "Sweeper"

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (Scripted, "add an instance, Scripted"),
            ("text", "an object with run"),
            (lambda: None, "has to take the stop signal"),
        ],
    )
    def test_what_cannot_be_run_is_refused_with_the_remedy(self, value: Any, text: str) -> None:
        with pytest.raises(TypeError, match=text):
            as_runnable(value)

    def test_a_function_of_the_interpreter_that_hides_its_arguments_is_taken(self) -> None:
        assert isinstance(as_runnable(min), RunnableFunction)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("attributes", "text"),
        [
            ({"needs_leader_election": lambda: False}, "needs_leader_election of R is"),
            ({"only_serve_when_leader": None}, "only_serve_when_leader of R is None"),
            ({"runnable_group": "nowhere"}, "use a member of RunnableGroup"),
            ({"runnable_group": RunnableGroup.WARM_UP}, "write a method warm_up"),
        ],
    )
    def test_unclear_words_are_refused(self, attributes: dict[str, Any], text: str) -> None:
        runnable = type("R", (), {"run": lambda *_: None})()
        for name, value in attributes.items():
            setattr(runnable, name, value)
        with pytest.raises(TypeError, match=text):
            placements(runnable)
