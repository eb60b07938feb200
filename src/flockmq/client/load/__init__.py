"""An MQTT load generator: many connections on raw sockets, whole blocks of packets written and counted at once."""
