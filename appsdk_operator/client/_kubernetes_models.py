"""Conversion to and from the models of the ``kubernetes`` package.

Both generations of models work: the plain classes up to release 36 and the pydantic ones from 37
on. Both have the table of their fields, ``attribute_map``, which is all that this module reads.
"""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace
from typing import Any

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._kubernetes_package import package
from appsdk_operator.resource import AnyObject, Kind, MutableObject

# Fields of type MicroTime, which the server accepts with six digits of a second only.
_MICRO_TIMES = frozenset({"acquireTime", "renewTime", "eventTime", "lastObservedTime"})


def from_model(kind: Kind[SpecT, StatusT], model: Any) -> MutableObject[SpecT, StatusT]:
    """A mutable object from a model, for example a ``V1Pod``.

    It leaves out fields that are None in the model, and adds ``apiVersion`` and ``kind``.

    Raises:
        TypeError: ``model`` is not a model of the package.
        ValueError: the model is of another kind.
    """
    if not hasattr(model, "attribute_map"):
        raise TypeError(
            f"a model of the kubernetes package is needed, got a {type(model).__name__}: plain "
            "dicts go into MutableObject(kind, data)"
        )
    data = _plain(model)
    said = (data.get("apiVersion", kind.api_version), data.get("kind", kind.kind))
    if said != (kind.api_version, kind.kind):
        raise ValueError(f"the model is a {' '.join(said)}, not a {kind.api_version} {kind.kind}")
    return MutableObject(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **data})


def to_model(obj: AnyObject, name: str) -> Any:
    """A model of the package, for example ``to_model(pod, "V1Pod")``.

    The model lacks the fields that the package's release does not know: do not send it back as an
    update of an object that may have such fields; patch the object instead.

    Raises:
        ModuleNotFoundError: the package is not installed; the extra ``kubernetes`` has it.
        ValueError: the package has no model of this name, or the object does not fit it.
    """
    client = package("client", f"to_model(obj, {name!r})")
    model = getattr(client, name, None)
    if model is None or not hasattr(model, "attribute_map"):
        raise ValueError(
            f"the kubernetes package {client.__version__} has no model {name!r}: use "
            "for example 'V1Pod'"
        )
    data = obj.to_dict()
    try:
        if hasattr(model, "from_dict"):
            return model.from_dict(data)
        return client.ApiClient().deserialize(SimpleNamespace(data=json.dumps(data)), name)
    # A ValueError of pydantic's, or an ApiException of the older releases.
    except Exception as error:
        raise ValueError(f"{obj!r} does not fit {name}: {error}") from error


def _plain(value: Any, field: str = "") -> Any:
    names = getattr(value, "attribute_map", None)
    if names is not None:
        values = ((wire, getattr(value, attribute)) for attribute, wire in names.items())
        return {wire: _plain(item, wire) for wire, item in values if item is not None}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dt.datetime):
        return _time(value, micro=field in _MICRO_TIMES)
    if isinstance(value, dt.date):
        return value.isoformat()
    return value


def _time(value: dt.datetime, *, micro: bool) -> str:
    # The package gives aware times; a naive one is taken for UTC.
    value = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    text = value.isoformat(timespec="microseconds" if micro else "auto")
    return text.replace("+00:00", "Z")
