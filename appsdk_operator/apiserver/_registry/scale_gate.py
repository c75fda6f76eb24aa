"""Who is asked about a write of a scale is shown the scale, not the object it belongs to."""

from __future__ import annotations

from typing import Any, final

import attrs

from appsdk_operator.apiserver._registry.subresources import ScalePaths, scale_of, scaled
from appsdk_operator.apiserver._registry.write_requests import Attempt, Gate

__all__ = ["ScaleGate"]


@final
@attrs.frozen
class ScaleGate:
    """Another gate, seen from a scale."""

    gate: Gate
    paths: ScalePaths

    async def mutate(self, attempt: Attempt) -> dict[str, Any]:
        """The object with the scale that those at the gate make of its own."""
        seen = self._seen(attempt)
        scale = await self.gate.mutate(seen)
        if scale is seen.obj:
            return attempt.obj
        target = attempt.target
        return scaled(attempt.obj, scale, self.paths, target.served.resource, target.name)

    async def validate(self, attempt: Attempt) -> None:
        """Show them the final scale."""
        await self.gate.validate(self._seen(attempt))

    def _seen(self, attempt: Attempt) -> Attempt:
        return Attempt(
            operation=attempt.operation,
            target=attempt.target,
            subresource="scale",
            obj=scale_of(attempt.obj, self.paths, strict=False),
            old=scale_of(attempt.old, self.paths, strict=False),
            options=attempt.options,
        )
