"""One spec, written with attrs, as a dataclass, as a msgspec struct and as a pydantic model."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import attrs
import msgspec

from appsdk_operator.resource import (
    Duration,
    EmbeddedObject,
    Format,
    Immutable,
    IntOrString,
    ListType,
    PreserveUnknown,
    Quantity,
    Rule,
)


class Tier(enum.Enum):
    """How much it may cost."""

    SMALL_ONE = "small"
    BIG_ONE = "big"


class File(msgspec.Struct, frozen=True, tag="file", tag_field="from"):
    path: str


class Env(msgspec.Struct, frozen=True, tag="env", tag_field="from"):
    variable: str
    is_optional: bool = False


@attrs.frozen
class Port:
    """A port of the widget."""

    name: str
    number: int = attrs.field(
        default=80, validator=[attrs.validators.ge(1), attrs.validators.le(65535)]
    )
    """The port's number."""


@Rule("self.maxSize >= self.minSize", message="maxSize must be at least minSize")
@attrs.frozen
class AttrsSpec:
    """What a widget should be.

    As text.
    """

    owner: Annotated[str, Immutable, msgspec.Meta(max_length=20)]
    """Who made it."""
    min_size: Annotated[int, msgspec.Meta(ge=0)] = 1
    max_size: int = attrs.field(default=9, validator=attrs.validators.lt(100))
    tier: Tier = Tier.SMALL_ONE
    mode: Literal["Auto", "Manual"] = "Auto"
    target: IntOrString = 80
    memory: Quantity | None = None
    timeout: Duration = "30s"
    since: dt.datetime | None = None
    color: str = attrs.field(default="red", validator=attrs.validators.matches_re("[a-z]+"))
    labels: Mapping[str, str] = attrs.field(factory=dict)
    weights: Mapping[str, Annotated[float, msgspec.Meta(gt=0)]] = attrs.field(factory=dict)
    ports: Annotated[list[Port], ListType.MAP("name")] = attrs.field(
        factory=list, validator=attrs.validators.max_len(5)
    )
    tags: frozenset[str] = frozenset()
    template: Annotated[dict[str, Any] | None, EmbeddedObject] = None
    extra: Annotated[Port | None, PreserveUnknown] = None
    anything: Any = None
    source: File | Env | None = None
    address: Annotated[str | None, Format("ipv4")] = None
    main_port: Port = Port("main")
    region: Annotated[str | None, Immutable] = None


@dataclasses.dataclass(frozen=True)
class DataPort:
    name: str
    number: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 80


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """What a widget should be."""

    owner: Annotated[str, Immutable, msgspec.Meta(max_length=20)]
    """Who made it."""
    max_size: Annotated[int, msgspec.Meta(lt=100)] = 9
    tier: Tier = Tier.SMALL_ONE
    ports: Annotated[tuple[DataPort, ...], ListType.MAP("name"), msgspec.Meta(max_length=5)] = ()
    target: int | str = 80
    color: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "red"


class StructPort(msgspec.Struct, frozen=True):
    name: str
    number: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 80


class StructSpec(msgspec.Struct, frozen=True):
    """What a widget should be."""

    owner: Annotated[str, Immutable, msgspec.Meta(max_length=20)]
    """Who made it."""
    max_size: Annotated[int, msgspec.Meta(lt=100)] = 9
    tier: Tier = Tier.SMALL_ONE
    ports: Annotated[list[StructPort], ListType.MAP("name"), msgspec.Meta(max_length=5)] = []
    target: int | str = 80
    color: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "red"


CLASSES: dict[str, Any] = {"data": DataSpec, "struct": StructSpec}
"""The classes besides that of attrs, which has more fields."""

try:
    import pydantic
except ImportError:
    pass
else:

    class ModelPort(pydantic.BaseModel, frozen=True):
        name: str
        number: int = pydantic.Field(default=80, ge=1, le=65535)

    class ModelSpec(pydantic.BaseModel, frozen=True):
        """What a widget should be."""

        owner: Annotated[str, Immutable, pydantic.StringConstraints(max_length=20)]
        """Who made it."""
        max_size: int = pydantic.Field(default=9, lt=100)
        tier: Tier = Tier.SMALL_ONE
        ports: Annotated[tuple[ModelPort, ...], ListType.MAP("name")] = pydantic.Field(
            default=(), max_length=5
        )
        target: int | str = 80
        color: str = pydantic.Field(default="red", pattern="^[a-z]+$")

    CLASSES["model"] = ModelSpec
