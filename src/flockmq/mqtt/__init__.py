"""The MQTT 3.1.1 and 5.0 protocol as pure functions over bytes."""
