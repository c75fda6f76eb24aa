"""What is wrong with an operator, in a line: computed from its state alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from appsdk_operator.manager._servers.texts import moment, seconds_text, short_names
from appsdk_operator.runtime import counted

HELD_AFTER: Final = 10.0
"""Seconds after which an object that is being deleted counts as held."""
_LONG_WAIT: Final = 5.0
"""Seconds that something has to wait in a queue for its controller to be named."""
_CERTIFICATE: Final = 7 * 86400.0
_LONGEST: Final = 200

Finding = dict[str, str]
"""``text``, ``level`` (``bad``, ``warn``, ``idle`` or ``good``), ``about`` and ``controller``."""


def verdict_of(state: Mapping[str, Any]) -> list[Finding]:
    """What an on-call engineer has to know first, worst first.

    The last finding of an operator without one that is ``bad`` or ``warn`` is ``all well``, with
    the time since when. ``about`` says which part of the state has more: ``failing``,
    ``deleting``, ``controllers``, ``kinds`` or ``process``.
    """
    found = [*_server(state), *_process(state), *_kinds(state), *_failing(state)]
    found += [*_deleting(state), *_controllers(state), *_certificates(state)]
    found.sort(key=lambda each: ("bad", "warn", "idle").index(each["level"]))
    if not any(each["level"] in ("bad", "warn") for each in found):
        since = state["operator"].get("well_since")
        text = "all well" if since is None else f"all well since {moment(since, state['time'])}"
        found.insert(0, _finding(text, "good", "controllers"))
    return found


def _finding(text: str, level: str, about: str, controller: str = "") -> Finding:
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return {"text": text, "level": level, "about": about, "controller": controller}


def _name(state: Mapping[str, Any]) -> str:
    return str(state["operator"].get("name") or "")


def _process(state: Mapping[str, Any]) -> Iterator[Finding]:
    operator = state["operator"]
    if operator.get("stopping"):
        yield _finding("stopping", "warn", "process")
    elif not operator.get("ready", True):
        health = operator.get("health") or "no reason given"
        yield _finding(f"not ready: {health}", "bad", "process")
    if operator.get("paused"):
        yield _finding(f"no call begins: {operator['paused']}", "warn", "process")
    election = operator.get("leader_election")
    if election is not None and not election.get("is_leader"):
        leader = election.get("leader")
        if leader:
            yield _finding(f"stands by for {leader}", "idle", "process")
        else:
            yield _finding("nobody leads", "warn", "process")


def _server(state: Mapping[str, Any]) -> Iterator[Finding]:
    lost = [silent for one in state["informers"] if (silent := one.get("unreachable_for"))]
    if (silent := state["operator"].get("server_lost_for")) is not None:
        lost.append(silent)
    if lost:
        text = f"the API server has been out of reach for {seconds_text(max(lost))}"
        yield _finding(text, "bad", "kinds")


def _kinds(state: Mapping[str, Any]) -> Iterator[Finding]:
    informers = state["informers"]
    missing = [one for one in informers if not one["synced"]]
    if missing:
        names = ", ".join(str(one["resource"]) for one in missing[:3])
        text = f"{len(missing)} of {counted(len(informers), 'kind')} not synced: {names}"
        yield _finding(text, "warn", "kinds")
    sick = [one for one in informers if one["synced"] and not one.get("ready", True)]
    if sick and not any(one.get("unreachable_for") for one in informers):
        yield _finding(f"not followed: {sick[0]['resource']}", "bad", "kinds")
    unreadable = sum(one.get("undecodable", 0) for one in informers)
    if unreadable:
        yield _finding(f"{counted(unreadable, 'object')} unreadable", "bad", "kinds")


def _failing(state: Mapping[str, Any]) -> Iterator[Finding]:
    failing, for_good = state.get("failing_total", 0), state.get("for_good_total", 0)
    if failing:
        text = f"{counted(failing, 'object')} failing"
        yield _finding(f"{text} ({for_good:,} for good)" if for_good else text, "bad", "failing")


def _deleting(state: Mapping[str, Any]) -> Iterator[Finding]:
    held = state.get("held_total", 0)
    if held:
        oldest = seconds_text(max(0.0, state["time"] - state["held_since"]))
        yield _finding(f"{held:,} held in deletion, oldest {oldest}", "warn", "deleting")


def _controllers(state: Mapping[str, Any]) -> Iterator[Finding]:
    shown = short_names([str(one["name"]) for one in state["controllers"]], _name(state))
    for one in state["controllers"]:
        name = str(one["name"])
        short = shown[name]
        if not one.get("ready", True):
            text = f"{short} is not ready: {one.get('health') or 'no reason given'}"
            yield _finding(text, "bad", "controllers", name)
        wait = one.get("oldest_wait")
        if one["queued"] and wait is not None and wait >= _LONG_WAIT:
            verb = "waits" if one["queued"] == 1 else "wait"
            text = f"{short}: {one['queued']:,} {verb}"
            if one.get("workers"):
                text += f" for {counted(one['workers'], 'worker')}"
            yield _finding(text, "warn", "controllers", name)
        elif held := [
            call for call in one["running"] if call.get("held_at") and not call.get("awaiting")
        ]:
            longest = seconds_text(max(call["seconds"] for call in held))
            text = f"{short}: {counted(len(held), 'call')} held, longest {longest}"
            yield _finding(text, "warn", "controllers", name)
        if one.get("paused_total"):
            text = f"{short}: {counted(one['paused_total'], 'object')} paused"
            yield _finding(text, "idle", "controllers", name)


def _certificates(state: Mapping[str, Any]) -> Iterator[Finding]:
    for one in state["certificates"]:
        left = one.get("left")
        if left is None and one.get("text"):
            yield _finding(f"the certificate of {one['server']} is unknown", "warn", "process")
        elif left is not None and left <= 0:
            yield _finding(f"the certificate of {one['server']} has expired", "bad", "process")
        elif left is not None and left < _CERTIFICATE:
            text = f"the certificate of {one['server']} expires in {seconds_text(left)}"
            yield _finding(text, "warn", "process")
