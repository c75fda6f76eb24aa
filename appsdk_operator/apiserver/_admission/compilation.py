"""The compilation of big definitions and rules in a thread, so that other requests go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, final

import msgspec

from appsdk_operator.apiserver._registry.write_requests import (
    AdmissionAttributes,
    AdmissionController,
)

# Smaller objects compile within some milliseconds.
_BIG: Final = 8 * 1024
_encode: Final = msgspec.json.Encoder().encode


@final
class CompileAhead:
    """Admits what another controller admits, and compiles it before it is validated.

    The results are kept by the strategy that compiles, so that validation finds them.
    """

    def __init__(self, admission: AdmissionController) -> None:
        """Compile what ``admission`` admits, from :meth:`start` on."""
        self._admission = admission
        self._is_running = False
        self._one_at_a_time = asyncio.Lock()
        self._thread: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Compile in a thread, which lasts as long as one compilation."""
        # A lock that was waited for belongs to the event loop of that time.
        self._one_at_a_time = asyncio.Lock()
        self._is_running = True

    def stop(self) -> None:
        """Wait for a compilation that has begun."""
        self._is_running = False
        thread = self._thread
        if thread is not None:
            thread.shutdown(cancel_futures=True)

    async def mutate(self, attributes: AdmissionAttributes) -> dict[str, Any]:
        """The object as the other controller left it.

        Raises:
            StatusError: the other controller refuses the write.
        """
        obj = await self._admission.mutate(attributes)
        compile_ahead = attributes.target.served.resource.strategy.compile_ahead
        if compile_ahead is not None and obj and not attributes.subresource:
            await self._compile(compile_ahead, obj, attributes.old or None)
        return obj

    async def _compile(
        self,
        compile_ahead: Callable[[dict[str, Any], dict[str, Any] | None], None],
        obj: dict[str, Any],
        old: dict[str, Any] | None,
    ) -> None:
        body = _encode(obj)
        if len(body) < _BIG:
            return
        async with self._one_at_a_time:
            if not self._is_running:
                return
            self._thread = thread = ThreadPoolExecutor(1, "apiserver-compile")
            try:
                # A copy, which the thread may change as preparation does.
                copy = msgspec.json.decode(body)
                loop = asyncio.get_running_loop()
                try:
                    compiling = loop.run_in_executor(thread, compile_ahead, copy, old)
                except RuntimeError:  # no thread can be started: validation compiles, then
                    return
                await compiling
            finally:
                self._thread = None
                thread.shutdown(wait=False, cancel_futures=True)

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Have the other controller validate.

        Raises:
            StatusError: the other controller refuses the write.
        """
        await self._admission.validate(attributes)
