"""Clients of a running broker: admin API and MQTT."""
