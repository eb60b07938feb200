"""Listener settings that contradict themselves are refused before anything is opened."""

from __future__ import annotations

import asyncio
import random
import ssl
from typing import Any

import pytest

from flockmq.drivers.listeners import Bind, Listener, ListenerSettings
from flockmq.drivers.runner import Runner
from flockmq.errors import ConfigError
from flockmq.node.broker import Broker
from flockmq.node.ports import OpenGate
from flockmq.node.settings import BrokerSettings


async def make(**settings: Any) -> Listener:
    runner = Runner(Broker(BrokerSettings(), OpenGate(), random.Random(1), 0), lambda events: None)
    return Listener(ListenerSettings(**{"name": "test", "binds": (Bind("127.0.0.1", 0),), **settings}), runner)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kind": "quic"}, "kind 'quic'; choose from tcp, tls, ws, wss"),
        ({"proxy_protocol": "yes"}, "must be one of off, v1, v2, any"),
        ({"kind": "wss"}, "tls and wss need a certificate"),
        ({"kind": "ws", "tls": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "tcp and ws take none"),
    ],
)
def test_contradictions(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        asyncio.run(make(**settings))
