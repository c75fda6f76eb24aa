from appsdk_operator.app._app import (
    App as App,
)
from appsdk_operator.app._background import (
    Live as Live,
)
from appsdk_operator.app._each import (
    each as each,
)
from appsdk_operator.app._filtered import (
    Filtered as Filtered,
)
from appsdk_operator.app._kopf import (
    Kopf as Kopf,
)
from appsdk_operator.app._remember import (
    HandledStates as HandledStates,
)
from appsdk_operator.app._run import (
    ExitStatus as ExitStatus,
)
from appsdk_operator.app._run_options import (
    RunOptions as RunOptions,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.app._app import (
    DEFAULT_FAILURE_EVENTS as DEFAULT_FAILURE_EVENTS,
    functions_of as functions_of,
    handled_kinds as handled_kinds,
    is_paused as is_paused,
    metadata_of_filters as metadata_of_filters,
    metadata_of_pauses as metadata_of_pauses,
    observed_manager as observed_manager,
    remembers as remembers,
    timers_of as timers_of,
)
from appsdk_operator.app._assembly import (
    Observer as Observer,
)
from appsdk_operator.app._declarations import (
    Handler as Handler,
    Reconciling as Reconciling,
    Timer as Timer,
)
from appsdk_operator.app._handled import (
    HandledState as HandledState,
    kept_paths as kept_paths,
)
from appsdk_operator.app._permission import (
    Permission as Permission,
    merged as merged,
)
from appsdk_operator.app._remember import (
    RecordError as RecordError,
)
from appsdk_operator.app._run import (
    run_program as run_program,
    start_logging as start_logging,
)
from appsdk_operator.app._run_options import (
    ENVIRONMENT as ENVIRONMENT,
)
from appsdk_operator.app._schedules import (
    Schedule as Schedule,
)
