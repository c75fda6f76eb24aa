"""When an API server counts as lost: what is asked, when, and what the log may say."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from appsdk_operator.client import (
    ANSWER_WITHIN,
    Client,
    ContactWatch,
    NotFound,
    ReadTimeout,
    ServerContact,
)
from appsdk_operator.client._transport.contact import Look
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import ManualClock
from appsdk_operator.testing import APIServer

ERROR = ReadTimeout("no answer in time")


def test_a_server_that_sends_something_is_never_asked() -> None:
    contact = ServerContact(0.0)
    watch = contact.watch(0.0)
    for second in range(1, 100):
        contact.heard_at = float(second)
        assert contact.look(watch, second + 4.0).wait == 1.0


def test_a_quiet_server_is_asked_after_five_seconds_and_its_answer_is_enough() -> None:
    contact = ServerContact(0.0)
    watch = contact.watch(0.0)
    assert contact.look(watch, 4.0) == Look(1.0)
    assert contact.look(watch, 5.0) == Look(0.0)
    contact.heard_at = 5.1
    assert contact.look(watch, 5.1) == Look(5.0)


def test_a_server_without_an_answer_is_lost_after_ten_seconds_and_said_once() -> None:
    contact = ServerContact(0.0)
    watch = contact.watch(0.0)
    contact.not_answered(ERROR, 5.0, 10.0)
    assert contact.look(watch, 10.0) == Look(5.0, lost_for=10.0, error=ERROR)
    assert contact.look(watch, 10.0) == Look(5.0)
    contact.heard_at = 42.0
    assert contact.look(watch, 43.0) == Look(4.0, away=42.0)
    assert contact.look(watch, 43.0) == Look(4.0)


def test_a_server_that_refuses_connections_is_asked_each_second_until_it_is_lost() -> None:
    contact = ServerContact(0.0)
    watch = contact.watch(0.0)
    contact.not_answered(ERROR, 5.0, 5.0)
    assert contact.look(watch, 5.0).wait == 1.0
    contact.not_answered(ERROR, 9.5, 9.5)
    assert contact.look(watch, 9.5).wait == 0.5  # in time for the line
    assert contact.look(watch, 10.0).lost_for == 10.0


def test_what_comes_while_a_question_is_out_ends_the_silence() -> None:
    contact = ServerContact(0.0)
    watch = contact.watch(0.0)
    contact.heard_at = 6.0
    contact.not_answered(ERROR, 5.0, 10.0)
    assert contact.look(watch, 10.5) == Look(0.5)
    assert contact.look(watch, 16.0) == Look(0.0)


def test_what_was_before_it_is_watched_again_does_not_count() -> None:
    contact = ServerContact(0.0)
    watch = contact.watch(0.0)
    contact.not_answered(ERROR, 5.0, 10.0)
    assert contact.look(watch, 10.0).lost_for == 10.0
    contact.end(watch)
    watch = contact.watch(100.0)
    assert contact.is_watched
    assert contact.look(watch, 100.0) == Look(5.0)
    assert contact.lost_since is None
    assert contact.lost_until < 0.0


def test_each_of_two_who_watch_is_told_and_one_of_them_asks() -> None:
    contact = ServerContact(0.0)
    one, other = contact.watch(0.0), contact.watch(3.0)
    assert contact.heard_at == 0.0, "the second one begins nothing anew"
    assert [
        contact.look(one, 5.0).wait,
        contact.look(other, 5.0).wait,
        contact.look(one, 5.0).wait,
    ] == [0.0, 1.0, 0.0]
    contact.not_answered(ERROR, 5.0, 10.0)
    assert (
        contact.look(other, 10.0)
        == contact.look(one, 10.0)
        == Look(5.0, lost_for=10.0, error=ERROR)
    )
    assert contact.look(other, 15.0).wait == 0.0
    contact.end(other)  # it asks no more
    assert contact.is_watched
    assert contact.look(one, 15.0).wait == 0.0
    third = contact.watch(16.0)
    assert contact.look(third, 16.0).lost_for == 16.0, "also who comes later"
    contact.heard_at = 42.0
    assert contact.look(one, 43.0) == contact.look(third, 43.0) == Look(4.0, away=42.0)
    contact.end(one)
    contact.end(third)
    assert not contact.is_watched


def test_who_reads_it_while_the_loss_ends_sees_the_loss_or_its_end() -> None:
    contact = ServerContact(0.0)
    watch = contact.watch(0.0)
    contact.not_answered(ERROR, 5.0, 10.0)
    contact.look(watch, 11.0)
    contact.heard_at = 100.0
    seen = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            sys.settrace(None)
            seen.add(contact.lost_until)
            sys.settrace(trace)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        contact.look(watch, 101.0)
    finally:
        sys.settrace(before)
    assert seen == {math.inf, 100.0}


def test_silence_alone_is_no_loss() -> None:
    # As after a pause of the whole machine: nobody has asked.
    contact = ServerContact(0.0)
    assert contact.look(contact.watch(0.0), 1000.0) == Look(0.0)


def test_answers_and_what_a_watch_brings_are_heard() -> None:
    clock = ManualClock()
    kind = kinds.core.v1.ConfigMap
    with APIServer() as server, Client(server.client_config(), clock=clock) as client:
        assert client.contact.heard_at == 0.0
        clock.advance(5.0)
        list(client.list(kind))
        assert client.contact.heard_at == 5.0
        clock.advance(5.0)
        with pytest.raises(NotFound):
            client.get(kind, "nobody", namespace="default")
        assert client.contact.heard_at == 10.0
        clock.advance(5.0)
        with client.watch(kind, resource_version="0") as watch:
            assert client.contact.heard_at == 15.0
            clock.advance(5.0)
            with Client(server.client_config()) as other:
                other.create(MutableObject.new(kind, "a", namespace="default"))
            next(iter(watch))
            assert client.contact.heard_at == 20.0


@dataclass
class Looker:
    """Looks as a monitor does; the oracle knows the answer from the history alone."""

    contact: ServerContact = field(default_factory=lambda: ServerContact(0.0))
    now: float = 0.0
    watch: ContactWatch = field(init=False)
    heard: list[float] = field(default_factory=lambda: [0.0])
    failed: list[tuple[float, float]] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)
    lines: list[tuple[str, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = self.contact.watch(0.0)

    def hear(self) -> None:
        self.heard.append(self.now)
        self.contact.heard_at = self.now

    def look(self) -> float:
        look = self.contact.look(self.watch, self.now)
        if look.away is not None:
            self.lines.append(("back", self.now, look.away))
        if look.lost_for is not None:
            self.lines.append(("lost", self.now, look.lost_for))
        return look.wait

    def ask(self, *, answered: bool, seconds: float, traffic: float | None) -> None:
        began = self.now
        self.asked.append(began)
        if traffic is not None and traffic < seconds:
            self.now = began + traffic
            self.hear()
        self.now = began + seconds
        if answered:
            self.hear()
        else:
            self.failed.append((began, self.now))
            self.contact.not_answered(ERROR, began, self.now)

    def is_lost(self) -> bool:
        """By the words of the promise."""
        last = self.heard[-1]
        return self.now - last >= 10.0 and any(began > last for began, _ in self.failed)


STEPS = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from([0.0, 0.125, 1.0, 4.875, 5.0]),
        st.none() | st.sampled_from([0.0625, 0.5, 4.5]),
        st.none() | st.sampled_from([0.5, 3.0, 7.0]),
    ),
    max_size=60,
)


@given(STEPS)
@example([(False, 5.0, None, None)] * 4 + [(True, 0.125, None, None)] * 2)
@example([(False, 0.0, None, None)] * 9 + [(False, 5.0, 4.5, None)])
@example([(False, 5.0, 0.5, None)] * 9)
@example([(True, 4.875, None, None)] * 9)
@example([(False, 0.0, None, 7.0)] * 9)
def test_the_log_tells_each_loss_once_and_nothing_else(
    steps: list[tuple[bool, float, float | None, float | None]],
) -> None:
    looker = Looker()
    for answered, seconds, traffic, pause in steps:
        wait = looker.look()
        if pause is not None and pause < wait:
            looker.now += pause  # something comes while nobody asks
            looker.hear()
            looker.look()
            continue
        looker.now += wait
        if looker.look() == 0.0:
            silent = looker.now - looker.heard[-1]
            assert silent >= 5.0, "a server that sends something is asked"
            looker.ask(answered=answered, seconds=seconds, traffic=traffic)
        looker.look()
        assert (looker.contact.lost_since is not None) == looker.is_lost()
    words = [word for word, _, _ in looker.lines]
    assert words == (["lost", "back"] * len(words))[: len(words)]
    for word, at, lasted in looker.lines:
        before = max(each for each in looker.heard if each < at or (word == "lost" and each <= at))
        if word == "lost":
            assert lasted == at - before
            assert 10.0 <= lasted <= 10.0 + ANSWER_WITHIN
        else:
            assert lasted >= 10.0
    for one, other in zip(looker.asked, looker.asked[1:], strict=False):
        assert other - one >= 1.0
    event(f"{len(looker.lines)} lines")


@pytest.mark.parametrize("lost", [False, True])
def test_a_lost_server_is_asked_less_often(lost: bool) -> None:
    contact = ServerContact(0.0)
    watch = contact.watch(0.0)
    now, asked = 0.0, []
    while now < (100.0 if lost else 9.9):
        wait = contact.look(watch, now).wait
        now += wait
        if not wait:
            asked.append(now)
            contact.not_answered(ERROR, now, now)
    after = [each for each in asked if each > 10.0]
    assert asked[:5] == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert len(after) == (18 if lost else 0)
