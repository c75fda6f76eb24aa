from appsdk_operator.resource._kind import Kind as Kind
from appsdk_operator.resource._kind import Scope as Scope
