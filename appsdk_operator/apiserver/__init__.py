"""The API server inside the process; see :class:`APIServer`."""

from appsdk_operator.apiserver._http.faults import LoggedRequest as LoggedRequest
from appsdk_operator.apiserver._server import APIServer as APIServer
from appsdk_operator.apiserver._values.status import StatusError as StatusError
