"""The informer of one kind with grafana-app-sdk's defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from appsdk_operator.cache import Informer, ListWatchClient
from appsdk_operator.cache._options import check_client
from appsdk_operator.resource import Kind

__all__ = ["KubernetesInformer"]


@final
class KubernetesInformer(Informer):
    """An :class:`~appsdk_operator.cache.Informer` that shows every object again every 30 seconds.

    The resync costs no request: it is made from the local copy. It is what brings a watcher up to
    date whose retry policy has given up on an object.
    """

    def __init__(
        self,
        kind: Kind,
        client: ListWatchClient,
        *,
        namespace: str = "",
        label_selectors: Sequence[str] | str = (),
        field_selector: str | None = None,
        resync: float = 30.0,
        **options: Any,
    ) -> None:
        """An informer.

        Args:
            kind: what to follow.
            client: lists and watches.
            namespace: the one to follow; default: all.
            label_selectors: objects must match all of them, for example ``("app=web", "tier")``;
                a single one may be given as it is.
            field_selector: objects must match it too, for example ``"metadata.name=web"``.
            resync: seconds, give or take a tenth; default 30; 0: never.
            options: any other of :class:`~appsdk_operator.cache.Informer`.

        Raises:
            TypeError, ValueError: an argument that cannot be used.
        """
        check_client(client, "list_page", "watch")
        # A string is a series of strings too, and nobody wants to select its letters.
        selectors = [label_selectors] if isinstance(label_selectors, str) else label_selectors
        super().__init__(
            kind,
            client,
            namespace=namespace,
            label_selector=",".join(filter(None, selectors)) or None,
            field_selector=field_selector,
            resync=resync,
            **options,
        )
