"""A namespace is a broker of its own: what MQTT demands of delivery holds in one, too.

The tests are those of other modules, with all clients in the namespace ``acme``.
"""

from __future__ import annotations

import pytest

from conformance import test_v5_flow, test_v5_qos, test_v5_shared, test_v311_publish
from conformance.conftest import MakeHarness
from flockmq.node.ports import Gate
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness

for module in (test_v5_flow, test_v5_qos, test_v5_shared, test_v311_publish):
    globals().update({name: found for name, found in vars(module).items() if name.startswith("test_mqtt")})


@pytest.fixture(params=["whole", "random"])
def make_harness(request: pytest.FixtureRequest) -> MakeHarness:
    """A broker whose only listener belongs to a namespace."""

    def make(
        settings: BrokerSettings | None = None,
        gate: Gate | None = None,
        limits: Limits | None = None,
        seed: int = 7,
    ) -> BrokerHarness:
        if limits is not None:
            settings = BrokerSettings(limits=limits)
        harness = BrokerHarness(seed, settings, gate, request.param)
        harness.broker.set_listener_namespace("tcp", "acme")
        return harness

    return make
