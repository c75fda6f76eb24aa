"""The base of all other rooms: clock, stop signal, threads, work queue, metrics.

Nothing here knows Kubernetes. Everything that waits takes a :class:`Clock` and obeys a
:class:`StopSignal` or a shut-down, so that tests control the time and a stop is prompt.

Guarantees:
    * Only :class:`RealClock` reads or waits for the time.
    * No thread is a daemon; every thread belongs to a :class:`ThreadGroup` that joins it.
    * Locks are held for short operations on data only, never while user code runs.
    * Errors of the program's logging handlers never reach the caller: :func:`get_logger`.
"""

from appsdk_operator.runtime._activity import ActivityLog as ActivityLog
from appsdk_operator.runtime._activity import ActivityObserver as ActivityObserver
from appsdk_operator.runtime._activity import CallOutcome as CallOutcome
from appsdk_operator.runtime._activity import CallRecord as CallRecord
from appsdk_operator.runtime._activity import CallSlot as CallSlot
from appsdk_operator.runtime._activity import FailureCause as FailureCause
from appsdk_operator.runtime._activity import ObservedParts as ObservedParts
from appsdk_operator.runtime._activity import Observers as Observers
from appsdk_operator.runtime._activity import RequestRecord as RequestRecord
from appsdk_operator.runtime._activity import check_observer as check_observer
from appsdk_operator.runtime._activity import observed_call as observed_call
from appsdk_operator.runtime._activity import observed_request as observed_request
from appsdk_operator.runtime._activity import present_call as present_call
from appsdk_operator.runtime._backoff import Backoff as Backoff
from appsdk_operator.runtime._clock import Clock as Clock
from appsdk_operator.runtime._clock import InheritedClock as InheritedClock
from appsdk_operator.runtime._clock import ManualClock as ManualClock
from appsdk_operator.runtime._clock import RealClock as RealClock
from appsdk_operator.runtime._clock import present_clock as present_clock
from appsdk_operator.runtime._clock import random_of as random_of
from appsdk_operator.runtime._clock import system_clock as system_clock
from appsdk_operator.runtime._durations import duration_text as duration_text
from appsdk_operator.runtime._environment import Environment as Environment
from appsdk_operator.runtime._failure_log import FailureLog as FailureLog
from appsdk_operator.runtime._fork import ForkedError as ForkedError
from appsdk_operator.runtime._fork import OneProcess as OneProcess
from appsdk_operator.runtime._fork import after_fork as after_fork
from appsdk_operator.runtime._fork import fork_safe as fork_safe
from appsdk_operator.runtime._held_workers import HELD_FOR as HELD_FOR
from appsdk_operator.runtime._held_workers import HeldWorkers as HeldWorkers
from appsdk_operator.runtime._held_workers import RunningCall as RunningCall
from appsdk_operator.runtime._keyed_lock import KeyedLock as KeyedLock
from appsdk_operator.runtime._log_setup import LOG_FORMATS as LOG_FORMATS
from appsdk_operator.runtime._log_setup import LogFormat as LogFormat
from appsdk_operator.runtime._log_setup import TextFormatter as TextFormatter
from appsdk_operator.runtime._log_setup import setup_logging as setup_logging
from appsdk_operator.runtime._logging import JSONFormatter as JSONFormatter
from appsdk_operator.runtime._logging import SafeLogger as SafeLogger
from appsdk_operator.runtime._logging import get_logger as get_logger
from appsdk_operator.runtime._metrics import Family as Family
from appsdk_operator.runtime._metrics import LocalHistogram as LocalHistogram
from appsdk_operator.runtime._metrics import Metrics as Metrics
from appsdk_operator.runtime._metrics import Sample as Sample
from appsdk_operator.runtime._metrics import default_metrics as default_metrics
from appsdk_operator.runtime._narration import Narrator as Narrator
from appsdk_operator.runtime._operator_names import PREVIOUS_NAMES as PREVIOUS_NAMES
from appsdk_operator.runtime._operator_names import UNNAMED as UNNAMED
from appsdk_operator.runtime._operator_names import check_operator_name as check_operator_name
from appsdk_operator.runtime._operator_names import check_previous_names as check_previous_names
from appsdk_operator.runtime._operator_names import is_operator_name as is_operator_name
from appsdk_operator.runtime._queue_state import QueueItem as QueueItem
from appsdk_operator.runtime._queue_state import QueueState as QueueState
from appsdk_operator.runtime._rate_limiters import ItemExponential as ItemExponential
from appsdk_operator.runtime._rate_limiters import ItemFastSlow as ItemFastSlow
from appsdk_operator.runtime._rate_limiters import MaxOf as MaxOf
from appsdk_operator.runtime._rate_limiters import RateLimiter as RateLimiter
from appsdk_operator.runtime._rate_limiters import TokenBucket as TokenBucket
from appsdk_operator.runtime._rate_limiters import WithMaxWait as WithMaxWait
from appsdk_operator.runtime._stop import StopSignal as StopSignal
from appsdk_operator.runtime._stop import check_stop as check_stop
from appsdk_operator.runtime._texts import safe_repr as safe_repr
from appsdk_operator.runtime._texts import safe_text as safe_text
from appsdk_operator.runtime._threads import CoroutineRunner as CoroutineRunner
from appsdk_operator.runtime._threads import LoopThread as LoopThread
from appsdk_operator.runtime._threads import ThreadGroup as ThreadGroup
from appsdk_operator.runtime._threads import as_exception as as_exception
from appsdk_operator.runtime._threads import callback_place as callback_place
from appsdk_operator.runtime._threads import owned_by as owned_by
from appsdk_operator.runtime._threads import present_owner as present_owner
from appsdk_operator.runtime._threads import present_runner as present_runner
from appsdk_operator.runtime._threads import settle as settle
from appsdk_operator.runtime._threads import settle_on as settle_on
from appsdk_operator.runtime._tracebacks import add_note as add_note
from appsdk_operator.runtime._tracebacks import callback_name as callback_name
from appsdk_operator.runtime._tracebacks import current_frames as current_frames
from appsdk_operator.runtime._tracebacks import error_text as error_text
from appsdk_operator.runtime._tracebacks import failed_function as failed_function
from appsdk_operator.runtime._tracebacks import forget_frames as forget_frames
from appsdk_operator.runtime._tracebacks import group_members as group_members
from appsdk_operator.runtime._tracebacks import has_user_frames as has_user_frames
from appsdk_operator.runtime._tracebacks import present_place as present_place
from appsdk_operator.runtime._tracebacks import traceback_of as traceback_of
from appsdk_operator.runtime._tracebacks import user_traceback as user_traceback
from appsdk_operator.runtime._waiters import Latch as Latch
from appsdk_operator.runtime._waiters import Waiters as Waiters
from appsdk_operator.runtime._weak import weak_method as weak_method
from appsdk_operator.runtime._workers import StillRunning as StillRunning
from appsdk_operator.runtime._workers import Workers as Workers
from appsdk_operator.runtime._workers import is_cancelled as is_cancelled
from appsdk_operator.runtime._workers import left_behind as left_behind
from appsdk_operator.runtime._workqueue import WorkQueue as WorkQueue

# What is imported above and not listed is for the other rooms of the kit.
__all__ = [
    "PREVIOUS_NAMES",
    "UNNAMED",
    "ActivityObserver",
    "CallOutcome",
    "CallRecord",
    "Clock",
    "FailureCause",
    "FailureLog",
    "Family",
    "ForkedError",
    "ItemExponential",
    "ItemFastSlow",
    "JSONFormatter",
    "LocalHistogram",
    "LogFormat",
    "LoopThread",
    "ManualClock",
    "MaxOf",
    "Metrics",
    "Narrator",
    "OneProcess",
    "QueueItem",
    "QueueState",
    "RateLimiter",
    "RealClock",
    "RequestRecord",
    "SafeLogger",
    "Sample",
    "StillRunning",
    "StopSignal",
    "TextFormatter",
    "ThreadGroup",
    "TokenBucket",
    "WithMaxWait",
    "WorkQueue",
    "after_fork",
    "check_operator_name",
    "check_previous_names",
    "check_stop",
    "default_metrics",
    "failed_function",
    "fork_safe",
    "get_logger",
    "is_operator_name",
    "present_call",
    "random_of",
    "settle",
    "setup_logging",
    "system_clock",
    "user_traceback",
]
