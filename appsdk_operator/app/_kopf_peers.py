"""Whether an operator with kopf runs still, by the peering objects in which it shows that."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from appsdk_operator.client import ApiError, ClientLike, NotFound
from appsdk_operator.resource import Kind, Object, Scope

_LIFETIME: Final = 60
"""kopf's default, in seconds."""
_GROUPS: Final = ("kopf.dev", "zalando.org")
CLUSTER_PEERINGS: Final = tuple(
    Kind(group=group, version="v1", kind="ClusterKopfPeering", scope=Scope.CLUSTER)
    for group in _GROUPS
)
"""The kinds of the peering objects of operators for all namespaces."""
PEERINGS: Final = tuple(Kind(group=group, version="v1", kind="KopfPeering") for group in _GROUPS)
"""Those of operators for some, in each of their namespaces."""


class LivePeerError(RuntimeError):
    """An operator with kopf runs still."""


def check_peers(client: ClientLike, name: str, namespaces: Sequence[str], now: float) -> None:
    """Check that no live peer stands in the peering objects; those that there are not have none.

    Args:
        client: reads from the server.
        name: of the peering objects.
        namespaces: the namespaces of the App; empty: all.
        now: the time in seconds since the epoch.

    Raises:
        LivePeerError: one does.
        ApiError, TransportError: they could not be read.
    """
    for peering in _peerings(client, name, namespaces):
        for peer, left in _live_peers(peering, now):
            raise LivePeerError(
                f"an operator with kopf still runs, and two operators would handle the same "
                f"objects: peer {peer} in {peering} is alive for "
                f"{left:.0f} seconds more, or longer if it renews. Scale its Deployment to 0, or "
                "end its 'kopf freeze' with 'kopf resume', and start again when that time is over. "
                "With Kopf(peering=None) the App ignores peers"
            )


def _peerings(client: ClientLike, name: str, namespaces: Sequence[str]) -> Iterator[Object]:
    for kind, places in [(kind, ("",)) for kind in CLUSTER_PEERINGS] + [
        (kind, tuple(namespaces)) for kind in PEERINGS
    ]:
        try:
            if places:
                for place in places:
                    try:
                        yield client.get(kind, name, namespace=place)
                    except NotFound:
                        continue
            else:
                yield from (each for each in client.list(kind) if each.name == name)
        except NotFound:
            continue  # there is no such CRD
        except ApiError as error:
            error.add_note(
                f"adopt=Kopf(peering={name!r}) looks for live peers of kopf: grant the App's "
                "permissions, or give Kopf(peering=None) if the operator ran without peering"
            )
            raise


def _live_peers(peering: Object, now: float) -> Iterator[tuple[str, float]]:
    """The peers and the seconds that they live on; one that shows no time lives."""
    for name, peer in (peering.to_dict().get("status") or {}).items():
        if isinstance(peer, Mapping):
            left = _deadline(peer, now) - now
            if left > 0:
                yield name, left


def _deadline(peer: Mapping[str, Any], now: float) -> float:
    try:
        seen = dt.datetime.fromisoformat(str(peer["lastseen"]))
        lifetime = float(peer.get("lifetime", _LIFETIME))
    except (KeyError, ValueError, TypeError):
        return now + _LIFETIME
    if seen.tzinfo is None:
        seen = seen.replace(tzinfo=dt.UTC)
    return seen.timestamp() + lifetime
