"""The nodes of a story of persistent sessions, its devices, its publishers, and what was promised to whom."""

from __future__ import annotations

import paho.mqtt.client as paho

from faults.sessions.clients import Device, Promises, Publisher, await_all
from flockmq.testing.nodes import NodeCluster, NodeProcess

DECLARED = "orders"
VERSIONS = (paho.MQTTv311, paho.MQTTv5)


class Stage:
    """The nodes of a story, its devices, its publishers and what was promised."""

    def __init__(self, cluster: NodeCluster, story: str) -> None:
        self.cluster = cluster
        self.nodes = cluster.nodes
        self.story = story
        self.promises = Promises()
        self.filters = [f"{story}/#", f"{DECLARED}/{story}/#"]
        self.devices: list[Device] = []
        self._publishers: list[Publisher] = []

    def device(self, name: str, version: int = paho.MQTTv5, **options: int) -> Device:
        """A device of this story."""
        made = Device(f"{self.story}-{name}", version, **options)
        self.devices.append(made)
        return made

    def devices_at(self, node: NodeProcess) -> list[Device]:
        """One device for each version of MQTT, subscribed to all of this story."""
        found = [self.device(f"v{version}", version) for version in VERSIONS]
        for one in found:
            assert not one.connect(node), "a session of a client that was never here"
            one.subscribe(*self.filters)
        return found

    def publisher(self, *nodes: NodeProcess, below: str = "") -> Publisher:
        """A publisher at these nodes, to names of no declared topic and of one."""
        topics = [f"{self.story}{below}/{number}" for number in range(9)]
        topics += [f"{DECLARED}/{self.story}{below}/{number}" for number in range(3)]
        made = Publisher(f"{self.story}-p{len(self._publishers)}", nodes, topics, self.promises)
        self._publishers.append(made)
        return made

    def come_back(self, devices: list[Device], node: NodeProcess) -> None:
        """Connect devices whose session has to be there."""
        for one in devices:
            assert one.connect(node), f"the session of {one.client_id} is gone\n{self.logs()}"

    def check(self, devices: list[Device]) -> None:
        """Every device, connected as it is, gets all that was promised to it."""
        for one in devices:
            await_all(one, self.promises, self.logs)
            assert one.is_connected, f"{one.client_id} was disconnected: {one.here.reason:#x}\n{self.logs()}"

    def logs(self) -> str:
        """The last lines of all nodes."""
        return "\n".join(f"--- {node.name}\n{node.log_tail()}" for node in self.nodes)

    def heal(self) -> None:
        """Have all nodes up and settled."""
        for node in self.nodes:
            if node.is_running:
                node.resume()
            else:
                node.start()
        for node in self.nodes:
            node.wait_ready()
        self.cluster.wait(self.cluster.sees_all, "all nodes to see each other")
        self.cluster.wait_settled()

    def close(self) -> None:
        """Be gone, with all devices and publishers."""
        for device in self.devices:
            device.cut()
        for publisher in self._publishers:
            publisher.close()
