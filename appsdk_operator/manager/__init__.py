"""Run controllers together, stop them together, and say which one failed."""

from appsdk_operator.manager._operator import Operator as Operator
from appsdk_operator.manager._operator import OperatorController as OperatorController

__all__ = ["Operator", "OperatorController"]
