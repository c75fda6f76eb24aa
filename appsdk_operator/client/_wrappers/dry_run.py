"""A client whose writes are dry runs."""

from __future__ import annotations

from appsdk_operator.client._wrappers.call import Call, Forward, ResultT
from appsdk_operator.client._wrappers.wrapper import ClientWrapper


class DryRunClient(ClientWrapper):
    """Every write is a dry run: the server validates, defaults and answers, but stores nothing.

    Reads and watches are real.
    """

    def _send(self, call: Call[ResultT], forward: Forward[ResultT]) -> ResultT:
        return forward(call.having(dry_run=True) if call.is_write else call)
