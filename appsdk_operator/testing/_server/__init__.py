"""The API server inside the process; see :class:`APIServer`."""

from appsdk_operator.testing._server._api_server import APIServer as APIServer
from appsdk_operator.testing._server._faults import LoggedRequest as LoggedRequest
from appsdk_operator.testing._server._status import StatusError as StatusError
