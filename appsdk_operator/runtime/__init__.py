from appsdk_operator.runtime._clock import Clock as Clock
from appsdk_operator.runtime._clock import ManualClock as ManualClock
from appsdk_operator.runtime._clock import RealClock as RealClock
from appsdk_operator.runtime._clock import system_clock as system_clock
from appsdk_operator.runtime._stop import StopSignal as StopSignal
