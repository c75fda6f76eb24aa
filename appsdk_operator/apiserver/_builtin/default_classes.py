"""The classes of storage and ingress that admission looks up for new objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from appsdk_operator.apiserver._builtin import strategies
from appsdk_operator.apiserver._storage.storage import Collection, Storage
from appsdk_operator.apiserver._values.quantity import QuantityError, amount
from appsdk_operator.apiserver._values.status import forbidden

_STORAGE_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_INGRESS_ANNOTATION: Final = "kubernetes.io/ingress.class"

_Object = dict[str, Any]


@final
class DefaultClasses:
    """Admits claims and ingresses: sets the default class, and asks the class about growth."""

    def __init__(self, storage: Storage) -> None:
        """The classes are those in ``storage``."""
        self._storage = storage.collection("storageclasses.storage.k8s.io")
        self._ingress = storage.collection("ingressclasses.networking.k8s.io")

    def admit_claim(self, new: _Object, old: _Object | None) -> None:
        """Set what a new claim lacks.

        Raises:
            StatusError: 403, the class of a claim does not let it grow.
        """
        strategies.admit_volume(new, old)
        if old is None:
            annotations = new["metadata"].get("annotations") or {}
            if _STORAGE_ANNOTATION not in annotations:
                name = "storageclass.kubernetes.io/is-default-class"
                _set_class(new, "storageClassName", _default(self._storage, name))
        elif _requested(new) > _requested(old):
            self._check_growth(new, old)

    def _check_growth(self, new: _Object, old: _Object) -> None:
        if (old.get("status") or {}).get("phase") != "Bound":
            return  # validation refuses it
        record = self._storage.records.get(old["spec"].get("storageClassName") or "")
        if record is None or not record.decode().get("allowVolumeExpansion"):
            why = (
                "only dynamically provisioned pvc can be resized and the storageclass that "
                "provisions the pvc must support resize"
            )
            raise forbidden("persistentvolumeclaims", "", new["metadata"]["name"], why)

    def admit_ingress(self, new: _Object, old: _Object | None) -> None:
        """Set the default class of a new ingress."""
        annotations = new["metadata"].get("annotations") or {}
        if old is None and _INGRESS_ANNOTATION not in annotations:
            name = "ingressclass.kubernetes.io/is-default-class"
            _set_class(new, "ingressClassName", _default(self._ingress, name))


def _set_class(obj: _Object, field: str, name: str | None) -> None:
    if name is not None:
        obj.setdefault("spec", {}).setdefault(field, name)


def _default(classes: Collection, annotation: str) -> str | None:
    """The newest class with the annotation; of several of one second, the first by name."""
    found = [
        metadata
        for record in classes.records.values()
        if ((metadata := record.decode()["metadata"]).get("annotations") or {}).get(annotation)
        == "true"
    ]
    found.sort(key=lambda metadata: str(metadata["name"]))
    newest = max(found, key=lambda metadata: str(metadata["creationTimestamp"]), default=None)
    return None if newest is None else str(newest["name"])


def _requested(claim: Mapping[str, Any]) -> Any:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    try:
        return amount(str(requests.get("storage", "0")))
    except QuantityError:
        return 0
