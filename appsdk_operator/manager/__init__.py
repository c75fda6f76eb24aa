"""Run controllers together, stop them together, and say which one failed."""

from appsdk_operator.manager._auth_filter import AuthFilter as AuthFilter
from appsdk_operator.manager._certificates import CertificatePair as CertificatePair
from appsdk_operator.manager._certificates import TLSOptions as TLSOptions
from appsdk_operator.manager._event_objects import ObjectReference as ObjectReference
from appsdk_operator.manager._event_recorder import EventBroadcaster as EventBroadcaster
from appsdk_operator.manager._event_recorder import EventClient as EventClient
from appsdk_operator.manager._event_recorder import EventRecorder as EventRecorder
from appsdk_operator.manager._event_series import EventOptions as EventOptions
from appsdk_operator.manager._health_checks import HealthCheck as HealthCheck
from appsdk_operator.manager._health_checks import HealthChecks as HealthChecks
from appsdk_operator.manager._health_server import HealthServer as HealthServer
from appsdk_operator.manager._health_server import HealthServerOptions as HealthServerOptions
from appsdk_operator.manager._http_connection import HTTPLimits as HTTPLimits
from appsdk_operator.manager._http_messages import HTTPHandler as HTTPHandler
from appsdk_operator.manager._http_messages import HTTPRequest as HTTPRequest
from appsdk_operator.manager._http_messages import HTTPResponse as HTTPResponse
from appsdk_operator.manager._http_server import HTTPServer as HTTPServer
from appsdk_operator.manager._metrics_server import HTTPFilter as HTTPFilter
from appsdk_operator.manager._metrics_server import MetricsServer as MetricsServer
from appsdk_operator.manager._metrics_server import MetricsServerOptions as MetricsServerOptions
from appsdk_operator.manager._operator import Operator as Operator
from appsdk_operator.manager._operator import OperatorController as OperatorController
from appsdk_operator.manager._profile_server import ProfileServer as ProfileServer
from appsdk_operator.manager._profile_server import ProfileServerOptions as ProfileServerOptions

__all__ = [
    "AuthFilter",
    "CertificatePair",
    "EventBroadcaster",
    "EventClient",
    "EventOptions",
    "EventRecorder",
    "HTTPFilter",
    "HTTPHandler",
    "HTTPLimits",
    "HTTPRequest",
    "HTTPResponse",
    "HTTPServer",
    "HealthCheck",
    "HealthChecks",
    "HealthServer",
    "HealthServerOptions",
    "MetricsServer",
    "MetricsServerOptions",
    "ObjectReference",
    "Operator",
    "OperatorController",
    "ProfileServer",
    "ProfileServerOptions",
    "TLSOptions",
]
