from __future__ import annotations

import random

from flockmq.client.load.fleet.catalogue import METRICS, machine, next_value
from flockmq.mqtt.topics import check_topic_name


def test_every_device_has_a_place_of_its_own() -> None:
    machines = [machine(index, random.Random(1)) for index in range(2_000)]
    assert len({one.path for one in machines}) == 2_000
    assert len({one.client_id for one in machines}) == 2_000
    assert {one.version for one in machines} == {4, 5}
    for one in machines:
        check_topic_name(one.topic("temperature").encode())
        assert one.path.count("/") == 3


def test_a_quantity_stays_where_it_belongs() -> None:
    rng = random.Random(7)
    temperature, _, pieces = METRICS
    value, count = temperature.start, pieces.start
    for _ in range(5_000):
        value = next_value(temperature, value, rng)
        count = next_value(pieces, count, rng)
        assert 40 < value < 100
    assert count == 5_000
