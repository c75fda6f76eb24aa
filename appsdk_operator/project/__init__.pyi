from appsdk_operator.project._compatibility import (
    breaking_changes as breaking_changes,
)
from appsdk_operator.project._manifests.manifests import (
    helm_chart as helm_chart,
    manifests as manifests,
)
from appsdk_operator.project._manifests.options import (
    ManifestOptions as ManifestOptions,
)
from appsdk_operator.project._models.crds import (
    models as models,
)
from appsdk_operator.project._models.schemas import (
    ModelError as ModelError,
)
from appsdk_operator.project._rbac.grants import (
    Grants as Grants,
)
from appsdk_operator.project._rbac.record_file import (
    load_permissions as load_permissions,
)
from appsdk_operator.project._rbac.recording import (
    Recording as Recording,
)
from appsdk_operator.project._rbac.roles import (
    Roles as Roles,
    roles as roles,
)
from appsdk_operator.project._uninstall import (
    UninstallError as UninstallError,
    uninstall as uninstall,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.project._compatibility import (
    Finding as Finding,
)
from appsdk_operator.project._files import (
    FileChange as FileChange,
    FileOutcome as FileOutcome,
    GeneratedFiles as GeneratedFiles,
    write_below as write_below,
)
from appsdk_operator.project._manifests.bindings import (
    added_permissions as added_permissions,
)
from appsdk_operator.project._manifests.options import (
    has_credentials as has_credentials,
)
from appsdk_operator.project._models.builtin import (
    builtin_models as builtin_models,
)
from appsdk_operator.project._models.crds import (
    read_crds as read_crds,
)
from appsdk_operator.project._models.module import (
    ModelStyle as ModelStyle,
)
from appsdk_operator.project._rbac.record_file import (
    RECORD_FILE as RECORD_FILE,
    dump_permissions as dump_permissions,
)
from appsdk_operator.project._uninstall import (
    UninstallAction as UninstallAction,
    UninstallStep as UninstallStep,
)
