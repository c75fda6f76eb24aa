"""For other packages: not part of the public surface."""

from appsdk_operator.apiserver._auth.access_table import (
    Access as Access,
    AccessTable as AccessTable,
)
from appsdk_operator.apiserver._authority import (
    Authority as Authority,
    private_pem as private_pem,
)
from appsdk_operator.apiserver._fault_rules import (
    FaultRule as FaultRule,
    FaultSchedule as FaultSchedule,
    RequestFacts as RequestFacts,
    combined as combined,
)
from appsdk_operator.apiserver._http.fault_effects import (
    ConnectionCut as ConnectionCut,
    FaultyWire as FaultyWire,
    apply_first as apply_first,
    object_name_in as object_name_in,
    send_paced as send_paced,
    wait_for_release as wait_for_release,
    watch_rules as watch_rules,
)
from appsdk_operator.apiserver._http.faults import (
    Faults as Faults,
    LoggedRequest as LoggedRequest,
)
from appsdk_operator.apiserver._http.frontend import (
    Frontend as Frontend,
)
from appsdk_operator.apiserver._http.http_request import (
    HttpRequest as HttpRequest,
)
from appsdk_operator.apiserver._http.listeners import (
    close_listeners as close_listeners,
    listen as listen,
)
from appsdk_operator.apiserver._http.server_thread import (
    ServerThread as ServerThread,
)
from appsdk_operator.apiserver._kubeconfig import (
    kubeconfig as kubeconfig,
    write_kubeconfig as write_kubeconfig,
)
from appsdk_operator.apiserver._schema import (
    builtin_schemas as builtin_schemas,
)
from appsdk_operator.apiserver._server import (
    APIServer as APIServer,
)
from appsdk_operator.apiserver._values.routes import (
    Route as Route,
    parse_path as parse_path,
    selected_name as selected_name,
    verb_of as verb_of,
)
from appsdk_operator.apiserver._values.status import (
    StatusError as StatusError,
)
