"""Kinds: group, version, names and scope, and the types of spec and status."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Any, Generic, Literal, overload
from urllib.parse import quote

import attrs

from appsdk_operator._generics import SpecT, SpecT_co, StatusT, StatusT_co, subscript

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_KIND_NAME = re.compile(r"[A-Za-z]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")


class Scope(enum.Enum):
    """The scope of a kind: namespaced or cluster-wide."""

    NAMESPACED = "Namespaced"
    """Its objects are in namespaces."""
    CLUSTER = "Cluster"
    """Its objects are in none."""


def check_kind(value: object, what: str = "kind") -> Kind:
    """Return ``value``, checked to be a Kind.

    Raises:
        TypeError: it is not a Kind; the text says where to get one.
    """
    if isinstance(value, Kind):
        return value
    if isinstance(value, str):
        given = repr(value[:80])
    elif isinstance(value, type):
        given = f"the class {value.__qualname__}"
    else:  # it may be an object that holds secrets
        given = f"{type(value).__name__}(…)"
    raise TypeError(
        f"{what}={given} is not a Kind: give one of appsdk_operator.kinds, such as "
        "kinds.core.v1.ConfigMap, or make one, Kind(group=…, version=…, kind=…)"
    )


def _check_group(_: object, __: object, value: str) -> None:
    if value and not _DNS_SUBDOMAIN.fullmatch(value):
        raise ValueError(
            f"group {value!r} is not a DNS name: use lower-case letters, digits, '-' and '.', "
            "for example 'example.com', or '' for the core group"
        )


def _check_version(_: object, __: object, value: str) -> None:
    if not _DNS_LABEL.fullmatch(value):
        raise ValueError(f"version {value!r} is not a DNS label: use for example 'v1' or 'v1beta1'")


def _check_kind(_: object, __: object, value: str) -> None:
    if not _KIND_NAME.fullmatch(value):
        raise ValueError(f"kind {value!r} is not a kind's name: use for example 'Widget'")


def _check_plural(_: object, __: object, value: str) -> None:
    if not _DNS_LABEL.fullmatch(value):
        raise ValueError(f"plural {value!r} is not a DNS label: use for example 'widgets'")


def _check_view(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None:
        from appsdk_operator.resource._typed.spec_types import check_spec_type

        check_spec_type(attribute.name, value)


def _view(view: Any, style: str | None) -> Any:
    if view is None:  # as for most kinds, which then need nothing of this
        return None
    from appsdk_operator.resource._typed.renaming import renamed_view

    return renamed_view(view, style)


def _check_scope(_: object, __: object, value: object) -> None:
    if isinstance(value, Scope):
        return
    meant = [one for one in Scope if isinstance(value, str) and one.value.lower() == value.lower()]
    remedy = " or ".join(f"Scope.{one.name}" for one in meant or Scope)
    raise TypeError(f"scope={value!r} is not a Scope: give {remedy}")


def _check_rename(_: object, __: object, value: object) -> None:
    if value is None:
        return
    from appsdk_operator.resource._typed.renaming import STYLES

    if not isinstance(value, str) or value not in STYLES:
        raise ValueError(
            f"rename={value!r}: give 'camel', for maxSize on the wire and max_size in Python, or "
            "leave it out"
        )


def _quoted(what: str, part: str) -> str:
    if part in (".", ".."):
        raise ValueError(f"{what} {part!r} is not a valid name: it would lead to another path")
    # Most need no quotes, which to find out is far cheaper.
    plain = part.isascii() and part.replace("-", "").isalnum()
    return part if plain else quote(part, safe="")


_SECRET_KINDS = {
    ("", "Secret"),
    ("authentication.k8s.io", "TokenRequest"),
    ("authentication.k8s.io", "TokenReview"),
}


@attrs.frozen(kw_only=True)
class Kind(Generic[SpecT_co, StatusT_co]):
    """A kind of Kubernetes object: its API path, and the types of its spec and status.

    Two kinds are equal if group, version, kind, plural and scope are; ``spec`` and ``status`` do
    not count, so typed and untyped kinds share one cache.

    Args:
        group: the API group, ``""`` for the core group.
        version: the API version, for example ``"v1"``.
        kind: the kind's name in objects, for example ``"Deployment"``.
        plural: the name in paths; default: the kind in lower case plus ``s``, as in
            grafana-app-sdk.
        scope: :attr:`Scope.NAMESPACED` (default) or :attr:`Scope.CLUSTER`.
        spec: a frozen attrs class, dataclass, msgspec struct or pydantic model, or another type
            that msgspec can decode into, for ``object.spec``; default: plain read-only JSON values.
        status: the same for ``object.status``.
        rename: ``"camel"``: the fields of these classes have camelCase names on the wire,
            ``maxSize`` for ``max_size``, in objects and in the schema of the CRD. A name that a
            class gives explicitly takes precedence: :class:`FieldName`, ``msgspec.field(name=…)``,
            an alias of pydantic. Default None: the fields have the names that they have in the
            classes.
        secret: whether the fields of its objects are secret, as in Secrets. API servers quote the
            values that they refuse, so errors and logs of writes of such a kind show only names and
            paths of fields. Default: True for Secret, TokenRequest and TokenReview, else False.

    Raises:
        ValueError: a name that no API server accepts, or a ``spec`` or ``status`` class that is
            mutable or has no fields; two fields with one name on the wire.
        TypeError: ``spec`` or ``status`` is an instance instead of a class, ``scope`` is not a
            Scope, or a name is not text.

    >>> Kind(group="example.com", version="v1", kind="Widget").plural
    'widgets'
    >>> str(Kind(group="apps", version="v1", kind="Deployment"))
    'deployments.v1.apps'
    """

    group: str = attrs.field(validator=[attrs.validators.instance_of(str), _check_group])
    version: str = attrs.field(validator=[attrs.validators.instance_of(str), _check_version])
    kind: str = attrs.field(validator=[attrs.validators.instance_of(str), _check_kind])
    plural: str = attrs.field(
        default=attrs.Factory(lambda self: f"{self.kind}s".lower(), takes_self=True),
        validator=[attrs.validators.instance_of(str), _check_plural],
    )
    scope: Scope = attrs.field(default=Scope.NAMESPACED, validator=_check_scope)
    spec: type[SpecT_co] | None = attrs.field(default=None, eq=False, validator=_check_view)
    status: type[StatusT_co] | None = attrs.field(default=None, eq=False, validator=_check_view)
    rename: Literal["camel"] | None = attrs.field(default=None, eq=False, validator=_check_rename)
    secret: bool = attrs.field(
        default=attrs.Factory(
            lambda self: (self.group, self.kind) in _SECRET_KINDS, takes_self=True
        ),
        eq=False,
        repr=False,
        validator=attrs.validators.instance_of(bool),
    )

    # Computed once: every object that arrives is compared with it.
    api_version: str = attrs.field(
        init=False,
        eq=False,
        repr=False,
        default=attrs.Factory(
            lambda self: f"{self.group}/{self.version}" if self.group else self.version,
            takes_self=True,
        ),
    )
    """``group/version``, or the version alone for the core group."""
    spec_view: Any = attrs.field(
        init=False,
        eq=False,
        repr=False,
        default=attrs.Factory(lambda self: _view(self.spec, self.rename), takes_self=True),
    )
    """The type that decodes specs: ``spec``, with its names in JSON if they differ."""
    status_view: Any = attrs.field(
        init=False,
        eq=False,
        repr=False,
        default=attrs.Factory(lambda self: _view(self.status, self.rename), takes_self=True),
    )
    """The type that decodes statuses, as :attr:`spec_view`."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    @property
    def is_namespaced(self) -> bool:
        """Whether objects of this kind live in a namespace."""
        return self.scope is Scope.NAMESPACED

    @property
    def qualified_name(self) -> str:
        """``plural.group``, the name that RBAC rules, CRDs and error texts use.

        >>> Kind(group="", version="v1", kind="Pod").qualified_name
        'pods'
        """
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path on the API server of one object, or of the collection when ``name`` is empty.

        An empty ``namespace`` of a namespaced kind means all namespaces. Every part is quoted, so
        no name leads to another path. A ``subresource`` may have several parts
        (``"proxy/metrics"``).

        Raises:
            ValueError: a part is ``.`` or ``..``, which HTTP clients and proxies would resolve to
                another path, or there is a subresource without a name.

        >>> Kind(group="apps", version="v1", kind="Deployment").path("default", "web", "status")
        '/apis/apps/v1/namespaces/default/deployments/web/status'
        """
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace and self.is_namespaced:
            path += f"/namespaces/{_quoted('namespace', namespace)}"
        path += f"/{self.plural}"
        if name:
            path += f"/{_quoted('name', name)}"
        if subresource:
            if not name:
                raise ValueError(
                    f"{subresource!r} of {self.qualified_name} needs the name of an object: give "
                    "one"
                )
            for part in subresource.split("/"):
                path += f"/{_quoted('subresource', part)}"
        return path

    @overload
    def typed(
        self, *, spec: type[SpecT], status: type[StatusT], rename: Literal["camel"] | None = None
    ) -> Kind[SpecT, StatusT]: ...
    @overload
    def typed(
        self, *, spec: type[SpecT], status: None = None, rename: Literal["camel"] | None = None
    ) -> Kind[SpecT, StatusT_co]: ...
    @overload
    def typed(
        self, *, spec: None = None, status: type[StatusT], rename: Literal["camel"] | None = None
    ) -> Kind[SpecT_co, StatusT]: ...
    @overload
    def typed(
        self, *, spec: None = None, status: None = None, rename: Literal["camel"] | None = None
    ) -> Kind[SpecT_co, StatusT_co]: ...
    def typed(self, *, spec: Any = None, status: Any = None, rename: Any = None) -> Kind[Any, Any]:
        """The same kind, read with other types of spec and status.

        Args:
            spec: the type of the spec; default: this kind's.
            status: the type of the status; default: this kind's.
            rename: as for :class:`Kind`; default: this kind's.
        """
        return attrs.evolve(
            self,
            spec=spec or self.spec,
            status=status or self.status,
            rename=rename or self.rename,
        )

    def __str__(self) -> str:
        return f"{self.plural}.{self.version}" + (f".{self.group}" if self.group else "")


def group_kind(kind: Kind) -> str:
    """Kind and group, as ``Deployment.apps``.

    >>> from appsdk_operator.resource import kinds
    >>> group_kind(kinds.apps.v1.Deployment), group_kind(kinds.core.v1.Pod)
    ('Deployment.apps', 'Pod')
    """
    return f"{kind.kind}.{kind.group}".rstrip(".")
