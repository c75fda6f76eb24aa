"""A client that names the field manager of its writes."""

from __future__ import annotations

from appsdk_operator.client._api.client_like import ClientLike
from appsdk_operator.client._wrappers.call import Call, Forward, ResultT
from appsdk_operator.client._wrappers.wrapper import ClientWrapper
from appsdk_operator.runtime.validation import check_text


class FieldOwnerClient(ClientWrapper):
    """Every write names ``field_manager`` as the owner of its fields, unless the call names one.

    Deletes have no owner. The name shows up in ``metadata.managedFields``, and server-side apply
    needs one.
    """

    def __init__(self, inner: ClientLike, field_manager: str) -> None:
        """A client that writes through ``inner`` as ``field_manager``.

        Raises:
            ValueError: the name is empty, or longer than 128 characters, the most that servers
                accept.
        """
        super().__init__(inner)
        check_text("field_manager", field_manager)
        if not 0 < len(field_manager) <= 128 or not field_manager.isprintable():
            raise ValueError(
                f"field_manager {field_manager!r} must have 1 to 128 printable characters"
            )
        self.field_manager = field_manager

    def _send(self, call: Call[ResultT], forward: Forward[ResultT]) -> ResultT:
        if call.body is not None and not call.options.get("field_manager"):
            call = call.having(field_manager=self.field_manager)
        return forward(call)
