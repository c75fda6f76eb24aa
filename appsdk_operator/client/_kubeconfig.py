from __future__ import annotations

from appsdk_operator.client._config import ClientConfig


def load(path: str | None, context: str | None) -> ClientConfig:
    raise NotImplementedError


def from_kubeconfig(path: str | None, context: str | None) -> ClientConfig:
    raise NotImplementedError


def in_cluster() -> ClientConfig:
    raise NotImplementedError
