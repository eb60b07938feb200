"""A node that does nothing but announce itself by multicast, as a process: run in a network namespace by tests.

Its argument is JSON: node_id, cookie, host, and settings of ``mcast``. It prints a line of JSON for every listing that
differs from the one before, and ends properly when standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import uvloop

from flockmq.discovery import registry
from flockmq.discovery.ports import Surroundings
from flockmq.discovery.settings import McastSettings
from flockmq.peering.contact import Contact


async def announce(given: dict[str, Any]) -> None:
    """Run until standard input ends."""
    settings = McastSettings(**given["settings"] | {"groups": tuple(given["settings"]["groups"])})
    surroundings = Surroundings(node_id=given["node_id"], cookie=given["cookie"].encode())
    discovery = registry.make("mcast", settings, surroundings)
    await discovery.start(Contact(given["host"], 16_000))
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    said: list[str] | None = None
    while not ended.done():
        found = sorted(contact.host for contact in await discovery.find())
        if found != said:
            said = found
            print(json.dumps(found), flush=True)
        await asyncio.wait([ended], timeout=0.05)
    await discovery.stop()


if __name__ == "__main__":
    uvloop.run(announce(json.loads(sys.argv[1])))
