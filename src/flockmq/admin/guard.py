"""Which callers may use the admin API: the right Host, the right token, and not too many wrong ones.

```
 request --> host_is_allowed ----no--> 421     a web page that points a name of its own at 127.0.0.1 stops here
               |
             Guard.check(address, Authorization)
               |-- no token ----------------------------------> 401
               |-- right token -------------------------------> the operation, whatever else came from the address
               |-- wrong token -------------------------------> 401, counted for the address
               `-- wrong token, address guessed too often ----> 429
```
The token is looked at first: to hash it costs a microsecond, and else anyone behind the operator's address (a NAT, a
forgotten script) could keep the operator out with one wrong token a second. What protects a token is its length.
Comparing in constant time is the business of ``verify_token``. Time is passed in.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from flockmq.errors import TOO_MANY_ATTEMPTS, UNAUTHORIZED, WRONG_HOST, ApiError

ATTEMPTS_BURST: Final = 10
"""Wrong tokens that an address may send at once."""
ATTEMPT_REFILL_MS: Final = 2_000
"""One more wrong token is forgiven after this long. A token has over 128 random bits: this is about noise and load."""
ADDRESSES_MAX: Final = 10_000
TOKEN_BYTES_MAX: Final = 1_024


class AttemptThrottle:
    """Counts failures by address, as a bucket that drains: bounded in addresses, those quiet longest are forgotten."""

    def __init__(
        self, burst: int = ATTEMPTS_BURST, refill_ms: int = ATTEMPT_REFILL_MS, addresses_max: int = ADDRESSES_MAX
    ) -> None:
        self._burst = burst
        self._refill_ms = refill_ms
        self._addresses_max = addresses_max
        self._full_until: OrderedDict[str, int] = OrderedDict()
        """When the debt of an address is paid off; each failure adds ``refill_ms`` to it."""

    def __len__(self) -> int:
        return len(self._full_until)

    def wait_ms(self, address: str, now_ms: int) -> int:
        """How long this address must wait before its next wrong token is answered as such; 0 when it may try."""
        debt_ms = self._full_until.get(network(address), 0) - now_ms
        return max(0, debt_ms - (self._burst - 1) * self._refill_ms)

    def failed(self, address: str, now_ms: int) -> None:
        """Count a failure."""
        key = network(address)
        self._full_until[key] = max(self._full_until.get(key, 0), now_ms) + self._refill_ms
        self._full_until.move_to_end(key)
        if len(self._full_until) > self._addresses_max:
            self._full_until.popitem(last=False)


class Guard:
    """Checks the bearer token of a request."""

    def __init__(
        self,
        verify_token: Callable[[str], bool],
        throttle: AttemptThrottle,
        on_failure: Callable[[str], None],
        cluster_id: Callable[[], str] = str,
    ) -> None:
        self._verify_token = verify_token
        self._cluster_id = cluster_id
        """The cluster's id, empty while there is none. Every 401 tells it: clients that have several tokens for this
        address then know which one is wanted."""
        self._throttle = throttle
        self._on_failure = on_failure
        self.failures = 0
        """Wrong tokens so far, for the metrics."""

    def check(self, address: str, authorization: str | None, now_ms: int) -> None:
        """Let the request through or raise."""
        token = _bearer(authorization)
        if token is None:
            raise self._unauthorized(
                "The admin API wants a token (header `Authorization: Bearer TOKEN`); "
                "run `flockmq login` or set FLOCKMQ_TOKEN"
            )
        if len(token) <= TOKEN_BYTES_MAX and self._verify_token(token):
            return
        self.failures += 1
        wait_ms = self._throttle.wait_ms(address, now_ms)
        if wait_ms > 0:
            seconds = (wait_ms + 999) // 1000
            raise ApiError(
                TOO_MANY_ATTEMPTS,
                f"Too many wrong tokens came from {address}; check the token and wait {seconds} s before the next try",
                {"Retry-After": str(seconds)},
            )
        self._throttle.failed(address, now_ms)
        self._on_failure(address)
        raise self._unauthorized(
            "The token is not this broker's; run `flockmq login` or set FLOCKMQ_TOKEN to the token "
            "in the credentials file of the user who started the broker"
        )

    def _unauthorized(self, message: str) -> ApiError:
        cluster = self._cluster_id()
        told = f', cluster="{cluster}"' if cluster else ""
        return ApiError(UNAUTHORIZED, message, {"WWW-Authenticate": f'Bearer realm="flockmq"{told}'})


def check_host(host: str | None, local_address: str, allowed_hosts: frozenset[str]) -> None:
    """Refuse requests on a loopback address whose Host is not this machine's own (DNS rebinding).

    A browser that a hostile page tricked into talking to 127.0.0.1 still says the page's name in Host. On other
    addresses any Host is taken unless ``allowed_hosts`` names the right ones.
    """
    name = host_name(host or "")
    if name in allowed_hosts or (_is_loopback(local_address) and (name == "localhost" or _is_loopback(name))):
        return
    if not allowed_hosts and not _is_loopback(local_address):
        return
    raise ApiError(
        WRONG_HOST,
        f"The Host header names {host!r}, which this API does not go by; call it by its address or by localhost, "
        "or add the name to the allowed hosts of the admin API",
    )


def host_name(host: str) -> str:
    """Take the name out of a Host header: ``[::1]:18083`` -> ``::1``, ``Node.example:80`` -> ``node.example``."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


def _bearer(authorization: str | None) -> str | None:
    scheme, _, token = (authorization or "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def network(address: str) -> str:
    """One key for all addresses that one customer of a provider has: IPv6 counts by its /64."""
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))
