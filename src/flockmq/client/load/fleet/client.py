"""The project's own MQTT client, with one thing more: it can drop off without a word, as devices do."""

from __future__ import annotations

from flockmq.client.mqtt import MqttClient


class FallibleClient(MqttClient):
    """A client whose network can fail."""

    def drop(self) -> None:
        """Cut the connection: no DISCONNECT, so the broker publishes the will."""
        self._writer.transport.abort()
