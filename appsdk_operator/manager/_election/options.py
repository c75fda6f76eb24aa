"""The options of a leader election: the Lease, the candidate, and the times."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from appsdk_operator.client import ClientConfig, ClientError

JITTER = 1.2
"""The jitter of the wait between two tries to acquire, as a share of it."""

_LEASE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253

NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class LeadershipLost(ClientError):  # noqa: N818 - named as the other errors are
    """This process has lost the lead: all work that needs it must end.

    Raised by :meth:`Elector.run`, and by a :class:`FencedClient` for a write after the lead is
    lost. The process should exit; after a restart it is a candidate again.
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
    """The options of a leader election.

    The times must fit each other: a leader needs several tries to renew before it gives up, and has
    to give up before others take over. The defaults are controller-runtime's.

    >>> LeaderElection(id="my-operator", namespace="default").lease_duration
    15.0
    >>> LeaderElection(id="my-operator", lease_duration=10.0)
    Traceback (most recent call last):
    ...
    ValueError: lease_duration=10.0 must be longer than renew_deadline=10.0: a leader has to give...
    """

    id: str = attrs.field(validator=_check_id)
    """The name of the Lease, the same in all replicas of one operator."""
    namespace: str | None = None
    """The namespace of the Lease; default: the pod's namespace; outside of a pod, the default is an
    error."""
    identity: str | None = None
    """The name of this process in the Lease; no other process may have it. Default: the host's name
    and a random number, new in each process."""
    lease_duration: float = attrs.field(default=15.0, converter=float, validator=_positive)
    """Seconds after the last renewal until others take over; default 15. The Lease has whole
    seconds, rounded up; the leader itself uses the exact value."""
    renew_deadline: float = attrs.field(default=10.0, converter=float, validator=_positive)
    """Seconds for which a leader tries to renew before it gives up; default 10."""
    retry_period: float = attrs.field(default=2.0, converter=float, validator=_positive)
    """Seconds between two renewals; default 2. Between two tries to acquire the Lease, a random
    time of 1 to 2.2 times as long."""
    fence_margin: float | None = None
    """Seconds before the lease expires in which the leader begins no more writes. They leave time
    for writes in flight, and allow for clocks of different speed. Default: half the time between
    ``renew_deadline`` and ``lease_duration``, so 2.5; 0: none."""
    release_on_cancel: bool = False
    """Whether to release the Lease at a stop, so that another replica takes over at once. Only for
    programs that end once the manager's run has returned. Default False: the Lease expires."""
    labels: Mapping[str, str] = attrs.field(factory=dict, converter=_labels)
    """Labels for the Lease; its other labels stay."""

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
                "renew_deadline and lease_duration; with more, a leader could not write while it "
                "may still renew"
            )

    @property
    def margin(self) -> float:
        """The seconds of ``fence_margin``, or its default."""
        if self.fence_margin is not None:
            return self.fence_margin
        return (self.lease_duration - self.renew_deadline) / 2

    @property
    def record_duration(self) -> int:
        """``lease_duration`` in whole seconds, rounded up, as written to the Lease."""
        return math.ceil(self.lease_duration)

    @property
    def request_timeout(self) -> float:
        """Seconds for one request of the election: half the renew deadline, 1 at least."""
        return max(1.0, self.renew_deadline / 2)


_REMEDY: Final = (
    "give LeaderElection(namespace=…); for an App that runs as a program, set "
    "APPSDK_LEADER_ELECTION_NAMESPACE, or APPSDK_LEADER_ELECTION=false to work without an election"
)


def namespace_of(options: LeaderElection) -> str:
    """The namespace of the Lease.

    Raises:
        ValueError: none is given, and this process does not run in a pod.
    """
    if options.namespace is not None:
        return options.namespace
    try:
        with open(NAMESPACE_FILE, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow to load
            namespace = file.read().strip()
    except OSError as error:
        raise ValueError(
            "this process does not run in a cluster, so the namespace for the leader election's "
            f"Lease is not known: {_REMEDY}"
        ) from error
    if not namespace:
        raise ValueError(f"{NAMESPACE_FILE} is empty: {_REMEDY}")
    return namespace


def elector_config(config: ClientConfig, options: LeaderElection) -> ClientConfig:
    """Adapt ``config`` for the client of an election, which must not wait behind other requests.

    That client has its own connections, no rate limit, short time-outs, and its own user agent for
    the audit log. It has no retries, because the election itself tries again.
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
