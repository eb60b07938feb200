"""What the tests of security share: cheap hashes, requests, and a gate with a real loop and real threads behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from flockmq.node.ports import AuthRequest, Verdict
from flockmq.security.gate import BrokerGate, SecuritySettings
from flockmq.security.passwords import HashCost, set_password

CHEAP = HashCost(iterations=1, memory_kib=8, lanes=1)
WALL_MS = 1_000_000_000_000


class GateUnderTest(BrokerGate):
    """A gate whose delivered verdicts can be awaited."""

    def __init__(self, settings: SecuritySettings, loop: asyncio.AbstractEventLoop) -> None:
        self.wall = WALL_MS
        self.delivered: asyncio.Queue[tuple[AuthRequest, Verdict]] = asyncio.Queue()
        super().__init__(
            settings,
            deliver=lambda request, verdict: self.delivered.put_nowait((request, verdict)),
            call_soon=loop.call_soon_threadsafe,
            wall_ms=lambda: self.wall,
        )

    async def judge(self, request: AuthRequest) -> Verdict:
        """The verdict, whether it comes at once or later."""
        verdict = self.authenticate(request)
        if verdict is not None:
            return verdict
        delivered, verdict = await self.delivered.get()
        assert delivered is request
        return verdict


def make_request(
    *,
    username: str | None = None,
    password: bytes | None = None,
    client_id: str = "c1",
    method: str | None = None,
    data: bytes | None = None,
    peer: str = "192.0.2.1",
    certificate_name: str | None = None,
    now_ms: int = 1_000,
) -> AuthRequest:
    return AuthRequest(
        connection_id=1,
        client_id=client_id,
        username=username,
        password=password,
        method=method,
        data=data,
        listener="tcp:default",
        peer=peer,
        certificate_name=certificate_name,
        now_ms=now_ms,
    )


@pytest.fixture
def request_of() -> Callable[..., AuthRequest]:
    return make_request


@pytest.fixture
def cheap() -> HashCost:
    return CHEAP


@pytest.fixture
async def gate_of() -> AsyncIterator[Callable[..., GateUnderTest]]:
    """Makes gates and closes them in the end."""
    loop = asyncio.get_running_loop()
    made: list[GateUnderTest] = []

    def make(**settings: object) -> GateUnderTest:
        gate = GateUnderTest(SecuritySettings(**settings), loop)  # type: ignore[arg-type]
        made.append(gate)
        return gate

    yield make
    for gate in made:
        gate.close()


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    """Alice with both kinds of keys, Bob without SCRAM."""
    path = tmp_path / "passwords"
    set_password(path, "alice", b"wonderland", cost=CHEAP, scram_iterations=4_096)
    set_password(path, "bob", b"builder", cost=CHEAP, scram_iterations=0)
    return path
