"""What manifests say beyond what an App does: a frozen value, checked when it is made."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import attrs

from appsdk_operator.app import Permission
from appsdk_operator.runtime import validation

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
_CPU: Final = re.compile(r"\d+m|\d+(\.\d+)?")
_PYTHON: Final = re.compile(r"3\.\d+[\w.-]*")
_UNQUOTABLE: Final = re.compile(r"[\s'\"\\`$]")
_CERTIFICATES: Final = ("cert-manager", "managed", "secret")


def _label(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    validation.check_text(field.name, value)
    if value and not _LABEL.fullmatch(value):
        raise ValueError(
            f"{field.name}={value!r}: use at most 63 lower-case letters, digits and '-'"
        )


def _text(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    validation.check_text(field.name, value)


def _image(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    validation.check_text(field.name, value)
    if value and not _IMAGE.fullmatch(value):
        raise ValueError(
            f"{field.name}={value!r} is not an image: write it as in 'team/buckets:1.2'"
        )


def _cpu(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    validation.check_text(field.name, value)
    if not _CPU.fullmatch(value):
        raise ValueError(
            f"{field.name}={value!r} is not a quantity of CPU: write it as '100m' or '0.5'"
        )


def _python(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    validation.check_text(field.name, value)
    if not _PYTHON.fullmatch(value):
        raise ValueError(f"{field.name}={value!r} is not a version of Python: write it as '3.13'")


def _flag(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    validation.check_flag(field.name, value)


def has_credentials(url: str) -> bool:
    """Whether a URL of the kit has a password, or a user, which may be a token."""
    try:
        parts = urlsplit(url)
    except ValueError:  # it has brackets that are no address
        return "@" in url
    is_web = parts.scheme.endswith(("http", "https"))
    return bool(parts.password) or (is_web and parts.username not in (None, "git"))


def _kit(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    validation.check_text(field.name, value, empty=False)
    if has_credentials(value):
        raise ValueError(
            f"{field.name}: the URL has a password or a user, which would be written into the "
            "Dockerfile: leave it out, and take a wheel along that you have built with it"
        )
    is_path = value.endswith(".whl") and not value.startswith("/") and ".." not in value.split("/")
    if _UNQUOTABLE.search(value) or not (value == "index" or "://" in value or is_path):
        raise ValueError(
            f"{field.name}={value!r}: use index, a URL such as "
            "git+https://example.com/kit.git@v1.2, or the path of a wheel below this folder"
        )


def _count(least: int) -> Any:
    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        validation.check_count(field.name, value)
        if value < least:
            raise ValueError(f"{field.name}={value}: use {least} or more")

    return check


def _replicas(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if value is not None:
        _count(1)(_, field, value)


def _recorded(values: Iterable[Permission]) -> tuple[Permission, ...]:
    return tuple(values)


@attrs.frozen(kw_only=True)
class ManifestOptions:
    """The deployment options of an App: everything that its declarations do not contain.

    >>> ManifestOptions(replicas=0)
    Traceback (most recent call last):
    ...
    ValueError: replicas=0: use 1 or more
    """

    target: str = attrs.field(default="", validator=_text)
    """What ``appsdk-operator run`` gets in the container: ``module:app``, or a file relative to
    the folder of the image, ``/app``. Default: the App's name as a module, ``bucket_operator``."""
    image: str = attrs.field(default="", validator=_image)
    """The image. Default: the App's name, latest."""
    namespace: str = attrs.field(default="", validator=_label)
    """The namespace of the operator itself; default: the App's name."""
    replicas: int | None = attrs.field(default=None, validator=_replicas)
    """How many pods. Default: 2 with leader election, otherwise 1."""
    leader_election: bool | None = None
    """Whether one replica works at a time. Default: as the App says; with several replicas, one."""
    objects: int = attrs.field(default=10_000, validator=_count(0))
    """Objects in informers, for the memory limit. Default: 10000."""
    object_size: int = attrs.field(default=2_000, validator=_count(0))
    """Size of an object as JSON. Default: 2000."""
    extra_memory: int = attrs.field(default=64, validator=_count(0))
    """Memory for what the App's own functions import and keep, in MiB. Default: 64."""
    cpu: str = attrs.field(default="100m", validator=_cpu)
    """The CPU that is requested. Default: 100m.

    There is no limit: it would slow the operator down while the node is idle."""
    priority_class: str = attrs.field(default="", validator=_text)
    """The PriorityClass of the pods. Default: none."""
    certificates: Literal["", "cert-manager", "managed", "secret"] = ""
    """Where the webhooks' certificate is from: ``cert-manager``; ``managed``: the operator
    makes it; ``secret``: a Secret that you fill. Default: ``managed`` if the App's
    options have ManagedCertificates, else ``cert-manager``."""
    monitoring: bool = attrs.field(default=False, validator=_flag)
    """Whether the overlay for production has the ServiceMonitor and the alerts, which need the CRDs
    of Prometheus' operator. Default: no.

    A chart has a value for it."""
    monitoring_namespace: str = attrs.field(default="monitoring", validator=_label)
    """The namespace of Prometheus, which may scrape the metrics. Default: monitoring."""
    runbooks: str = attrs.field(default="", validator=_text)
    """The page with a section for each alert, for ``runbook_url``. Default: docs/runbooks.md, the
    kit's own."""
    python: str = attrs.field(default="3.13", validator=_python)
    """The version of Python in the image. Default: 3.13."""

    kit: str = attrs.field(default="index", validator=_kit)
    """Where the image gets the kit from: index, a URL as pip takes it, or a wheel below the folder
    that the image is built from. Default: index; 'init' writes it into pyproject.toml.

    A URL is, for example, ``git+https://example.com/kit.git@v1.2``."""

    recorded: tuple[Permission, ...] = attrs.field(default=(), converter=_recorded)
    """What tests needed beyond what the App declares, see :func:`load_permissions`; default:
    nothing."""

    def __attrs_post_init__(self) -> None:
        if self.certificates and self.certificates not in _CERTIFICATES:
            raise ValueError(f"certificates={self.certificates!r}: use {', '.join(_CERTIFICATES)}")
        if self.leader_election is not None:
            validation.check_flag("leader_election", self.leader_election)
