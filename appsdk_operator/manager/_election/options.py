"""What a leader election is about: the Lease, the candidate, and the times."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from appsdk_operator.client import ClientConfig, ClientError

__all__ = ["JITTER", "LeaderElection", "LeadershipLost", "elector_config", "namespace_of"]

JITTER = 1.2
"""By how much of itself the wait between two tries to acquire is lengthened at random, at most."""

_LEASE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253

NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class LeadershipLost(ClientError):  # noqa: N818 - named as the other errors are
    """This process has led and does not any more: whatever it still does for that must end.

    Raised by :meth:`Elector.run`, and by a :class:`FencedClient` for a write that would come too
    late. The process is expected to exit, and to be started anew as one more candidate.
    """


def _positive(_: object, field: attrs.Attribute[Any], value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{field.name}={value}: use more than 0 seconds")


def _check_id(_: object, __: object, value: Any) -> None:
    if not isinstance(value, str) or not _LEASE_NAME.fullmatch(value) or len(value) > _LONGEST_NAME:
        raise ValueError(
            f"id={value!r}: leader election needs the name of a Lease that all replicas share, of "
            "lower-case letters, digits, '-' and '.', for example "
            "LeaderElection(id='my-operator.example.com')"
        )


def _labels(value: Mapping[str, str]) -> dict[str, str]:
    return dict(value)


@attrs.frozen(kw_only=True)
class LeaderElection:
    """How replicas agree on the one of them that works.

    The times are checked when they are given: a leader has to have several tries to renew before
    it gives up, and has to give up before others take over. The defaults are controller-runtime's.

    >>> LeaderElection(id="my-operator", namespace="default").lease_duration
    15.0
    >>> LeaderElection(id="my-operator", lease_duration=10.0)
    Traceback (most recent call last):
    ...
    ValueError: lease_duration=10.0 must be longer than renew_deadline=10.0: a leader has to give...
    """

    id: str = attrs.field(validator=_check_id)
    """The name of the Lease; all replicas of one operator give the same."""
    namespace: str | None = None
    """Where the Lease is; default: the namespace of the pod that this is, an error outside one."""
    identity: str | None = None
    """What the Lease says who leads. Two processes must never have the same; default: the host's
    name and a random number, new in each process."""
    lease_duration: float = attrs.field(default=15.0, converter=float, validator=_positive)
    """Seconds after the last renewal until others take over; default 15. A Lease counts whole
    seconds: it is written rounded up, and the leader itself counts to the exact value."""
    renew_deadline: float = attrs.field(default=10.0, converter=float, validator=_positive)
    """Seconds for which a leader tries to renew before it gives up; default 10."""
    retry_period: float = attrs.field(default=2.0, converter=float, validator=_positive)
    """Seconds between two renewals, and between two tries to acquire, these up to 2.2 times that
    long at random; default 2."""
    fence_margin: float | None = None
    """Seconds before the lease runs out in which the leader starts no more writes: time for those
    that are under way, and for clocks that do not run at the same speed. Default: half of what is
    between ``renew_deadline`` and ``lease_duration``, so 2.5; 0: none."""
    release_on_cancel: bool = False
    """Give the Lease up at a stop, so that another takes over at once. Only for programs that do
    nothing more once the manager's run has returned. Default: let it run out."""
    labels: Mapping[str, str] = attrs.field(factory=dict, converter=_labels)
    """Labels that the Lease is given; others on it stay."""

    def __attrs_post_init__(self) -> None:
        if self.identity == "":
            raise ValueError(
                "identity='' names nobody: give a name of this process, or leave it out"
            )
        if self.namespace == "":
            raise ValueError("namespace='': give the namespace of the Lease, or leave it out")
        if not self.lease_duration > self.renew_deadline:
            raise ValueError(
                f"lease_duration={self.lease_duration} must be longer than renew_deadline="
                f"{self.renew_deadline}: a leader has to give up before others take over"
            )
        if not self.renew_deadline > JITTER * self.retry_period:
            raise ValueError(
                f"renew_deadline={self.renew_deadline} must be longer than {JITTER} times "
                f"retry_period={self.retry_period}: a leader needs more than one try to renew"
            )
        most = self.lease_duration - self.renew_deadline
        if self.fence_margin is not None and not 0 <= self.fence_margin <= most:
            raise ValueError(
                f"fence_margin={self.fence_margin}: use 0 to {most:g}, the time between "
                "renew_deadline and lease_duration, or a leader could not write while it may "
                "still renew"
            )

    @property
    def margin(self) -> float:
        """The seconds of ``fence_margin``, or its default."""
        if self.fence_margin is not None:
            return self.fence_margin
        return (self.lease_duration - self.renew_deadline) / 2

    @property
    def record_duration(self) -> int:
        """``lease_duration`` as the Lease carries it, rounded up."""
        return math.ceil(self.lease_duration)

    @property
    def request_timeout(self) -> float:
        """Seconds for one request of the election: half the renew deadline, 1 at least."""
        return max(1.0, self.renew_deadline / 2)


def namespace_of(options: LeaderElection) -> str:
    """The namespace of the Lease.

    Raises:
        ValueError: none is given, and this process does not run in a pod.
    """
    if options.namespace is not None:
        return options.namespace
    try:
        namespace = Path(NAMESPACE_FILE).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(
            "this process does not run in a cluster, so the namespace for the leader election's "
            "Lease is not known: give LeaderElection(namespace=…)"
        ) from error
    if not namespace:
        raise ValueError(f"{NAMESPACE_FILE} is empty: give LeaderElection(namespace=…)")
    return namespace


def elector_config(config: ClientConfig, options: LeaderElection) -> ClientConfig:
    """``config`` for the client of an election, which must not wait behind other requests.

    It has connections and limits of its own, gives up early and tries nothing again, since the
    election does that, and names itself in the audit log.
    """
    return attrs.evolve(
        config,
        user_agent=f"{config.user_agent} leader-election",
        connect_timeout=min(config.connect_timeout, options.request_timeout),
        read_timeout=min(config.read_timeout, options.request_timeout),
        request_timeout=min(config.request_timeout, options.request_timeout),
        qps=None,
        max_retries=0,
    )
