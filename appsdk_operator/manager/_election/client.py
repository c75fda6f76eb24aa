"""Requests for Leases, as the state machine of an election asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, final

import msgspec

from appsdk_operator.client import AlreadyExists, Conflict, Forbidden, NotFound
from appsdk_operator.manager._election.lease_state import (
    LeaseRecord,
    LeaseState,
    ObservedLease,
    ReadLease,
    WriteLease,
)
from appsdk_operator.manager._election.unanswered_writes import may_still_be_carried_out
from appsdk_operator.resource import Kind, MutableObject, Object, kinds
from appsdk_operator.runtime import safe_text

LEASE = kinds.coordination.v1.Lease


class LeaseClient(Protocol):
    """The methods of a client that an election calls; implement them to store the Lease elsewhere.

    ``update`` must raise :class:`Conflict` when the object has changed since it was read.
    """

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """Read the Lease; raises :class:`NotFound` when there is none."""
        ...

    def create(self, obj: MutableObject, /) -> Object:
        """Create the Lease; raises :class:`AlreadyExists` when there is one."""
        ...

    def update(self, obj: MutableObject, /) -> Object:
        """Replace the Lease, if it still has the resource version of ``obj``."""
        ...


class LeaseResponse(msgspec.Struct, frozen=True):
    """The response to a read or a write of a Lease, or its error."""

    action: ReadLease | WriteLease
    lease: ObservedLease | None = None
    error: Exception | None = None
    problem: str = ""
    """The text for the log; "" when nothing is wrong."""

    def apply_to(self, state: LeaseState, now: float) -> None:
        """Report the response to the state machine that asked for the request."""
        if isinstance(self.action, ReadLease):
            if self.error is None or isinstance(self.error, NotFound):
                state.on_read(now, self.lease)
            else:
                state.on_failure(now)
        elif self.lease is not None:
            state.on_write(now, self.lease)
        elif self._is_conflict:
            state.on_conflict(now)
        else:
            refused = self.error is not None and not may_still_be_carried_out(self.error)
            state.on_failure(now, is_refused=refused)

    @property
    def _is_conflict(self) -> bool:
        if isinstance(self.action, WriteLease) and self.action.base is not None:
            return isinstance(self.error, (Conflict, NotFound))
        return isinstance(self.error, AlreadyExists)


@final
class LeaseRequests:
    """Requests for the Leases in one namespace."""

    def __init__(self, client: LeaseClient, namespace: str, labels: Mapping[str, str]) -> None:
        self._client = client
        self._namespace = namespace
        self._labels = labels

    def perform(self, name: str, action: ReadLease | WriteLease) -> LeaseResponse:
        """Send the request; errors are in the response."""
        try:
            if isinstance(action, ReadLease):
                return LeaseResponse(
                    action, observed_lease(self._client.get(LEASE, name, namespace=self._namespace))
                )
            return LeaseResponse(action, observed_lease(self._write(name, action)))
        except Exception as error:
            response = LeaseResponse(action, error=error)
            expected = (NotFound,) if isinstance(action, ReadLease) else (Conflict, AlreadyExists)
            if isinstance(error, expected):
                return response
            return msgspec.structs.replace(response, problem=self._explained(error))

    def _write(self, name: str, write: WriteLease) -> Object:
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
        text = safe_text(error) or type(error).__name__
        if isinstance(error, Forbidden):
            text += (
                "; leader election needs a Role with the verbs get, create and update on leases of "
                f"coordination.k8s.io in namespace {self._namespace!r}"
            )
        return text


def observed_lease(lease: Object) -> ObservedLease:
    """A Lease from the server, in the form of the state machine."""
    spec: Mapping[str, Any] = lease.get("spec") or {}
    # An API server checks the types. Another store may not, and wrong types must not end an
    # election.
    return ObservedLease(
        LeaseRecord(
            holder=str(spec.get("holderIdentity") or ""),
            duration=_int_or_none(spec.get("leaseDurationSeconds")),
            acquire_time=str(spec.get("acquireTime") or ""),
            renew_time=str(spec.get("renewTime") or ""),
            transitions=_int_or_none(spec.get("leaseTransitions")) or 0,
        ),
        version=lease.resource_version,
        uid=lease.uid,
        source=lease,
    )


def _int_or_none(value: object) -> int | None:
    return value if type(value) is int else None


def _spec_of(record: LeaseRecord) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration,
        "acquireTime": record.acquire_time,
        "renewTime": record.renew_time,
        "leaseTransitions": record.transitions,
    }
