"""How a manager takes part in an election: with a client that nothing else waits for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from appsdk_operator.client import Client, ClientConfig, ClientLike
from appsdk_operator.manager._core.lifecycle import ElectorLike
from appsdk_operator.manager._core.options import ManagerOptions
from appsdk_operator.manager._election.elector import Elector
from appsdk_operator.manager._election.options import elector_config
from appsdk_operator.resource import Object
from appsdk_operator.runtime import Metrics

__all__ = ["make_elector"]

_LAST_REQUEST = 5.0


def make_elector(
    server: ClientConfig | ClientLike,
    options: ManagerOptions,
    *,
    metrics: Metrics,
    on_event: Callable[[Object, str], None],
    closing: contextlib.ExitStack,
) -> ElectorLike:
    """The candidate that ``options`` ask for; what has to be closed is put on ``closing``.

    It has a client of its own wherever one can be made: from the config of the election, of the
    manager, or of the manager's client. Only a wrapped client is shared.
    """
    election = options.leader_election
    assert election is not None
    base = server.config if isinstance(server, Client) else server
    config = options.leader_election_config
    if config is None and isinstance(base, ClientConfig):
        config = elector_config(base, election)
    client: Any = server
    close: Callable[[], object] = _nothing
    if config is not None:
        if options.new_client is not None:
            client = options.new_client(config)
        else:
            client = Client(config, clock=options.clock, metrics=metrics)
        close = getattr(client, "close", _nothing)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(close)
        if options.new_elector is not None:
            elector = options.new_elector(client, election)
        else:
            elector = own = Elector(
                client,
                election,
                clock=options.clock,
                rng=options.rng,
                metrics=metrics,
                on_event=on_event,
            )
            # Below the client's close, so after it: with that its last request ends.
            closing.callback(own.retire)
            closing.callback(own.join, _LAST_REQUEST)
        closing.callback(close)
        on_failure.pop_all()
    return elector


def _nothing() -> None:
    pass
