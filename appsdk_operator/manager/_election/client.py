"""What the state machine of an election asks for, as requests for a Lease."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, final

import attrs

from appsdk_operator.client import AlreadyExists, Conflict, Forbidden, NotFound
from appsdk_operator.manager._election.lease_state import LeaseRecord, LeaseState, Read, Seen, Write
from appsdk_operator.resource import Kind, MutableObject, Object, kinds

__all__ = ["LEASE", "LeaseClient", "Leases", "Outcome", "seen_in"]

LEASE = kinds.coordination.v1.Lease


class LeaseClient(Protocol):
    """What an election needs of a client; give another one to keep the Lease elsewhere.

    The update must refuse with :class:`Conflict` when the object has changed since it was read.
    """

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """The Lease; raises :class:`NotFound` when there is none."""
        ...

    def create(self, obj: MutableObject, /) -> Object:
        """Make it; raises :class:`AlreadyExists` when there is one."""
        ...

    def update(self, obj: MutableObject, /) -> Object:
        """Replace the version that ``obj`` names."""
        ...


@attrs.frozen
class Outcome:
    """What came of a request."""

    action: Read | Write
    seen: Seen | None = None
    error: Exception | None = None
    problem: str = ""
    """What to tell the operator's operator; "" when all is as it should be."""

    def tell(self, state: LeaseState, now: float) -> None:
        """Hand it to the state machine that asked."""
        if isinstance(self.action, Read):
            if self.error is None or isinstance(self.error, NotFound):
                state.got(now, self.seen)
            else:
                state.failed(now)
        elif self.seen is not None:
            state.wrote(now, self.seen)
        elif self._is_refusal:
            state.refused(now)
        else:
            state.failed(now)

    @property
    def _is_refusal(self) -> bool:
        if isinstance(self.action, Write) and self.action.base is not None:
            return isinstance(self.error, (Conflict, NotFound))
        return isinstance(self.error, AlreadyExists)


@final
class Leases:
    """The Leases in one namespace."""

    def __init__(self, client: LeaseClient, namespace: str, labels: Mapping[str, str]) -> None:
        self._client = client
        self._namespace = namespace
        self._labels = labels

    def perform(self, name: str, action: Read | Write) -> Outcome:
        """Do it; what goes wrong is in the outcome."""
        try:
            if isinstance(action, Read):
                return Outcome(
                    action, seen_in(self._client.get(LEASE, name, namespace=self._namespace))
                )
            return Outcome(action, seen_in(self._write(name, action)))
        except Exception as error:
            outcome = Outcome(action, error=error)
            expected = (NotFound,) if isinstance(action, Read) else (Conflict, AlreadyExists)
            if isinstance(error, expected):
                return outcome
            return attrs.evolve(outcome, problem=self._explained(error))

    def _write(self, name: str, write: Write) -> Object:
        draft = (
            MutableObject.new(LEASE, name, namespace=self._namespace)
            if write.base is None
            else write.base.source.mutable_copy()
        )
        draft["spec"] = {**(draft.get("spec") or {}), **_spec_of(write.record)}
        if self._labels:
            draft.labels.update(self._labels)
        return self._client.create(draft) if write.base is None else self._client.update(draft)

    def _explained(self, error: Exception) -> str:
        text = str(error) or type(error).__name__
        if isinstance(error, Forbidden):
            text += (
                "; leader election needs a Role with the verbs get, create and update on leases of "
                f"coordination.k8s.io in namespace {self._namespace!r}"
            )
        return text


def seen_in(lease: Object) -> Seen:
    """A Lease as the state machine takes it."""
    spec: Mapping[str, Any] = lease.get("spec") or {}
    # An API server checks the types; what keeps Leases elsewhere may not, and nonsense must not end
    # an election.
    return Seen(
        LeaseRecord(
            holder=str(spec.get("holderIdentity") or ""),
            duration=_whole(spec.get("leaseDurationSeconds")),
            acquire_time=str(spec.get("acquireTime") or ""),
            renew_time=str(spec.get("renewTime") or ""),
            transitions=_whole(spec.get("leaseTransitions")) or 0,
        ),
        version=lease.resource_version,
        uid=lease.uid,
        source=lease,
    )


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _spec_of(record: LeaseRecord) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration,
        "acquireTime": record.acquire_time,
        "renewTime": record.renew_time,
        "leaseTransitions": record.transitions,
    }
