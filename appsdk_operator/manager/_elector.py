"""Takes part in a leader election: the thread and the requests around :class:`LeaseState`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol, final

from appsdk_operator.cache import Health
from appsdk_operator.manager._lease_options import LeaderElection, LeadershipLost, namespace_of
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import Clock, Metrics, StopSignal, system_clock

__all__ = ["Elector", "LeaseClient"]


class LeaseClient(Protocol):
    """What an election needs of a client."""

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """Read the Lease."""
        ...

    def create(self, obj: MutableObject, /) -> Object:
        """Make it."""
        ...

    def update(self, obj: MutableObject, /) -> Object:
        """Replace it if it has not changed since."""
        ...


@final
class Elector:
    """One candidate. SKELETON: the signature is final, the body is on its way."""

    def __init__(
        self,
        client: LeaseClient,
        options: LeaderElection,
        *,
        clock: Clock = system_clock,
        rng: random.Random | None = None,
        metrics: Metrics | None = None,
        on_new_leader: Callable[[str], None] | None = None,
        on_event: Callable[[Object, str], None] | None = None,
    ) -> None:
        """A candidate that has not begun.

        Args:
            client: reads and writes the Lease; best one of its own, made with
                ``Client(elector_config(config, options))``.
            on_new_leader: told the identity of each leader that is seen, "" when there is none.
            on_event: told the Lease and "<identity> became leader" or "… stopped leading", for an
                event recorder.
        """
        self.options = options
        self.namespace = namespace_of(options)
        self.identity = options.identity or ""

    @property
    def leader(self) -> str:
        """The identity of the last leader seen; "" before, and when there is none."""
        return ""

    @property
    def is_leader(self) -> bool:
        """Whether this process leads: it has the lease, which has not run out by its own clock."""
        return False

    @property
    def has_led(self) -> bool:
        """Whether it ever did."""
        return False

    def may_write(self) -> bool:
        """Whether it leads, with at least the fence margin left."""
        return False

    def check_write(self) -> None:
        """The fence: raise LeadershipLost if this process has led and may_write() is False."""

    def run(self, stop: StopSignal, on_started: Callable[[], None]) -> None:
        """Take part until ``stop``: blocks. ``on_started`` is called once when the lease is won, in
        this thread, and must return at once (set an event, start a thread).

        Returns after ``stop`` (and after the release, if it is told to).

        Raises:
            LeadershipLost: it has led, and does not any more.
        """
        raise LeadershipLost("leader election lost")

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for a request that was given up when run returned; the names of threads left."""
        return []

    def health(self, tolerance: float = 5.0) -> Health:
        """Not ready when the Lease was out of reach for longer than its duration + tolerance."""
        return Health(True, "")
