"""For other packages: not part of the public surface."""

from appsdk_operator.serving._addresses import (
    check_address as check_address,
    check_hosts as check_hosts,
    is_off as is_off,
    parse_address as parse_address,
)
from appsdk_operator.serving._certificates import (
    CertificateFiles as CertificateFiles,
    Certificates as Certificates,
)
from appsdk_operator.serving._key_pair import (
    KeyPair as KeyPair,
)
from appsdk_operator.serving._limits import (
    HTTPLimits as HTTPLimits,
)
from appsdk_operator.serving._messages import (
    HTTPHandler as HTTPHandler,
    HTTPRequest as HTTPRequest,
    HTTPResponse as HTTPResponse,
    Headers as Headers,
    RequestLimits as RequestLimits,
    text_response as text_response,
)
from appsdk_operator.serving._self_signed import (
    SelfSigned as SelfSigned,
)
from appsdk_operator.serving._server import (
    HTTPServer as HTTPServer,
)
from appsdk_operator.serving._tls import (
    TLSOptions as TLSOptions,
)
