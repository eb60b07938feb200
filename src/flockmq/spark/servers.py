"""Where the cluster is and how to speak with it: what each part of a Spark query needs, on driver and workers.

```
 options --from_options--> Servers (frozen, pickled into tasks) --client()--> LogClient, kept per process and thread
            |                                                                     `-- worker after worker forks anew
            `-- no server: FLOCKMQ_SERVER, else this user's credentials file, else this machine
```
The token is looked up once, on the driver: workers on other machines have no credentials file of this user.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from flockmq.client.log_client import LogClient
from flockmq.client.tokens import token_for
from flockmq.client.topic_calls import DEFAULT_NAMESPACE
from flockmq.client.transport import DEFAULT_SERVER_URL, server_url
from flockmq.errors import FlockError
from flockmq.security import credentials

SERVER_OPTIONS: Final = ("server", "token", "namespace", "ca", "cert", "key", "insecure", "retries")
"""Names of the options that are read here, for modules that list what they take."""
RETRIES: Final = 3
RETRY_S: Final = 10.0
"""How long one retry goes on asking all nodes."""
CLIENTS_MAX: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """A cluster as a query reaches it."""

    urls: tuple[str, ...] = (DEFAULT_SERVER_URL,)
    token: str | None = field(default=None, repr=False)
    namespace: str = DEFAULT_NAMESPACE
    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure: bool = False
    retries: int = RETRIES

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Servers:
        """From the options of a query; names in any case, others than ``SERVER_OPTIONS`` are not looked at."""
        given = {name.lower(): value for name, value in options.items()}
        urls = _listed(given.get("server", "")) or _usual_servers()
        if given.get("key", "") and not given.get("cert", ""):
            raise FlockError("Option key names a private key without a certificate; name that with option cert")
        found = cls(
            urls=urls,
            token=given.get("token") or None,
            namespace=given.get("namespace") or DEFAULT_NAMESPACE,
            ca=given.get("ca", ""),
            cert=given.get("cert", ""),
            key=given.get("key", ""),
            insecure=flag("insecure", given.get("insecure", "false")),
            retries=_count("retries", given.get("retries", str(RETRIES))),
        )
        if found.token is not None:
            return found
        context = found._ssl_context()
        return replace(found, token=next(filter(None, (token_for(url, context) for url in urls)), None))

    def options(self) -> dict[str, str]:
        """The same as options again, for a query that starts another."""
        named = {
            "server": ",".join(self.urls),
            "token": self.token or "",
            "namespace": self.namespace,
            "ca": self.ca,
            "cert": self.cert,
            "key": self.key,
            "insecure": "true" if self.insecure else "",
            "retries": str(self.retries),
        }
        return {name: value for name, value in named.items() if value}

    def new_client(self, *, timeout_s: float = 10.0, retry_s: float | None = None) -> LogClient:
        """A client of its own; close it."""
        return LogClient(
            self.urls,
            self.token,
            namespace=self.namespace,
            timeout_s=timeout_s,
            retry_s=self.retries * RETRY_S if retry_s is None else retry_s,
            ssl_context=self._ssl_context(),
        )

    def client(self) -> LogClient:
        """The client of this thread for these settings; its connections stay open between tasks."""
        # A worker is forked: connections of its parent are not its own. A client is not for several threads.
        place = (os.getpid(), threading.get_ident(), self)
        with _lock:
            found = _clients.get(place)
            if found is None:
                while len(_clients) >= CLIENTS_MAX:
                    _clients.pop(next(iter(_clients)))
                found = _clients[place] = self.new_client()
            return found

    def _ssl_context(self) -> ssl.SSLContext | None:
        if not any(url.startswith("https://") for url in self.urls):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.cert:
                context.load_cert_chain(self.cert, self.key or None)
        except OSError as error:
            raise FlockError(
                f"The TLS files of options ca, cert and key can't be used on this machine ({error}); they must be "
                "there, in PEM, on the driver and on every worker"
            ) from error
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


_clients: dict[tuple[int, int, Servers], LogClient] = {}
_lock = threading.Lock()


def _listed(text: str) -> tuple[str, ...]:
    return tuple(server_url(one) for one in text.split(",") if one.strip())


def _usual_servers() -> tuple[str, ...]:
    """Those that the environment names, else the one that this user has a token for, else this machine's."""
    named = _listed(os.environ.get("FLOCKMQ_SERVER", ""))
    if named:
        return named
    known = credentials.servers()
    if not known or DEFAULT_SERVER_URL in known:
        return (DEFAULT_SERVER_URL,)
    if len(known) == 1:
        return (known[0],)
    raise FlockError(
        f"This user has tokens for {len(known)} servers ({', '.join(known[:5])}); "
        "say which one is meant with option server"
    )


def flag(name: str, text: str) -> bool:
    """An option that is true or false."""
    if text.strip().lower() not in {"true", "false", ""}:
        raise FlockError(f"Option {name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def _count(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise FlockError(f"Option {name} is a number of 0 or more, not {text!r}")
    return int(text)
