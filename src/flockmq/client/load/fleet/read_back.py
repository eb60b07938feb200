"""Reads a durable topic from its beginning to its end, and tells what is missing of what was acknowledged.

Any node will do, also after one has been killed: all of them have the same log.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from flockmq.client.load.fleet.ledger import Arrivals
from flockmq.client.log_client import LogClient

if TYPE_CHECKING:
    from flockmq.client.load.fleet.report import Plan


def read_back(plan: Plan, confirmed: dict[str, int]) -> tuple[int, int]:
    """(records that are there, acknowledged messages that are not)."""
    arrived: dict[str, Arrivals] = {}
    records = 0
    with LogClient(plan.api_urls, token_of=plan.tokens.get) as client:
        for head in client.heads(plan.topic).heads:
            offset = head.first_offset
            while offset < head.end_offset:
                batches = client.read(plan.topic, head.shard, offset)
                for view in batches:
                    for record in view.records():
                        if record.offset >= offset:
                            records += 1
                            number = json.loads(record.payload)["seq"]
                            arrived.setdefault(record.topic.decode(), Arrivals()).add(number)
                offset = batches.next_offset
    nothing = Arrivals()
    missing = sum(arrived.get(topic, nothing).missing(last) for topic, last in confirmed.items())
    return records, missing
