from appsdk_operator.tracing._export import (
    otlp_tracing as otlp_tracing,
)
from appsdk_operator.tracing._log_fields import (
    TraceFields as TraceFields,
)
from appsdk_operator.tracing._tracing import (
    Tracing as Tracing,
)
