"""Asks an operator to pause, and to go on, by the annotations of its Lease."""

from __future__ import annotations

import datetime as dt
import getpass
import math
import os
import socket
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from appsdk_operator.client import Conflict, MergePatch, NotFound
from appsdk_operator.manager._election.client import LEASE
from appsdk_operator.manager._election.pause import Pause, PauseError, pause_of
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import present_clock
from appsdk_operator.runtime.validation import check_instance, check_text, checked_seconds

_MOST_TRIES: Final = 10
_LONGEST: Final = 366 * 86400.0
_STALE: Final = 300.0
"""Seconds after which a Lease has no holder any more, also where clocks differ."""
_T = TypeVar("_T")


class LeasePatcher(Protocol):
    """The methods of a client that a request for a pause needs."""

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """Read the Lease."""
        ...

    def patch(self, kind: Kind, name: str, patch: MergePatch, *, namespace: str = "") -> object:
        """Change its annotations."""
        ...


class NotPausedError(RuntimeError):
    """The operator was not asked to pause; the text says why."""

    def __init__(self, text: str, *, present: Pause | None = None) -> None:
        super().__init__(text)
        self.present = present
        """The pause of somebody else that ``replace`` would replace; None: there is none."""


def pause_operator(
    client: LeasePatcher,
    name: str,
    *,
    namespace: str,
    seconds: float,
    reason: str,
    by: str | None = None,
    replace: bool = False,
) -> Pause:
    """Ask an operator with a leader election to begin no calls for a while.

    Its replicas see the request in the annotations of their Lease, within about two
    ``retry_period`` of the election. Running calls go on to their end. After the pause the operator
    handles each changed object once.

    Args:
        client: reads and patches the Lease.
        name: the name of the Lease; an App's Lease has the App's name.
        namespace: the namespace of the Lease.
        seconds: the length of the pause, from one second to a year. The operator then goes on by
            itself, by the clock of its own machine.
        reason: the reason, for the operator's log and for people who find it paused.
        by: who asks; default: this user and host.
        replace: whether to replace the pause of somebody else.

    Raises:
        NotPausedError: there is no such Lease, or somebody else has paused the operator.
        TypeError, ValueError: an argument that cannot be used.
        ApiError: the server refused.
    """
    check_text("name", name, empty=False)
    check_text("namespace", namespace, empty=False)
    check_text("reason", reason, empty=False)
    by = f"{_user()}@{socket.gethostname()}" if by is None else by
    check_text("by", by, empty=False)
    check_instance("replace", replace, bool, "True")
    if not 1 <= checked_seconds("seconds", seconds) <= _LONGEST:
        raise ValueError(f"seconds={seconds:g}: a pause lasts 1 second to a year")

    def change() -> Pause:
        lease, now = _lease(client, name, namespace), _now()
        present = _present(lease, now)
        if present is not None and present.by != by and not replace:
            raise NotPausedError(
                f"{name} is {present}; replace that pause only after you have asked them",
                present=present,
            )
        until = now + dt.timedelta(seconds=seconds)
        pause = Pause(until.replace(microsecond=0), by=by, reason=reason)
        _annotate(client, lease, {**pause.annotations})
        return pause

    return _again_on_conflict(change)


def resume_operator(client: LeasePatcher, name: str, *, namespace: str) -> Pause | None:
    """Ask a paused operator to go on.

    Args:
        client: reads and patches the Lease.
        name: the name of the Lease.
        namespace: its namespace.

    Returns:
        The pause that this ends; None if the operator was not paused.

    Raises:
        NotPausedError: there is no such Lease.
        TypeError, ValueError: an argument that cannot be used.
        ApiError: the server refused.
    """
    check_text("name", name, empty=False)
    check_text("namespace", namespace, empty=False)

    def change() -> Pause | None:
        lease = _lease(client, name, namespace)
        gone = dict.fromkeys(Pause(_now()).annotations)
        if any(each in lease.annotations for each in gone):
            _annotate(client, lease, gone)
        return _present(lease, _now())

    return _again_on_conflict(change)


def why_nobody_sees(client: LeasePatcher, name: str, *, namespace: str) -> str:
    """Why no process sees what the Lease asks for, as far as the Lease shows; "" if one does.

    Raises:
        NotPausedError: there is no such Lease.
        ApiError: the server refused.
    """
    spec = _lease(client, name, namespace).to_dict().get("spec") or {}
    text = str(spec.get("renewTime") or "")
    try:
        renewed = dt.datetime.fromisoformat(text)
        age = (_now() - renewed).total_seconds()
    except (ValueError, TypeError):
        age = math.inf
    if spec.get("holderIdentity") and age <= _STALE:
        return ""
    since = f" since {text}" if text else ""
    return (
        f"no replica has renewed the Lease {name} in namespace {namespace}{since}: if none runs, "
        "the next one will see the pause; if the operator runs without a leader election, it reads "
        "no Lease and goes on: give it leader_election=True, even with one replica"
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user of a container often has no name
        return f"uid-{os.getuid()}"


def _lease(client: LeasePatcher, name: str, namespace: str) -> Object:
    try:
        return client.get(LEASE, name, namespace=namespace)
    except NotFound:
        raise NotPausedError(
            f"there is no Lease {name} in namespace {namespace}: an operator is paused by the "
            "Lease of its leader election; check name and namespace, or give it "
            "leader_election=True, even with one replica: without an election it reads no Lease"
        ) from None


def _present(lease: Object, now: dt.datetime) -> Pause | None:
    try:
        pause = pause_of(lease.annotations)
    except PauseError:
        return None
    return None if pause is None or pause.is_over(now) else pause


def _annotate(client: LeasePatcher, lease: Object, annotations: dict[str, str | None]) -> None:
    metadata = {"resourceVersion": lease.resource_version, "annotations": annotations}
    patch = MergePatch({"metadata": metadata})
    client.patch(LEASE, lease.name, patch, namespace=lease.namespace)


def _now() -> dt.datetime:
    return dt.datetime.fromtimestamp(present_clock(None).time(), dt.UTC)


def _again_on_conflict(change: Callable[[], _T]) -> _T:
    """The leader renews the Lease every few seconds, and another person may ask as well."""
    for _ in range(_MOST_TRIES - 1):
        try:
            return change()
        except Conflict:
            continue
    return change()
