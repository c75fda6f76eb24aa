"""The tracer provider of a program, which can be set once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final

from opentelemetry.trace import NoOpTracerProvider, Span, Tracer, TracerProvider

# As the SDK's tracers have it: contextlib's does not decorate coroutine functions.
from opentelemetry.util._decorator import _agnosticcontextmanager


@final
class ProgramProvider(TracerProvider):
    """Passes on to the provider that was entered last; without one no span is recorded."""

    entered: tuple[TracerProvider, ...] = ()
    """Those of the blocks that have not ended."""

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        """A tracer that looks for the present provider at each span."""
        return _ProgramTracer(args, kwargs)


PROGRAM: Final = ProgramProvider()


@final
class _ProgramTracer(Tracer):
    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._arguments = args, kwargs
        self._made: tuple[TracerProvider, Tracer] | None = None

    def start_span(self, *args: Any, **kwargs: Any) -> Span:
        return self._present().start_span(*args, **kwargs)

    @_agnosticcontextmanager
    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Iterator[Span]:
        with self._present().start_as_current_span(*args, **kwargs) as span:
            yield span

    def _present(self) -> Tracer:
        provider = (NoOpTracerProvider(), *PROGRAM.entered)[-1]
        made = self._made
        if made is None or made[0] is not provider:
            args, kwargs = self._arguments
            self._made = made = provider, provider.get_tracer(*args, **kwargs)
        return made[1]
