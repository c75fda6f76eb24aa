"""Install CustomResourceDefinitions and wait until the server serves them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

from appsdk_operator.client import AlreadyExists, Client, InternalError, NotFound
from appsdk_operator.resource import Kind, MutableObject, Object, Scope
from appsdk_operator.resource.kinds import apiextensions
from appsdk_operator.runtime import Clock, StopSignal, system_clock
from appsdk_operator.testing._install.manifests import check_webhook_url, manifests, point_to_url
from appsdk_operator.webhooks import despite_conflicts

_CRD = apiextensions.v1.CustomResourceDefinition
_INTERVAL = 0.1


def install_crds(
    client: Client,
    crds: Iterable[MutableObject | str | Path],
    *,
    webhook_url: str = "",
    webhook_ca: bytes = b"",
    timeout: float = 10.0,
    clock: Clock = system_clock,
) -> list[Kind]:
    """Create or update CRDs and wait until their objects can be listed, as envtest does.

    Args:
        client: where to install.
        crds: objects, YAML files, or folders of YAML files.
        webhook_url: the address of the server of conversion webhooks, without a path, for example
            ``https://127.0.0.1:9443``. If the webhook of a CRD names a service, it gets this
            address with the service's path. Default: CRDs are not changed.
        webhook_ca: the PEM certificates of the authority that signed the webhook server's
            certificate.
        timeout: seconds to wait for all of them; default 10, as in envtest.
        clock: the clock that measures the wait.

    Returns:
        The kinds that are served now, one per served version.

    Raises:
        TypeError: ``crds`` is not a list, or an item is not an object, a file or a folder.
        ValueError: a file is not YAML or has objects of other kinds, or the URL is not an HTTPS
            URL without a path.
        TimeoutError: the server does not serve a CRD in time.
        ApiError: the server refused a CRD.
    """
    if isinstance(crds, (Kind, MutableObject, str, Path)):
        raise TypeError(f"crds={crds!r}: give a list, [{_name_of(crds)}]")
    if webhook_url:
        check_webhook_url(webhook_url)
    deadline = clock.monotonic() + timeout
    kinds = []
    for crd in [loaded for source in crds for loaded in _load(source)]:
        if webhook_url:
            crd = _with_webhook_url(crd, webhook_url, webhook_ca)
        _create_or_update(client, crd)
        kinds += _kinds_of(crd)
    stop = StopSignal(clock=clock)
    for kind in kinds:
        while not _is_served(client, kind):
            left = deadline - clock.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"{kind} is not served {timeout:g} s after its CRD was installed: look at the "
                    f"conditions of customresourcedefinition {kind.qualified_name}"
                )
            stop.wait(min(_INTERVAL, left))
    return kinds


def _name_of(source: object) -> str:
    return "custom_resource_definition(kind)" if isinstance(source, Kind) else "…"


def _load(source: MutableObject | str | Path) -> list[MutableObject]:
    if isinstance(source, MutableObject):
        return [source]
    if isinstance(source, Kind):
        raise TypeError(f"{source} is a Kind: give {_name_of(source)}, which makes its CRD")
    loaded = []
    for file, document in manifests(source):
        if not isinstance(document, dict) or document.get("kind") != _CRD.kind:
            raise ValueError(f"{file}: not a {_CRD.kind}: keep other objects in other folders")
        loaded.append(MutableObject(_CRD, document))
    return loaded


def _with_webhook_url(crd: MutableObject, url: str, ca_data: bytes) -> MutableObject:
    """The CRD with the address of its conversion webhook, if it has one, replaced by ``url``."""
    webhook = (crd["spec"].get("conversion") or {}).get("webhook")
    if not webhook or "clientConfig" not in webhook:
        return crd
    changed = MutableObject(_CRD, copy.deepcopy(crd.to_dict()))
    point_to_url(changed["spec"]["conversion"]["webhook"]["clientConfig"], url, ca_data)
    return changed


def _create_or_update(client: Client, crd: MutableObject) -> Object:
    try:
        return client.create(crd)
    except AlreadyExists:
        return despite_conflicts(lambda: _update(client, crd))


def _update(client: Client, crd: MutableObject) -> Object:
    present = client.get(_CRD, crd.name).mutable_copy()
    present["spec"] = crd["spec"]
    return client.update(present)


def _kinds_of(crd: MutableObject) -> list[Kind]:
    spec = crd["spec"]
    return [
        Kind(
            group=spec["group"],
            version=version["name"],
            kind=spec["names"]["kind"],
            plural=spec["names"]["plural"],
            scope=Scope(spec["scope"]),
        )
        for version in spec["versions"]
        if version.get("served")
    ]


def _is_served(client: Client, kind: Kind) -> bool:
    try:
        client.list_page(kind, limit=1)
    except NotFound:
        return False
    except InternalError as error:
        # Served, with objects that its webhook has to convert, which often starts later.
        if "conversion webhook for" not in str(error):
            raise
    return True
