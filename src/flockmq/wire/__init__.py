"""Framing below MQTT: variable-length integers, WebSocket frames, the PROXY protocol header."""
