from appsdk_operator.runtime._activity import (
    ActivityObserver as ActivityObserver,
    CallRecord as CallRecord,
    RequestRecord as RequestRecord,
    current_stop as current_stop,
    present_call as present_call,
)
from appsdk_operator.runtime._clock import (
    Clock as Clock,
    ManualClock as ManualClock,
    system_clock as system_clock,
)
from appsdk_operator.runtime._environment import (
    environment as environment,
)
from appsdk_operator.runtime._logs.failure_log import (
    FailureLog as FailureLog,
)
from appsdk_operator.runtime._fork import (
    ForkedError as ForkedError,
)
from appsdk_operator.runtime._logs.setup import (
    TextFormatter as TextFormatter,
    setup_logging as setup_logging,
)
from appsdk_operator.runtime._logs.loggers import (
    JSONFormatter as JSONFormatter,
)
from appsdk_operator.runtime._metrics import (
    Metrics as Metrics,
    default_metrics as default_metrics,
)
from appsdk_operator.runtime._narration import (
    Narrator as Narrator,
)
from appsdk_operator.runtime._queue.rate_limiters import (
    ItemExponential as ItemExponential,
    MaxOf as MaxOf,
    RateLimiter as RateLimiter,
    TokenBucket as TokenBucket,
)
from appsdk_operator.runtime._retry import (
    ConstantBackoff as ConstantBackoff,
    ExponentialBackoff as ExponentialBackoff,
    RetryPolicy as RetryPolicy,
    TenacityRetry as TenacityRetry,
    never_retry as never_retry,
)
from appsdk_operator.runtime._threading.limited_calls import (
    TimeLimitExceeded as TimeLimitExceeded,
)
from appsdk_operator.runtime._threading.stop import (
    StopSignal as StopSignal,
)
from appsdk_operator.runtime._threading.workers import (
    StillRunning as StillRunning,
)
from appsdk_operator.runtime._queue.workqueue import (
    WorkQueue as WorkQueue,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.runtime._activity import (
    ACTION_WORDS as ACTION_WORDS,
    NO_MEMORY as NO_MEMORY,
    ActivityLog as ActivityLog,
    CallOutcome as CallOutcome,
    CallSlot as CallSlot,
    FailingCalls as FailingCalls,
    FailureCause as FailureCause,
    ObservedParts as ObservedParts,
    Observers as Observers,
    call_limited as call_limited,
    call_memory as call_memory,
    check_observer as check_observer,
    observed_call as observed_call,
    observed_request as observed_request,
)
from appsdk_operator.runtime._queue.backoff import (
    Backoff as Backoff,
)
from appsdk_operator.runtime._clock import (
    RealClock as RealClock,
    processor_time_of_thread as processor_time_of_thread,
    random_of as random_of,
)
from appsdk_operator.runtime._logs.counts import (
    counted as counted,
)
from appsdk_operator.runtime._logs.durations import (
    duration_text as duration_text,
)
from appsdk_operator.runtime._environment import (
    PartMetrics as PartMetrics,
    check_clock as check_clock,
    entered_environment as entered_environment,
    entered_metrics as entered_metrics,
    present_clock as present_clock,
    present_metrics as present_metrics,
    thread_clock as thread_clock,
)
from appsdk_operator.runtime._fork import (
    OneProcess as OneProcess,
    after_fork as after_fork,
    fork_safe as fork_safe,
    forks_wait as forks_wait,
)
from appsdk_operator.runtime._threading.call_monitor import (
    HELD_FOR as HELD_FOR,
    CallMonitor as CallMonitor,
    RunningCall as RunningCall,
)
from appsdk_operator.runtime._threading.limited_calls import (
    LimitedCall as LimitedCall,
)
from appsdk_operator.runtime._logs.setup import (
    LOG_FORMATS as LOG_FORMATS,
    LogFormat as LogFormat,
)
from appsdk_operator.runtime._logs.loggers import (
    SafeLogger as SafeLogger,
    get_logger as get_logger,
)
from appsdk_operator.runtime._samples import (
    Family as Family,
    LocalHistogram as LocalHistogram,
    Sample as Sample,
)
from appsdk_operator.runtime._metrics import (
    families_of as families_of,
)
from appsdk_operator.runtime._exposition import (
    accepted_format as accepted_format,
    page_of as page_of,
    process_samples as process_samples,
)
from appsdk_operator.runtime._operator_names import (
    PREVIOUS_NAMES as PREVIOUS_NAMES,
    UNNAMED as UNNAMED,
    check_operator_name as check_operator_name,
    check_previous_names as check_previous_names,
    is_operator_name as is_operator_name,
    joined_names as joined_names,
)
from appsdk_operator.runtime._queue.state import (
    QueueItem as QueueItem,
    QueueState as QueueState,
)
from appsdk_operator.runtime._threading.stop import (
    check_stop as check_stop,
)
from appsdk_operator.runtime._user_code import (
    as_exception as as_exception,
    asked_delay as asked_delay,
    guarded_call as guarded_call,
)
from appsdk_operator.runtime._logs.texts import (
    is_interrupt as is_interrupt,
    safe_repr as safe_repr,
    safe_text as safe_text,
)
from appsdk_operator.runtime._threading.threads import (
    NO_THREAD as NO_THREAD,
    CoroutineRunner as CoroutineRunner,
    LoopPart as LoopPart,
    LoopThread as LoopThread,
    ThreadGroup as ThreadGroup,
    awaited_by as awaited_by,
    callback_place as callback_place,
    owned_by as owned_by,
    present_owner as present_owner,
    present_runner as present_runner,
    settle as settle,
    settle_on as settle_on,
)
from appsdk_operator.runtime._logs.tracebacks import (
    add_note as add_note,
    callback_name as callback_name,
    code_name as code_name,
    current_frames as current_frames,
    error_text as error_text,
    failed_function as failed_function,
    forget_frames as forget_frames,
    group_members as group_members,
    has_user_frames as has_user_frames,
    place_text as place_text,
    present_place as present_place,
    root_cause as root_cause,
    traceback_of as traceback_of,
    user_traceback as user_traceback,
    with_class as with_class,
)
from appsdk_operator.runtime._threading.waiters import (
    Latch as Latch,
    Waiters as Waiters,
)
from appsdk_operator.runtime._weak import (
    weak_method as weak_method,
)
from appsdk_operator.runtime._threading.workers import (
    Places as Places,
    SpareWorkers as SpareWorkers,
    Workers as Workers,
    is_cancelled as is_cancelled,
    left_behind as left_behind,
    raise_all as raise_all,
)
