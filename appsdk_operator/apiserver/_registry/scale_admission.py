"""Admission of writes to a scale subresource: controllers see the Scale, not its object."""

from __future__ import annotations

from typing import Any, final

import attrs

from appsdk_operator.apiserver._registry.subresources import ScalePaths, apply_scale, scale_of
from appsdk_operator.apiserver._registry.write_requests import (
    AdmissionAttributes,
    AdmissionController,
)

__all__ = ["ScaleAdmission"]


@final
@attrs.frozen
class ScaleAdmission:
    """Shows another admission controller the Scale of the written object."""

    admission: AdmissionController
    paths: ScalePaths

    async def mutate(self, attributes: AdmissionAttributes) -> dict[str, Any]:
        """The object with the replicas of the admitted Scale."""
        seen = self._scale_attributes(attributes)
        scale = await self.admission.mutate(seen)
        if scale is seen.obj:
            return attributes.obj
        target = attributes.target
        return apply_scale(attributes.obj, scale, self.paths, target.served.resource, target.name)

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Check the final Scale."""
        await self.admission.validate(self._scale_attributes(attributes))

    def _scale_attributes(self, attributes: AdmissionAttributes) -> AdmissionAttributes:
        return AdmissionAttributes(
            operation=attributes.operation,
            target=attributes.target,
            subresource="scale",
            obj=scale_of(attributes.obj, self.paths, strict=False),
            old=scale_of(attributes.old, self.paths, strict=False),
            options=attributes.options,
        )
