"""What is needed of etcd's v3 API, spoken through its JSON gateway: keys and values in base64, 64-bit numbers as text.

Endpoints are tried in turn, beginning with the one that answered last. Where etcd wants a user, a token is fetched and
fetched again when it has run out.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from flockmq.discovery.ports import DiscoveryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.discovery.web import Answer, Web

_UNAUTHENTICATED: Final = 16
_UNAVAILABLE: Final = 14
_DEADLINE: Final = 4


class KeyValue(NamedTuple):
    """One key and what stands there."""

    key: str
    value: bytes


class EtcdApi:
    """A few calls of etcd; every failure is a DiscoveryError."""

    def __init__(self, web: Web, endpoints: Sequence[str], username: str, password: str) -> None:
        self._web = web
        self._endpoints = [endpoint.rstrip("/") for endpoint in endpoints]
        self._username = username
        self._password = password
        self._token = ""

    async def grant(self, ttl_s: int) -> int:
        """A new lease."""
        return _number(await self._call("lease/grant", {"TTL": str(ttl_s)}), "ID")

    async def keep_alive(self, lease: int) -> bool:
        """Renew a lease; false when it has run out."""
        answer = await self._call("lease/keepalive", {"ID": str(lease)})
        result = answer.get("result")
        return _number(result if isinstance(result, dict) else {}, "TTL") > 0

    async def revoke(self, lease: int) -> None:
        """End a lease; its keys are deleted."""
        await self._call("lease/revoke", {"ID": str(lease)})

    async def put(self, key: str, value: bytes, lease: int) -> None:
        """Write a key that lives as long as the lease."""
        await self._call("kv/put", {"key": _base64(key), "value": _base64(value), "lease": str(lease)})

    async def below(self, prefix: str, limit: int) -> list[KeyValue]:
        """Keys that begin with this prefix, in order."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        request = {"key": _base64(prefix), "range_end": _base64(end), "limit": str(limit)}
        return _keys((await self._call("kv/range", request)).get("kvs"))

    async def create(self, key: str, value: bytes) -> bytes:
        """Write a key unless it exists; the value that stands there then."""
        encoded = _base64(key)
        request = {
            "compare": [{"key": encoded, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
            "success": [{"request_put": {"key": encoded, "value": _base64(value)}}],
            "failure": [{"request_range": {"key": encoded}}],
        }
        answer = await self._call("kv/txn", request)
        if answer.get("succeeded"):
            return value
        responses = answer.get("responses")
        first = responses[0] if isinstance(responses, list) and responses else {}
        found = _keys(first.get("response_range", {}).get("kvs") if isinstance(first, dict) else None)
        if not found:
            raise DiscoveryError(f"etcd refused to write {key} and has nothing there; look at its log.")
        return found[0].value

    async def close(self) -> None:
        """Let go of connections."""
        await self._web.close()

    async def _call(self, path: str, body: object) -> dict[str, Any]:
        trouble: DiscoveryError | None = None
        for endpoint in list(self._endpoints):
            try:
                answer = await self._call_one(endpoint, path, body)
            except DiscoveryError as error:
                trouble = trouble or error
                continue
            self._endpoints.remove(endpoint)
            self._endpoints.insert(0, endpoint)
            return answer
        assert trouble is not None
        raise trouble

    async def _call_one(self, endpoint: str, path: str, body: object) -> dict[str, Any]:
        answer = await self._post(endpoint, path, body)
        if self._username and _code(answer) == _UNAUTHENTICATED:
            self._token = ""  # it has run out, or etcd was restarted
            answer = await self._post(endpoint, path, body)
        return _checked(endpoint, answer)

    async def _post(self, endpoint: str, path: str, body: object) -> Answer:
        if self._username and not self._token:
            login = {"name": self._username, "password": self._password}
            answer = await self._web.request("POST", f"{endpoint}/v3/auth/authenticate", {}, login)
            token = _checked(endpoint, answer).get("token")
            if not isinstance(token, str) or not token:
                raise DiscoveryError(f"etcd at {endpoint} gave no token to user {self._username!r}.")
            self._token = token
        headers = {"Authorization": self._token} if self._token else {}
        return await self._web.request("POST", f"{endpoint}/v3/{path}", headers, body)


def _checked(endpoint: str, answer: Answer) -> dict[str, Any]:
    found = _json(answer)
    if answer.status == 200 and found is not None and "error" not in found:
        return found
    if found is None:
        raise DiscoveryError(
            f"{endpoint} answered with status {answer.status} and no JSON of etcd; is that the client port of an etcd "
            "3.4 or later?"
        )
    inner = found.get("error")
    text = found.get("message") or (inner.get("message") if isinstance(inner, dict) else inner) or "no reason given"
    raise DiscoveryError(f"etcd at {endpoint} refused: {str(text)[:300]}{_advice(_code(answer), str(text))}.")


def _advice(code: int, text: str) -> str:
    if "user name is empty" in text:
        return "; set discovery.etcd.username and password_file"
    if "invalid user ID or password" in text:
        return "; check discovery.etcd.username and its password"
    if "permission denied" in text:
        return "; the user needs to read and write below discovery.etcd.prefix"
    if code in (_UNAVAILABLE, _DEADLINE):
        return "; it may have no leader"
    return ""


def _code(answer: Answer) -> int:
    found = _json(answer) or {}
    inner = found.get("error")
    code = found.get("code") or (inner.get("grpc_code") if isinstance(inner, dict) else None)
    return code if isinstance(code, int) else 0


def _json(answer: Answer) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def _number(found: dict[str, Any], name: str) -> int:
    try:
        return int(found.get(name, 0))
    except (TypeError, ValueError):
        raise DiscoveryError(f"etcd answered with {name} = {found.get(name)!r}, which is no number.") from None


def _keys(found: object) -> list[KeyValue]:
    keys = []
    for entry in found if isinstance(found, list) else []:
        try:
            keys.append(KeyValue(b64decode(entry["key"]).decode(), b64decode(entry.get("value", ""))))
        except (KeyError, TypeError, AttributeError, ValueError, Base64Error):
            continue  # not a key that a node wrote
    return keys


def _base64(data: str | bytes) -> str:
    return b64encode(data.encode() if isinstance(data, str) else data).decode()
