"""Which of this user's tokens a server gets.

```
 FLOCKMQ_TOKEN ------------------------------------------------> that one
 one token is kept for the address ----------------------------> that one
 several: ask without a token --> 401, cluster="ID" -----------> that of the cluster, else the newest without one
```
Only tokens that were kept for this very address count: a server that says it is of a cluster proves nothing by that.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from flockmq.client.transport import Transport
from flockmq.errors import ApiError, FlockError
from flockmq.security import credentials

if TYPE_CHECKING:
    import ssl

ASK_S_MAX: Final = 5.0
_CLUSTER: Final = re.compile(r'\bcluster="([0-9a-f]{16})"')


def token_for(server_url: str, ssl_context: ssl.SSLContext | None = None) -> str | None:
    """The token that this user has for a server; None when there is none."""
    token = os.environ.get("FLOCKMQ_TOKEN")
    if token:
        return token
    found = credentials.kept(server_url)
    cluster = cluster_of(server_url, ssl_context) if len(found) > 1 else ""
    return credentials.choose(found, cluster)


def cluster_of(server_url: str, ssl_context: ssl.SSLContext | None = None) -> str:
    """The id of the cluster that a server says it is of; empty when it is of none, or does not answer."""
    transport = Transport(server_url, None, timeout_s=ASK_S_MAX, ssl_context=ssl_context)
    try:
        transport.request("GET", "/api/v1/node")
    except ApiError as error:
        told = _CLUSTER.search(error.headers.get("www-authenticate", ""))
        return told[1] if told is not None else ""
    except FlockError:
        return ""  # the request that is to come says what is wrong, in its own words
    return ""
