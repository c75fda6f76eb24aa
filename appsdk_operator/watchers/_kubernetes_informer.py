"""The informer of one kind with grafana-app-sdk's defaults."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, TypedDict, Unpack, final

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache import ErrorHandler, IndexFunction, Informer, ListWatchClient, Transform
from appsdk_operator.resource import FieldSelection, Kind, LabelSelection
from appsdk_operator.runtime import Clock, Metrics
from appsdk_operator.runtime.validation import check_client

__all__ = ["KubernetesInformer"]


class InformerKeywords(TypedDict, total=False):
    """The other options of an :class:`~appsdk_operator.cache.Informer`, for type checkers."""

    transform: Transform | None
    metadata_only: bool
    indexes: Mapping[str, IndexFunction] | None
    page_size: int
    stream_first_sync: bool
    watch_timeout: tuple[float, float]
    silence_limit: float | None
    on_error: ErrorHandler | None
    clock: Clock | None
    metrics: Metrics | None
    rng: random.Random | None


@final
class KubernetesInformer(Informer[SpecT, StatusT]):
    """An :class:`~appsdk_operator.cache.Informer` with a resync of every object each 30 seconds.

    The resync reads the local copy and costs no request. It repeats calls that the retry policy of
    a controller has given up on.
    """

    not_a_controller: ClassVar[str] = (
        "an informer, no controller: give it to one, "
        "InformerController.add_informer(informer, kind), and add that"
    )
    """The error of an Operator that is given one as a controller."""

    def __init__(
        self,
        kind: Kind[SpecT, StatusT],
        client: ListWatchClient,
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        resync: float = 30.0,
        **options: Unpack[InformerKeywords],
    ) -> None:
        """An informer.

        Args:
            kind: the kind to list and watch.
            client: lists and watches.
            namespace: its namespace; default: all.
            label_selector: which objects: text such as ``"app=web,tier"``, a mapping of labels to
                values, or a LabelSelector; default: all.
            field_selector: the same for fields, for example ``"metadata.name=web"``.
            resync: seconds between resyncs, give or take a tenth; default 30; 0: never.
            options: any other option of :class:`~appsdk_operator.cache.Informer`.

        Raises:
            TypeError, ValueError: an argument is invalid.
        """
        check_client(client, "list_page", "watch")
        others: dict[str, Any] = {**options}
        if "label_selectors" in others:
            given = others["label_selectors"]
            raise TypeError(
                f"label_selectors={given!r}: the argument is label_selector, and one selector with "
                'commas asks for all of its conditions, for example label_selector="app=web,tier"'
            )
        super().__init__(
            kind,
            client,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resync=resync,
            **options,
        )
