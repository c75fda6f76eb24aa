"""Run controllers together, stop them together, and say which one failed."""

from appsdk_operator.manager._event_objects import ObjectReference as ObjectReference
from appsdk_operator.manager._event_recorder import EventBroadcaster as EventBroadcaster
from appsdk_operator.manager._event_recorder import EventClient as EventClient
from appsdk_operator.manager._event_recorder import EventRecorder as EventRecorder
from appsdk_operator.manager._event_series import EventOptions as EventOptions
from appsdk_operator.manager._operator import Operator as Operator
from appsdk_operator.manager._operator import OperatorController as OperatorController

__all__ = [
    "EventBroadcaster",
    "EventClient",
    "EventOptions",
    "EventRecorder",
    "ObjectReference",
    "Operator",
    "OperatorController",
]
