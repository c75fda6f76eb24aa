"""What the package brings fits the protocols of those that take it. Never run."""

from __future__ import annotations

from typing import Any

from appsdk_operator.client import Client, ClientLike
from appsdk_operator.controllers import (
    ChannelSource,
    ControllerHost,
    FunctionSource,
    InformerSource,
    JoinableSource,
    KindSource,
    PatchClient,
    PollingSource,
    SyncingSource,
    TimerSource,
)
from appsdk_operator.controllers._helpers.conditions import StatusClient
from appsdk_operator.manager import AuthFilter, EventClient, FencedClient, HTTPFilter, Manager
from appsdk_operator.runtime import (
    ConstantBackoff,
    ExponentialBackoff,
    RetryPolicy,
    TenacityRetry,
    never_retry,
)
from appsdk_operator.watchers import (
    KeyReconciler,
    OpinionatedReconciler,
    OpinionatedWatcher,
    ResourceReconciler,
    ResourceWatcher,
    RetryDequeuePolicy,
    SelectiveReconciler,
    SelectiveWatcher,
    SimpleReconciler,
    SimpleWatcher,
    keep_all_retries,
    opinionated_retry_dequeue_policy,
)
from appsdk_operator.webhooks import WebhookHost


def clients(client: Client, fenced: FencedClient) -> tuple[ClientLike, ...]:
    return client, fenced


def parts_of_clients(client: ClientLike) -> tuple[StatusClient, PatchClient, EventClient]:
    return client, client, client


def filters(client: ClientLike) -> HTTPFilter:
    return AuthFilter(client)


def hosts(manager: Manager) -> tuple[ControllerHost, WebhookHost]:
    return manager, manager


def syncing(
    kind: KindSource[int], informer: InformerSource[int], polling: PollingSource[int]
) -> tuple[SyncingSource[int], ...]:
    return kind, informer, polling


def joinable(
    kind: KindSource[int],
    informer: InformerSource[int],
    polling: PollingSource[int],
    function: FunctionSource[int],
    timer: TimerSource[int],
    channel: ChannelSource[int],
) -> tuple[JoinableSource[int], ...]:
    return kind, informer, polling, function, timer, channel


def watchers(
    simple: SimpleWatcher[int, str], opinionated: OpinionatedWatcher[int, str]
) -> tuple[ResourceWatcher[int, str], SelectiveWatcher[int, str]]:
    return simple, opinionated


def reconcilers(
    simple: SimpleReconciler[int, str],
    by_key: KeyReconciler,
    opinionated: OpinionatedReconciler[int, str],
) -> tuple[ResourceReconciler[Any, Any], ...]:
    selective: SelectiveReconciler[int, str] = opinionated
    return simple, by_key, selective


def retries(
    exponential: ExponentialBackoff, constant: ConstantBackoff, tenacity: TenacityRetry
) -> tuple[tuple[RetryPolicy, ...], tuple[RetryDequeuePolicy, ...]]:
    return (
        (exponential, constant, tenacity, never_retry),
        (opinionated_retry_dequeue_policy, keep_all_retries),
    )
